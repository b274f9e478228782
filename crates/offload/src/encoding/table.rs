//! Entries of the five tables, as [`Tables`](crate::Tables) shows them.

use super::field::record;
use super::{CommandState, SessionState, SnackCause, SnackState, StopReason};

/// Bits that say what a residual count means.
pub mod residual_flags {
    /// O: that many bytes did not fit.
    pub const OVERFLOW: u8 = 0x04;
    /// U: that many bytes were not needed.
    pub const UNDERFLOW: u8 = 0x02;
}

record!(
    /// An open connection.
    #[derive(Default)]
    SessionEntry, 64, None, {
        /// Index of the connection.
        conn: u16 = 0,
        /// State.
        state: SessionState = 2,
        /// Bits of [`conn_flags`](super::conn_flags).
        flags: u8 = 3,
        /// Polynomial of its digests, highest power first.
        polynomial: u32 = 4,
        /// CmdSN of the next command.
        cmd_sn: u32 = 8,
        /// ExpCmdSN of the peer.
        exp_cmd_sn: u32 = 12,
        /// MaxCmdSN of the peer.
        max_cmd_sn: u32 = 16,
        /// ExpStatSN as it is sent: every status before it was taken.
        exp_stat_sn: u32 = 20,
        /// StatSN that is expected next.
        next_stat_sn: u32 = 24,
        /// Largest data segment that the engine accepts, in bytes.
        max_recv_data_segment_length: u32 = 28,
        /// Largest data segment that the peer accepts, in bytes.
        max_send_data_segment_length: u32 = 32,
        /// MaxBurstLength in bytes.
        max_burst_length: u32 = 36,
        /// FirstBurstLength in bytes.
        first_burst_length: u32 = 40,
        /// How long a SNACK waits, in microseconds.
        snack_delay_us: u32 = 44,
        /// Bytes taken from the stream since OPEN_CONN.
        rx_position: u64 = 48,
        /// ErrorRecoveryLevel.
        error_recovery_level: u8 = 56,
        /// Why the connection has stopped, 0 if it has not.
        stop_reason: StopReason = 57,
        /// Free slots of the ring of raw PDUs.
        raw_slots_free: u16 = 58,
        /// Commands in the command table.
        commands: u16 = 60,
        /// MaxOutstandingR2T.
        max_outstanding_r2t: u16 = 62,
    }
);

record!(
    /// A command from POST_TASK to TASK_DONE.
    #[derive(Default)]
    CommandEntry, 64, None, {
        /// Index of the connection.
        conn: u16 = 0,
        /// Bits of [`task_flags`](super::task_flags).
        flags: u8 = 2,
        /// State.
        state: CommandState = 3,
        /// Initiator Task Tag.
        itt: u32 = 4,
        /// Logical unit, as on the wire.
        lun: [u8; 8] = 8,
        /// `user` of the descriptor.
        user: u64 = 16,
        /// Expected Data Transfer Length in bytes.
        edtl: u32 = 24,
        /// CmdSN; 0 until the command is sent.
        cmd_sn: u32 = 28,
        /// ExpStatSN that the command was sent with.
        exp_stat_sn: u32 = 32,
        /// DataSN (read) or R2TSN (write) that is expected next.
        next_sn: u32 = 36,
        /// End of the data received so far in the task's memory, in bytes.
        next_offset: u32 = 40,
        /// Bytes placed into the task's memory.
        bytes_received: u32 = 44,
        /// Bytes of the task's memory that were sent.
        bytes_sent: u32 = 48,
    }
);

record!(
    /// Data that a write has to send: an R2T, or its unsolicited data.
    #[derive(Default)]
    R2tEntry, 32, None, {
        /// Index of the connection.
        conn: u16 = 0,
        /// Initiator Task Tag.
        itt: u32 = 4,
        /// Target Transfer Tag; ffffffffh for unsolicited data.
        ttt: u32 = 8,
        /// R2TSN; 0 for unsolicited data.
        r2t_sn: u32 = 12,
        /// Offset of the first byte in the task's memory.
        offset: u32 = 16,
        /// Bytes that were requested.
        length: u32 = 20,
        /// Bytes that were sent.
        sent: u32 = 24,
        /// DataSN of the next Data-Out.
        data_sn: u32 = 28,
    }
);

record!(
    /// A group of missing PDUs, or a DataACK that is owed.
    #[derive(Default)]
    SnackEntry, 48, None, {
        /// Index of the connection.
        conn: u16 = 0,
        /// Type of the SNACK.
        snack_type: u8 = 2,
        /// State.
        state: SnackState = 3,
        /// Initiator Task Tag; ffffffffh for status.
        itt: u32 = 4,
        /// BegRun.
        beg_run: u32 = 8,
        /// RunLength.
        run_length: u32 = 12,
        /// When it is due, in microseconds; all ones while a DataACK waits for missing data.
        deadline_us: u64 = 16,
        /// What caused it.
        cause: SnackCause = 24,
        /// Target Transfer Tag of a DataACK.
        ttt: u32 = 28,
        /// Where the missing data begins in the task's memory.
        begin_offset: u32 = 32,
        /// Where the missing data ends; ffffffffh when that is not known.
        end_offset: u32 = 36,
        /// Logical unit of a DataACK, as on the wire.
        lun: [u8; 8] = 40,
    }
);

record!(
    /// One element of a task's memory.
    #[derive(Default)]
    DataAddressEntry, 32, None, {
        /// Index of the connection.
        conn: u16 = 0,
        /// Which element of the list it is, from 0.
        element: u16 = 2,
        /// Initiator Task Tag.
        itt: u32 = 4,
        /// Address in host memory.
        addr: u64 = 8,
        /// Length in bytes.
        length: u32 = 16,
        /// Offset of its first byte in the task's memory.
        buffer_offset: u32 = 20,
    }
);
