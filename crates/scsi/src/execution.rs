//! A command in progress: what it waits for, and what it does with the answer.

use std::sync::Arc;

use crate::cdb::Cdb;
use crate::data_out::DataOut;
use crate::logical_unit::LogicalUnit;
use crate::medium::{MediumError, MediumOp, MediumReply};
use crate::nexus::Nexus;
use crate::outcome::{DataInSource, Outcome, Status};
use crate::protection::Protection;
use crate::sense::{Asc, SenseData, SenseKey};

/// What a command waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Fetch this many bytes of data-out, or as many as the expected data transfer length allows if that is less, and call
    /// [`Execution::data_out`]; if there is no data-out, call it with an empty list.
    NeedDataOut {
        /// Bytes that the CDB requests; never 0.
        bytes: u64,
    },
    /// Execute this on the medium and call [`Execution::medium_done`].
    Medium(MediumOp),
    /// The command has completed.
    Done(Outcome),
}

/// The context in which a handler runs.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) lu: &'a LogicalUnit,
    pub(crate) nexus: &'a Nexus,
    pub(crate) cdb: &'a Cdb,
    /// Bytes of data-out that the initiator offers.
    pub(crate) offered: u64,
}

/// Handles the parameter list of a command.
pub(crate) type ParameterHandler = fn(&Request<'_>, &[u8]) -> Execution;

/// What a command does when the medium has answered, if that is more than to report the answer. The file of the command has it.
pub(crate) trait Continuation: std::fmt::Debug + Send + Sync {
    /// The medium has carried the operation out.
    fn replied(self: Box<Self>, lu: &LogicalUnit, reply: MediumReply) -> Execution;

    /// The medium has failed.
    fn failed(self: Box<Self>, lu: &LogicalUnit, error: MediumError) -> Execution {
        Execution::check(error.sense(lu))
    }

    /// Whether the command must continue when its task is aborted or its nexus is lost.
    fn outlives_task(&self) -> bool {
        false
    }
}

/// What a command does with medium data-out.
#[derive(Debug)]
pub(crate) struct WritePlan {
    pub(crate) kind: WriteKind,
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
    pub(crate) durable: bool,
    /// Bytes that the CDB requests.
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(crate) enum WriteKind {
    Write,
    Atomic,
    /// Sets bits.
    OrWrite,
    /// Clears them, and continues.
    AndWrite(Box<dyn Continuation>),
    /// The data is no longer needed.
    Discard,
    WriteAndVerify {
        bytchk: bool,
    },
    Compare,
    CompareOneBlock,
    CompareAndWrite,
    Same {
        unmap: bool,
    },
}

impl WriteKind {
    /// Whether it writes what has arrived when that is less than the CDB requests.
    fn takes_fewer_blocks(&self) -> bool {
        match self {
            Self::Write
            | Self::OrWrite
            | Self::AndWrite(_)
            | Self::Discard
            | Self::WriteAndVerify { .. }
            | Self::Compare => true,
            Self::Atomic | Self::CompareOneBlock | Self::CompareAndWrite | Self::Same { .. } => false,
        }
    }
}

/// What a command does with the answer of the medium.
#[derive(Debug)]
pub(crate) struct MediumPlan {
    pub(crate) transfer_bytes: u64,
    /// Status of success.
    pub(crate) good: Status,
    pub(crate) after: After,
}

impl MediumPlan {
    /// Reports the answer, without data-out; success is GOOD.
    pub(crate) fn report() -> Self {
        Self { transfer_bytes: 0, good: Status::Good, after: After::End }
    }

    /// Continues with `then`, without data-out.
    pub(crate) fn then(then: impl Continuation + 'static) -> Self {
        Self { after: After::Then(Box::new(then)), ..Self::report() }
    }
}

#[derive(Debug)]
pub(crate) enum After {
    /// Complete with the plan's status.
    End,
    /// The cache was flushed because of FUA: now read.
    Read { lba: u64, blocks: u64 },
    /// INFORMATION of a miscompare is the byte offset (COMPARE AND WRITE).
    MiscompareOffset,
    /// INFORMATION of a miscompare is the LBA of the block that differs.
    MiscompareLba { lba: u64, block_bytes: u32 },
    /// The command has more to do.
    Then(Box<dyn Continuation>),
}

enum Next {
    Finished,
    Parameters(Box<Parameters>),
    Write(WritePlan),
    Medium(MediumPlan),
}

/// The handler of a parameter list that is still being transferred.
struct Parameters {
    nexus: Nexus,
    cdb: Cdb,
    handler: ParameterHandler,
}

/// A command in progress. It stays in one place, and the caller passes in the answers.
pub struct Execution {
    step: Step,
    next: Next,
    transfer_bytes: u64,
    /// Dropping this shows the unit that an operation that excludes others has ended.
    alive: Option<Arc<()>>,
    protection: Option<Protection>,
    remainder: Option<Box<Execution>>,
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

    fn at(step: Step, next: Next, transfer_bytes: u64) -> Self {
        Self { step, next, transfer_bytes, alive: None, protection: None, remainder: None }
    }

    pub(crate) fn done(outcome: Outcome) -> Self {
        let bytes = outcome.transfer_bytes;
        Self::at(Step::Done(outcome), Next::Finished, bytes)
    }

    pub(crate) fn check(sense: SenseData) -> Self {
        Self::done(Outcome::check(sense))
    }

    pub(crate) fn good() -> Self {
        Self::done(Outcome::good())
    }

    pub(crate) fn is_good(&self) -> bool {
        matches!(&self.step, Step::Done(outcome) if outcome.status == Status::Good)
    }

    /// Waits for a parameter list of `bytes` bytes; an empty list is handled at once.
    pub(crate) fn parameters(request: &Request<'_>, bytes: u64, handler: ParameterHandler) -> Self {
        if bytes == 0 {
            return handler(request, &[]);
        }
        let parameters = Parameters { nexus: request.nexus.clone(), cdb: *request.cdb, handler };
        Self::at(Step::NeedDataOut { bytes }, Next::Parameters(Box::new(parameters)), bytes)
    }

    /// Waits for the data-out of a medium operation.
    pub(crate) fn write(plan: WritePlan) -> Self {
        let bytes = plan.bytes;
        Self::at(Step::NeedDataOut { bytes }, Next::Write(plan), bytes)
    }

    /// Waits for the medium.
    pub(crate) fn medium(op: MediumOp, plan: MediumPlan) -> Self {
        let bytes = plan.transfer_bytes;
        Self::at(Step::Medium(op), Next::Medium(plan), bytes)
    }

    /// How to treat the protection information of the blocks of the medium operation; `None` when the unit has none.
    pub fn protection(&self) -> Option<&Protection> {
        self.protection.as_ref()
    }

    pub(crate) fn protected(self, protection: Option<Protection>) -> Self {
        Self { protection, ..self }
    }

    pub(crate) fn keeping(self, alive: Arc<()>) -> Self {
        Self { alive: Some(alive), ..self }
    }

    pub(crate) fn before(self, rest: Execution) -> Self {
        Self { remainder: Some(Box::new(rest)), ..self }
    }

    /// The work that remains after the command has ended with [`Step::Done`], because it requested its status at once (IMMED).
    /// It is a separate execution without a task, and nothing waits for its outcome. Dropping it abandons the operation.
    //= sbc3 4.11 SAN-01 FMT-01
    pub fn take_remainder(&mut self) -> Option<Execution> {
        self.remainder.take().map(|rest| *rest)
    }

    /// Whether it must continue when its task is aborted or its nexus is lost: only SANITIZE does.
    //= sbc3 4.11 SAN-01
    pub fn outlives_task(&self) -> bool {
        matches!(&self.next, Next::Medium(MediumPlan { after: After::Then(then), .. }) if then.outlives_task())
    }

    /// The answer to [`Step::NeedDataOut`]: exactly the bytes requested, or fewer when the initiator's expected data transfer
    /// length was smaller. Further bytes are ignored. In any other step the command ends with 4/44/00, because the caller broke
    /// the contract.
    pub fn data_out(&mut self, lu: &LogicalUnit, data: &DataOut<'_>) {
        let next = std::mem::replace(&mut self.next, Next::Finished);
        let mut then = match (&self.step, next) {
            (&Step::NeedDataOut { bytes }, Next::Parameters(parameters)) => {
                let Parameters { nexus, cdb, handler } = &*parameters;
                if data.len() < bytes {
                    Self::check(SenseData::illegal(Asc::INVALID_FIELD_IN_INFORMATION_UNIT))
                } else {
                    let request = Request { lu, nexus, cdb, offered: data.offered() };
                    let execution = handler(&request, &data.to_vec(bytes));
                    execution.note_end(lu, nexus);
                    execution
                }
            }
            (Step::NeedDataOut { .. }, Next::Write(plan)) => {
                plan.with_data(lu, data, self.protection.as_ref())
            }
            _ => Self::check(SenseData::new(SenseKey::HardwareError, Asc::INTERNAL_TARGET_FAILURE)),
        };
        then.alive = then.alive.or(self.alive.take());
        self.continue_with(lu, then);
    }

    /// The answer to [`Step::Medium`]. In any other step the command ends with 4/44/00.
    pub fn medium_done(&mut self, lu: &LogicalUnit, result: Result<MediumReply, MediumError>) {
        if let (Step::Medium(op), Ok(MediumReply::Done)) = (&self.step, &result) {
            op.changes(|lba, blocks| lu.changed(lba, blocks));
        }
        let mut then = match (std::mem::replace(&mut self.next, Next::Finished), result) {
            (Next::Medium(plan), Ok(reply)) => plan.replied(lu, reply),
            (Next::Medium(plan), Err(error)) => plan.failed(lu, error),
            _ => Self::check(SenseData::new(SenseKey::HardwareError, Asc::INTERNAL_TARGET_FAILURE)),
        };
        then.alive = self.alive.take();
        self.continue_with(lu, then);
    }

    /// Continues as `then`, but keeps its own transfer length and protection.
    #[inline]
    fn continue_with(&mut self, lu: &LogicalUnit, then: Execution) {
        (self.step, self.next) = (then.step, then.next);
        (self.alive, self.remainder) = (then.alive, then.remainder);
        self.expect_transfer(self.transfer_bytes);
        self.finish(lu);
    }

    /// Residuals count against what the CDB requested, whatever the result of the command.
    fn expect_transfer(&mut self, asked: u64) {
        self.transfer_bytes = asked;
        if let Step::Done(outcome) = &mut self.step
            && outcome.data_in == DataInSource::None
        {
            outcome.transfer_bytes = asked;
        }
    }

    /// Tells the unit the status with which the command has ended, if it has.
    pub(crate) fn note_end(&self, lu: &LogicalUnit, nexus: &Nexus) {
        if let Step::Done(outcome) = &self.step {
            lu.note_status(nexus, outcome.status);
        }
    }

    pub(crate) fn finish(&mut self, lu: &LogicalUnit) {
        match &mut self.step {
            Step::Done(outcome) => outcome.descriptor_sense = lu.descriptor_sense(),
            Step::Medium(op) => {
                if let Some(sense) = op.reads().and_then(|(lba, blocks)| lu.unreadable(lba, blocks)) {
                    let asked = self.transfer_bytes;
                    *self = Self::check(sense);
                    self.expect_transfer(asked);
                    return self.finish(lu);
                }
                op.changes(|lba, blocks| lu.about_to_change(lba, blocks));
            }
            Step::NeedDataOut { .. } => {}
        }
    }
}

impl WritePlan {
    /// Only whole blocks that arrived are used. An expected data transfer length that ends within a block is rejected with the
    /// code that iSCSI and SAS targets use for data that does not fit the command.
    fn with_data(
        mut self,
        lu: &LogicalUnit,
        data: &DataOut<'_>,
        protection: Option<&Protection>,
    ) -> Execution {
        let wire_block = protection.map_or(lu.block_bytes(), |p| p.wire_block_bytes(lu.block_bytes()));
        let block_bytes = u64::from(wire_block);
        let arrived = data.len().min(self.bytes);
        //= sbc3 5.43 WSM-02
        if data.offered() > self.bytes
            && matches!(self.kind, WriteKind::Same { .. } | WriteKind::CompareAndWrite)
        {
            return Execution::check(SenseData::illegal(Asc::INVALID_FIELD_IN_INFORMATION_UNIT));
        }
        if arrived < self.bytes {
            if !(self.kind.takes_fewer_blocks() && arrived.is_multiple_of(block_bytes)) {
                return Execution::check(SenseData::illegal(Asc::INVALID_FIELD_IN_INFORMATION_UNIT));
            }
            self.blocks = arrived / block_bytes;
            if self.blocks == 0 {
                return Execution::good();
            }
        }
        let WritePlan { kind, lba, blocks, durable, bytes } = self;
        let mut after = After::End;
        let miscompare_lba = After::MiscompareLba { lba, block_bytes: wire_block };
        let op = match kind {
            WriteKind::Write => MediumOp::Write { lba, blocks, durable },
            WriteKind::Atomic => MediumOp::WriteAtomic { lba, blocks, durable },
            WriteKind::OrWrite => MediumOp::OrWrite { lba, blocks, and: false, durable },
            WriteKind::AndWrite(then) => {
                after = After::Then(then);
                MediumOp::OrWrite { lba, blocks, and: true, durable }
            }
            WriteKind::Discard => return Execution::good(),
            WriteKind::WriteAndVerify { bytchk } => {
                after = miscompare_lba;
                MediumOp::WriteAndVerify { lba, blocks, bytchk, durable }
            }
            WriteKind::Compare => {
                after = miscompare_lba;
                MediumOp::Compare { lba, blocks, one_block: false }
            }
            WriteKind::CompareOneBlock => {
                after = miscompare_lba;
                MediumOp::Compare { lba, blocks, one_block: true }
            }
            WriteKind::CompareAndWrite => {
                after = After::MiscompareOffset;
                MediumOp::CompareAndWrite { lba, blocks, durable }
            }
            WriteKind::Same { unmap } => {
                // The UNMAP bit requests deallocation whatever the block holds: hosts and the kernel's target read it that way,
                // and a host that compares afterwards expects zeros (LBPRZ). See docs/scsi.md. On a unit with protection
                // information a block of zeros has a tuple, so it must be written; only a deallocated block has none.
                let zero = unmap || (protection.is_none() && data.is_zero(block_bytes));
                MediumOp::WriteSame { lba, blocks, unmap, zero, durable }
            }
        };
        Execution::medium(op, MediumPlan { transfer_bytes: bytes, good: Status::Good, after })
    }
}

impl MediumPlan {
    fn replied(self, lu: &LogicalUnit, reply: MediumReply) -> Execution {
        let miscompare = SenseData::new(SenseKey::Miscompare, Asc::MISCOMPARE_DURING_VERIFY);
        let Self { transfer_bytes, good, after } = self;
        match (reply, after) {
            (reply, After::Then(then)) => then.replied(lu, reply),
            (MediumReply::Done, After::Read { lba, blocks }) => {
                let plan = Self { transfer_bytes, good, after: After::End };
                Execution::medium(MediumOp::Read { lba, blocks }, plan)
            }
            (MediumReply::Data, _) => {
                Execution::done(Outcome { data_in: DataInSource::Medium, transfer_bytes, ..Outcome::good() })
            }
            //= sbc3 5.2 CAW-02
            (MediumReply::Miscompare { byte_offset }, After::MiscompareOffset) => {
                Execution::check(miscompare.with_information(byte_offset))
            }
            (MediumReply::Miscompare { byte_offset }, After::MiscompareLba { lba, block_bytes }) => {
                let block = byte_offset / u64::from(block_bytes.max(1));
                Execution::check(miscompare.with_information(lba.saturating_add(block)))
            }
            (MediumReply::Miscompare { .. }, _) => Execution::check(miscompare),
            (MediumReply::Done | MediumReply::LbaStatus(_), _) => Execution::done(Outcome::status(good)),
        }
    }

    fn failed(self, lu: &LogicalUnit, error: MediumError) -> Execution {
        match self.after {
            After::Then(then) => then.failed(lu, error),
            _ => Execution::check(error.sense(lu)),
        }
    }
}
