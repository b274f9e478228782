//! Stores around stores: each adds one behaviour, passes everything else on, and can be stacked.

pub(crate) mod delay;
pub(crate) mod fault;
pub(crate) mod stats;

use crate::Op;

/// A set of operations, for rules that apply to some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpSet(u16);

impl OpSet {
    /// Every operation.
    pub const ALL: OpSet = OpSet(u16::MAX);
    /// No operation.
    pub const NONE: OpSet = OpSet(0);

    /// The given operations.
    #[must_use]
    pub fn of(ops: &[Op]) -> Self {
        OpSet(ops.iter().fold(0, |set, &op| set | 1 << op as u16))
    }

    /// Whether `op` is in the set.
    #[must_use]
    pub fn contains(self, op: Op) -> bool {
        self.0 & 1 << op as u16 != 0
    }
}

impl From<Op> for OpSet {
    fn from(op: Op) -> Self {
        OpSet::of(&[op])
    }
}
