//! The tags of one connection's tasks.

use crate::ffi::{Model, model};

/// Inputs of `task_table` in one cycle. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct TaskTableIn {
    tag: u32,
    rst: u8,
    request: u8,
    index: u8,
}

/// Outputs of `task_table`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct TaskTableOut {
    /// Asserts that have failed so far.
    failed: u32,
    answer_valid: u8,
    found: u8,
    index: u8,
    free: u8,
    full: u8,
    used: u8,
    ready: u8,
}

model!(TASK_TABLE, TaskTableIn, TaskTableOut, task_table_new, task_table_free, task_table_cycle);

/// What is asked of the table, about an Initiator Task Tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableRequest {
    /// Its index.
    LookUp,
    /// It is not in the table, and gets the index that is free.
    Add,
    /// It has this index, and needs it no more.
    Remove(u8),
}

/// What the table said in one cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableCycle {
    /// The answer to the look-up of three cycles ago: the index of the tag, if it is in the table.
    pub answer: Option<Option<u8>>,
    /// The index that a tag gets which is added in this cycle.
    pub free: Option<u8>,
    /// Tags in the table, with all requests before that of the last cycle.
    pub used: u8,
    /// Asserts of the circuit that have failed since its reset.
    pub failed: u32,
}

/// `task_table` with 16 entries.
pub struct TaskTable {
    model: Model<TaskTableIn, TaskTableOut>,
    /// Asserts see random registers until the first reset is over.
    ignored: u32,
}

impl TaskTable {
    /// Entries of the table.
    pub const ENTRIES: usize = 16;
    /// Cycles from a look-up to its answer, and between two tags that are added.
    pub const LATENCY: usize = 3;

    /// After power-up, with random contents from `seed`, and a reset: the table is empty.
    pub fn new(seed: u16) -> Self {
        let mut table = Self { model: Model::new(TASK_TABLE, seed), ignored: 0 };
        let reset = TaskTableIn { rst: 1, ..TaskTableIn::default() };
        table.ignored = (0..6).map(|_| table.model.cycle(&reset).failed).last().unwrap_or(0);
        table.empty();
        table
    }

    /// A reset: the table is empty again, after as many cycles as this returns.
    pub fn reset(&mut self) -> usize {
        self.model.cycle(&TaskTableIn { rst: 1, ..TaskTableIn::default() });
        self.empty()
    }

    /// Waits until something can be added.
    fn empty(&mut self) -> usize {
        let ready = (0..100).position(|_| self.model.cycle(&TaskTableIn::default()).ready != 0);
        ready.expect("the table is ready some time after a reset")
    }

    /// One cycle, with a request about the task `tag` or with none.
    pub fn cycle(&mut self, request: Option<(u32, TableRequest)>) -> TableCycle {
        let inputs = match request {
            None => TaskTableIn::default(),
            Some((tag, request)) => {
                let (request, index) = match request {
                    TableRequest::LookUp => (1, 0),
                    TableRequest::Add => (2, 0),
                    TableRequest::Remove(index) => (3, index),
                };
                TaskTableIn { tag, request, index, rst: 0 }
            }
        };
        let out = self.model.cycle(&inputs);
        TableCycle {
            answer: (out.answer_valid != 0).then(|| (out.found != 0).then_some(out.index)),
            free: (out.full == 0).then_some(out.free),
            used: out.used,
            failed: out.failed - self.ignored,
        }
    }

    /// Looks a tag up, and waits for the answer.
    pub fn look_up(&mut self, tag: u32) -> Option<u8> {
        self.cycle(Some((tag, TableRequest::LookUp)));
        let said = (0..Self::LATENCY).map(|_| self.cycle(None)).last();
        said.and_then(|said| said.answer).expect("an answer to the look-up")
    }

    /// Adds a tag when an index is known to be free; returns that index.
    pub fn add(&mut self, tag: u32) -> Option<u8> {
        for _ in 0..Self::LATENCY {
            self.cycle(None);
        }
        let free = self.cycle(None).free?;
        self.cycle(Some((tag, TableRequest::Add)));
        Some(free)
    }
}
