//! ORWRITE(16) and (32) (SBC-4 4.27, 5.10, 5.11): set bits of a bitmap on the medium, or clear bits and change the bitmap's
//! generation.
//!
//! A host that sets bits names the generation it expects. If that is not the current one, the policy given with the last change
//! decides what happens. No set operation is in progress while a generation changes: a command that arrives meanwhile gets BUSY.
//! ORWRITE(16) expects generation 0; (32) exists where the other 32-byte commands do. Generations are reset at power on and by a
//! reset of the target, but not by a logical unit reset.

use std::sync::{Arc, Weak};

use crate::execution::{Continuation, Execution, Request, WriteKind};
use crate::logical_unit::LogicalUnit;
use crate::medium::MediumReply;
use crate::outcome::{Outcome, Status};
use crate::read_write::{Fields, write_blocks};
use crate::sense::{Asc, SenseData};

/// BMOP: set bits, or change the generation and clear bits.
const SET: u8 = 0;
const CHANGE_AND_CLEAR: u8 = 1;
/// The policy after power on: an operation that names any generation but the current one is rejected.
const REFUSE: u8 = 7;

/// The change that takes effect when a write completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NewGeneration {
    policy: u8,
    generation: u32,
}

impl Continuation for NewGeneration {
    fn replied(self: Box<Self>, lu: &LogicalUnit, _reply: MediumReply) -> Execution {
        lu.with_state(|state| state.generations.change(*self));
        Execution::good()
    }
}

/// Generations of the bitmap, and the operations in progress that rely on them.
#[derive(Debug)]
pub(crate) struct Generations {
    current: u32,
    previous: u32,
    policy: u8,
    /// Held by every set operation in progress.
    setting: Arc<()>,
    /// Alive while a change is in progress.
    changing: Weak<()>,
}

/// What happens to a set operation (SBC-4 table 29).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Perform,
    /// GOOD, and the data is discarded.
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

    /// `None`: an operation relies on the current generation.
    fn begin_change(&mut self) -> Option<Arc<()>> {
        let free = self.changing.strong_count() == 0 && Arc::strong_count(&self.setting) == 1;
        free.then(|| {
            let change = Arc::new(());
            self.changing = Arc::downgrade(&change);
            change
        })
    }

    /// The write of a change has completed.
    fn change(&mut self, new: NewGeneration) {
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
        Fate::Perform => write_blocks(request, fields, WriteKind::OrWrite).keeping(held),
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
            let execution = write_blocks(request, fields, WriteKind::AndWrite(Box::new(new)));
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
