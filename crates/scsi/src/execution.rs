//! A command under way: what it waits for, and what it does with the answer.

use crate::cdb::Cdb;
use crate::logical_unit::LogicalUnit;
use crate::nexus::Nexus;
use crate::outcome::{DataInSource, Outcome, Status};
use crate::sense::{Asc, SenseData, SenseKey};

/// What a command waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Fetch this many bytes of data-out, or as many as the expected data transfer length allows when that is less,
    /// and call [`Execution::data_out`]; with no bytes at all call it with an empty list.
    NeedDataOut {
        /// Bytes that the CDB asks for; never 0.
        bytes: u64,
    },
    /// Do this on the medium and call [`Execution::medium_done`].
    Medium(MediumOp),
    /// The command has ended.
    Done(Outcome),
}

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
        /// On stable storage before the reply.
        durable: bool,
    },
    /// Write as [`MediumOp::Write`], but all blocks or none survive a crash.
    WriteAtomic {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// On stable storage before the reply.
        durable: bool,
    },
    /// Everything written so far to stable storage.
    Flush,
    /// Deallocate these ranges of (first block, number of blocks); they read as zeros afterwards.
    Unmap {
        /// Ranges in the order of the parameter list; they may overlap.
        ranges: Vec<(u64, u64)>,
    },
    /// Write one block of data-out, or zeros, to every block of the range.
    WriteSame {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// The blocks may be deallocated, if they then read as the block to write: only asked when `zero`.
        unmap: bool,
        /// The block is all zeros; there may be no data-out at all.
        zero: bool,
        /// On stable storage before the reply.
        durable: bool,
    },
    /// Compare the first half of the data-out with the medium; if equal, write the second half.
    /// Reply [`MediumReply::Miscompare`] otherwise.
    CompareAndWrite {
        /// First block.
        lba: u64,
        /// Number of blocks in each half.
        blocks: u64,
        /// On stable storage before the reply.
        durable: bool,
    },
    /// Write the bitwise OR of data-out and medium.
    OrWrite {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// On stable storage before the reply.
        durable: bool,
    },
    /// Read the blocks from the medium and report errors; no data are transferred.
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
        /// On stable storage before the reply.
        durable: bool,
    },
    /// Provisioning state from `lba` on. Reply [`MediumReply::LbaStatus`].
    LbaStatus {
        /// First block.
        lba: u64,
        /// Most descriptors that fit the allocation length; at least 1.
        max_descriptors: u32,
    },
    /// Bring the blocks into the cache.
    Prefetch {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
    },
}

/// A medium operation that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumReply {
    /// Done, with nothing to tell.
    Done,
    /// The data read are with the caller and go to the initiator as data-in.
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
    /// The backing store is full.
    NoSpace,
    /// The backing store refuses writes.
    ReadOnly,
    /// The backing store has gone.
    Gone,
    /// Anything else.
    Internal,
}

/// Data-out as the pieces in which it arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataOut<'a> {
    pieces: &'a [&'a [u8]],
}

impl<'a> DataOut<'a> {
    /// The concatenation of these pieces.
    pub fn new(pieces: &'a [&'a [u8]]) -> Self {
        Self { pieces }
    }

    /// Bytes in all pieces.
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// No bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first bytes, at most `max`.
    pub(crate) fn to_vec(self, max: u64) -> Vec<u8> {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(max.min(self.len() as usize));
        for piece in self.pieces {
            let room = max - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        bytes
    }

    /// The first `max` bytes are all zero.
    pub(crate) fn is_zero(&self, max: u64) -> bool {
        let mut left = usize::try_from(max).unwrap_or(usize::MAX);
        for piece in self.pieces {
            let part = &piece[..piece.len().min(left)];
            if part.iter().any(|&byte| byte != 0) {
                return false;
            }
            left -= part.len();
        }
        true
    }
}

/// A command's surroundings while a handler runs.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) lu: &'a LogicalUnit,
    pub(crate) nexus: &'a Nexus,
    pub(crate) cdb: &'a Cdb,
}

/// Handles the parameter list of a command.
pub(crate) type ParameterHandler = fn(&Request<'_>, &[u8]) -> Execution;

/// What a command does with medium data-out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WritePlan {
    pub(crate) kind: WriteKind,
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
    pub(crate) durable: bool,
    /// Bytes that the CDB asks for.
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    Write,
    Atomic,
    OrWrite,
    WriteAndVerify { bytchk: bool },
    Compare,
    CompareOneBlock,
    CompareAndWrite,
    Same { unmap: bool },
}

/// What a command does with the answer of the medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MediumPlan {
    pub(crate) transfer_bytes: u64,
    /// Status of success.
    pub(crate) good: Status,
    pub(crate) after: After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// End with the plan's status.
    End,
    /// The cache was flushed on behalf of FUA: now read.
    Read { lba: u64, blocks: u64 },
    /// INFORMATION of a miscompare is the byte offset (COMPARE AND WRITE).
    MiscompareOffset,
    /// INFORMATION of a miscompare is the LBA of the block that differs.
    MiscompareLba { lba: u64, block_bytes: u32 },
    /// Data-in is a GET LBA STATUS parameter list.
    LbaStatus { allocation_length: u32 },
}

enum Next {
    Finished,
    Parameters { nexus: Nexus, cdb: Cdb, handler: ParameterHandler },
    Write(WritePlan),
    Medium(MediumPlan),
}

/// A command under way.
pub struct Execution {
    step: Step,
    next: Next,
    transfer_bytes: u64,
}

impl std::fmt::Debug for Execution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Execution").field("step", &self.step).finish_non_exhaustive()
    }
}

impl Execution {
    /// What the command waits for now.
    pub fn step(&self) -> &Step {
        &self.step
    }

    /// The step, by value.
    pub fn into_step(self) -> Step {
        self.step
    }

    pub(crate) fn done(outcome: Outcome) -> Self {
        Self { transfer_bytes: outcome.transfer_bytes, step: Step::Done(outcome), next: Next::Finished }
    }

    pub(crate) fn check(sense: SenseData) -> Self {
        Self::done(Outcome::check(sense))
    }

    pub(crate) fn good() -> Self {
        Self::done(Outcome::good())
    }

    /// Waits for a parameter list of `bytes` bytes; an empty one is handled at once.
    pub(crate) fn parameters(request: &Request<'_>, bytes: u64, handler: ParameterHandler) -> Self {
        if bytes == 0 {
            return handler(request, &[]);
        }
        Self {
            step: Step::NeedDataOut { bytes },
            next: Next::Parameters { nexus: request.nexus.clone(), cdb: *request.cdb, handler },
            transfer_bytes: bytes,
        }
    }

    /// Waits for the data-out of a medium operation.
    pub(crate) fn write(plan: WritePlan) -> Self {
        Self {
            step: Step::NeedDataOut { bytes: plan.bytes },
            next: Next::Write(plan),
            transfer_bytes: plan.bytes,
        }
    }

    /// Waits for the medium.
    pub(crate) fn medium(op: MediumOp, plan: MediumPlan) -> Self {
        Self { step: Step::Medium(op), next: Next::Medium(plan), transfer_bytes: plan.transfer_bytes }
    }

    /// The answer to [`Step::NeedDataOut`]: exactly the bytes asked for, or fewer when the initiator's expected data
    /// transfer length was smaller. Bytes beyond those asked for are ignored. In any other step the command ends with
    /// 4/44/00, because the caller broke the contract.
    pub fn data_out(self, lu: &LogicalUnit, data: &DataOut<'_>) -> Execution {
        let asked = self.transfer_bytes;
        let mut execution = match (self.step, self.next) {
            (Step::NeedDataOut { bytes }, Next::Parameters { nexus, cdb, handler }) => {
                if data.len() < bytes {
                    Self::check(SenseData::illegal(Asc::INVALID_FIELD_IN_INFORMATION_UNIT))
                } else {
                    handler(&Request { lu, nexus: &nexus, cdb: &cdb }, &data.to_vec(bytes))
                }
            }
            (Step::NeedDataOut { .. }, Next::Write(plan)) => plan.with_data(lu, data),
            _ => Self::check(SenseData::new(SenseKey::HardwareError, Asc::INTERNAL_TARGET_FAILURE)),
        };
        execution.expect_transfer(asked);
        execution.finish(lu)
    }

    /// The answer to [`Step::Medium`]. In any other step the command ends with 4/44/00.
    pub fn medium_done(self, lu: &LogicalUnit, result: Result<MediumReply, MediumError>) -> Execution {
        let asked = self.transfer_bytes;
        let mut execution = match (self.next, result) {
            (Next::Medium(plan), Ok(reply)) => plan.replied(reply),
            (Next::Medium(_), Err(error)) => Self::check(error.sense(lu)),
            _ => Self::check(SenseData::new(SenseKey::HardwareError, Asc::INTERNAL_TARGET_FAILURE)),
        };
        execution.expect_transfer(asked);
        execution.finish(lu)
    }

    /// Residuals count against what the CDB asked for, whatever the command came to.
    fn expect_transfer(&mut self, asked: u64) {
        self.transfer_bytes = asked;
        if let Step::Done(outcome) = &mut self.step
            && outcome.data_in == DataInSource::None
        {
            outcome.transfer_bytes = asked;
        }
    }

    pub(crate) fn finish(mut self, lu: &LogicalUnit) -> Self {
        if let Step::Done(outcome) = &mut self.step {
            outcome.descriptor_sense = lu.descriptor_sense();
        }
        self
    }
}

impl WritePlan {
    /// Only whole blocks that arrived are used. An expected data transfer length that ends within a block is refused,
    /// with the code that iSCSI and SAS targets use for data that do not fit the command.
    fn with_data(mut self, lu: &LogicalUnit, data: &DataOut<'_>) -> Execution {
        let block_bytes = u64::from(lu.block_bytes());
        let arrived = data.len().min(self.bytes);
        if arrived < self.bytes {
            let whole = match self.kind {
                WriteKind::Write
                | WriteKind::OrWrite
                | WriteKind::WriteAndVerify { .. }
                | WriteKind::Compare => arrived % block_bytes == 0,
                WriteKind::Atomic
                | WriteKind::CompareOneBlock
                | WriteKind::CompareAndWrite
                | WriteKind::Same { .. } => false,
            };
            if !whole {
                return Execution::check(SenseData::illegal(Asc::INVALID_FIELD_IN_INFORMATION_UNIT));
            }
            self.blocks = arrived / block_bytes;
            if self.blocks == 0 {
                return Execution::good();
            }
        }
        let WritePlan { lba, blocks, durable, .. } = self;
        let mut after = After::End;
        let miscompare_lba = After::MiscompareLba { lba, block_bytes: lu.block_bytes() };
        let op = match self.kind {
            WriteKind::Write => MediumOp::Write { lba, blocks, durable },
            WriteKind::Atomic => MediumOp::WriteAtomic { lba, blocks, durable },
            WriteKind::OrWrite => MediumOp::OrWrite { lba, blocks, durable },
            WriteKind::WriteAndVerify { bytchk } => {
                after = miscompare_lba;
                MediumOp::WriteAndVerify { lba, blocks, bytchk, durable }
            }
            WriteKind::Compare | WriteKind::CompareOneBlock => {
                after = miscompare_lba;
                MediumOp::Compare { lba, blocks, one_block: self.kind == WriteKind::CompareOneBlock }
            }
            WriteKind::CompareAndWrite => {
                after = After::MiscompareOffset;
                MediumOp::CompareAndWrite { lba, blocks, durable }
            }
            WriteKind::Same { unmap } => {
                let zero = data.is_zero(block_bytes);
                MediumOp::WriteSame { lba, blocks, unmap: unmap && zero, zero, durable }
            }
        };
        Execution::medium(op, MediumPlan { transfer_bytes: self.bytes, good: Status::Good, after })
    }
}

impl MediumPlan {
    fn replied(self, reply: MediumReply) -> Execution {
        let miscompare = SenseData::new(SenseKey::Miscompare, Asc::MISCOMPARE_DURING_VERIFY);
        match (reply, self.after) {
            (MediumReply::Done, After::Read { lba, blocks }) => {
                Execution::medium(MediumOp::Read { lba, blocks }, Self { after: After::End, ..self })
            }
            (MediumReply::Data, _) => Execution::done(Outcome {
                data_in: DataInSource::Medium,
                transfer_bytes: self.transfer_bytes,
                ..Outcome::good()
            }),
            //= sbc3 5.2 CAW-02
            (MediumReply::Miscompare { byte_offset }, After::MiscompareOffset) => {
                Execution::check(miscompare.with_information(byte_offset))
            }
            (MediumReply::Miscompare { byte_offset }, After::MiscompareLba { lba, block_bytes }) => {
                let block = byte_offset / u64::from(block_bytes.max(1));
                Execution::check(miscompare.with_information(lba.saturating_add(block)))
            }
            (MediumReply::Miscompare { .. }, _) => Execution::check(miscompare),
            (MediumReply::LbaStatus(descriptors), After::LbaStatus { allocation_length }) => {
                Execution::done(crate::capacity::lba_status_data(&descriptors, allocation_length))
            }
            (MediumReply::Done | MediumReply::LbaStatus(_), _) => Execution::done(Outcome::status(self.good)),
        }
    }
}

impl MediumError {
    //= sbc3 4.17 SNS-02 SNS-03
    fn sense(self, lu: &LogicalUnit) -> SenseData {
        let at = |sense: SenseData, lba: Option<u64>| match lba {
            Some(lba) => sense.with_information(lba),
            None => sense,
        };
        match self {
            Self::Read { lba } => at(SenseData::new(SenseKey::MediumError, Asc::UNRECOVERED_READ_ERROR), lba),
            Self::Write { lba } => at(SenseData::new(SenseKey::MediumError, Asc::WRITE_ERROR), lba),
            Self::NoSpace if lu.config().thin => {
                SenseData::new(SenseKey::DataProtect, Asc::SPACE_ALLOCATION_FAILED)
            }
            Self::NoSpace => SenseData::new(SenseKey::MediumError, Asc::WRITE_ERROR),
            Self::ReadOnly => SenseData::new(SenseKey::DataProtect, Asc::WRITE_PROTECTED),
            Self::Gone => SenseData::new(SenseKey::NotReady, Asc::MEDIUM_NOT_PRESENT),
            Self::Internal => SenseData::new(SenseKey::HardwareError, Asc::INTERNAL_TARGET_FAILURE),
        }
    }
}
