//! A FIFO with credits, and its sender.

use crate::ffi::{Model, model};

/// Inputs of `credit_link` in one cycle. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct CreditIn {
    data: u32,
    rst: u8,
    send: u8,
    force_push: u8,
    pop: u8,
}

/// Outputs of `credit_link`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct CreditOut {
    data: u32,
    /// Asserts that have failed so far.
    failed: u32,
    may_send: u8,
    valid: u8,
}

model!(CREDIT, CreditIn, CreditOut, credit_link_new, credit_link_free, credit_link_cycle);

/// What the link said in one cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreditCycle {
    /// Whether the word was sent; false without a word.
    pub sent: bool,
    /// The word that left; `None` if none was there, or none was asked for.
    pub popped: Option<u32>,
    /// Asserts of the circuit that have failed since its reset.
    pub failed: u32,
}

/// `credit_link`: five slots, and two cycles between the sender and the FIFO.
pub struct CreditLink {
    model: Model<CreditIn, CreditOut>,
    /// Asserts see random registers until the first reset is over.
    ignored: u32,
}

impl CreditLink {
    /// After power-up, with random contents from `seed`, and a reset.
    pub fn new(seed: u16) -> Self {
        let mut model = Model::new(CREDIT, seed);
        let reset = CreditIn { rst: 1, ..CreditIn::default() };
        let ignored = (0..3).map(|_| model.cycle(&reset).failed).last().unwrap_or(0);
        Self { model, ignored }
    }

    /// One cycle: sends `word` if there is a credit, and takes the oldest word if `pop`.
    pub fn cycle(&mut self, word: Option<u32>, pop: bool) -> CreditCycle {
        let inputs = CreditIn {
            data: word.unwrap_or(!0),
            send: word.is_some().into(),
            pop: pop.into(),
            ..CreditIn::default()
        };
        let out = self.model.cycle(&inputs);
        CreditCycle {
            sent: word.is_some() && out.may_send != 0,
            popped: (pop && out.valid != 0).then_some(out.data),
            failed: out.failed - self.ignored,
        }
    }

    /// One cycle that pushes into the FIFO without a credit: a fault. Returns how many asserts have failed since the reset.
    pub fn push_without_credit(&mut self) -> u32 {
        let failed = self.model.cycle(&CreditIn { force_push: 1, ..CreditIn::default() }).failed;
        failed - self.ignored
    }
}
