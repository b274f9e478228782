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

#[cfg(test)]
mod tests {
    use super::*;

    const fn asc(asc: u8, ascq: u8) -> Asc {
        Asc { asc, ascq }
    }

    fn left(pushed: &[Asc]) -> Vec<Asc> {
        let mut queue = UnitAttentionQueue::default();
        pushed.iter().for_each(|asc| queue.push(*asc));
        std::iter::from_fn(|| queue.pop()).collect()
    }

    // covers: UA-01
    #[test]
    fn a_reset_makes_what_is_older_superfluous_unless_that_is_more_urgent() {
        let (power_on, reset, other_reset, nexus_loss) =
            (asc(0x29, 0), asc(0x29, 2), asc(0x29, 3), asc(0x29, 7));
        let changed = asc(0x2a, 1);
        assert_eq!(left(&[changed, nexus_loss, reset]), [reset]);
        assert_eq!(left(&[reset, nexus_loss]), [reset]);
        assert_eq!(left(&[power_on, reset]), [power_on]);
        assert_eq!(left(&[reset, other_reset]), [other_reset], "of two that are as urgent the newer is true");
        assert_eq!(left(&[reset, changed, reset]), [reset, changed], "each is there once");
    }

    #[test]
    fn no_more_than_sixteen_wait() {
        let many: Vec<Asc> = (0..20).map(|n| asc(0x2a, n)).collect();
        assert_eq!(left(&many), many[..MAX_PENDING]);
    }
}
