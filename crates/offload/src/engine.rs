//! The interface that every backend has: bytes in, bytes out, and time as an argument.

use crate::encoding::{
    CommandEntry, DataAddressEntry, R2tEntry, RECORD_BYTES, SessionEntry, SnackEntry, conn_flags,
};
use crate::limits;

/// Host memory refuses an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host memory at {addr:#x}, {length} bytes, cannot be accessed")]
pub struct MemFault {
    /// First address of the access.
    pub addr: u64,
    /// Its length in bytes.
    pub length: usize,
}

/// Host memory as the engine reaches it, by DMA.
pub trait HostMem {
    /// Reads `into.len()` bytes at `addr`.
    ///
    /// # Errors
    /// When any of the bytes is not the engine's to read. What `into` then holds is not used.
    fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<(), MemFault>;

    /// Writes `from` at `addr`.
    ///
    /// # Errors
    /// When any of the bytes is not the engine's to write. Nothing is written then.
    fn write(&mut self, addr: u64, from: &[u8]) -> Result<(), MemFault>;

    /// Whether `length` bytes at `addr` may be written. An engine that writes them piece by piece asks first.
    ///
    /// # Errors
    /// When any of the bytes is not the engine's to write.
    fn check_write(&mut self, addr: u64, length: usize) -> Result<(), MemFault>;
}

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Version of `docs/engine-interface.md`.
    pub interface_version: u16,
    /// Roles of the host, as bits: 1 initiator, 2 target.
    pub roles: u8,
    /// Bits of [`conn_flags`] that OPEN_CONN may set.
    pub conn_flags: u8,
    /// Connections at a time.
    pub connections: u16,
    /// Commands of one connection at a time.
    pub commands: u16,
    /// Elements of one scatter/gather list.
    pub sgl_elements: u16,
    /// The largest MaxOutstandingR2T.
    pub outstanding_r2t: u16,
    /// The largest data segment in either direction, in bytes.
    pub buffer_bytes: u32,
    /// The highest ErrorRecoveryLevel.
    pub error_recovery_level: u8,
}

impl Caps {
    /// Those of the software engine.
    pub const SOFTWARE: Self = Self {
        interface_version: 1,
        roles: 1,
        conn_flags: conn_flags::HEADER_DIGEST
            | conn_flags::DATA_DIGEST
            | conn_flags::INITIAL_R2T
            | conn_flags::IMMEDIATE_DATA,
        connections: limits::MAX_CONNECTIONS,
        commands: limits::MAX_COMMANDS as u16,
        sgl_elements: limits::MAX_SGL_ELEMENTS,
        outstanding_r2t: limits::MAX_OUTSTANDING_R2T,
        buffer_bytes: limits::BUFFER_BYTES,
        error_recovery_level: limits::MAX_ERROR_RECOVERY_LEVEL,
    };
}

/// The engine takes no descriptor now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the completion buffer has no room for what the descriptor may cause: poll, then submit again")]
pub struct Busy;

/// The five tables at one moment. Entries are ordered by connection, then by Initiator Task Tag (command, data_address) or in
/// the order in which they are served or were made (R2T, SNACK).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Session table.
    pub sessions: Vec<SessionEntry>,
    /// Command table.
    pub commands: Vec<CommandEntry>,
    /// R2T table.
    pub r2ts: Vec<R2tEntry>,
    /// SNACK table.
    pub snacks: Vec<SnackEntry>,
    /// data_address table.
    pub data_addresses: Vec<DataAddressEntry>,
}

/// An offload engine. `docs/engine-interface.md` says what each call means, byte by byte.
///
/// After any call the caller polls completions until there are none, and takes bytes to transmit from every connection that it
/// gave something to.
pub trait Engine {
    /// What this backend can do.
    fn caps(&self) -> Caps;

    /// The doorbell of the Command Buffer: hands one descriptor over. A descriptor that cannot be executed is answered by
    /// TASK_DONE with the reason.
    ///
    /// # Errors
    /// [`Busy`] when its completions would not fit; nothing has changed then.
    fn submit(&mut self, memory: &mut dyn HostMem, descriptor: &[u8; RECORD_BYTES]) -> Result<(), Busy>;

    /// Takes the next completion out of the Completion Buffer.
    fn poll(&mut self) -> Option<[u8; RECORD_BYTES]>;

    /// Bytes that arrived on a connection; returns how many the engine has taken. It takes fewer when it waits for room (for
    /// completions or raw PDUs), has stopped, or does not know the connection. After room was made, a call with the bytes that
    /// are left, or with none, continues.
    fn rx(&mut self, memory: &mut dyn HostMem, conn: u16, bytes: &[u8]) -> usize;

    /// Fills `out` with bytes to transmit on a connection; returns how many. Fewer than `out.len()` means that there are no more
    /// now.
    fn tx(&mut self, memory: &mut dyn HostMem, conn: u16, out: &mut [u8]) -> usize;

    /// The doorbell of the Input Buffer: software has read the oldest `slots` raw PDUs of a connection.
    fn release_raw(&mut self, conn: u16, slots: u16);

    /// Sets the time, in microseconds. An earlier time than before counts for nothing.
    fn advance(&mut self, now_us: u64);

    /// When `advance` has something to do, in microseconds.
    fn deadline_us(&self) -> Option<u64>;

    /// The five tables as they are now.
    fn tables(&self) -> Tables;

    /// One entry of the session table; `None` when the connection is not open.
    fn session(&self, conn: u16) -> Option<SessionEntry> {
        self.tables().sessions.into_iter().find(|entry| entry.conn == conn)
    }
}
