//! The state that a unit keeps across a power loss. A change that cannot be stored has no effect: its command fails, and the host
//! finds everything as it was.

use std::collections::BTreeSet;

use crate::identifying::IdentifyingInformation;
use crate::logical_unit::LogicalUnit;
use crate::persistent_reservation::PersistentReservations;
use crate::state::State;
use crate::{KeptState, PrState};

/// What was stored last.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    persistent: PersistentReservations,
    identifying: IdentifyingInformation,
    /// Number of changes so far; the first one is 1.
    changes: u64,
    /// Changes up to this number are stored or reverted.
    stored: u64,
    /// Changes that were reverted and whose commands have not been notified yet: at most one per task.
    taken_back: BTreeSet<u64>,
}

impl State {
    /// Counts a change of the kept state; returns the number of the change.
    pub(crate) fn kept_has_changed(&mut self) -> u64 {
        self.stored.changes += 1;
        self.stored.changes
    }

    /// The kept state was just read from where it is stored, or taken over from another unit.
    pub(crate) fn kept_is_stored(&mut self) {
        self.stored.persistent = self.persistent.clone();
        self.stored.identifying = self.identifying.clone();
        self.stored.stored = self.stored.changes;
    }
}

impl LogicalUnit {
    /// Stores the kept state ([`LogicalUnit::export_persistent`]) with `store`, one call at a time. If that fails, the unit
    /// reverts to the state stored last.
    ///
    /// # Errors
    /// The error of `store`.
    //= spc4 5.12.6 PR-10
    pub fn store_kept<E>(&self, store: impl FnOnce(Option<KeptState>) -> Result<(), E>) -> Result<(), E> {
        let (kept, persistent, identifying, changes) = self.with_state(|state| {
            let (persistent, identifying) = (state.persistent.clone(), state.identifying.clone());
            (state.kept(), persistent, identifying, state.stored.changes)
        });
        let result = store(kept);
        self.with_state(|state| match &result {
            Ok(()) => {
                (state.stored.persistent, state.stored.identifying) = (persistent, identifying);
                state.stored.stored = changes.max(state.stored.stored);
            }
            Err(_) => {
                state.persistent = state.stored.persistent.clone();
                state.identifying = state.stored.identifying.clone();
                let lost = state.stored.stored + 1..=state.stored.changes;
                state.stored.taken_back.extend(lost);
                state.stored.stored = state.stored.changes;
            }
        });
        result
    }

    /// Whether this change of the kept state was reverted because it could not be stored. Each command asks once.
    pub fn was_taken_back(&self, change: u64) -> bool {
        self.with_state(|state| state.stored.taken_back.remove(&change))
    }
}

impl State {
    /// The state that must survive power loss; `None` if there is none.
    pub(crate) fn kept(&self) -> Option<KeptState> {
        let reservations: Option<PrState> = self.persistent.persist.then(|| self.persistent.export());
        let kept = KeptState { reservations, identifying: self.identifying.clone() };
        (kept != KeptState::default()).then_some(kept)
    }
}
