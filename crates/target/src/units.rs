//! Which device serves which unit of a new configuration.
//!
//! A unit that stays the same disk keeps its device, and with it its sessions, tasks, registrations and mode pages; its size and
//! its write protection change in place. A unit that becomes a different one on the same store (another number, target or identity)
//! inherits the store and the registrations. All others are opened.
//!
//! All steps that may fail are taken before any change is visible ([`Planner::unit`]); then [`Plan::carry_out`] does the rest. One
//! kind of step cannot be undone: a store that has grown stays large if a later unit is unavailable, and this is not reported.

use std::sync::Arc;

use blockstore::{BlockStore, StoreError, StoreSpec};
use rustc_hash::FxHashSet;
use scsi::Paths;

use crate::config::{LunConfig, TargetConfig};
use crate::device::{Device, UnitEvent, UnitSettings};
use crate::identity::{Identities, UnitIdentity};

/// Opens the store of a logical unit: with [`blockstore::StoreSpec::open`], unless the embedding program provides another
/// function.
pub type OpenStore = Arc<dyn Fn(&LunConfig) -> Result<Arc<dyn BlockStore>, StoreError> + Send + Sync>;

/// The work to do when every unit is available.
#[derive(Default)]
pub(crate) struct Plan {
    /// Devices that stay, with their new settings.
    adjusted: Vec<(Arc<Device>, LunConfig, Paths)>,
    /// Devices on the stores of others, which they replace.
    heirs: Vec<(Arc<Device>, Arc<Device>)>,
    /// Devices in the place of another disk, whose stored registrations must be overwritten.
    strangers: Vec<Arc<Device>>,
    /// For human readers.
    notes: Vec<String>,
}

/// Creates the units of a configuration.
pub(crate) struct Planner<'a> {
    pub settings: UnitSettings<'a>,
    pub identities: Identities<'a>,
    /// A store that cannot be opened does not prevent the others from being served.
    pub lenient: bool,
    pub open: &'a OpenStore,
    /// Devices that are served, and those that sessions still hold although they are no longer served.
    pub served: Vec<Arc<Device>>,
    pub departed: Vec<Arc<Device>>,
    /// Stores that have their unit, by address.
    pub given: FxHashSet<*const ()>,
    /// Planned units, with their identities.
    pub known: Vec<(UnitIdentity, String)>,
    pub plan: Plan,
}

impl Planner<'_> {
    /// The device for `config`, in the place of `old`.
    ///
    /// # Errors
    /// Its store is unavailable, or not in the required state.
    pub(crate) fn unit(
        &mut self,
        target: &TargetConfig,
        old: Option<&Arc<Device>>,
        config: &LunConfig,
    ) -> Result<Arc<Device>, StoreError> {
        let device = match self.holder(old, config) {
            Some((holder, served)) => self.keep(target, old, &holder, served, config)?,
            None => {
                let store = match (self.open)(config) {
                    Err(error) if self.lenient || old.is_some_and(|old| old.why_missing().is_some()) => {
                        return self.missing(target, old, config, &error);
                    }
                    opened => opened?,
                };
                if old.is_some_and(|old| old.why_missing().is_some()) {
                    self.plan.notes.push(format!("LUN {} of {} is there now", config.number, target.name));
                }
                // The identities of units that are served now count too: it is not decided yet which of them stay.
                let is_taken = |identity: &UnitIdentity| {
                    self.known.iter().map(|(known, _)| known).any(|known| known.is_told_as(identity))
                        || self.there().any(|device| device.identity().is_told_as(identity))
                };
                let identity = self.identities.of(config, target.name.as_str(), &*store, &is_taken)?;
                self.check_is_new(&identity)?;
                let device = Arc::new(Device::new(config, store, target, &self.settings, identity));
                device.report_failed_flush();
                match old {
                    // The registrations of the previous disk in this place do not apply to this one.
                    Some(old) if device.has_reservations_of(old) => {
                        self.plan.strangers.push(Arc::clone(&device));
                    }
                    _ => device.load_reservations().map_err(StoreError::Unusable)?,
                }
                device
            }
        };
        self.given.insert(address(&device.unit.store));
        self.enter(target, config, device.identity())?;
        Ok(device)
    }

    /// Served devices whose stores are available.
    fn there(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.served.iter().filter(|device| device.why_missing().is_none())
    }

    /// A unit for a store that is unavailable: the existing one, if nothing else has changed.
    fn missing(
        &mut self,
        target: &TargetConfig,
        old: Option<&Arc<Device>>,
        config: &LunConfig,
        error: &StoreError,
    ) -> Result<Arc<Device>, StoreError> {
        let same = old.filter(|old| old.why_missing().is_some() && **old.config() == *config);
        let device = match same {
            Some(old) => Arc::clone(old),
            None => {
                let (name, lun, store) = (target.name.as_str(), config.number, &config.store);
                tracing::error!(
                    %error, target = name, lun, %store,
                    "the unit is not ready until its store can be opened, which is tried again and again"
                );
                let identity = self.identities.of_missing(config);
                Arc::new(Device::missing(config, target, &self.settings, identity, error.to_string())?)
            }
        };
        self.enter(target, config, device.identity())?;
        Ok(device)
    }

    /// Records the identity of a unit, which no other unit of the server may have.
    fn enter(
        &mut self,
        target: &TargetConfig,
        config: &LunConfig,
        identity: &UnitIdentity,
    ) -> Result<(), StoreError> {
        if let Some((_, other)) = self.known.iter().find(|(known, _)| known.is_told_as(identity)) {
            return Err(StoreError::Unusable(format!(
                "it has the identity {} of {other}, and hosts would take both for one disk: if its file is a copy of that one, give it \
                 an identity of its own with `intact lun identity --new {}`; two serials must differ",
                identity.serial, config.store
            )));
        }
        self.known.push((identity.clone(), format!("LUN {} of {}", config.number, target.name)));
        Ok(())
    }

    /// A store that was not served so far must not have an identity that hosts know from another store: they would continue to
    /// write to it, because they think it is the same disk.
    fn check_is_new(&self, identity: &UnitIdentity) -> Result<(), StoreError> {
        let Some(old) = self.there().find(|device| device.identity().is_told_as(identity)) else {
            return Ok(());
        };
        Err(gives_away(old))
    }

    /// The device that has the store of `config` open, and whether it is still served. Memory belongs to its place; a file is found
    /// in any place.
    fn holder(&self, old: Option<&Arc<Device>>, config: &LunConfig) -> Option<(Arc<Device>, bool)> {
        let is_free = |device: &Arc<Device>| {
            device.why_missing().is_none() && !self.given.contains(&address(&device.unit.store))
        };
        let old = old.filter(|old| is_free(old) && config.store.is_same_medium(&old.config().store));
        if let Some(old) = old {
            return Some((Arc::clone(old), true));
        }
        let wanted = config.store.path()?;
        let has_it = |device: &&Arc<Device>| device.config().store.path() == Some(wanted) && is_free(device);
        let served = self.served.iter().find(has_it).map(|device| (Arc::clone(device), true));
        served.or_else(|| self.departed.iter().find(has_it).map(|device| (Arc::clone(device), false)))
    }

    fn keep(
        &mut self,
        target: &TargetConfig,
        old: Option<&Arc<Device>>,
        holder: &Arc<Device>,
        served: bool,
        config: &LunConfig,
    ) -> Result<Arc<Device>, StoreError> {
        let before = Arc::clone(&holder.config());
        if !config.store.is_same_medium(&before.store) {
            return Err(StoreError::Unusable(format!(
                "{} is in use with other blocks, other protection information or another journal, which stay as they are while it \
                 is open; remove the unit, read the configuration, and add it again",
                config.store
            )));
        }
        if let Some(kept) = adjust_store(holder, &before, config)? {
            self.plan.notes.push(format!("LUN {} of {} {kept}", config.number, target.name));
        }
        if served && let Some(shrunk) = shrunk(holder) {
            self.plan.notes.push(format!("LUN {} of {}: {shrunk}", config.number, target.name));
        }
        if old.is_some_and(|old| Arc::ptr_eq(old, holder)) && is_same_disk(&before, config) {
            self.plan.adjusted.push((Arc::clone(holder), config.clone(), self.settings.paths(target)));
            return Ok(Arc::clone(holder));
        }
        let successor = Arc::new(Device::succeeding(holder, config, target, &self.settings));
        let of_another =
            |device: &&Arc<Device>| address(&device.unit.store) != address(&successor.unit.store);
        if let Some(old) =
            self.served.iter().filter(of_another).find(|d| d.identity().is_told_as(successor.identity()))
        {
            return Err(gives_away(old));
        }
        match served {
            true => self.plan.heirs.push((Arc::clone(&successor), Arc::clone(holder))),
            false => successor.load_reservations().map_err(StoreError::Unusable)?,
        }
        Ok(successor)
    }
}

/// The identity of `old` would belong to another store.
fn gives_away(old: &Device) -> StoreError {
    StoreError::Unusable(format!(
        "hosts know {} by the identity {}, and this is another store: give it another serial, or remove the old unit, read the \
         configuration, and then add this one",
        old.config().store,
        old.identity().serial
    ))
}

fn address(store: &Arc<dyn BlockStore>) -> *const () {
    Arc::as_ptr(store).cast()
}

/// Whether both are the same disk for a host, apart from its size and its write protection.
fn is_same_disk(a: &LunConfig, b: &LunConfig) -> bool {
    let rest = |config: &LunConfig, store: &StoreSpec| LunConfig {
        store: store.clone(),
        read_only: false,
        ..config.clone()
    };
    a.store.is_same_medium(&b.store) && rest(a, &a.store) == rest(b, &a.store)
}

/// Adjusts a store to `config` where it differs. Returns a message about a size that is not applied: a store that has grown in use
/// stays as large as it is, whatever its initial size was.
fn adjust_store(
    device: &Device,
    before: &LunConfig,
    config: &LunConfig,
) -> Result<Option<String>, StoreError> {
    let store = &device.unit.store;
    if !config.read_only && store.geometry().read_only {
        store.make_writable()?;
    }
    let geometry = store.geometry();
    let wanted = match config.store.size_bytes() {
        Some(wanted) if before.store.size_bytes() == Some(wanted) => return Ok(None),
        Some(wanted) if wanted < geometry.size_bytes => {
            return Ok(Some(format!(
                "keeps its {} bytes, although the configuration says {wanted}: no unit shrinks; write the size that it has, or \
                 leave size= away",
                geometry.size_bytes
            )));
        }
        Some(wanted) => wanted,
        // A medium that cannot be queried has other problems, which its commands report.
        None => {
            let block = u64::from(geometry.logical_block_bytes);
            store.medium_bytes().map_or(0, |bytes| bytes - bytes % block).max(geometry.size_bytes)
        }
    };
    if wanted != geometry.size_bytes {
        store.resize(wanted)?;
    }
    Ok(None)
}

/// The message about a medium that is smaller than the served size.
fn shrunk(device: &Device) -> Option<String> {
    let (found, served) = (device.unit.store.medium_bytes().ok()?, device.unit.store.geometry().size_bytes);
    (found < served).then(|| {
        format!(
            "{} has {found} bytes, fewer than the {served} that are served; commands for the unit fail: restore it, and restart",
            device.unit.store.description()
        )
    })
}

impl Plan {
    /// Executes the plan: from here on nothing fails. Returns what to report to initiators, and to users.
    pub(crate) fn carry_out(self) -> (Vec<UnitEvent>, Vec<String>) {
        let (mut events, mut lines) = (Vec::new(), self.notes);
        for (device, config, paths) in self.adjusted {
            for (asc, what) in device.adopt(config, paths) {
                let (target, lun) = (device.target_name().to_owned(), device.number());
                lines.push(format!("LUN {lun} of {target} {what}"));
                events.push(UnitEvent { target, lun, asc });
            }
        }
        for (successor, old) in &self.heirs {
            successor.inherit(old);
        }
        // Only when each device holds the state of its predecessor are files written, so that no file is overwritten before it was
        // read.
        let changed = self.heirs.iter().map(|(successor, _)| successor).chain(&self.strangers);
        for device in changed.clone() {
            if let Err(error) = device.save_reservations() {
                let (target, lun) = (device.target_name(), device.number());
                tracing::error!(%error, lun, target, "persistent reservations cannot be stored");
            }
        }
        for (_, old) in &self.heirs {
            if !changed.clone().any(|device| device.has_reservations_of(old)) {
                old.forget_reservations();
            }
        }
        (events, lines)
    }
}
