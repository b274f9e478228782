//! Completions: what the engine reports to software.

use super::field::record;
use super::{CompletionKind, DescriptorKind, DigestAction, RECORD_BYTES, RawReason, StopReason, TaskResult};

record!(
    /// A descriptor is finished: exactly one for each that was taken.
    #[derive(Default)]
    TaskDone, RECORD_BYTES, Some(CompletionKind::TASK_DONE.0), {
        /// How it ended.
        result: TaskResult = 1,
        /// Index of the connection.
        conn: u16 = 2,
        /// Initiator Task Tag, of POST_TASK and ABORT.
        itt: u32 = 4,
        /// `user` of the descriptor.
        user: u64 = 8,
        /// Kind of the descriptor.
        descriptor: DescriptorKind = 16,
        /// SCSI status.
        status: u8 = 17,
        /// Response code of the SCSI Response.
        response: u8 = 18,
        /// Bits of [`residual_flags`](super::residual_flags).
        residual_flags: u8 = 19,
        /// Residual Count in bytes.
        residual_count: u32 = 20,
        /// Bytes placed into the task's memory.
        bytes_received: u32 = 24,
        /// Bytes of the task's memory that were sent.
        bytes_sent: u32 = 28,
        /// Bytes written to the area for sense data.
        sense_bytes: u16 = 32,
        /// StatSN of the status.
        stat_sn: u32 = 36,
    }
);

record!(
    /// A PDU for software lies in the ring of raw PDUs.
    #[derive(Default)]
    RawPdu, RECORD_BYTES, Some(CompletionKind::RAW_PDU.0), {
        /// Why it goes to software.
        reason: RawReason = 1,
        /// Index of the connection.
        conn: u16 = 2,
        /// Initiator Task Tag of the PDU.
        itt: u32 = 4,
        /// Address of its first byte.
        addr: u64 = 16,
        /// Length of its header segments in bytes.
        header_bytes: u32 = 24,
        /// Length of its data in bytes, without padding.
        data_bytes: u32 = 28,
        /// Position of its first byte in the received stream.
        position: u64 = 32,
    }
);

record!(
    /// A data digest does not match: no byte of the data segment was used.
    DigestError, RECORD_BYTES, Some(CompletionKind::DIGEST_ERROR.0), {
        /// What follows.
        action: DigestAction = 1,
        /// Index of the connection.
        conn: u16 = 2,
        /// Initiator Task Tag of the PDU.
        itt: u32 = 4,
        /// `user` of the task, 0 without a task.
        user: u64 = 8,
        /// Basic header segment of the PDU.
        bhs: [u8; 48] = 16,
    }
);

record!(
    /// A SNACK was put into the transmit stream.
    #[derive(Default)]
    SnackSent, RECORD_BYTES, Some(CompletionKind::SNACK_SENT.0), {
        /// Type of the SNACK: 0 data or R2T, 1 status.
        snack_type: u8 = 1,
        /// Index of the connection.
        conn: u16 = 2,
        /// Initiator Task Tag of the task; ffffffffh for status.
        itt: u32 = 4,
        /// `user` of the task, 0 for status.
        user: u64 = 8,
        /// BegRun.
        beg_run: u32 = 16,
        /// RunLength.
        run_length: u32 = 20,
    }
);

record!(
    /// A DataACK was put into the transmit stream.
    #[derive(Default)]
    DataackSent, RECORD_BYTES, Some(CompletionKind::DATAACK_SENT.0), {
        /// Index of the connection.
        conn: u16 = 2,
        /// Initiator Task Tag of the task.
        itt: u32 = 4,
        /// `user` of the task, 0 when it has ended.
        user: u64 = 8,
        /// BegRun: the next DataSN.
        beg_run: u32 = 16,
        /// Target Transfer Tag of the Data-In that asked.
        ttt: u32 = 20,
    }
);

record!(
    /// The engine receives no more on a connection until RESYNC.
    #[derive(Default)]
    NeedResync, RECORD_BYTES, Some(CompletionKind::NEED_RESYNC.0), {
        /// Why.
        reason: StopReason = 1,
        /// Index of the connection.
        conn: u16 = 2,
        /// Position of the first byte of the PDU in the received stream.
        position: u64 = 16,
        /// Position of the first byte that was not taken.
        taken: u64 = 24,
        /// Position of the next PDU; all ones when it is not known.
        boundary: u64 = 32,
    }
);

impl NeedResync {
    /// `boundary` when the end of the PDU is in doubt.
    pub const UNKNOWN: u64 = u64::MAX;
}

/// Any completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// TASK_DONE.
    TaskDone(TaskDone),
    /// RAW_PDU.
    RawPdu(RawPdu),
    /// DIGEST_ERROR.
    DigestError(DigestError),
    /// SNACK_SENT.
    SnackSent(SnackSent),
    /// DATAACK_SENT.
    DataackSent(DataackSent),
    /// NEED_RESYNC.
    NeedResync(NeedResync),
}

impl Completion {
    /// Reads a completion; `None` when its kind is not defined.
    pub fn parse(record: &[u8; RECORD_BYTES]) -> Option<Self> {
        Some(match CompletionKind(record[0]) {
            CompletionKind::TASK_DONE => Self::TaskDone(TaskDone::parse(record)),
            CompletionKind::RAW_PDU => Self::RawPdu(RawPdu::parse(record)),
            CompletionKind::DIGEST_ERROR => Self::DigestError(DigestError::parse(record)),
            CompletionKind::SNACK_SENT => Self::SnackSent(SnackSent::parse(record)),
            CompletionKind::DATAACK_SENT => Self::DataackSent(DataackSent::parse(record)),
            CompletionKind::NEED_RESYNC => Self::NeedResync(NeedResync::parse(record)),
            _ => return None,
        })
    }

    /// Writes the completion.
    pub fn emit(&self) -> [u8; RECORD_BYTES] {
        match self {
            Self::TaskDone(completion) => completion.emit(),
            Self::RawPdu(completion) => completion.emit(),
            Self::DigestError(completion) => completion.emit(),
            Self::SnackSent(completion) => completion.emit(),
            Self::DataackSent(completion) => completion.emit(),
            Self::NeedResync(completion) => completion.emit(),
        }
    }
}
