//! ORWRITE(16) and (32) (SBC-4 4.27, 5.10, 5.11): bits of a bitmap on the medium are set, or cleared together with a change of its
//! generation.
//!
//! A host that sets bits names the generation that it believes in; when that is not the current one, the policy that came with the
//! last change says what becomes of it. No set operation is under way while a generation changes: who comes meanwhile is told BUSY.
//! ORWRITE(16) believes in generation 0; (32) is there where the other commands of 32 bytes are. Generations are forgotten at
//! power on and by a reset of the target, and not by one of the unit.

use std::sync::{Arc, Weak};

use crate::execution::{Execution, Request, WriteKind};
use crate::outcome::{Outcome, Status};
use crate::read_write::{Fields, write_blocks};
use crate::sense::{Asc, SenseData};

/// BMOP: set bits, or change the generation and clear bits.
const SET: u8 = 0;
const CHANGE_AND_CLEAR: u8 = 1;
/// The policy after power on: what names another than the current generation is refused.
const REFUSE: u8 = 7;

/// The change that ends with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewGeneration {
    policy: u8,
    generation: u32,
}

/// Generations of the bitmap, and who relies on them.
#[derive(Debug)]
pub(crate) struct Generations {
    current: u32,
    previous: u32,
    policy: u8,
    /// Held by every set operation under way.
    setting: Arc<()>,
    /// Alive while a change is under way.
    changing: Weak<()>,
}

/// What becomes of a set operation (SBC-4 table 29).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Perform,
    /// GOOD, and the data are dropped.
    Discard,
    Refuse,
}

impl Default for Generations {
    fn default() -> Self {
        Self { current: 0, previous: 0, policy: REFUSE, setting: Arc::default(), changing: Weak::new() }
    }
}

impl Generations {
    fn fate(&self, expected: u32) -> Fate {
        let (previous, other) = match self.policy {
            0 => (Fate::Perform, Fate::Refuse),
            2 => (Fate::Discard, Fate::Refuse),
            3 => (Fate::Perform, Fate::Perform),
            5 => (Fate::Discard, Fate::Discard),
            _ => (Fate::Refuse, Fate::Refuse),
        };
        match expected {
            _ if expected == self.current => Fate::Perform,
            _ if expected == self.previous => previous,
            _ => other,
        }
    }

    /// `None`: a generation is changing.
    fn begin_set(&self, expected: u32) -> Option<(Fate, Arc<()>)> {
        (self.changing.strong_count() == 0).then(|| (self.fate(expected), Arc::clone(&self.setting)))
    }

    /// `None`: something relies on the current generation.
    fn begin_change(&mut self) -> Option<Arc<()>> {
        let free = self.changing.strong_count() == 0 && Arc::strong_count(&self.setting) == 1;
        free.then(|| {
            let change = Arc::new(());
            self.changing = Arc::downgrade(&change);
            change
        })
    }

    /// The write of a change is done.
    pub(crate) fn change(&mut self, new: NewGeneration) {
        (self.policy, self.previous, self.current) = (new.policy, self.current, new.generation);
    }
}

fn busy() -> Execution {
    Execution::done(Outcome::status(Status::Busy))
}

fn mismatch() -> Execution {
    Execution::check(SenseData::illegal(Asc::ORWRITE_GENERATION_MISMATCH))
}

//= sbc4 4.27.4 ORW-01
fn set(request: &Request<'_>, fields: Fields, expected: u32) -> Execution {
    let Some((fate, held)) = request.lu.with_state(|state| state.generations.begin_set(expected)) else {
        return busy();
    };
    match fate {
        Fate::Perform => write_blocks(request, fields, WriteKind::OrWrite { change: None }).keeping(held),
        Fate::Discard => write_blocks(request, fields, WriteKind::Discard),
        Fate::Refuse => mismatch(),
    }
}

//= sbc4 4.27.3 ORW-01
fn change_and_clear(request: &Request<'_>, fields: Fields, expected: u32, new: NewGeneration) -> Execution {
    let begun = request.lu.with_state(|state| {
        let generations = &mut state.generations;
        (expected == generations.current).then(|| generations.begin_change())
    });
    match begun {
        None => mismatch(),
        Some(None) => busy(),
        Some(Some(held)) => {
            let execution = write_blocks(request, fields, WriteKind::OrWrite { change: Some(new) });
            if fields.blocks == 0 && execution.is_good() {
                request.lu.with_state(|state| state.generations.change(new));
            }
            execution.keeping(held)
        }
    }
}

//= sbc3 5.6 ORW-01
pub(crate) fn or_write_16(request: &Request<'_>) -> Execution {
    set(request, Fields::sixteen(request.cdb), 0)
}

//= sbc4 5.11 ORW-01
pub(crate) fn or_write_32(request: &Request<'_>) -> Execution {
    let cdb = request.cdb;
    let (lba, blocks) = (cdb.u64(12), u64::from(cdb.u32(28)));
    let fields = Fields { lba, blocks, length_at: 28, flags_at: Some(10), tags: None };
    let (expected, generation, policy) = (cdb.u32(20), cdb.u32(24), cdb.u8(3));
    match cdb.u8(2) {
        SET => set(request, fields, expected),
        CHANGE_AND_CLEAR if matches!(policy, 0 | 2 | 3 | 5 | 7) => {
            change_and_clear(request, fields, expected, NewGeneration { policy, generation })
        }
        CHANGE_AND_CLEAR => Execution::check(SenseData::cdb_field(3, Some(3))),
        _ => Execution::check(SenseData::cdb_field(2, Some(2))),
    }
}
