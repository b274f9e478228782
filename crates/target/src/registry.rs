//! What is currently served: targets with their logical units, changed as a whole when the configuration changes.
//!
//! A session holds its [`TargetNode`]; a new configuration changes the node in place, so sessions that are not concerned are not
//! affected.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, Guard};
use blockstore::StoreError;
use iscsi_core::names::IscsiName;
use lun::Unit;
use rustc_hash::FxHashSet;
use scsi::{AccessState, TargetPort};

use crate::config::{Config, TargetConfig};
use crate::device::{Device, Siblings, UnitEvent, UnitSettings};
use crate::identity::{self, Identities};
use crate::observe::Metrics;
use crate::units::{OpenStore, Plan, Planner};

/// Logical units of a target by number.
pub(crate) type LunMap = BTreeMap<u16, Arc<Device>>;

/// One target.
#[derive(Debug)]
pub(crate) struct TargetNode {
    /// TargetName.
    pub name: IscsiName,
    config: ArcSwap<TargetConfig>,
    luns: ArcSwap<LunMap>,
}

impl TargetNode {
    /// Its current configuration.
    pub(crate) fn config(&self) -> Arc<TargetConfig> {
        self.config.load_full()
    }

    /// Its current logical units.
    pub(crate) fn luns(&self) -> Guard<Arc<LunMap>> {
        self.luns.load()
    }

    /// Gives its units access to each other.
    fn introduce(self: &Arc<Self>) {
        for device in self.luns.load().values() {
            device.introduce(Arc::downgrade(self));
        }
    }

    /// Whether `initiator` at `address`, on a portal with `group_tag`, may see it.
    //= rfc7143 C DSC-02
    pub(crate) fn is_visible_to(&self, initiator: &IscsiName, address: IpAddr, group_tag: u16) -> bool {
        let config = self.config.load();
        config.is_served_on(group_tag) && config.access.allows(initiator, address)
    }
}

impl Siblings for TargetNode {
    fn unit(&self, lun: u16) -> Option<Arc<Unit>> {
        self.luns.load().get(&lun).map(|device| Arc::clone(&device.unit))
    }
}

impl scsi::Neighbours for TargetNode {
    fn each(&self, f: &mut dyn FnMut(&scsi::LogicalUnit) -> bool) {
        self.luns.load().values().all(|device| f(&device.unit.scsi));
    }
}

/// Everything that is served, and its configuration.
#[derive(Debug)]
pub(crate) struct TargetSet {
    /// The configuration.
    pub config: Config,
    /// Targets by name.
    pub targets: BTreeMap<IscsiName, Arc<TargetNode>>,
    /// Names that this process has served earlier.
    pub removed: BTreeSet<IscsiName>,
    /// The secret from which copy tokens are made.
    token_secret: TokenSecret,
    /// Number of identities chosen by this process.
    drawn: Arc<AtomicU64>,
    /// Devices that are no longer served, while a session holds them: their stores stay open until then.
    departed: Vec<Weak<Device>>,
}

/// A secret that is not shown.
#[derive(Clone, Copy)]
struct TokenSecret([u8; 32]);

impl std::fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenSecret")
    }
}

/// A store that could not be opened, and its unit.
#[derive(Debug, thiserror::Error)]
#[error("LUN {lun} of {target}: {error}")]
pub struct OpenError {
    /// The target.
    pub target: IscsiName,
    /// The number of the unit.
    pub lun: u16,
    /// The error of the store.
    #[source]
    pub error: StoreError,
}

impl TargetSet {
    /// Opens every store of `config`. `token_secret` is chosen anew for every server: no token outlives it.
    ///
    /// # Errors
    /// The first store that cannot be opened.
    pub(crate) fn open(
        config: Config,
        metrics: &Metrics,
        open: &OpenStore,
        token_secret: [u8; 32],
    ) -> Result<Self, OpenError> {
        let empty = Self {
            config: config.clone(),
            targets: BTreeMap::new(),
            removed: BTreeSet::new(),
            token_secret: TokenSecret(token_secret),
            drawn: Arc::default(),
            departed: Vec::new(),
        };
        let lenient = !config.require_every_store;
        let set = empty.change_to(config, metrics, open, lenient)?.set;
        // A server that has nothing to serve reports that at once.
        let devices = devices_of(&set.targets);
        if let Some(first) = devices.first()
            && devices.iter().all(|device| device.why_missing().is_some())
        {
            return Err(OpenError {
                target: set.name_of(first),
                lun: first.number(),
                error: StoreError::Unusable(first.why_missing().unwrap_or_default().to_owned()),
            });
        }
        Ok(set)
    }

    fn name_of(&self, device: &Device) -> IscsiName {
        let of = |node: &&Arc<TargetNode>| node.name.as_str() == device.target_name();
        self.targets.values().find(of).map(|node| node.name.clone()).expect("it is one of ours")
    }

    /// Whether a store is still unavailable.
    pub(crate) fn is_incomplete(&self) -> bool {
        let missing =
            |node: &Arc<TargetNode>| node.luns().values().any(|device| device.why_missing().is_some());
        self.targets.values().any(missing)
    }

    /// The set described by `config`, with every unchanged unit of this one. Nothing changes if a store cannot be opened.
    ///
    /// # Errors
    /// The first store that cannot be opened.
    pub(crate) fn changed(
        &self,
        config: Config,
        metrics: &Metrics,
        open: &OpenStore,
    ) -> Result<Change, OpenError> {
        self.change_to(config, metrics, open, false)
    }

    fn change_to(
        &self,
        config: Config,
        metrics: &Metrics,
        open: &OpenStore,
        lenient: bool,
    ) -> Result<Change, OpenError> {
        let served = devices_of(&self.targets);
        let (opened, plan) = self.prepare(&config, &served, metrics, open, lenient)?;
        let (events, lines) = plan.carry_out();
        let set = Self {
            config: config.clone(),
            targets: BTreeMap::new(),
            removed: self.removed.clone(),
            token_secret: self.token_secret,
            drawn: Arc::clone(&self.drawn),
            departed: Vec::new(),
        };
        let mut change = Change { set, changed_luns: Vec::new(), gone: Vec::new(), events, lines };
        for (target, luns) in config.targets.iter().zip(opened) {
            self.take_in(target, luns, &served, &mut change);
        }
        let is_gone = |name: &&IscsiName| !change.set.targets.contains_key(*name);
        change.gone = self.targets.keys().filter(is_gone).cloned().collect();
        change.set.removed.extend(change.gone.iter().cloned());
        change.set.departed = self.departed_from(&change.set, &served, metrics);
        Ok(change)
    }

    /// The units of each target of `config`, and what to do when all of them are available. `served`: the devices of this set.
    fn prepare(
        &self,
        config: &Config,
        served: &[Arc<Device>],
        metrics: &Metrics,
        open: &OpenStore,
        lenient: bool,
    ) -> Result<(Vec<LunMap>, Plan), OpenError> {
        let ports = ports_of(config);
        let draw = || identity::draw(&self.token_secret.0, self.drawn.fetch_add(1, Ordering::Relaxed));
        let mut planner = Planner {
            settings: UnitSettings {
                ports: &ports,
                limits: &config.limits,
                state_dir: config.state_dir.as_deref(),
                metrics,
                token_secret: self.token_secret.0,
            },
            identities: Identities {
                state_dir: config.state_dir.as_deref(),
                machine: identity::machine(),
                draw: &draw,
            },
            lenient,
            open,
            served: served.to_vec(),
            departed: self.departed.iter().filter_map(Weak::upgrade).collect(),
            given: FxHashSet::default(),
            known: Vec::new(),
            plan: Plan::default(),
        };
        let mut opened = Vec::new();
        for target in &config.targets {
            let old = self.targets.get(&target.name).map(|node| node.luns.load_full()).unwrap_or_default();
            let mut luns = LunMap::new();
            for lun in &target.luns {
                let device = planner.unit(target, old.get(&lun.number), lun).map_err(|error| OpenError {
                    target: target.name.clone(),
                    lun: lun.number,
                    error,
                })?;
                luns.insert(lun.number, device);
            }
            opened.push(luns);
        }
        Ok((opened, planner.plan))
    }

    /// Takes `target` with its units into the set of `change`. A target that this set serves keeps its node, and its node changes.
    fn take_in(&self, target: &TargetConfig, luns: LunMap, served: &[Arc<Device>], change: &mut Change) {
        let name = &target.name;
        change.set.removed.remove(name);
        let node = match self.targets.get(name) {
            Some(node) => {
                let kept =
                    || luns.values().filter(|device| served.iter().any(|old| Arc::ptr_eq(old, device)));
                for (group, state) in changed_states(&node.config.load(), target) {
                    change.lines.push(format!("target port group {group} of {name} is {} now", state.name()));
                    change.events.extend(kept().filter_map(|device| device.set_access_state(group, state)));
                }
                node.config.store(Arc::new(target.clone()));
                // Sessions detect a change because the map is another one.
                if !same_units(&node.luns.load(), &luns) {
                    change.changed_luns.push(Arc::clone(node));
                    node.luns.store(Arc::new(luns));
                }
                Arc::clone(node)
            }
            None => Arc::new(TargetNode {
                name: name.clone(),
                config: ArcSwap::from_pointee(target.clone()),
                luns: ArcSwap::from_pointee(luns),
            }),
        };
        node.introduce();
        change.set.targets.insert(name.clone(), node);
    }

    /// The devices of this set that `next` does not serve. Publishes which units `next` lacks, and removes the statistics of places
    /// that have no unit any more.
    fn departed_from(&self, next: &Self, served: &[Arc<Device>], metrics: &Metrics) -> Vec<Weak<Device>> {
        let serving = devices_of(&next.targets);
        serving.iter().for_each(|device| device.stats.set_missing(device.why_missing().is_some()));
        let stay: FxHashSet<*const Device> = serving.iter().map(Arc::as_ptr).collect();
        let places: FxHashSet<(&str, u16)> = serving.iter().map(|device| device.place()).collect();
        for (target, number) in served.iter().map(|device| device.place()).filter(|at| !places.contains(at)) {
            metrics.remove_lun(target, number);
        }
        let departed =
            served.iter().filter(|device| !stay.contains(&Arc::as_ptr(device))).map(Arc::downgrade);
        let held = self.departed.iter().filter(|device| device.strong_count() > 0).cloned();
        held.chain(departed).collect()
    }
}

/// A new set, and the changes in it.
#[derive(Debug)]
pub(crate) struct Change {
    /// The set.
    pub set: TargetSet,
    /// Targets whose units have changed.
    pub changed_luns: Vec<Arc<TargetNode>>,
    /// Targets that were removed.
    pub gone: Vec<IscsiName>,
    /// Events of units that stay.
    pub events: Vec<UnitEvent>,
    /// The same, for human readers.
    pub lines: Vec<String>,
}

fn devices_of(targets: &BTreeMap<IscsiName, Arc<TargetNode>>) -> Vec<Arc<Device>> {
    targets.values().flat_map(|node| Vec::from_iter(node.luns.load().values().cloned())).collect()
}

/// Target port groups whose configured state differs between `old` and `new`. A state that was changed in between by another
/// command stays if the configuration of the group has not changed: a change of other settings does not undo a failover.
//= spc4 5.15.2.3 ALU-03
fn changed_states(old: &TargetConfig, new: &TargetConfig) -> Vec<(u16, AccessState)> {
    let groups = old.access_states.iter().chain(&new.access_states).map(|(group, _)| *group);
    let groups: BTreeSet<u16> = groups.collect();
    groups
        .into_iter()
        .filter(|group| old.access_state(*group) != new.access_state(*group))
        .map(|group| (group, new.access_state(group)))
        .collect()
}

fn same_units(a: &LunMap, b: &LunMap) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((n, x), (m, y))| n == m && Arc::ptr_eq(x, y))
}

/// The target ports that result from the portal groups of `config`.
fn ports_of(config: &Config) -> Vec<TargetPort> {
    let tags: BTreeSet<u16> = config.portals.iter().map(|portal| portal.group_tag).collect();
    tags.into_iter().map(|group| TargetPort { relative_port: group.max(1), group }).collect()
}
