//! The command table of one connection.

use crate::ffi::{Model, model};

/// Inputs of `task_table` in one cycle. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct TaskTableIn {
    tag: u32,
    entry: u32,
    rst: u8,
    request: u8,
}

/// Outputs of `task_table`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct TaskTableOut {
    entry: u32,
    /// Asserts that have failed so far.
    failed: u32,
    answer_valid: u8,
    answer: u8,
    index: u8,
    used: u8,
    ready: u8,
}

model!(TASK_TABLE, TaskTableIn, TaskTableOut, task_table_new, task_table_free, task_table_cycle);

/// What is asked of the table, about the task with an Initiator Task Tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableRequest {
    /// Its entry.
    LookUp,
    /// An entry for it, with these contents.
    Allocate(u32),
    /// These contents for its entry.
    WriteBack(u32),
    /// Its entry is not needed any more.
    Free,
}

/// What the table answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableAnswer {
    /// Done.
    Good,
    /// `NO_TASK`: the tag is not in the table.
    NoTask,
    /// `ITT_IN_USE`: the tag is in the table already.
    IttInUse,
    /// `TABLE_FULL`: every entry has another tag.
    TableFull,
}

/// What the table said in one cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableCycle {
    /// The answer to the request of the cycle before: with the index of the entry, and its contents. The index is that of a `Good`
    /// answer, the contents are those of a `Good` look-up.
    pub answer: Option<(TableAnswer, u8, u32)>,
    /// Entries in use before this cycle's request.
    pub used: u8,
    /// Asserts of the circuit that have failed since its reset.
    pub failed: u32,
}

/// `task_table` with 16 entries of 32 bits.
pub struct TaskTable {
    model: Model<TaskTableIn, TaskTableOut>,
    /// Asserts see random registers until the first reset is over.
    ignored: u32,
}

impl TaskTable {
    /// Entries of the table.
    pub const ENTRIES: usize = 16;

    /// After power-up, with random contents from `seed`, and a reset: the table is empty.
    pub fn new(seed: u16) -> Self {
        let mut table = Self { model: Model::new(TASK_TABLE, seed), ignored: 0 };
        let reset = TaskTableIn { rst: 1, ..TaskTableIn::default() };
        table.ignored = (0..3).map(|_| table.model.cycle(&reset).failed).last().unwrap_or(0);
        table.empty();
        table
    }

    /// A reset: the table is empty again, after as many cycles as this returns.
    pub fn reset(&mut self) -> usize {
        self.model.cycle(&TaskTableIn { rst: 1, ..TaskTableIn::default() });
        self.empty()
    }

    /// Waits until something can be allocated.
    fn empty(&mut self) -> usize {
        let ready = (0..100).position(|_| self.model.cycle(&TaskTableIn::default()).ready != 0);
        ready.expect("the table is ready some time after a reset")
    }

    /// One cycle, with a request about the task `tag` or with none.
    pub fn cycle(&mut self, request: Option<(u32, TableRequest)>) -> TableCycle {
        let inputs = match request {
            None => TaskTableIn::default(),
            Some((tag, request)) => {
                let (request, entry) = match request {
                    TableRequest::LookUp => (1, 0),
                    TableRequest::Allocate(entry) => (2, entry),
                    TableRequest::WriteBack(entry) => (3, entry),
                    TableRequest::Free => (4, 0),
                };
                TaskTableIn { tag, entry, request, rst: 0 }
            }
        };
        let out = self.model.cycle(&inputs);
        let answer = match out.answer {
            0 => TableAnswer::Good,
            4 => TableAnswer::NoTask,
            5 => TableAnswer::IttInUse,
            _ => TableAnswer::TableFull,
        };
        TableCycle {
            answer: (out.answer_valid != 0).then_some((answer, out.index, out.entry)),
            used: out.used,
            failed: out.failed - self.ignored,
        }
    }
}
