//! What surrounds a medium operation.

use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use engine::SlabRing;
use scsi::Protection;

/// What surrounds an operation.
pub struct Surroundings<'a> {
    /// Buffers for what is read.
    pub slabs: &'a SlabRing,
    /// The data-out of the command.
    pub data_out: &'a [Bytes],
    /// Most bytes of data-in that the initiator takes: more is not read.
    pub read_length: u64,
    /// Compute a CRC32C over each run of this many bytes of data-in while copying them.
    pub digest_chunk_bytes: Option<u32>,
    /// What becomes of protection information.
    pub protection: Option<Protection>,
    /// Nobody waits for the result any more: the rest of a long operation is left undone.
    pub cancelled: &'a AtomicBool,
}

/// For operations that nobody can cancel.
pub static NEVER: AtomicBool = AtomicBool::new(false);
