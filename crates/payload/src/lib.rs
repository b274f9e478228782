//! The bytes of a read with the CRC32C of each run of them. The code that copied the bytes computed the digests in the same pass,
//! so a transport that sends whole runs need not compute them again.
#![forbid(unsafe_code)]

use bytes::Bytes;
use smallvec::SmallVec;

/// Bytes, and the checksums that were computed while they were copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The bytes.
    pub bytes: Bytes,
    /// Run length of `chunk_crcs`, bytes.
    pub chunk_bytes: u32,
    /// Bytes that `chunk_crcs` covers: the length of `bytes` before they were cut to the length that the receiver accepts.
    pub chunked_bytes: usize,
    /// CRC32C of each run of `chunk_bytes`, the last one shorter; empty when none were computed.
    pub chunk_crcs: SmallVec<[u32; 4]>,
}

impl Payload {
    /// Bytes without digests.
    pub fn plain(bytes: Bytes) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// The digest of the bytes from `start` to `end`, if they are one run.
    pub fn crc(&self, start: usize, end: usize) -> Option<u32> {
        let chunk = self.chunk_bytes as usize;
        if chunk == 0 || !start.is_multiple_of(chunk) || end != self.chunked_bytes.min(start + chunk) {
            return None;
        }
        self.chunk_crcs.get(start / chunk).copied()
    }
}
