//! The SNACK table of one connection.

use crate::ffi::{Model, model};
use crate::packed::Bits;

/// Cycles from asking what stands at a place of a table (`sweep_queue`) to the answer.
pub const PEEK_CYCLES: usize = 3;

/// Inputs of `snack_table` in one cycle; entries are packed structs of `snack_pkg` in words, the lowest first. The same as in the shim.
#[repr(C)]
#[derive(Clone, Default)]
struct SnackTableIn {
    entry: [u32; 11],
    peek_at: u16,
    rst: u8,
    valid: u8,
    operation: u8,
    due_ready: u8,
    take: u8,
    take_id: u8,
}

/// Outputs of `snack_table`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct SnackTableOut {
    deadline: u64,
    peek: [u32; 11],
    taken: [u32; 11],
    missing_status: u32,
    /// Asserts that have failed so far.
    failed: u32,
    ready: u8,
    answer: u8,
    found: u8,
    found_state: u8,
    admits: u8,
    has_any: u8,
    due_valid: u8,
    due_id: u8,
    take_answer: u8,
    take_wanted: u8,
    status_missing: u8,
    has_room: u8,
    peek_valid: u8,
}

model!(SNACK_TABLE, SnackTableIn, SnackTableOut, snack_table_new, snack_table_free, snack_table_cycle);

/// An entry: a group of PDUs that are missing, or a DataACK that is owed. As in `docs/engine-interface.md`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnackEntry {
    /// 0 data or R2T, 1 status, 2 DataACK.
    pub snack_type: u8,
    /// 1 waiting, 2 due, 3 sent.
    pub state: u8,
    /// Initiator Task Tag; ffffffffh for status.
    pub itt: u32,
    /// BegRun.
    pub beg_run: u32,
    /// RunLength.
    pub run_length: u32,
    /// Where the missing data begins.
    pub begin_offset: u32,
    /// Where it ends; ffffffffh when that is not known.
    pub end_offset: u32,
    /// When it is due, in microseconds; all ones: never.
    pub deadline_us: u64,
    /// 1 gap, 2 digest, 3 ExpDataSN, 4 A bit.
    pub cause: u8,
    /// Target Transfer Tag.
    pub ttt: u32,
    /// Logical unit as on the wire.
    pub lun: [u8; 8],
}

impl SnackEntry {
    fn words(&self) -> [u32; 11] {
        let bits =
            Bits::new().put(0, 8).put(u64::from_le_bytes(self.lun).into(), 64).put(self.ttt.into(), 32);
        let bits = bits.put(self.cause.into(), 3).put(self.deadline_us.into(), 64);
        let bits = bits.put(self.end_offset.into(), 32).put(self.begin_offset.into(), 32);
        let bits = bits.put(self.run_length.into(), 32).put(self.beg_run.into(), 32).put(self.itt.into(), 32);
        bits.put(self.state.into(), 2).put(self.snack_type.into(), 2).words
    }

    pub(crate) fn of(words: &[u32; 11]) -> Self {
        let mut bits = Bits::of(words);
        // Its name in the transmit queue is the table's own.
        bits.take(8);
        Self {
            lun: bits.take(64).to_le_bytes(),
            ttt: bits.take(32) as u32,
            cause: bits.take(3) as u8,
            deadline_us: bits.take(64),
            end_offset: bits.take(32) as u32,
            begin_offset: bits.take(32) as u32,
            run_length: bits.take(32) as u32,
            beg_run: bits.take(32) as u32,
            itt: bits.take(32) as u32,
            state: bits.take(2) as u8,
            snack_type: bits.take(2) as u8,
        }
    }
}

/// What is asked of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnackOperation {
    /// A loss.
    Lose,
    /// Which group has the number `beg_run`?
    Find,
    /// The number `beg_run` has arrived, at these offsets.
    Fill,
    /// The task has ended.
    Forget,
    /// A DataACK.
    Owe,
    /// DataACKs of the task that no missing Data-In holds back are due at `deadline_us`.
    Release,
    /// Time is `deadline_us`.
    Advance,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The state of the group that has the number, and whether a PDU at these offsets may be its.
    pub group: Option<(u8, bool)>,
    /// There is a group with this key.
    pub has_any: bool,
}

/// `snack_table` with 256 entries.
pub struct SnackTable {
    model: Model<SnackTableIn, SnackTableOut>,
    /// Asserts see random registers until the first reset is over.
    ignored: u32,
    /// The transmit queue takes something in each cycle whose number is a multiple of this.
    pace: usize,
    cycles: usize,
    due: Vec<u8>,
}

impl SnackTable {
    /// After power-up, with random contents from `seed`, and a reset: the table is empty. The transmit queue takes an entry in every
    /// `pace`th cycle.
    pub fn new(seed: u16, pace: usize) -> Self {
        let mut model = Model::new(SNACK_TABLE, seed);
        let reset = SnackTableIn { rst: 1, ..SnackTableIn::default() };
        let ignored = (0..3).map(|_| model.cycle(&reset).failed).last().unwrap_or(0);
        Self { model, ignored, pace, cycles: 0, due: Vec::new() }
    }

    /// One cycle.
    fn cycle(&mut self, mut inputs: SnackTableIn) -> SnackTableOut {
        self.cycles += 1;
        inputs.due_ready = self.cycles.is_multiple_of(self.pace).into();
        let out = self.model.cycle(&inputs);
        assert_eq!(out.failed, self.ignored, "an assert of the circuit has failed");
        if out.due_valid != 0 && inputs.due_ready != 0 {
            self.due.push(out.due_id);
        }
        out
    }

    /// Cycles until `done`. The longest operation sweeps 256 entries twice.
    fn until(&mut self, mut inputs: SnackTableIn, done: impl Fn(&SnackTableOut) -> bool) -> SnackTableOut {
        for _ in 0..50_000 {
            let out = self.cycle(inputs.clone());
            if inputs.valid != 0 && out.ready != 0 {
                inputs.valid = 0;
            }
            if done(&out) {
                return out;
            }
        }
        panic!("the table does not answer")
    }

    /// One operation, to its end.
    pub fn ask(&mut self, operation: SnackOperation, entry: &SnackEntry) -> Found {
        let inputs = SnackTableIn {
            entry: entry.words(),
            valid: 1,
            operation: operation as u8,
            ..SnackTableIn::default()
        };
        let out = self.until(inputs, |out| out.answer != 0);
        Found {
            group: (out.found != 0).then_some((out.found_state, out.admits != 0)),
            has_any: out.has_any != 0,
        }
    }

    /// The entries that have become due since the last call, in the order of the transmit queue.
    pub fn due(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.due)
    }

    /// The turn of an entry that was due has come: what its SNACK requests, if anything.
    pub fn take(&mut self, id: u8) -> Option<SnackEntry> {
        // As the transmit module does, it is asked until the answer comes, and with it.
        let inputs = SnackTableIn { take: 1, take_id: id, ..SnackTableIn::default() };
        let out = self.until(inputs, |out| out.take_answer != 0);
        (out.take_wanted != 0).then(|| SnackEntry::of(&out.taken))
    }

    /// All entries in the order in which they were made.
    pub fn entries(&mut self) -> Vec<SnackEntry> {
        let mut all = Vec::new();
        for place in 0.. {
            let inputs = SnackTableIn { peek_at: place, ..SnackTableIn::default() };
            for _ in 0..=PEEK_CYCLES {
                self.cycle(inputs.clone());
            }
            let out = self.cycle(inputs);
            if out.peek_valid == 0 {
                break;
            }
            all.push(SnackEntry::of(&out.peek));
        }
        all
    }

    /// The first status that is missing.
    pub fn missing_status(&mut self) -> Option<u32> {
        let out = self.cycle(SnackTableIn::default());
        (out.status_missing != 0).then_some(out.missing_status)
    }

    /// The earliest deadline.
    pub fn deadline_us(&mut self) -> Option<u64> {
        let out = self.cycle(SnackTableIn::default());
        (out.deadline != u64::MAX).then_some(out.deadline)
    }

    /// What one PDU can add has room.
    pub fn has_room(&mut self) -> bool {
        self.cycle(SnackTableIn::default()).has_room != 0
    }
}
