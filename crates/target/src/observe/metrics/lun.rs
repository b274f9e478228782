//! Statistics of one logical unit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use scsi::{CommandClass, PiField};

use super::{Count, LatencyHistogram, Reason};

/// Kinds of commands that are counted separately.
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

    /// The kind of a command.
    pub fn of(cdb: &[u8]) -> Self {
        match scsi::command_facts(cdb).class {
            CommandClass::Read => Self::Read,
            CommandClass::Write => Self::Write,
            CommandClass::Flush => Self::Flush,
            CommandClass::Unmap => Self::Unmap,
            CommandClass::Other => Self::Other,
        }
    }

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
    errors: [Count; Reason::ALL.len()],
    /// Times from the command's arrival to its status; their number is the number of commands.
    pub latency: LatencyHistogram,
}

impl OpStats {
    /// Commands that failed for this reason.
    pub fn errors(&self, reason: Reason) -> u64 {
        self.errors[reason as usize].get()
    }
}

/// Counters of one logical unit.
#[derive(Debug, Default)]
pub struct LunStats {
    ops: [OpStats; Op::ALL.len()],
    /// Checks of protection information that failed: guard, application tag, reference tag.
    checks: [Count; 3],
    missing: AtomicBool,
}

impl LunStats {
    /// Counts a completed command: with `bytes` moved, or with the reason why it failed.
    pub fn record(&self, op: Op, bytes: u64, latency: Duration, failed: Option<Reason>) {
        let stats = self.op(op);
        match failed {
            None => stats.bytes.add(bytes),
            Some(reason) => stats.errors[reason as usize].add(1),
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

    /// Sets whether its store is unavailable.
    pub fn set_missing(&self, missing: bool) {
        self.missing.store(missing, Ordering::Relaxed);
    }

    /// Whether its store is unavailable.
    pub fn is_missing(&self) -> bool {
        self.missing.load(Ordering::Relaxed)
    }

    /// Commands of all kinds that failed because of a fault of the unit or of data ([`Reason::is_fault`]).
    pub fn faults(&self) -> u64 {
        let faults = Reason::ALL.into_iter().filter(|reason| reason.is_fault());
        faults.map(|reason| self.ops.iter().map(|op| op.errors(reason)).sum::<u64>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_checks_are_counted_by_field() {
        let stats = LunStats::default();
        let fields = [PiField::Guard, PiField::AppTag, PiField::RefTag];
        for (times, field) in (1..).zip(fields) {
            (0..times).for_each(|_| stats.check_failed(field));
        }
        assert_eq!(fields.map(|field| stats.checks_failed(field)), [1, 2, 3]);
    }

    #[test]
    fn bytes_count_only_when_the_command_succeeded() {
        let stats = LunStats::default();
        stats.record(Op::Read, 4096, Duration::from_micros(10), None);
        stats.record(Op::Read, 4096, Duration::from_micros(10), Some(Reason::IllegalRequest));
        stats.record(Op::Read, 4096, Duration::from_micros(10), Some(Reason::NotReady));
        stats.record(Op::Flush, 0, Duration::from_micros(10), Some(Reason::NoSpace));
        assert_eq!(stats.op(Op::Read).bytes.get(), 4096);
        assert_eq!(stats.op(Op::Read).latency.count(), 3);
        assert_eq!(stats.op(Op::Write).latency.count(), 0);
        assert_eq!(stats.op(Op::Read).errors(Reason::IllegalRequest), 1);
        assert_eq!(stats.faults(), 2, "what is asked wrongly is no fault of the unit");
    }

    #[test]
    fn commands_of_every_length_are_of_their_kind() {
        let long = |action: u8| {
            let mut cdb = [0; 32];
            (cdb[0], cdb[7], cdb[9]) = (0x7f, 0x18, action);
            Op::of(&cdb)
        };
        assert_eq!([0x09, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f].map(long), {
            use Op::{Read, Write};
            [Read, Write, Write, Write, Write, Write]
        });
        assert_eq!(long(0x0a), Op::Other, "VERIFY takes nothing to the host");
        for opcode in [0x08, 0x28, 0xa8, 0x88] {
            assert_eq!(Op::of(&[opcode]), Op::Read);
        }
        for opcode in [0x0a, 0x2a, 0xaa, 0x8a, 0x2e, 0xae, 0x8e, 0x41, 0x93, 0x89, 0x8b, 0x9c] {
            assert_eq!(Op::of(&[opcode]), Op::Write);
        }
        assert_eq!([[0x35], [0x91], [0x42], [0x00], [0xff]].map(|cdb| Op::of(&cdb)), {
            use Op::{Flush, Other, Unmap};
            [Flush, Flush, Unmap, Other, Other]
        });
        assert_eq!(Op::of(&[]), Op::Other);
    }
}
