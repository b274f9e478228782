//! Descriptors: what software asks the engine to do.

use super::field::record;
use super::{DescriptorKind, RECORD_BYTES};

/// Bits of `flags` in [`OpenConn`].
pub mod conn_flags {
    /// HeaderDigest is in force.
    pub const HEADER_DIGEST: u8 = 0x01;
    /// DataDigest is in force.
    pub const DATA_DIGEST: u8 = 0x02;
    /// InitialR2T is Yes.
    pub const INITIAL_R2T: u8 = 0x04;
    /// ImmediateData is Yes.
    pub const IMMEDIATE_DATA: u8 = 0x08;
    /// The host is the target of this connection.
    pub const TARGET: u8 = 0x10;
}

/// Bits of `flags` in [`PostTask`].
pub mod task_flags {
    /// The task moves data from the peer to host memory.
    pub const READ: u8 = 0x01;
    /// The task moves data from host memory to the peer.
    pub const WRITE: u8 = 0x02;
    /// The command is immediate: it takes no CmdSN.
    pub const IMMEDIATE: u8 = 0x04;
}

/// Bits of `flags` in [`SendRaw`].
pub mod raw_flags {
    /// The engine writes CmdSN, and counts it unless the I bit is set.
    pub const CMD_SN: u8 = 0x01;
}

record!(
    /// Opens a connection in full feature phase.
    #[derive(Default)]
    OpenConn, RECORD_BYTES, Some(DescriptorKind::OPEN_CONN.0), {
        /// Bits of [`conn_flags`].
        flags: u8 = 1,
        /// Index of the connection.
        conn: u16 = 2,
        /// MaxOutstandingR2T.
        max_outstanding_r2t: u16 = 4,
        /// Number of slots of the ring of raw PDUs.
        raw_slots: u16 = 6,
        /// Returned unchanged in the completion.
        user: u64 = 8,
        /// Address of the ring of raw PDUs.
        raw_addr: u64 = 16,
        /// Length of one slot in bytes.
        raw_slot_bytes: u32 = 24,
        /// Largest data segment that the engine accepts, in bytes.
        max_recv_data_segment_length: u32 = 28,
        /// Largest data segment that the peer accepts, in bytes.
        max_send_data_segment_length: u32 = 32,
        /// MaxBurstLength in bytes.
        max_burst_length: u32 = 36,
        /// FirstBurstLength in bytes.
        first_burst_length: u32 = 40,
        /// CmdSN of the next command.
        cmd_sn: u32 = 44,
        /// MaxCmdSN as last received.
        max_cmd_sn: u32 = 48,
        /// StatSN that is expected next.
        exp_stat_sn: u32 = 52,
        /// How long a SNACK waits, in microseconds.
        snack_delay_us: u32 = 56,
        /// ErrorRecoveryLevel, 0 to 2.
        error_recovery_level: u8 = 60,
    }
);

record!(
    /// Changes what may change while a connection is open.
    #[derive(Default)]
    SetParams, RECORD_BYTES, Some(DescriptorKind::SET_PARAMS.0), {
        /// Index of the connection.
        conn: u16 = 2,
        /// Returned unchanged in the completion.
        user: u64 = 8,
        /// Largest data segment that the engine accepts, in bytes.
        max_recv_data_segment_length: u32 = 28,
        /// Largest data segment that the peer accepts, in bytes.
        max_send_data_segment_length: u32 = 32,
        /// How long a SNACK waits, in microseconds.
        snack_delay_us: u32 = 56,
    }
);

record!(
    /// Sends a SCSI command and moves its data.
    #[derive(Default)]
    PostTask, RECORD_BYTES, Some(DescriptorKind::POST_TASK.0), {
        /// Bits of [`task_flags`].
        flags: u8 = 1,
        /// Index of the connection.
        conn: u16 = 2,
        /// Initiator Task Tag.
        itt: u32 = 4,
        /// Returned unchanged in completions.
        user: u64 = 8,
        /// Logical unit, as on the wire.
        lun: [u8; 8] = 16,
        /// CDB, as on the wire.
        cdb: [u8; 16] = 24,
        /// Expected Data Transfer Length in bytes.
        edtl: u32 = 40,
        /// ATTR of the command, 0 to 4.
        attr: u8 = 44,
        /// PRI of the command, 0 to 15.
        priority: u8 = 45,
        /// Number of elements of the scatter/gather list.
        sgl_elements: u16 = 46,
        /// Address of the scatter/gather list.
        sgl_addr: u64 = 48,
        /// Address of the area for sense data.
        sense_addr: u64 = 56,
    }
);

record!(
    /// Ends one task, or all tasks together with the connection.
    #[derive(Default)]
    Abort, RECORD_BYTES, Some(DescriptorKind::ABORT.0), {
        /// Index of the connection.
        conn: u16 = 2,
        /// Initiator Task Tag; ffffffffh ends all tasks and closes the connection.
        itt: u32 = 4,
        /// Returned unchanged in the completion.
        user: u64 = 8,
    }
);

record!(
    /// Sends a PDU that software has made.
    #[derive(Default)]
    SendRaw, RECORD_BYTES, Some(DescriptorKind::SEND_RAW.0), {
        /// Bits of [`raw_flags`].
        flags: u8 = 1,
        /// Index of the connection.
        conn: u16 = 2,
        /// Returned unchanged in the completion.
        user: u64 = 8,
        /// Address of the PDU.
        addr: u64 = 16,
        /// Length of the PDU in bytes: header segments and data, without padding and digests.
        length: u32 = 24,
    }
);

record!(
    /// Exchanges the polynomial of a connection's digests.
    #[derive(Default)]
    SetPoly, RECORD_BYTES, Some(DescriptorKind::SET_POLY.0), {
        /// Index of the connection.
        conn: u16 = 2,
        /// Returned unchanged in the completion.
        user: u64 = 8,
        /// Polynomial, highest power first, without x^32.
        polynomial: u32 = 16,
        /// Register before the first byte.
        init: u32 = 20,
        /// What the register is combined with after the last byte.
        xor_out: u32 = 24,
    }
);

record!(
    /// Says where the next PDU begins, so that the engine receives again.
    #[derive(Default)]
    Resync, RECORD_BYTES, Some(DescriptorKind::RESYNC.0), {
        /// Index of the connection.
        conn: u16 = 2,
        /// Returned unchanged in the completion.
        user: u64 = 8,
        /// Position of the next PDU in the received stream, in bytes since OPEN_CONN.
        position: u64 = 16,
    }
);

record!(
    /// One element of a scatter/gather list.
    #[derive(Default)]
    SglElement, 16, None, {
        /// Address in host memory.
        addr: u64 = 0,
        /// Length in bytes, not 0.
        length: u32 = 8,
    }
);

/// Any descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// OPEN_CONN.
    OpenConn(OpenConn),
    /// SET_PARAMS.
    SetParams(SetParams),
    /// POST_TASK.
    PostTask(PostTask),
    /// ABORT.
    Abort(Abort),
    /// SEND_RAW.
    SendRaw(SendRaw),
    /// SET_POLY.
    SetPoly(SetPoly),
    /// RESYNC.
    Resync(Resync),
}

impl Descriptor {
    /// Reads a descriptor; `None` when its kind is not defined.
    pub fn parse(record: &[u8; RECORD_BYTES]) -> Option<Self> {
        Some(match DescriptorKind(record[0]) {
            DescriptorKind::OPEN_CONN => Self::OpenConn(OpenConn::parse(record)),
            DescriptorKind::SET_PARAMS => Self::SetParams(SetParams::parse(record)),
            DescriptorKind::POST_TASK => Self::PostTask(PostTask::parse(record)),
            DescriptorKind::ABORT => Self::Abort(Abort::parse(record)),
            DescriptorKind::SEND_RAW => Self::SendRaw(SendRaw::parse(record)),
            DescriptorKind::SET_POLY => Self::SetPoly(SetPoly::parse(record)),
            DescriptorKind::RESYNC => Self::Resync(Resync::parse(record)),
            _ => return None,
        })
    }

    /// Writes the descriptor.
    pub fn emit(&self) -> [u8; RECORD_BYTES] {
        match self {
            Self::OpenConn(descriptor) => descriptor.emit(),
            Self::SetParams(descriptor) => descriptor.emit(),
            Self::PostTask(descriptor) => descriptor.emit(),
            Self::Abort(descriptor) => descriptor.emit(),
            Self::SendRaw(descriptor) => descriptor.emit(),
            Self::SetPoly(descriptor) => descriptor.emit(),
            Self::Resync(descriptor) => descriptor.emit(),
        }
    }
}
