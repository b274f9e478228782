//! Every bound of the software engine. `docs/engine-interface.md` has the same numbers.

/// Connections that are open at a time.
pub const MAX_CONNECTIONS: u16 = 16;
/// Commands of one connection between POST_TASK and TASK_DONE.
pub const MAX_COMMANDS: usize = 256;
/// Elements of one scatter/gather list.
pub const MAX_SGL_ELEMENTS: u16 = 256;
/// R2Ts of one task that are not answered yet: the largest MaxOutstandingR2T.
pub const MAX_OUTSTANDING_R2T: u16 = 8;
/// ErrorRecoveryLevel goes no further.
pub const MAX_ERROR_RECOVERY_LEVEL: u8 = 2;
/// Entries of the SNACK table, for each connection.
pub const MAX_SNACKS: usize = 256;
/// Raw PDUs of one connection that wait to be sent.
pub const MAX_RAW_QUEUED: usize = 64;
/// Slots of a ring of raw PDUs.
pub const MAX_RAW_SLOTS: u16 = 1024;
/// The receive buffer: the largest data segment in either direction, in bytes.
pub const BUFFER_BYTES: u32 = 64 * 1024;
/// Bytes that the area for sense data has: SenseLength and what a device server sends.
pub const SENSE_AREA_BYTES: u16 = 256;
/// Completions that wait to be polled.
pub const MAX_COMPLETIONS: usize = 4096;
/// Completions that one received PDU can cause.
pub const COMPLETIONS_PER_PDU: usize = 4;
