//! Which check failed, at which block, and what that implies about where the block was damaged.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use scsi::PiField;

use crate::sense::Sense;

/// Where the damage is that a check has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PiPlace {
    /// The caller's own tuples did not match its data when they were handed over: nothing was sent.
    BeforeSending,
    /// The target's check of a write found it: between this process and the target. Nothing of the block was written.
    OnTheWayToTheTarget,
    /// The target's check of a read found it: on the medium, or between it and that check.
    OnTheMedium,
    /// Our check of a read found it after the target had let the block pass: between its check and this process, or on the
    /// medium if the target does not know the tag.
    OnTheWayToHere,
}

impl fmt::Display for PiPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeSending => "in the caller's buffers, before anything was sent",
            Self::OnTheWayToTheTarget => "between this process and the target's check",
            Self::OnTheMedium => "on the medium, or between it and the target's check",
            Self::OnTheWayToHere => "between the target's check and this process",
        })
    }
}

/// A block whose protection information failed a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PiFailure {
    /// The field that failed.
    pub field: PiField,
    /// The block; `None` if the target does not report it.
    pub lba: Option<u64>,
    /// The expected and the found value; `None` if the target's check found it.
    pub values: Option<(u32, u32)>,
    /// Where the damage is.
    pub place: PiPlace,
}

impl PiFailure {
    /// The failure that the sense data of a command reports, if it is one (ABORTED COMMAND, 10h/01h to 10h/03h).
    //= sbc3 4.22.4 PI-17
    pub(crate) fn told(sense: &Sense, writes: bool) -> Option<Self> {
        let field = match (sense.key, sense.asc, sense.ascq) {
            (0xb, 0x10, 0x01) => PiField::Guard,
            (0xb, 0x10, 0x02) => PiField::AppTag,
            (0xb, 0x10, 0x03) => PiField::RefTag,
            _ => return None,
        };
        let place = if writes { PiPlace::OnTheWayToTheTarget } else { PiPlace::OnTheMedium };
        Some(Self { field, lba: sense.information, values: None, place })
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match (self.field, self.place) {
            (PiField::AppTag, _) => {
                "another program wrote the block, or the tag asked for is wrong: see who owns these blocks"
            }
            (_, PiPlace::BeforeSending) => {
                "the data changed after their tuples were made: look for whoever writes to that memory, then test the memory"
            }
            (PiField::RefTag, PiPlace::OnTheMedium) => {
                "the block was written for another address, or its write was lost: restore it from a copy"
            }
            (_, PiPlace::OnTheMedium) => "write the block anew from a copy, and examine the medium",
            (_, PiPlace::OnTheWayToTheTarget | PiPlace::OnTheWayToHere) => {
                "try again; if it happens again turn data digests on, which tell the network from the two ends"
            }
        }
    }
}

impl fmt::Display for PiFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} of ", self.field)?;
        match self.lba {
            Some(lba) => write!(f, "block {lba}")?,
            None => f.write_str("a block")?,
        }
        match (self.values, self.field) {
            (None, _) => f.write_str(" is wrong")?,
            (Some((expected, found)), PiField::RefTag) => {
                write!(f, " is {found:08x}h and has to be {expected:08x}h")?
            }
            (Some((expected, found)), _) => write!(f, " is {found:04x}h and has to be {expected:04x}h")?,
        }
        write!(f, ": damaged {}; {} (SBC-3 4.22.4)", self.place, self.remedy())
    }
}

/// Blocks whose protection information failed a check, found here or by the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PiCounters {
    /// Guards.
    pub guard: u64,
    /// Application tags.
    pub app_tag: u64,
    /// Reference tags.
    pub ref_tag: u64,
}

impl PiCounters {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.guard + self.app_tag + self.ref_tag
    }
}

/// The same counters, updated atomically.
#[derive(Debug, Default)]
pub(crate) struct PiErrors([AtomicU64; 3]);

impl PiErrors {
    pub(crate) fn count(&self, field: PiField) {
        self.0[field as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> PiCounters {
        let of = |field: PiField| self.0[field as usize].load(Ordering::Relaxed);
        PiCounters { guard: of(PiField::Guard), app_tag: of(PiField::AppTag), ref_tag: of(PiField::RefTag) }
    }
}
