//! The mutable state of a logical unit, kept behind one lock that is held only for short sections.

use std::collections::HashSet;

use crate::access_state::AccessStates;
use crate::attached::AttachedNexuses;
use crate::identifying::IdentifyingInformation;
use crate::kept::Stored;
use crate::mode_pages::ModePages;
use crate::nexus::{Nexus, NexusId};
use crate::orwrite::Generations;
use crate::persistent_reservation::PersistentReservations;
use crate::pseudo_error::PseudoErrors;
use crate::readiness::Readiness;
use crate::sense::Asc;
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
    pub(crate) readiness: Readiness,
    /// Holder of an SPC-2 reservation.
    pub(crate) reserved_by: Option<NexusId>,
    pub(crate) persistent: PersistentReservations,
    /// The part of the kept state that is stored.
    pub(crate) stored: Stored,
    /// Another unit has taken over the kept state of this one.
    replaced: bool,
    pub(crate) access: AccessStates,
    /// Third-party copies that this unit manages.
    pub(crate) copies: Records,
    pub(crate) tokens: RodTokens,
    /// The value to which a host has set the clock.
    timestamp: Option<Timestamp>,
    pub(crate) identifying: IdentifyingInformation,
    pub(crate) generations: Generations,
    /// Blocks that WRITE LONG has marked.
    pub(crate) pseudo_errors: PseudoErrors,
}

impl State {
    pub(crate) fn new(mode: ModePages, readiness: Readiness) -> Self {
        Self {
            nexuses: AttachedNexuses::default(),
            lost: HashSet::new(),
            mode,
            readiness,
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
        self.readiness.start();
        self.reserved_by = None;
    }

    /// Another unit takes over the kept state of this one.
    pub(crate) fn replace(&mut self) {
        self.replaced = true;
    }

    /// Whether another unit has taken over the kept state of this one.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced
    }

    /// The value to which a host has set the clock.
    pub(crate) fn timestamp(&self) -> Option<Timestamp> {
        self.timestamp
    }

    /// A host sets the clock.
    pub(crate) fn set_timestamp(&mut self, timestamp: Timestamp) {
        self.timestamp = Some(timestamp);
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
        if !self.readiness.is_ready() {
            gate |= GATE_NOT_READY;
        }
        gate
    }
}
