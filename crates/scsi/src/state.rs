//! The mutable state of a logical unit, kept behind one lock that is held only for short sections.

use std::collections::{HashMap, HashSet};

use crate::mode_pages::ModePages;
use crate::nexus::{Nexus, NexusId};
use crate::sense::Asc;
use crate::unit_attention::{UaScope, UnitAttentionQueue};

/// Nexuses remembered after they were lost, so that their return is reported as a nexus loss and not as power on.
const MAX_REMEMBERED: usize = 4096;

/// Bits of [`crate::LogicalUnit`]'s gate: while it is zero, a read or write needs no lock.
pub(crate) const GATE_UNIT_ATTENTION: u32 = 1;
/// A reservation is held.
pub(crate) const GATE_RESERVED: u32 = 2;
/// The unit is stopped.
pub(crate) const GATE_NOT_READY: u32 = 4;

/// Mutable state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) attentions: HashMap<NexusId, UnitAttentionQueue>,
    lost: HashSet<NexusId>,
    pub(crate) mode: ModePages,
    pub(crate) stopped: bool,
}

impl State {
    pub(crate) fn new(mode: ModePages) -> Self {
        Self { attentions: HashMap::new(), lost: HashSet::new(), mode, stopped: false }
    }

    pub(crate) fn attach(&mut self, nexus: &Nexus) {
        let returning = self.lost.remove(&nexus.id);
        let queue = self.attentions.entry(nexus.id).or_default();
        //= sam5 5.14.1 UA-01
        queue.push(if returning { Asc::I_T_NEXUS_LOSS } else { Asc::POWER_ON_OR_RESET });
    }

    pub(crate) fn detach(&mut self, nexus: &Nexus) {
        self.attentions.remove(&nexus.id);
        if self.lost.len() >= MAX_REMEMBERED
            && let Some(&oldest) = self.lost.iter().next()
        {
            self.lost.remove(&oldest);
        }
        self.lost.insert(nexus.id);
    }

    pub(crate) fn establish(&mut self, to: UaScope, asc: Asc) {
        for (&nexus, queue) in &mut self.attentions {
            if to.covers(nexus) {
                queue.push(asc);
            }
        }
    }

    pub(crate) fn take_attention(&mut self, nexus: NexusId) -> Option<Asc> {
        self.attentions.get_mut(&nexus)?.pop()
    }

    pub(crate) fn gate(&self) -> u32 {
        let mut gate = 0;
        if self.attentions.values().any(|queue| !queue.is_empty()) {
            gate |= GATE_UNIT_ATTENTION;
        }
        if self.stopped {
            gate |= GATE_NOT_READY;
        }
        gate
    }
}
