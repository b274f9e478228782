//! The operations that the device server requests from the medium, and the possible replies.

use bytes::Bytes;

use crate::logical_unit::LogicalUnit;
use crate::protection::{PiField, ProtectionType};
use crate::sense::{Asc, SenseData, SenseKey};

/// An operation on the medium, in logical blocks. The caller executes it atomically with respect to other operations
/// on the same blocks. Ranges are within the capacity and within the limits of VPD page B0h, and never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumOp {
    /// Read; reply [`MediumReply::Data`].
    Read {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Write the data-out just supplied: its first `blocks` blocks.
    Write {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// The data must be on stable storage before the reply.
        durable: bool,
    },
    /// Write as [`MediumOp::Write`], but all blocks or none survive a crash.
    WriteAtomic {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// The data must be on stable storage before the reply.
        durable: bool,
    },
    /// Move everything written so far to stable storage.
    Flush,
    /// Move everything written so far, and every write in progress, to stable storage: afterwards nothing is only cached. Requested
    /// when WCE has become 0; writes that start later are durable anyway.
    Settle,
    /// Deallocate these ranges of (first block, number of blocks); they read as zeros afterwards.
    Unmap {
        /// Ranges in the order of the parameter list; they may overlap.
        ranges: Vec<(u64, u64)>,
        /// The change must be on stable storage before the reply.
        durable: bool,
    },
    /// Write one block of data-out, or zeros, to every block of the range.
    WriteSame {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// The blocks may be deallocated, if they then read as the block to write: only set together with `zero`.
        unmap: bool,
        /// The block is all zeros; there may be no data-out.
        zero: bool,
        /// The data must be on stable storage before the reply.
        durable: bool,
    },
    /// Write this block to every block of the range.
    Fill {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// One block.
        pattern: Bytes,
        /// The data must be on stable storage before the reply.
        durable: bool,
    },
    /// Compare the first half of the data-out with the medium; if equal, write the second half.
    /// Reply [`MediumReply::Miscompare`] otherwise.
    CompareAndWrite {
        /// First block.
        lba: u64,
        /// Number of blocks in each half.
        blocks: u64,
        /// The data must be on stable storage before the reply.
        durable: bool,
    },
    /// Write the bitwise OR of data-out and medium, or the bitwise AND.
    OrWrite {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// AND instead of OR.
        and: bool,
        /// The data must be on stable storage before the reply.
        durable: bool,
    },
    /// Read the blocks from the medium and report errors; no data is transferred.
    Verify {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Compare the medium with data-out. Reply [`MediumReply::Miscompare`] when they differ.
    Compare {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// Data-out is one block that every block must equal.
        one_block: bool,
    },
    /// Write data-out, then read it back from the medium.
    WriteAndVerify {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// Also compare what was read back with data-out.
        bytchk: bool,
        /// The data must be on stable storage before the reply.
        durable: bool,
    },
    /// Provisioning state from `lba` on. Reply [`MediumReply::LbaStatus`].
    LbaStatus {
        /// First block.
        lba: u64,
        /// Maximum number of descriptors that fit the allocation length; at least 1.
        max_descriptors: u32,
    },
    /// Bring the blocks into the cache.
    Prefetch {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Copy blocks between units of the target, or within one unit. All blocks are read before the first is written. Neither unit
    /// need be the one that received the command. [`MediumError::Gone`] when one of them no longer exists.
    Copy {
        /// Unit to read.
        from: u16,
        /// Its first block.
        from_lba: u64,
        /// Unit to write.
        to: u16,
        /// Its first block.
        lba: u64,
        /// Number of blocks; the block length is the same in both units.
        blocks: u64,
        /// The data must be on stable storage before the reply.
        durable: bool,
    },
    /// Record this on stable storage before the reply: only requested from a medium with room for protection information. With
    /// [`FormatMark::Begun`] all tuples become FFh.
    Format(FormatMark),
}

/// The state of a format, as the medium records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatMark {
    /// It started: until it completes, the contents of the medium are unusable, even after a loss of power.
    Begun,
    /// It completed: the unit now has protection information of this type.
    Ended(ProtectionType),
}

impl MediumOp {
    /// The range (first block, number of blocks) of the command's own unit that the operation reads before it does anything else.
    pub(crate) fn reads(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Read { lba, blocks }
            | Self::CompareAndWrite { lba, blocks, .. }
            | Self::OrWrite { lba, blocks, .. }
            | Self::Verify { lba, blocks }
            | Self::Compare { lba, blocks, .. } => Some((lba, blocks)),
            _ => None,
        }
    }

    /// Calls `f` with each range (first block, number of blocks) of the command's own unit that the operation may change.
    pub(crate) fn changes(&self, mut f: impl FnMut(u64, u64)) {
        match *self {
            Self::Write { lba, blocks, .. }
            | Self::WriteAtomic { lba, blocks, .. }
            | Self::WriteSame { lba, blocks, .. }
            | Self::Fill { lba, blocks, .. }
            | Self::CompareAndWrite { lba, blocks, .. }
            | Self::OrWrite { lba, blocks, .. }
            | Self::WriteAndVerify { lba, blocks, .. } => f(lba, blocks),
            Self::Unmap { ref ranges, .. } => ranges.iter().for_each(|&(lba, blocks)| f(lba, blocks)),
            Self::Read { .. }
            | Self::Flush
            | Self::Settle
            | Self::Verify { .. }
            | Self::Compare { .. }
            | Self::LbaStatus { .. }
            | Self::Prefetch { .. }
            // A third-party copy notifies each unit itself.
            | Self::Copy { .. }
            | Self::Format(_) => {}
        }
    }
}

/// A medium operation that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumReply {
    /// Done, with nothing to report.
    Done,
    /// The data read is held by the caller and goes to the initiator as data-in.
    Data,
    /// Data and medium differ.
    Miscompare {
        /// Offset in bytes of the first difference, from the start of the compared data.
        byte_offset: u64,
    },
    /// Provisioning state of consecutive ranges.
    LbaStatus(Vec<LbaStatusDescriptor>),
}

/// Provisioning state of a range (SBC-3 5.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaStatusDescriptor {
    /// First block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// State of all blocks of the range.
    pub provisioning: Provisioning,
}

/// PROVISIONING STATUS (SBC-3 table 55).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Provisioning {
    /// Mapped, or not known.
    Mapped = 0,
    /// Deallocated.
    Deallocated = 1,
    /// Anchored.
    Anchored = 2,
}

/// A medium operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumError {
    /// Unrecovered read error.
    Read {
        /// First bad block, if known.
        lba: Option<u64>,
    },
    /// Write error.
    Write {
        /// First bad block, if known.
        lba: Option<u64>,
    },
    /// A check of protection information failed; this block was not written, or must not be used.
    Protection {
        /// The field.
        field: PiField,
        /// The block.
        lba: u64,
    },
    /// The backing store is full.
    NoSpace,
    /// The backing store refuses writes.
    ReadOnly,
    /// The backing store has gone.
    Gone,
    /// Anything else.
    Internal,
}

impl MediumError {
    //= sbc3 4.17 SNS-02 SNS-03 UNM-03
    pub(crate) fn sense(self, lu: &LogicalUnit) -> SenseData {
        let at = |sense: SenseData, lba: Option<u64>| match lba {
            Some(lba) => sense.with_information(lba),
            None => sense,
        };
        match self {
            Self::Read { lba } => at(SenseData::new(SenseKey::MediumError, Asc::UNRECOVERED_READ_ERROR), lba),
            Self::Write { lba } => at(SenseData::new(SenseKey::MediumError, Asc::WRITE_ERROR), lba),
            Self::Protection { field, lba } => {
                SenseData::new(SenseKey::AbortedCommand, field.asc()).with_information(lba)
            }
            Self::NoSpace if lu.thin() => SenseData::new(SenseKey::DataProtect, Asc::SPACE_ALLOCATION_FAILED),
            Self::NoSpace => SenseData::new(SenseKey::MediumError, Asc::WRITE_ERROR),
            Self::ReadOnly => SenseData::new(SenseKey::DataProtect, Asc::WRITE_PROTECTED),
            Self::Gone => SenseData::new(SenseKey::NotReady, Asc::MEDIUM_NOT_PRESENT),
            Self::Internal => SenseData::new(SenseKey::HardwareError, Asc::INTERNAL_TARGET_FAILURE),
        }
    }
}
