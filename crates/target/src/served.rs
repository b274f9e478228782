//! The units of a server, for other transports than iSCSI.

use std::sync::Arc;
use std::time::Duration;

use engine::{Lane, System};
use iscsi_core::names::IscsiName;
use lun::Unit;
use scsi::Outcome;

use crate::config::{Auth, TargetConfig};
use crate::device::Device;
use crate::observe::Op;
use crate::observe::metrics::Reason;
use crate::registry::TargetNode;
use crate::server::Server;
use crate::shared::Shared;

/// A unit of a server.
pub struct ServedUnit {
    device: Arc<Device>,
    shared: Arc<Shared<System>>,
    target: IscsiName,
    open: bool,
}

impl std::fmt::Debug for ServedUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServedUnit").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Server {
    /// Every unit that is currently served, by target name and LUN, except those of targets that redirect their
    /// initiators.
    pub fn units(&self) -> Vec<ServedUnit> {
        let set = self.shared().set.load();
        let here = set.targets.values().filter(|node| node.config().redirect.is_none());
        here.flat_map(|node| self.units_of(node)).collect()
    }

    /// One of [`Server::units`].
    pub fn unit(&self, target: &str, lun: u16) -> Option<ServedUnit> {
        let set = self.shared().set.load();
        let node = set.targets.values().find(|node| node.name.as_str() == target)?;
        let device = node.luns().get(&lun).cloned()?;
        let config = node.config();
        config.redirect.is_none().then(|| self.served(node, &config, device))
    }

    /// Runs `job` on a worker thread of `lane`, for work that may block.
    pub fn offload(&self, lane: &Lane, job: Box<dyn FnOnce() + Send>) {
        self.shared().platform.workers().submit(lane, job);
    }

    fn units_of(&self, node: &Arc<TargetNode>) -> Vec<ServedUnit> {
        let config = node.config();
        node.luns().values().map(|device| self.served(node, &config, Arc::clone(device))).collect()
    }

    fn served(&self, node: &TargetNode, config: &TargetConfig, device: Arc<Device>) -> ServedUnit {
        let open = config.auth == Auth::None && config.access.is_open();
        ServedUnit { device, shared: Arc::clone(self.shared()), target: node.name.clone(), open }
    }
}

impl ServedUnit {
    /// TargetName of its target.
    pub fn target_name(&self) -> &str {
        self.target.as_str()
    }

    /// Its LUN.
    pub fn lun(&self) -> u16 {
        self.device.number()
    }

    /// The unit on its store.
    pub fn unit(&self) -> &Arc<Unit> {
        &self.device.unit
    }

    /// Whether any client may use it: its target has neither CHAP nor access rules.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether its store is available.
    pub fn is_ready(&self) -> bool {
        self.device.why_missing().is_none()
    }

    /// Whether it is still the unit that is served in its place.
    pub fn is_current(&self) -> bool {
        let set = self.shared.set.load();
        let now = set.targets.get(&self.target).and_then(|node| node.luns().get(&self.lun()).cloned());
        now.is_some_and(|now| Arc::ptr_eq(&now, &self.device))
    }

    /// Counts a command that another transport has executed: it counts like any other command of the unit.
    pub fn count(&self, cdb: &[u8], bytes: u64, elapsed: Duration, outcome: &Outcome) {
        self.device.stats.record(Op::of(cdb), bytes, elapsed, Reason::of(outcome));
    }
}
