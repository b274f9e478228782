//! A logical unit as the server holds it: the SCSI device server, the store below it, and what joins the two.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::{ArcSwap, Guard};
use blockstore::{BlockStore, Durability, Geometry, Placement, RamStore, StoreError, StoreSpec};
use engine::Lane;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use scsi::{AccessState, Asc, LogicalUnit, LuConfig, Paths, ProtectionType, TargetPort, TransferLimits};

use crate::config::{Limits, LunConfig, TargetConfig};
use crate::identity::UnitIdentity;
use crate::memory::transfer_bytes_max;
use crate::observe::{LunStats, Metrics};
use crate::range_lock::{InUse, RangeLock, Use};
use crate::registry::TargetNode;
use crate::reservations::ReservationFile;
use crate::units::UnitEvent;

/// Of a run of blocks so many bytes are fetched early: the processor sees by itself where a longer one goes on.
const PREFETCH_BYTES: u64 = 4096;

/// A logical unit with its store. Shared by every session that uses it.
pub struct Device {
    /// The device server.
    pub unit: LogicalUnit,
    /// The medium.
    pub store: Arc<dyn BlockStore>,
    /// Whether medium operations run on a worker thread, because the store may block.
    pub offload: bool,
    /// Its share of the worker threads.
    pub lane: Lane,
    /// Keeps operations apart. One for each store: while a unit takes the place of another one on the same store, commands of
    /// both may be under way.
    apart: Arc<Apart>,
    /// The target whose unit it is.
    target: OnceLock<Weak<TargetNode>>,
    /// Where its persistent reservations are kept.
    reservations: Option<ReservationFile>,
    /// Who has its reservations now.
    heir: OnceLock<Weak<Device>>,
    /// What it has done.
    pub stats: Arc<LunStats>,
    /// Operations that its store failed.
    failures: AtomicU64,
    /// Who its volume is.
    identity: UnitIdentity,
    /// Why there is no store.
    missing: Option<String>,
    number: u16,
    target_name: String,
    /// What it was made to be, to know after a change of configuration whether it is still the same.
    config: ArcSwap<LunConfig>,
}

/// What every unit of a server is made with.
pub struct Making<'a> {
    /// The target ports of the server.
    pub ports: &'a [TargetPort],
    /// Limits of the configuration.
    pub limits: &'a Limits,
    /// Where persistent reservations are kept, if not beside the stores.
    pub state_dir: Option<&'a Path>,
    /// Where its statistics go.
    pub metrics: &'a Metrics,
    /// What the tokens of copies by token are made with.
    pub token_secret: [u8; 32],
}

impl Making<'_> {
    /// How hosts reach the units of `target`.
    pub(crate) fn paths(&self, target: &TargetConfig) -> Paths {
        Paths {
            target_ports: self.ports.iter().filter(|port| target.is_served_on(port.group)).copied().collect(),
            explicit_access_states: target.hosts_set_access_states,
            management_url: target.management_url.clone(),
        }
    }
}

/// What an operation does to its blocks, for others that come near them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It looks at them.
    Look,
    /// It writes them.
    Change,
    /// It looks, decides, and writes: nothing may come in between.
    Decide,
}

/// Keeps operations apart that may not meet.
///
/// A store that is called on the shards gives and takes each logical block whole, so there only decisions need protection: a
/// plain write costs one atomic addition, and a plain read looks whether a decision came in between ([`Device::look`]). A store
/// that is called on worker threads promises nothing: there each range is held.
#[derive(Debug, Default)]
struct Apart {
    /// Held shared by who looks and by changes, and exclusively by decisions.
    decisions: RwLock<()>,
    /// How many decisions have begun and ended: odd while one is under way.
    decided: AtomicU64,
    ranges: RangeLock,
}

/// The right to an operation, until it is dropped.
#[expect(dead_code, reason = "held for what its drop does")]
pub(crate) enum Held<'a> {
    /// Beside others that do not decide.
    Beside(RwLockReadGuard<'a, ()>),
    /// Alone on the store.
    Alone(Alone<'a>),
    /// A range of it.
    Range(InUse<'a>),
}

/// The right to be alone on a store, until it is dropped.
pub(crate) struct Alone<'a> {
    decided: &'a AtomicU64,
    _lock: RwLockWriteGuard<'a, ()>,
}

impl<'a> Alone<'a> {
    fn new(apart: &'a Apart) -> Self {
        let lock = apart.decisions.write();
        apart.decided.fetch_add(1, Ordering::AcqRel);
        Self { decided: &apart.decided, _lock: lock }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.decided.fetch_add(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("lun", &self.number)
            .field("store", &self.store.description())
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Takes the right to `access` these blocks. Never take two.
    //= sam5 5.3 TSK-08 CAW-01
    pub(crate) fn hold(&self, lba: u64, blocks: u64, access: Access) -> Held<'_> {
        match (self.holds_ranges(), access) {
            (true, _) => {
                let how = if access == Access::Look { Use::Shared } else { Use::Exclusive };
                Held::Range(self.apart.ranges.take(lba..lba.saturating_add(blocks), how))
            }
            (false, Access::Look | Access::Change) => Held::Beside(self.apart.decisions.read()),
            (false, Access::Decide) => Held::Alone(Alone::new(&self.apart)),
        }
    }

    /// Runs `read`, a look at these blocks that changes nothing but what it returns, so that it sees every decision whole or not
    /// at all. Where nobody decides meanwhile, nothing is written that other processors would have to be told of.
    //= sbc4 5.43 ATM-01
    pub(crate) fn look<T>(&self, lba: u64, blocks: u64, mut read: impl FnMut() -> T) -> T {
        if !self.holds_ranges() {
            // Who sees a byte of a decision has seen the lock of its block released after it, and so its odd number.
            let before = self.apart.decided.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let seen = read();
                if self.apart.decided.load(Ordering::Acquire) == before {
                    return seen;
                }
            }
        }
        let _held = self.hold(lba, blocks, Access::Look);
        read()
    }

    /// Lets the processor fetch the first of these blocks, where they are in memory. Nothing was checked of them.
    pub(crate) fn prefetch(&self, lba: u64, blocks: u64) {
        if !self.offload
            && let Some(memory) = self.store.in_place()
        {
            let block = u64::from(self.unit.block_bytes());
            let len = blocks.saturating_mul(block).min(PREFETCH_BYTES);
            memory.prefetch(lba.saturating_mul(block), len as usize);
        }
    }

    /// Takes the right to look at these blocks of a store that is called on worker threads, if nobody has to be waited for.
    pub(crate) fn try_look(&self, lba: u64, blocks: u64) -> Option<InUse<'_>> {
        self.apart.ranges.try_take(lba..lba.saturating_add(blocks), Use::Shared)
    }

    /// How a write that begins now has to be written, for who holds its range: WCE may have become 0 since its command was taken up.
    //= sbc3 4.15 MOD-03
    pub(crate) fn durability(&self, durable: bool) -> Durability {
        if durable || !self.unit.write_cache() { Durability::Durable } else { Durability::Cached }
    }

    /// Makes changes durable that the store cannot write durably: unmapped blocks and zeros.
    pub(crate) fn flush_if(&self, durable: bool) -> Result<(), StoreError> {
        match self.durability(durable) {
            Durability::Durable => self.store.flush(),
            Durability::Cached => Ok(()),
        }
    }

    /// Whether ranges have to be held: blocks and their protection information are two writes to any store.
    fn holds_ranges(&self) -> bool {
        self.offload || self.store.records().is_some()
    }

    /// Says whose unit it is, once.
    pub(crate) fn introduce(&self, target: &Arc<TargetNode>) {
        let weak = Arc::downgrade(target);
        if self.target.set(Weak::clone(&weak)).is_ok() {
            self.unit.set_neighbours(weak);
        }
    }

    /// Another unit of the same target, or this one.
    pub(crate) fn neighbour(&self, lun: u16) -> Option<Arc<Self>> {
        self.target.get()?.upgrade()?.luns().get(&lun).cloned()
    }

    /// Who its volume is to hosts.
    pub(crate) fn identity(&self) -> &UnitIdentity {
        &self.identity
    }

    /// Its LUN.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// TargetName of its target.
    pub fn target_name(&self) -> &str {
        &self.target_name
    }

    /// Both: what people and metrics know it by.
    pub(crate) fn place(&self) -> (&str, u16) {
        (&self.target_name, self.number)
    }

    /// Its store failed an operation. Whoever runs the server has to know; a host that goes on trying does not fill the log: the
    /// first, second, fourth, eighth... failure is told.
    pub(crate) fn store_failed(&self, error: &StoreError) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures.is_power_of_two() {
            let (target, lun, store) = (&self.target_name, self.number, &self.config().store);
            tracing::error!(%error, target, lun, %store, failures, "a store fails");
        }
    }

    /// How many operations of its store have failed.
    pub(crate) fn failures(&self) -> &AtomicU64 {
        &self.failures
    }

    /// What it is now.
    pub fn config(&self) -> Guard<Arc<LunConfig>> {
        self.config.load()
    }

    /// Becomes what `config` and `paths` say: the same disk, but for its size and its thin provisioning, which are what its store
    /// has, its write protection, and how hosts reach it. What every initiator is to be told of it, and people.
    //= sbc3 4.8 UA-03
    pub(crate) fn adopt(&self, config: LunConfig, paths: Paths) -> Vec<(Asc, String)> {
        let geometry = self.store.geometry();
        let read_only = config.read_only || geometry.read_only;
        let mut changes = Vec::new();
        if self.unit.blocks() != geometry.blocks() {
            self.unit.set_blocks(geometry.blocks());
            changes.push((Asc::CAPACITY_DATA_CHANGED, format!("has {} bytes now", geometry.size_bytes)));
        }
        if self.unit.read_only() != read_only {
            self.unit.set_read_only(read_only);
            let what = if read_only { "refuses writes now" } else { "takes writes now" };
            changes.push((Asc::MODE_PARAMETERS_CHANGED, what.to_owned()));
        }
        let thin = geometry.discard_granularity_bytes != 0;
        if self.unit.thin() != thin {
            self.unit.set_thin(thin);
            let what = if thin { "gives unmapped blocks back now" } else { "keeps unmapped blocks now" };
            changes.push((Asc::INQUIRY_DATA_CHANGED, what.to_owned()));
        }
        if self.unit.set_paths(paths) {
            changes
                .push((Asc::INQUIRY_DATA_CHANGED, "has other ports, or another management URL".to_owned()));
        }
        self.config.store(Arc::new(config));
        changes
    }

    /// Changes the state of a target port group for this unit; what its initiators are to be told, if it is another one.
    pub(crate) fn set_access_state(&self, group: u16, state: AccessState) -> Option<UnitEvent> {
        let before = self.unit.access_state(group);
        let changes = before != state && self.unit.set_access_state(group, state);
        let (target, lun) = (self.target_name.clone(), self.number);
        changes.then_some(UnitEvent { target, lun, asc: Asc::ACCESS_STATE_CHANGED })
    }

    /// Puts a unit on the store of `old`, which it replaces.
    pub(crate) fn succeeding(
        old: &Self,
        config: &LunConfig,
        target: &TargetConfig,
        making: &Making<'_>,
    ) -> Self {
        let identity = UnitIdentity::new(old.identity.volume, config.serial.as_deref());
        let new = Self::new(config, Arc::clone(&old.store), target, making, identity);
        Self { apart: Arc::clone(&old.apart), lane: old.lane.clone(), ..new }
    }

    /// It is the disk that `old` was: who was registered stays registered.
    //= spc4 5.12.1 PR-13
    pub(crate) fn inherit(self: &Arc<Self>, old: &Self) {
        self.unit.inherit(&old.unit);
        let _ = old.heir.set(Arc::downgrade(self));
    }

    /// Where it keeps its reservations.
    pub(crate) fn reservations_path(&self) -> Option<&Path> {
        self.reservations.as_ref().map(ReservationFile::path)
    }

    /// Whether both keep their reservations in one file.
    pub(crate) fn has_reservations_of(&self, other: &Self) -> bool {
        self.reservations_path().is_some() && self.reservations_path() == other.reservations_path()
    }

    /// Removes what was stored: it belongs to another unit now, which stores it elsewhere.
    pub(crate) fn forget_reservations(&self) {
        if let Some(file) = &self.reservations
            && let Err(error) = file.remove()
        {
            tracing::error!(%error, lun = self.number, "old persistent reservations cannot be removed");
        }
    }

    /// Takes up the persistent reservations that were kept over a restart.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn load_reservations(&self) -> Result<(), String> {
        self.reservations.as_ref().map_or(Ok(()), |file| file.load(&self.unit))
    }

    /// Whether a change of reservations has to be stored before its status is sent.
    pub fn keeps_reservations(&self) -> bool {
        self.reservations.is_some()
    }

    /// Stores the persistent reservations. Blocks.
    ///
    /// # Errors
    /// What the system says.
    pub fn save_reservations(&self) -> std::io::Result<()> {
        // Commands that began before the unit was replaced may end later; what they changed was taken over.
        if let Some(heir) = self.heir.get() {
            return heir.upgrade().map_or(Ok(()), |heir| heir.save_reservations());
        }
        self.reservations.as_ref().map_or(Ok(()), |file| file.save(&self.unit))
    }

    /// A unit whose store cannot be had, for the reason given: it is there, and not ready.
    pub(crate) fn missing(
        config: &LunConfig,
        target: &TargetConfig,
        making: &Making<'_>,
        identity: UnitIdentity,
        why: String,
    ) -> Result<Self, StoreError> {
        // Nothing comes to it: the unit answers for itself.
        let nothing = Arc::new(RamStore::new(512, 512)?);
        Ok(Self::make(config, nothing, target, making, identity, Some(why)))
    }

    /// Why its store cannot be had; `None`: it is there.
    pub fn why_missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Puts a unit on a store that is open, and that hosts know by `identity`.
    pub fn new(
        config: &LunConfig,
        store: Arc<dyn BlockStore>,
        target: &TargetConfig,
        making: &Making<'_>,
        identity: UnitIdentity,
    ) -> Self {
        Self::make(config, store, target, making, identity, None)
    }

    fn make(
        config: &LunConfig,
        store: Arc<dyn BlockStore>,
        target: &TargetConfig,
        making: &Making<'_>,
        identity: UnitIdentity,
        missing: Option<String>,
    ) -> Self {
        let target_name = target.name.as_str();
        let geometry: Geometry = store.geometry();
        let offload = store.placement() == Placement::Offload;
        let mut transfers = TransferLimits::for_block_bytes(geometry.logical_block_bytes);
        let longest = transfer_bytes_max(making.limits.buffer_bytes_max);
        let longest = longest / u64::from(geometry.logical_block_bytes.max(1));
        let longest = u32::try_from(longest).unwrap_or(u32::MAX).max(1);
        transfers.max_transfer_blocks = transfers.max_transfer_blocks.min(longest);
        transfers.optimal_transfer_blocks = transfers.optimal_transfer_blocks.min(longest);
        if !offload {
            // One command must not keep a shard from its other sessions for long.
            transfers.max_write_same_blocks = transfers.max_transfer_blocks.into();
        }
        let atomic = store.atomic_write_bytes_max() / u64::from(geometry.logical_block_bytes.max(1));
        transfers.max_atomic_blocks =
            u32::try_from(atomic).unwrap_or(u32::MAX).min(transfers.max_transfer_blocks);
        let reservations = match missing {
            // What is kept for the disk is the disk's, which has to find it when it comes.
            Some(_) => None,
            None => reservation_file(config, &geometry, making.state_dir, &identity),
        };
        let format = store.records().map(blockstore::Records::format);
        let unit = LogicalUnit::new(LuConfig {
            lun: config.number,
            product: config.product.clone().unwrap_or_else(|| "VIRTUAL DISK".into()),
            serial: identity.serial.clone(),
            naa: identity.naa,
            uuid: identity.uuid,
            blocks: geometry.blocks(),
            block_bytes: geometry.logical_block_bytes,
            physical_block_bytes: geometry.physical_block_bytes,
            read_only: config.read_only || geometry.read_only,
            rotational: config.rotational || geometry.rotational,
            thin: geometry.discard_granularity_bytes != 0,
            write_cache: config.write_cache,
            sanitize: store.overwrites_in_place(),
            limits: transfers,
            target_name: target_name.to_owned(),
            paths: making.paths(target),
            token_secret: Some(making.token_secret),
            persist_reservations: reservations.is_some(),
            protectable: format.is_some(),
            protection: format.and_then(|f| ProtectionType::from_number(f.kind)).unwrap_or_default(),
            format_interrupted: format.is_some_and(|f| f.interrupted),
            missing: missing.is_some(),
            ..LuConfig::default()
        });
        for (group, state) in &target.access_states {
            unit.set_access_state(*group, *state);
        }
        Self {
            unit,
            offload,
            store,
            lane: Lane::new(making.limits.store_concurrency_per_lun),
            apart: Arc::default(),
            target: OnceLock::new(),
            reservations,
            heir: OnceLock::new(),
            stats: making.metrics.lun(target_name, config.number),
            failures: AtomicU64::new(0),
            identity,
            missing,
            number: config.number,
            target_name: target_name.to_owned(),
            config: ArcSwap::from_pointee(config.clone()),
        }
    }
}

fn reservation_file(
    config: &LunConfig,
    geometry: &Geometry,
    state_dir: Option<&Path>,
    identity: &UnitIdentity,
) -> Option<ReservationFile> {
    match (state_dir, &config.store) {
        (Some(directory), _) => Some(ReservationFile::within(directory, &identity.file_name())),
        (None, StoreSpec::File { path, .. }) if !geometry.read_only && path.is_file() => {
            Some(ReservationFile::beside(path))
        }
        _ => None,
    }
}
