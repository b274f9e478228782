//! The logical unit: its configuration and its state. What a command passes before its handler runs is in `dispatch`.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::access::Access;
use crate::access_state::AccessState;
use crate::config::{LuConfig, Paths};
use crate::identifying::IdentifyingInformation;
use crate::mode_pages::ModePages;
use crate::nexus::{Nexus, NexusId};
use crate::orwrite::Generations;
use crate::outcome::Status;
use crate::persistent_reservation::{PersistentReservations, PrState, allowed};
use crate::protection::{PiModes, ProtectionType};
use crate::readiness::Readiness;
use crate::sense::{Asc, SenseData, SenseKey};
use crate::state::State;
use crate::third_party::Neighbours;
use crate::unit_attention::UaScope;

/// The part of a unit's state that survives a loss of power, if there is a place to store it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptState {
    /// Registrations and reservation, if they were made with APTPL.
    pub reservations: Option<PrState>,
    /// The identifying information that hosts have set on the unit.
    pub identifying: IdentifyingInformation,
}

/// A logical unit, shared by all its nexuses.
pub struct LogicalUnit {
    config: LuConfig,
    blocks: AtomicU64,
    read_only: AtomicBool,
    thin: AtomicBool,
    paths: RwLock<Paths>,
    gate: AtomicU32,
    descriptor_sense: AtomicBool,
    write_cache: AtomicBool,
    software_write_protect: AtomicBool,
    /// Number of its [`ProtectionType`].
    protection: AtomicU8,
    no_check_when_zero: AtomicBool,
    app_tag_owner: AtomicBool,
    reject_unprotected: AtomicBool,
    /// There are tokens that represent blocks of this unit, or blocks that are marked as unreadable.
    watched: AtomicBool,
    /// The time last set by the caller, milliseconds.
    now_ms: AtomicU64,
    neighbours: RwLock<Option<Weak<dyn Neighbours>>>,
    state: Mutex<State>,
}

impl std::fmt::Debug for LogicalUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogicalUnit").field("lun", &self.config.lun).finish_non_exhaustive()
    }
}

impl LogicalUnit {
    /// A unit, powered on. A `block_bytes` of 0 means 512.
    pub fn new(mut config: LuConfig) -> Self {
        if config.medium.block_bytes == 0 {
            config.medium.block_bytes = 512;
        }
        let lu = Self {
            blocks: AtomicU64::new(config.medium.blocks),
            read_only: AtomicBool::new(config.medium.read_only),
            thin: AtomicBool::new(config.medium.thin),
            paths: RwLock::new(config.paths.clone()),
            gate: AtomicU32::new(0),
            descriptor_sense: AtomicBool::new(false),
            write_cache: AtomicBool::new(config.medium.write_cache),
            software_write_protect: AtomicBool::new(false),
            protection: AtomicU8::new(if config.medium.protectable {
                config.medium.protection.number()
            } else {
                0
            }),
            no_check_when_zero: AtomicBool::new(false),
            app_tag_owner: AtomicBool::new(true),
            reject_unprotected: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            now_ms: AtomicU64::new(0),
            neighbours: RwLock::new(None),
            //= sbc3 5.3.1 FMT-02
            state: Mutex::new(State::new(
                ModePages::new(&config),
                Readiness::new(config.medium.missing, config.medium.format_interrupted),
            )),
            config,
        };
        // What is read without the lock follows the state.
        lu.with_state(|_| {});
        lu
    }

    /// The configuration that the unit was made with; capacity, write protection, thin provisioning and paths may have changed
    /// since.
    pub fn config(&self) -> &LuConfig {
        &self.config
    }

    /// Bytes of a logical block.
    pub fn block_bytes(&self) -> u32 {
        self.config.medium.block_bytes
    }

    /// Capacity in logical blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    /// True when the configuration forbids writes.
    pub fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// True when unmapping frees space.
    pub fn thin(&self) -> bool {
        self.thin.load(Ordering::Acquire)
    }

    /// How hosts reach the unit and its management.
    pub fn paths(&self) -> Paths {
        self.paths.read().clone()
    }

    pub(crate) fn with_paths<R>(&self, f: impl FnOnce(&Paths) -> R) -> R {
        f(&self.paths.read())
    }

    /// True when D_SENSE selects descriptor format sense data.
    pub fn descriptor_sense(&self) -> bool {
        self.descriptor_sense.load(Ordering::Acquire)
    }

    /// True when WCE allows a volatile write cache.
    pub fn write_cache(&self) -> bool {
        self.write_cache.load(Ordering::Acquire)
    }

    /// How the unit is formatted.
    pub fn protection(&self) -> ProtectionType {
        ProtectionType::from_number(self.protection.load(Ordering::Acquire)).unwrap_or_default()
    }

    /// A FORMAT UNIT has completed: what hosts know about the unit may be outdated.
    //= sbc3 5.3 FMT-01
    pub(crate) fn formatted(&self, by: NexusId, protection: ProtectionType) {
        if self.protection.swap(protection.number(), Ordering::AcqRel) != protection.number() {
            self.unit_attention(UaScope::AllExcept(by), Asc::CAPACITY_DATA_CHANGED);
        }
    }

    pub(crate) fn pi_modes(&self) -> PiModes {
        PiModes {
            no_check_when_zero: self.no_check_when_zero.load(Ordering::Acquire),
            app_tag_owner: self.app_tag_owner.load(Ordering::Acquire),
            reject_unprotected: self.reject_unprotected.load(Ordering::Acquire),
        }
    }

    pub(crate) fn write_protected(&self) -> bool {
        self.read_only() || self.software_write_protect.load(Ordering::Acquire)
    }

    /// Changes the capacity while in use: every nexus sees 6/2A/09.
    //= sbc3 4.8 UA-03
    pub fn set_blocks(&self, blocks: u64) {
        if self.blocks.swap(blocks, Ordering::AcqRel) != blocks {
            self.unit_attention(UaScope::All, Asc::CAPACITY_DATA_CHANGED);
        }
    }

    /// Sets or lifts write protection: every nexus sees 6/2A/01, because the WP bit is in the mode parameter header.
    pub fn set_read_only(&self, read_only: bool) {
        if self.read_only.swap(read_only, Ordering::AcqRel) != read_only {
            self.unit_attention(UaScope::All, Asc::MODE_PARAMETERS_CHANGED);
        }
    }

    /// Turns thin provisioning on or off: every nexus sees 6/3F/03, because the VPD pages and the supported commands change.
    //= spc4 7.8.1 UA-03
    pub fn set_thin(&self, thin: bool) {
        if self.thin.swap(thin, Ordering::AcqRel) != thin {
            self.unit_attention(UaScope::All, Asc::INQUIRY_DATA_CHANGED);
        }
    }

    /// Changes how hosts reach the unit: every nexus sees 6/3F/03. Returns false when nothing changes.
    pub fn set_paths(&self, paths: Paths) -> bool {
        let mut now = self.paths.write();
        if *now == paths {
            return false;
        }
        *now = paths;
        drop(now);
        self.unit_attention(UaScope::All, Asc::INQUIRY_DATA_CHANGED);
        true
    }

    /// Sets where the other units of the target are found; without it, third-party copies stay within this unit.
    pub fn set_neighbours(&self, neighbours: Weak<dyn Neighbours>) {
        *self.neighbours.write() = Some(neighbours);
    }

    pub(crate) fn neighbours(&self) -> Option<Arc<dyn Neighbours>> {
        self.neighbours.read().as_ref()?.upgrade()
    }

    /// Sets the time, counted from an arbitrary start, which never goes back: tokens expire by it. Call it before commands with
    /// operation codes 83h, 84h, A3h and A4h.
    pub fn set_time(&self, now: Duration) {
        self.now_ms.fetch_max(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    pub(crate) fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms.load(Ordering::Acquire))
    }

    /// Blocks are about to change: tokens that represent them are revoked.
    pub(crate) fn about_to_change(&self, lba: u64, blocks: u64) {
        if self.watched.load(Ordering::Acquire) {
            self.with_state(|state| state.tokens.changing(lba, blocks));
        }
    }

    /// Blocks have changed: they can be read again.
    pub(crate) fn changed(&self, lba: u64, blocks: u64) {
        if self.watched.load(Ordering::Acquire) {
            self.with_state(|state| state.pseudo_errors.clear(lba, blocks));
        }
    }

    /// The sense for a command that reads these blocks, if one of them is marked as unreadable.
    pub(crate) fn unreadable(&self, lba: u64, blocks: u64) -> Option<SenseData> {
        let watched = self.watched.load(Ordering::Acquire);
        watched.then(|| self.with_state(|state| state.pseudo_errors.sense(lba, blocks)))?
    }

    /// A nexus was established. Its first command reports 6/29/00, or 6/29/07 when it was attached before.
    pub fn attach_nexus(&self, nexus: &Nexus) {
        self.with_state(|state| state.attach(nexus));
    }

    /// A nexus was lost: its RESERVE(6) reservation is released; registrations survive.
    pub fn detach_nexus(&self, nexus: &Nexus) {
        self.with_state(|state| state.detach(nexus));
    }

    /// Establishes a unit attention condition.
    pub fn unit_attention(&self, to: UaScope, asc: Asc) {
        self.with_state(|state| state.establish(to, asc));
    }

    /// Withdraws a pending unit attention condition of one nexus, e.g. 3F/0E after REPORT LUNS.
    pub fn clear_unit_attention(&self, nexus: NexusId, asc: Asc) {
        self.with_state(|state| state.nexuses.withdraw(nexus, asc));
    }

    /// The answer to QUERY ASYNCHRONOUS EVENT for a nexus (SAM-5 7.9): UADE DEPTH with the sense key, additional sense code and
    /// qualifier of the unit attention that would be reported next. `None` when none is pending. Nothing is cleared.
    //= rfc7144 6.4 P2-04
    pub fn pending_unit_attention(&self, nexus: NexusId) -> Option<[u8; 3]> {
        let (asc, count) = self.with_state(|state| state.nexuses.first(nexus))?;
        let depth = if count > 1 { 0x20 } else { 0x10 };
        Some([depth | SenseKey::UnitAttention as u8, asc.asc, asc.ascq])
    }

    /// Attaches a nexus that existed before the unit did; does nothing when it is attached already.
    pub fn ensure_attached(&self, nexus: &Nexus) {
        self.with_state(|state| {
            if !state.nexuses.contains(nexus.id) {
                state.attach(nexus);
            }
        });
    }

    /// True when tasks that another initiator aborts must end with TASK ABORTED (the TAS bit of the control mode page).
    pub fn task_aborted_status(&self) -> bool {
        self.with_state(|state| state.mode.task_aborted_status())
    }

    /// LOGICAL UNIT RESET by task management (SAM-5 6.3.3): mode pages return to their defaults, except that a WCE of 0 stays; an
    /// SPC-2 reservation is released; the unit is started; every nexus gets 6/29/03. SAM-5 6.2 makes no exception for the nexus
    /// that requested the reset, and multipath hosts wait for it on every path. The caller aborts the tasks.
    pub fn logical_unit_reset(&self) {
        self.reset(UaScope::All, Asc::BUS_DEVICE_RESET);
    }

    /// A reset with another cause: e.g. TARGET WARM RESET with [`Asc::BUS_RESET`], TARGET COLD RESET with
    /// [`Asc::POWER_ON_OR_RESET`]. The effects are those of [`LogicalUnit::logical_unit_reset`]; ORWRITE generations are reset too.
    //= sam5 6.3.3 TSK-04 PR-14
    pub fn reset(&self, to: UaScope, asc: Asc) {
        self.with_state(|state| {
            state.reset(ModePages::new(&self.config));
            //= sbc4 4.27.3 ORW-01
            if asc != Asc::BUS_DEVICE_RESET {
                state.generations = Generations::default();
            }
            state.establish(to, asc);
        });
    }

    /// The state that must survive power loss: registrations made with APTPL, and identifying information. `None` if there is
    /// neither: then anything stored before must be removed.
    //= spc4 5.12.6 PR-10
    pub fn export_persistent(&self) -> Option<KeptState> {
        self.with_state(|state| state.kept())
    }

    /// Takes over the state of the unit that this one replaces on the same medium: registrations and the reservation, identifying
    /// information, and blocks marked as unreadable. From then on the old unit answers BUSY to commands that would change this
    /// state, because the change would be lost. An unfinished operation on the whole medium must be repeated.
    //= spc4 5.12.1 PR-13
    pub fn inherit(&self, old: &LogicalUnit) {
        let (before, unfinished) = old.with_state(|state| {
            state.replace();
            let unfinished = state.readiness.unfinished();
            let kept = (state.persistent.clone(), state.identifying.clone(), state.pseudo_errors.clone());
            ((kept, state.reserved_by), unfinished)
        });
        self.with_state(|state| {
            ((state.persistent, state.identifying, state.pseudo_errors), state.reserved_by) = before;
            state.kept_is_stored();
            state.readiness.inherit(unfinished);
        });
    }

    /// Takes over what [`LogicalUnit::export_persistent`] returned before a restart; entries that do not fit are left out.
    pub fn import_persistent(&self, stored: &KeptState) {
        let reservations = stored.reservations.as_ref().map(PersistentReservations::import);
        self.with_state(|state| {
            state.persistent = reservations.unwrap_or_default();
            state.identifying = stored.identifying.clone().bounded();
            state.kept_is_stored();
        });
    }

    /// What must be checked under the lock before a command runs: bits of `state::GATE_*`.
    pub(crate) fn gate(&self) -> u32 {
        self.gate.load(Ordering::Acquire)
    }

    /// Runs `f` on the state and then brings the lock-free copies up to date.
    pub(crate) fn with_state<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = f(&mut state);
        self.descriptor_sense.store(state.mode.descriptor_sense(), Ordering::Release);
        self.write_cache.store(state.mode.write_cache(), Ordering::Release);
        self.software_write_protect.store(state.mode.software_write_protect(), Ordering::Release);
        let modes = state.mode.pi_modes();
        self.no_check_when_zero.store(modes.no_check_when_zero, Ordering::Release);
        self.app_tag_owner.store(modes.app_tag_owner, Ordering::Release);
        self.reject_unprotected.store(modes.reject_unprotected, Ordering::Release);
        let watched = !state.tokens.is_empty() || !state.pseudo_errors.is_empty();
        self.watched.store(watched, Ordering::Release);
        self.gate.store(state.gate(), Ordering::Release);
        result
    }

    /// A command of the nexus ended with this status, also one that the unit never saw. With UA_INTLCK 3, a status that carries no
    /// sense data leaves a unit attention behind.
    //= spc4 7.5.8 UA-04
    pub fn note_status(&self, nexus: &Nexus, status: Status) {
        let asc = match status {
            Status::Busy => Asc::PREVIOUS_BUSY,
            Status::TaskSetFull => Asc::PREVIOUS_TASK_SET_FULL,
            Status::ReservationConflict => Asc::PREVIOUS_RESERVATION_CONFLICT,
            _ => return,
        };
        self.with_state(|state| {
            if state.mode.unit_attention_interlock() == 3 {
                state.establish(UaScope::One(nexus.id), asc);
            }
        });
    }

    /// The asymmetric access state of a target port group for this unit.
    pub fn access_state(&self, group: u16) -> AccessState {
        self.with_state(|state| state.access.of(group))
    }

    /// Changes the state of a target port group implicitly, that is, by the device itself: every nexus sees 6/2A/06. Returns
    /// whether there was room to remember it (256 groups).
    //= spc4 5.15.2.3 ALU-03
    pub fn set_access_state(&self, group: u16, to: AccessState) -> bool {
        self.with_state(|state| {
            let before = state.access.of(group);
            let kept = state.access.set(group, to, false);
            if kept && before != to {
                state.establish(UaScope::All, Asc::ACCESS_STATE_CHANGED);
            }
            kept
        })
    }

    pub(crate) fn reservations_admit(&self, nexus: &Nexus, access: Access) -> bool {
        let state = self.state.lock();
        match state.reserved_by {
            Some(holder) => access.passes_spc2(holder == nexus.id),
            None => allowed(access, state.persistent.standing(nexus.id)),
        }
    }

    /// Whether this nexus may read or write the unit by a third-party copy now, by the checks for a command of its own.
    //= spc4 5.12.1 PR-16 CPY-03
    pub(crate) fn admits_copy(&self, nexus: &Nexus, access: Access) -> Result<(), SenseData> {
        if !self.reservations_admit(nexus, access) {
            return Err(SenseData::new(SenseKey::CopyAborted, Asc::THIRD_PARTY_DEVICE_FAILURE));
        }
        if let Some((sense, _)) = self.with_state(|state| state.readiness.obstacle()) {
            return Err(sense);
        }
        self.check_write_protection(access == Access::Write)
    }

    //= sbc3 4.12 SNS-03
    pub(crate) fn check_write_protection(&self, writes: bool) -> Result<(), SenseData> {
        if !writes || !self.write_protected() {
            return Ok(());
        }
        let asc = if self.read_only() { Asc::WRITE_PROTECTED } else { Asc::SOFTWARE_WRITE_PROTECTED };
        Err(SenseData::new(SenseKey::DataProtect, asc))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{MediumConfig, Step};

    /// How long a thread that needs no lock may take to be scheduled. A failing test takes that long.
    const FAR_TOO_LONG: Duration = Duration::from_secs(10);

    /// So the cost of a command does not depend on the number of other sessions and the unit attentions they have pending.
    // covers: UA-02
    #[test]
    fn a_read_takes_no_lock_because_others_have_unit_attentions_pending() {
        let lu = LogicalUnit::new(LuConfig {
            medium: MediumConfig { blocks: 64, ..MediumConfig::default() },
            ..LuConfig::default()
        });
        let nexus = |name: &str| Nexus::new(name, 1, 1);
        let (quiet, idle) = (nexus("quiet"), nexus("idle"));
        lu.attach_nexus(&quiet);
        lu.attach_nexus(&idle);
        let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        let is_refused = |nexus: &Nexus| matches!(lu.begin(nexus, &read).into_step(), Step::Done(_));
        assert!(is_refused(&quiet), "power on");
        std::thread::scope(|scope| {
            let held = lu.state.lock();
            let (done, reads) = mpsc::channel();
            scope.spawn(move || done.send(is_refused(&quiet)));
            let refused = reads.recv_timeout(FAR_TOO_LONG);
            drop(held);
            assert_eq!(refused, Ok(false), "it waits for the lock");
        });
        assert!(is_refused(&idle));
    }
}
