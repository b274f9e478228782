//! The mutable state of a logical unit, kept behind one lock that is held only for short sections.

use std::collections::HashSet;
use std::sync::Weak;

use bytes::Bytes;

use crate::access_state::AccessStates;
use crate::attached::AttachedNexuses;
use crate::erase::EraseKind;
use crate::identifying::IdentifyingInformation;
use crate::kept::Stored;
use crate::mode_pages::ModePages;
use crate::nexus::{Nexus, NexusId};
use crate::orwrite::Generations;
use crate::persistent_reservation::PersistentReservations;
use crate::pseudo_error::PseudoErrors;
use crate::sense::{Asc, SenseData, SenseKey};
use crate::third_party::{Records, RodTokens};
use crate::timestamp::Timestamp;
use crate::unit_attention::UaScope;

/// Maximum number of lost nexuses that are remembered, so that their return is reported as a nexus loss and not as
/// power on.
const MAX_REMEMBERED: usize = 4096;

/// Bits of [`crate::LogicalUnit`]'s gate. While it is zero, a read or write skips the checks that need the lock.
/// This bit: a nexus has a unit attention pending.
pub(crate) const GATE_UNIT_ATTENTION: u32 = 1;
/// A reservation is held.
pub(crate) const GATE_RESERVED: u32 = 2;
/// The unit is stopped or missing, or a FORMAT UNIT or SANITIZE is in progress or has failed.
pub(crate) const GATE_NOT_READY: u32 = 4;

/// A target port group is in a state in which some commands are not executed.
pub(crate) const GATE_ACCESS: u32 = 8;

/// Mutable state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) nexuses: AttachedNexuses,
    lost: HashSet<NexusId>,
    pub(crate) mode: ModePages,
    pub(crate) stopped: bool,
    /// There is no medium.
    pub(crate) missing: bool,
    /// FORMAT UNIT or SANITIZE in progress.
    pub(crate) operation: Option<Operation>,
    /// FORMAT UNIT or SANITIZE ended early.
    pub(crate) erase_failed: Option<EraseKind>,
    /// The SANITIZE that failed allowed unrestricted exit (AUSE).
    pub(crate) may_exit: bool,
    /// Holder of an SPC-2 reservation.
    pub(crate) reserved_by: Option<NexusId>,
    pub(crate) persistent: PersistentReservations,
    /// The part of the kept state that is stored.
    pub(crate) stored: Stored,
    /// Another unit has taken over the kept state of this one.
    pub(crate) replaced: bool,
    pub(crate) access: AccessStates,
    /// Third-party copies that this unit manages.
    pub(crate) copies: Records,
    pub(crate) tokens: RodTokens,
    /// The value to which a host has set the clock.
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) identifying: IdentifyingInformation,
    pub(crate) generations: Generations,
    /// Blocks that WRITE LONG has marked.
    pub(crate) pseudo_errors: PseudoErrors,
}

/// An operation during which the unit is not ready.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) kind: EraseKind,
    /// Dead when the command's execution was dropped before it completed.
    pub(crate) alive: Weak<()>,
    /// 65536ths.
    pub(crate) progress: u16,
    /// One block of the pattern that SANITIZE writes; empty for zeros.
    pub(crate) pattern: Bytes,
    /// AUSE of SANITIZE.
    pub(crate) may_exit: bool,
}

impl State {
    pub(crate) fn new(mode: ModePages) -> Self {
        Self {
            nexuses: AttachedNexuses::default(),
            lost: HashSet::new(),
            mode,
            stopped: false,
            missing: false,
            operation: None,
            erase_failed: None,
            may_exit: false,
            reserved_by: None,
            persistent: PersistentReservations::default(),
            stored: Stored::default(),
            replaced: false,
            access: AccessStates::default(),
            copies: Records::default(),
            tokens: RodTokens::default(),
            timestamp: None,
            identifying: IdentifyingInformation::default(),
            generations: Generations::default(),
            pseudo_errors: PseudoErrors::default(),
        }
    }

    pub(crate) fn attach(&mut self, nexus: &Nexus) {
        self.persistent.claim(nexus);
        let returning = self.lost.remove(&nexus.id);
        //= sam5 5.14.1 UA-01
        self.nexuses.attach(nexus, if returning { Asc::I_T_NEXUS_LOSS } else { Asc::POWER_ON_OR_RESET });
    }

    pub(crate) fn detach(&mut self, nexus: &Nexus) {
        let was_told = !self.nexuses.is_pending(nexus.id, Asc::POWER_ON_OR_RESET);
        self.nexuses.detach(nexus.id);
        if self.reserved_by == Some(nexus.id) {
            self.reserved_by = None;
        }
        // A nexus that was not notified of power on must still learn, when it returns, that caches are gone.
        if !was_told {
            self.lost.remove(&nexus.id);
            return;
        }
        if self.lost.len() >= MAX_REMEMBERED
            && let Some(&any) = self.lost.iter().next()
        {
            self.lost.remove(&any);
        }
        self.lost.insert(nexus.id);
    }

    pub(crate) fn establish(&mut self, to: UaScope, asc: Asc) {
        self.nexuses.establish(to, asc);
    }

    /// The unit attention with which a command ends. With UA_INTLCK it stays pending until REQUEST SENSE clears it.
    //= spc4 7.5.8 UA-04
    pub(crate) fn report_attention(&mut self, nexus: NexusId) -> Option<Asc> {
        match self.mode.unit_attention_interlock() {
            0 => self.nexuses.take(nexus),
            _ => self.nexuses.first(nexus).map(|(asc, _)| asc),
        }
    }

    /// Returns to the power-on state, except for what outlives a reset, such as nexuses, registrations and
    /// persistent reservation.
    pub(crate) fn reset(&mut self, defaults: ModePages) {
        // A host that turned the write cache off sends no flushes, and another host may request the reset.
        self.mode = if self.mode.write_cache() { defaults } else { defaults.without_write_cache() };
        self.stopped = false;
        self.reserved_by = None;
    }

    /// Why the medium cannot be accessed, and the kind of erasure that must be repeated to cure it.
    pub(crate) fn not_ready(&mut self) -> Option<(SenseData, Option<EraseKind>)> {
        if self.missing {
            return Some((SenseData::new(SenseKey::NotReady, Asc::MANUAL_INTERVENTION_REQUIRED), None));
        }
        if let Some(operation) = &self.operation {
            if operation.alive.strong_count() > 0 {
                return Some((operation.kind.in_progress(operation.progress), None));
            }
            self.ended_early();
        }
        if self.stopped {
            return Some((SenseData::new(SenseKey::NotReady, Asc::INITIALIZING_COMMAND_REQUIRED), None));
        }
        self.erase_failed.map(|kind| (kind.failed(), Some(kind)))
    }

    /// A SANITIZE that did not allow unrestricted exit has failed.
    pub(crate) fn restricted(&self) -> bool {
        self.erase_failed == Some(EraseKind::Sanitize) && !self.may_exit
    }

    /// The operation on the whole medium failed or was abandoned.
    pub(crate) fn ended_early(&mut self) {
        if let Some(operation) = self.operation.take() {
            self.erase_failed = Some(operation.kind);
            self.may_exit = operation.may_exit;
        }
    }

    /// The sense if an operation prevents even START STOP UNIT.
    pub(crate) fn operation_in_progress(&mut self) -> Option<SenseData> {
        self.not_ready().filter(|_| self.operation.is_some()).map(|(sense, _)| sense)
    }

    pub(crate) fn gate(&self) -> u32 {
        let mut gate = 0;
        if self.nexuses.any_pending() {
            gate |= GATE_UNIT_ATTENTION;
        }
        if self.reserved_by.is_some() || self.persistent.reservation.is_some() {
            gate |= GATE_RESERVED;
        }
        if self.access.restrict() {
            gate |= GATE_ACCESS;
        }
        if self.missing || self.stopped || self.operation.is_some() || self.erase_failed.is_some() {
            gate |= GATE_NOT_READY;
        }
        gate
    }
}
