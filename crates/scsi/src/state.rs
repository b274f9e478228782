//! The mutable state of a logical unit, kept behind one lock that is held only for short sections.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::access_state::AccessStates;
use crate::erase::EraseKind;
use crate::identifying::IdentifyingInformation;
use crate::mode_pages::ModePages;
use crate::nexus::{Nexus, NexusId};
use crate::orwrite::Generations;
use crate::persistent_reservation::PersistentReservations;
use crate::pseudo_error::PseudoErrors;
use crate::sense::{Asc, SenseData, SenseKey};
use crate::third_party::{Records, RodTokens};
use crate::timestamp::Timestamp;
use crate::unit_attention::{UaScope, UnitAttentionQueue};

/// Nexuses remembered after they were lost, so that their return is reported as a nexus loss and not as power on.
const MAX_REMEMBERED: usize = 4096;

/// Bits of [`crate::LogicalUnit`]'s gate: while it is zero, a read or write needs no lock.
pub(crate) const GATE_UNIT_ATTENTION: u32 = 1;
/// A reservation is held.
pub(crate) const GATE_RESERVED: u32 = 2;
/// The unit is stopped.
pub(crate) const GATE_NOT_READY: u32 = 4;

/// A target port group has a state in which not every command is carried out.
pub(crate) const GATE_ACCESS: u32 = 8;

/// Mutable state.
#[derive(Debug)]
pub(crate) struct State {
    attached: HashMap<NexusId, Attached>,
    lost: HashSet<NexusId>,
    pub(crate) mode: ModePages,
    pub(crate) stopped: bool,
    /// FORMAT UNIT or SANITIZE under way.
    pub(crate) operation: Option<Operation>,
    /// FORMAT UNIT or SANITIZE ended early.
    pub(crate) erase_failed: Option<EraseKind>,
    /// The SANITIZE that failed allowed unrestricted exit (AUSE).
    pub(crate) may_exit: bool,
    /// Holder of an SPC-2 reservation.
    pub(crate) reserved_by: Option<NexusId>,
    pub(crate) persistent: PersistentReservations,
    /// Another unit has taken over what this one keeps.
    pub(crate) replaced: bool,
    pub(crate) access: AccessStates,
    /// Third-party copies of which this unit is the manager.
    pub(crate) copies: Records,
    pub(crate) tokens: RodTokens,
    /// What a host has set the clock to.
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) identifying: IdentifyingInformation,
    pub(crate) generations: Generations,
    /// Blocks that WRITE LONG has marked.
    pub(crate) pseudo_errors: PseudoErrors,
}

/// An operation that keeps the unit from being ready.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) kind: EraseKind,
    /// Dead when the command's execution was dropped before its end.
    pub(crate) alive: Weak<()>,
    /// 65536ths.
    pub(crate) progress: u16,
    /// One block of what SANITIZE writes; empty for zeros.
    pub(crate) pattern: Bytes,
    /// AUSE of SANITIZE.
    pub(crate) may_exit: bool,
}

/// An attached nexus.
#[derive(Debug)]
struct Attached {
    initiator_port: Arc<str>,
    account: Option<Arc<str>>,
    attentions: UnitAttentionQueue,
}

impl State {
    pub(crate) fn new(mode: ModePages) -> Self {
        Self {
            attached: HashMap::new(),
            lost: HashSet::new(),
            mode,
            stopped: false,
            operation: None,
            erase_failed: None,
            may_exit: false,
            reserved_by: None,
            persistent: PersistentReservations::default(),
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
        let attached = self.attached.entry(nexus.id).or_insert_with(|| Attached {
            initiator_port: nexus.initiator_port.clone(),
            account: nexus.account.clone(),
            attentions: UnitAttentionQueue::default(),
        });
        //= sam5 5.14.1 UA-01
        attached.attentions.push(if returning { Asc::I_T_NEXUS_LOSS } else { Asc::POWER_ON_OR_RESET });
    }

    pub(crate) fn is_attached(&self, nexus: NexusId) -> bool {
        self.attached.contains_key(&nexus)
    }

    pub(crate) fn detach(&mut self, nexus: &Nexus) {
        let attached = self.attached.remove(&nexus.id);
        if self.reserved_by == Some(nexus.id) {
            self.reserved_by = None;
        }
        // A nexus that was not told of power on has still to learn that caches are gone, whenever it returns.
        if attached.is_some_and(|attached| attached.attentions.contains(Asc::POWER_ON_OR_RESET)) {
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
        for (&nexus, attached) in &mut self.attached {
            if to.covers(nexus) {
                attached.attentions.push(asc);
            }
        }
    }

    pub(crate) fn take_attention(&mut self, nexus: NexusId) -> Option<Asc> {
        self.attached.get_mut(&nexus)?.attentions.pop()
    }

    /// The attention that a command ends with. With UA_INTLCK it stays until REQUEST SENSE takes it.
    //= spc4 7.5.8 UA-04
    pub(crate) fn report_attention(&mut self, nexus: NexusId) -> Option<Asc> {
        match self.mode.unit_attention_interlock() {
            0 => self.take_attention(nexus),
            _ => self.pending_attention(nexus).map(|(asc, _)| asc),
        }
    }

    /// The most urgent attention of a nexus, and how many it has pending.
    pub(crate) fn pending_attention(&self, nexus: NexusId) -> Option<(Asc, usize)> {
        self.attached.get(&nexus)?.attentions.first()
    }

    pub(crate) fn withdraw(&mut self, nexus: NexusId, asc: Asc) {
        if let Some(attached) = self.attached.get_mut(&nexus) {
            attached.attentions.remove(asc);
        }
    }

    /// The account of an initiator port that is attached, if it proved to be one.
    pub(crate) fn account_of(&self, initiator_port: &str) -> Option<&Arc<str>> {
        let of_port = self.attached.values().filter(|attached| *attached.initiator_port == *initiator_port);
        of_port.filter_map(|attached| attached.account.as_ref()).next()
    }

    /// Names of the attached initiator ports.
    pub(crate) fn attached_ports(&self) -> impl Iterator<Item = &Arc<str>> {
        self.attached.values().map(|attached| &attached.initiator_port)
    }

    /// Back to the state of power on, but for what outlives a reset: nexuses, registrations, persistent reservation.
    pub(crate) fn reset(&mut self, mode: ModePages) {
        self.mode = mode;
        self.stopped = false;
        self.reserved_by = None;
    }

    /// Why the medium cannot be accessed. What cures it: the kind of erasure that has to be repeated.
    pub(crate) fn not_ready(&mut self) -> Option<(SenseData, Option<EraseKind>)> {
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

    /// A SANITIZE failed that did not allow unrestricted exit.
    pub(crate) fn restricted(&self) -> bool {
        self.erase_failed == Some(EraseKind::Sanitize) && !self.may_exit
    }

    /// The operation on the whole medium failed, or was given up.
    pub(crate) fn ended_early(&mut self) {
        if let Some(operation) = self.operation.take() {
            self.erase_failed = Some(operation.kind);
            self.may_exit = operation.may_exit;
        }
    }

    /// What keeps even START STOP UNIT from executing.
    pub(crate) fn operation_in_progress(&mut self) -> Option<SenseData> {
        self.not_ready().filter(|_| self.operation.is_some()).map(|(sense, _)| sense)
    }

    pub(crate) fn gate(&self) -> u32 {
        let mut gate = 0;
        if self.attached.values().any(|attached| !attached.attentions.is_empty()) {
            gate |= GATE_UNIT_ATTENTION;
        }
        if self.reserved_by.is_some() || self.persistent.reservation.is_some() {
            gate |= GATE_RESERVED;
        }
        if self.access.restrict() {
            gate |= GATE_ACCESS;
        }
        if self.stopped || self.operation.is_some() || self.erase_failed.is_some() {
            gate |= GATE_NOT_READY;
        }
        gate
    }
}
