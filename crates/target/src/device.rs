//! A logical unit in the server: the SCSI device server, the store below it, and the connection between the two.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::{ArcSwap, Guard};
use blockstore::{BlockStore, Geometry, Placement, RamStore, StoreError};
use lun::{Host, ReservationFile, Unit};
use scsi::{
    AccessState, Asc, Identity, LogicalUnit, LuConfig, MediumConfig, Paths, PiField, ProtectionType,
    TargetPort, TransferLimits,
};

use crate::config::{Limits, LunConfig, TargetConfig};
use crate::identity::UnitIdentity;
use crate::memory::transfer_bytes_max;
use crate::observe::{LunStats, Metrics};

/// A logical unit in the server. Shared by every session that uses it.
pub(crate) struct Device {
    /// The device server on its store.
    pub unit: Arc<Unit>,
    /// Its place in the server, for the layers below.
    context: Arc<UnitContext>,
    /// Where its persistent reservations are kept.
    reservations: Option<ReservationFile>,
    /// The device that has taken over its reservations.
    successor: OnceLock<Weak<Device>>,
    /// Its statistics.
    pub stats: Arc<LunStats>,
    /// The identity of its volume.
    identity: UnitIdentity,
    /// Why there is no store, if there is none.
    missing: Option<String>,
}

/// A unit's place in the server, as its store and its device server see it.
struct UnitContext {
    target_name: String,
    number: u16,
    /// The units of its target.
    siblings: OnceLock<Weak<dyn Siblings>>,
    stats: Arc<LunStats>,
    /// Operations that failed in its store.
    failures: AtomicU64,
    /// Its configuration, to determine after a reload whether it is still the same.
    config: ArcSwap<LunConfig>,
}

impl Host for UnitContext {
    fn neighbour(&self, lun: u16) -> Option<Arc<Unit>> {
        self.siblings.get()?.upgrade()?.unit(lun)
    }

    /// The operator must be informed, but a host that retries must not fill the log: the first, second, fourth, eighth... failure
    /// is logged.
    fn store_failed(&self, error: &StoreError) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures.is_power_of_two() {
            let (target, lun, store) = (&self.target_name, self.number, &self.config.load().store);
            tracing::error!(%error, target, lun, %store, failures, "a store fails");
        }
    }

    fn check_failed(&self, field: PiField) {
        self.stats.check_failed(field);
    }
}

/// The units of a target, as each of them reaches the others.
pub(crate) trait Siblings: scsi::Neighbours {
    /// The unit with this number, if there is one.
    fn unit(&self, lun: u16) -> Option<Arc<Unit>>;
}

/// An event of a unit in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitEvent {
    /// Its target.
    pub target: String,
    /// Its number.
    pub lun: u16,
    /// The code that is reported to its initiators.
    pub asc: Asc,
}

/// The common settings for making the units of a server.
pub(crate) struct UnitSettings<'a> {
    /// The target ports of the server.
    pub ports: &'a [TargetPort],
    /// Limits of the configuration.
    pub limits: &'a Limits,
    /// Where persistent reservations are kept, if not next to the stores.
    pub state_dir: Option<&'a Path>,
    /// Where the unit's statistics go.
    pub metrics: &'a Metrics,
    /// The secret from which copy tokens are made.
    pub token_secret: [u8; 32],
}

impl UnitSettings<'_> {
    /// How hosts reach the units of `target`.
    pub(crate) fn paths(&self, target: &TargetConfig) -> Paths {
        Paths {
            target_ports: self.ports.iter().filter(|port| target.is_served_on(port.group)).copied().collect(),
            explicit_access_states: target.hosts_set_access_states,
            management_url: target.management_url.clone(),
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("lun", &self.context.number)
            .field("store", &self.unit.store.description())
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Sets the target to which the unit belongs, once.
    pub(crate) fn introduce(&self, target: Weak<impl Siblings + 'static>) {
        if self.context.siblings.set(Weak::clone(&target) as _).is_ok() {
            self.unit.scsi.set_neighbours(target);
        }
    }

    /// The identity of its volume, as reported to hosts.
    pub(crate) fn identity(&self) -> &UnitIdentity {
        &self.identity
    }

    /// Its LUN.
    pub(crate) fn number(&self) -> u16 {
        self.context.number
    }

    /// TargetName of its target.
    pub(crate) fn target_name(&self) -> &str {
        &self.context.target_name
    }

    /// Both: the identification used for users and metrics.
    pub(crate) fn place(&self) -> (&str, u16) {
        (&self.context.target_name, self.context.number)
    }

    /// How many operations of its store have failed.
    pub(crate) fn failures(&self) -> &AtomicU64 {
        &self.context.failures
    }

    /// Its current configuration.
    pub(crate) fn config(&self) -> Guard<Arc<LunConfig>> {
        self.context.config.load()
    }

    /// Adopts `config` and `paths`. It stays the same disk. What may change is its size and its thin provisioning, which follow
    /// its store, its write protection, and how hosts reach it. Returns what to report to every initiator, and to users.
    //= sbc3 4.8 UA-03
    pub(crate) fn adopt(&self, config: LunConfig, paths: Paths) -> Vec<(Asc, String)> {
        let geometry = self.unit.store.geometry();
        let read_only = config.read_only || geometry.read_only;
        let mut changes = Vec::new();
        if self.unit.scsi.blocks() != geometry.blocks() {
            self.unit.scsi.set_blocks(geometry.blocks());
            changes.push((Asc::CAPACITY_DATA_CHANGED, format!("has {} bytes now", geometry.size_bytes)));
        }
        if self.unit.scsi.read_only() != read_only {
            self.unit.scsi.set_read_only(read_only);
            let what = if read_only { "refuses writes now" } else { "takes writes now" };
            changes.push((Asc::MODE_PARAMETERS_CHANGED, what.to_owned()));
        }
        let thin = geometry.discard_granularity_bytes != 0;
        if self.unit.scsi.thin() != thin {
            self.unit.scsi.set_thin(thin);
            let what = if thin { "gives unmapped blocks back now" } else { "keeps unmapped blocks now" };
            changes.push((Asc::INQUIRY_DATA_CHANGED, what.to_owned()));
        }
        if self.unit.scsi.set_paths(paths) {
            changes
                .push((Asc::INQUIRY_DATA_CHANGED, "has other ports, or another management URL".to_owned()));
        }
        self.context.config.store(Arc::new(config));
        changes
    }

    /// Changes the state of a target port group for this unit. Returns what to report to its initiators, if the state changed.
    pub(crate) fn set_access_state(&self, group: u16, state: AccessState) -> Option<UnitEvent> {
        let before = self.unit.scsi.access_state(group);
        let changes = before != state && self.unit.scsi.set_access_state(group, state);
        let (target, lun) = (self.context.target_name.clone(), self.context.number);
        changes.then_some(UnitEvent { target, lun, asc: Asc::ACCESS_STATE_CHANGED })
    }

    /// Creates a unit on the store of `old`, which it replaces.
    pub(crate) fn succeeding(
        old: &Self,
        config: &LunConfig,
        target: &TargetConfig,
        settings: &UnitSettings<'_>,
    ) -> Self {
        let identity = UnitIdentity::new(old.identity.volume, config.serial.as_deref());
        let store = Below::StoreOf(&old.unit);
        Self::make(config, store, target, settings, identity, None)
    }

    /// It is the disk that `old` was: registrations are kept.
    //= spc4 5.12.1 PR-13
    pub(crate) fn inherit(self: &Arc<Self>, old: &Self) {
        self.unit.scsi.inherit(&old.unit.scsi);
        let _ = old.successor.set(Arc::downgrade(self));
    }

    /// The file with its reservations.
    pub(crate) fn reservations_path(&self) -> Option<&Path> {
        self.reservations.as_ref().map(ReservationFile::path)
    }

    /// Whether both keep their reservations in the same file.
    pub(crate) fn has_reservations_of(&self, other: &Self) -> bool {
        self.reservations_path().is_some() && self.reservations_path() == other.reservations_path()
    }

    /// Removes the stored reservations: they now belong to another unit, which stores them elsewhere.
    pub(crate) fn forget_reservations(&self) {
        if let Some(file) = &self.reservations
            && let Err(error) = file.remove()
        {
            tracing::error!(%error, lun = self.context.number, "old persistent reservations cannot be removed");
        }
    }

    /// Loads the persistent reservations that were stored before a restart.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn load_reservations(&self) -> Result<(), String> {
        self.reservations.as_ref().map_or(Ok(()), |file| file.load(&self.unit.scsi))
    }

    /// Whether a change of reservations must be stored before its status is sent.
    pub(crate) fn keeps_reservations(&self) -> bool {
        self.reservations.is_some()
    }

    /// Stores the persistent reservations. Blocks.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn save_reservations(&self) -> std::io::Result<()> {
        // Commands that started before the unit was replaced may end later; their changes were taken over.
        if let Some(successor) = self.successor.get() {
            return successor.upgrade().map_or(Ok(()), |successor| successor.save_reservations());
        }
        self.reservations.as_ref().map_or(Ok(()), |file| file.save(&self.unit.scsi))
    }

    /// A unit whose store is unavailable, for the given reason: it exists, and is not ready.
    pub(crate) fn missing(
        config: &LunConfig,
        target: &TargetConfig,
        settings: &UnitSettings<'_>,
        identity: UnitIdentity,
        why: String,
    ) -> Result<Self, StoreError> {
        // No command reaches this store: the unit answers by itself.
        let nothing = Arc::new(RamStore::new(512, 512)?);
        Ok(Self::make(config, Below::Store(nothing), target, settings, identity, Some(why)))
    }

    /// Why its store is unavailable; `None`: it is available.
    pub(crate) fn why_missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Creates a unit on an open store, with the given `identity` for hosts.
    pub(crate) fn new(
        config: &LunConfig,
        store: Arc<dyn BlockStore>,
        target: &TargetConfig,
        settings: &UnitSettings<'_>,
        identity: UnitIdentity,
    ) -> Self {
        Self::make(config, Below::Store(store), target, settings, identity, None)
    }

    fn make(
        config: &LunConfig,
        below: Below<'_>,
        target: &TargetConfig,
        settings: &UnitSettings<'_>,
        identity: UnitIdentity,
        missing: Option<String>,
    ) -> Self {
        let target_name = target.name.as_str();
        let store = below.store();
        let geometry = store.geometry();
        let reservations = match missing {
            // The stored reservations belong to the missing disk, which must find them when it is available again.
            Some(_) => None,
            None => reservation_file(config, &geometry, settings.state_dir, &identity),
        };
        let format = store.records().map(blockstore::Records::format);
        let scsi = LogicalUnit::new(LuConfig {
            lun: config.number,
            identity: Identity {
                product: config.product.clone().unwrap_or_else(|| "VIRTUAL DISK".into()),
                serial: identity.serial.clone(),
                naa: identity.naa,
                uuid: identity.uuid,
                target_name: target_name.to_owned(),
                ..Identity::default()
            },
            medium: MediumConfig {
                blocks: geometry.blocks(),
                block_bytes: geometry.logical_block_bytes,
                physical_block_bytes: geometry.physical_block_bytes,
                read_only: config.read_only || geometry.read_only,
                rotational: config.rotational || geometry.rotational,
                thin: geometry.discard_granularity_bytes != 0,
                write_cache: config.write_cache,
                sanitize: store.overwrites_in_place(),
                protectable: format.is_some(),
                protection: format.and_then(|f| ProtectionType::from_number(f.kind)).unwrap_or_default(),
                format_interrupted: format.is_some_and(|f| f.interrupted),
                missing: missing.is_some(),
            },
            limits: transfers(&**store, settings.limits.buffer_bytes_max),
            paths: settings.paths(target),
            token_secret: Some(settings.token_secret),
            persist_reservations: reservations.is_some(),
            ..LuConfig::default()
        });
        for (group, state) in &target.access_states {
            scsi.set_access_state(*group, *state);
        }
        let stats = settings.metrics.lun(target_name, config.number);
        let context = Arc::new(UnitContext {
            target_name: target_name.to_owned(),
            number: config.number,
            siblings: OnceLock::new(),
            stats: Arc::clone(&stats),
            failures: AtomicU64::new(0),
            config: ArcSwap::from_pointee(config.clone()),
        });
        let host: Arc<dyn Host> = Arc::clone(&context) as _;
        let unit = match below {
            Below::Store(store) => Unit::new(scsi, store, settings.limits.store_concurrency_per_lun, host),
            Below::StoreOf(old) => Unit::succeeding(old, scsi, host),
        };
        let unit = Arc::new(unit);
        Self { unit, context, reservations, successor: OnceLock::new(), stats, identity, missing }
    }
}

/// The store of a new unit.
enum Below<'a> {
    /// A store that no other unit uses.
    Store(Arc<dyn BlockStore>),
    /// The store of a unit that the new one replaces.
    StoreOf(&'a Unit),
}

impl Below<'_> {
    fn store(&self) -> &Arc<dyn BlockStore> {
        match self {
            Self::Store(store) => store,
            Self::StoreOf(old) => &old.store,
        }
    }
}

/// The transfer limits of one command, for a unit on `store`.
fn transfers(store: &dyn BlockStore, buffer_bytes_max: u64) -> TransferLimits {
    let block = store.geometry().logical_block_bytes;
    let mut transfers = TransferLimits::for_block_bytes(block);
    let in_blocks = |bytes: u64| u32::try_from(bytes / u64::from(block.max(1))).unwrap_or(u32::MAX);
    let longest = in_blocks(transfer_bytes_max(buffer_bytes_max)).max(1);
    transfers.max_transfer_blocks = transfers.max_transfer_blocks.min(longest);
    transfers.optimal_transfer_blocks = transfers.optimal_transfer_blocks.min(longest);
    if store.placement() != Placement::Offload {
        // One command must not keep a shard from its other sessions for long.
        transfers.max_write_same_blocks = transfers.max_transfer_blocks.into();
    }
    transfers.max_atomic_blocks =
        in_blocks(store.atomic_write_bytes_max()).min(transfers.max_transfer_blocks);
    transfers
}

fn reservation_file(
    config: &LunConfig,
    geometry: &Geometry,
    state_dir: Option<&Path>,
    identity: &UnitIdentity,
) -> Option<ReservationFile> {
    match (state_dir, config.store.path()) {
        (Some(directory), _) => Some(ReservationFile::within(directory, &identity.file_name())),
        (None, Some(path)) if !geometry.read_only && path.is_file() => Some(ReservationFile::beside(path)),
        _ => None,
    }
}
