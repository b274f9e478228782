//! What one logical unit did.

use std::time::Duration;

use scsi::PiField;

use super::{Count, LatencyHistogram};

/// Kinds of commands that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads the medium.
    Read,
    /// Writes it.
    Write,
    /// SYNCHRONIZE CACHE.
    Flush,
    /// UNMAP.
    Unmap,
    /// Anything else.
    Other,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flush, Self::Unmap, Self::Other];

    /// The value of the label `op`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Unmap => "unmap",
            Self::Other => "other",
        }
    }
}

/// Counters of one kind of command.
#[derive(Debug, Default)]
pub struct OpStats {
    /// Bytes moved, by commands that succeeded.
    pub bytes: Count,
    /// Commands that failed.
    pub errors: Count,
    /// Times from the command's arrival to its status; their number is that of the commands.
    pub latency: LatencyHistogram,
}

/// Counters of one logical unit.
#[derive(Debug, Default)]
pub struct LunStats {
    ops: [OpStats; Op::ALL.len()],
    /// Checks of protection information that failed: guard, application tag, reference tag.
    checks: [Count; 3],
}

impl LunStats {
    /// Counts a command that ended: `bytes` moved when it succeeded, `ok` false when it ended with an error.
    pub fn record(&self, op: Op, bytes: u64, latency: Duration, ok: bool) {
        let stats = self.op(op);
        match ok {
            true if bytes > 0 => stats.bytes.add(bytes),
            true => {}
            false => stats.errors.add(1),
        }
        stats.latency.observe(latency);
    }

    /// The counters of one kind.
    pub fn op(&self, op: Op) -> &OpStats {
        &self.ops[op as usize]
    }

    /// Counts a check of protection information that failed.
    pub fn check_failed(&self, field: PiField) {
        self.checks[field as usize].add(1);
    }

    /// Checks of this field that failed.
    pub fn checks_failed(&self, field: PiField) -> u64 {
        self.checks[field as usize].get()
    }

    /// Errors of all kinds.
    pub fn errors(&self) -> u64 {
        self.ops.iter().map(|op| op.errors.get()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_only_when_the_command_succeeded() {
        let stats = LunStats::default();
        stats.record(Op::Read, 4096, Duration::from_micros(10), true);
        stats.record(Op::Read, 4096, Duration::from_micros(10), false);
        stats.record(Op::Flush, 0, Duration::from_micros(10), false);
        assert_eq!(stats.op(Op::Read).bytes.get(), 4096);
        assert_eq!(stats.op(Op::Read).latency.count(), 2);
        assert_eq!(stats.op(Op::Write).latency.count(), 0);
        assert_eq!(stats.errors(), 2);
    }
}
