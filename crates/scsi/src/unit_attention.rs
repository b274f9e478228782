//! Unit attention conditions (SAM-5 5.14): one bounded queue per I_T nexus.

use smallvec::SmallVec;

use crate::nexus::NexusId;
use crate::sense::Asc;

/// Which nexuses a unit attention condition is established for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UaScope {
    /// Every attached nexus.
    All,
    /// Every attached nexus but the one that caused the event.
    AllExcept(NexusId),
    /// One nexus.
    One(NexusId),
}

impl UaScope {
    pub(crate) fn covers(self, nexus: NexusId) -> bool {
        match self {
            Self::All => true,
            Self::AllExcept(other) => nexus != other,
            Self::One(one) => nexus == one,
        }
    }
}

/// Maximum number of conditions that one nexus can have pending; there are fewer distinct causes.
const MAX_PENDING: usize = 16;

/// Pending conditions of one nexus, most urgent first.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnitAttentionQueue {
    pending: SmallVec<[Asc; 2]>,
}

/// A smaller value is reported earlier. Power on, resets and nexus loss mean that everything may have changed, so
/// they come first and make older conditions superfluous (SAM-5 5.14.1); the rest keep their order of arrival.
fn precedence(asc: Asc) -> u8 {
    match (asc.asc, asc.ascq) {
        (0x29, 0x00) => 0,
        (0x29, 0x07) => 2,
        (0x29, _) => 1,
        _ => OTHERS,
    }
}

const OTHERS: u8 = 3;

impl UnitAttentionQueue {
    //= sam5 5.14.1 UA-01
    pub(crate) fn push(&mut self, asc: Asc) {
        let rank = precedence(asc);
        if self.pending.contains(&asc) {
            return;
        }
        if rank < OTHERS {
            if self.pending.iter().any(|&other| precedence(other) < rank) {
                return;
            }
            self.pending.clear();
        }
        if self.pending.len() < MAX_PENDING {
            self.pending.push(asc);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Asc> {
        if self.pending.is_empty() { None } else { Some(self.pending.remove(0)) }
    }

    pub(crate) fn remove(&mut self, asc: Asc) {
        self.pending.retain(|other| *other != asc);
    }

    /// The most urgent condition, and how many are pending.
    pub(crate) fn first(&self) -> Option<(Asc, usize)> {
        self.pending.first().map(|asc| (*asc, self.pending.len()))
    }

    pub(crate) fn contains(&self, asc: Asc) -> bool {
        self.pending.contains(&asc)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}
