//! The bytes of a read with the CRC32C of each run of them. The code that copied the bytes computed the digests in the same pass,
//! so a transport that sends whole runs need not compute them again.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

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

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    #[test]
    fn a_digest_belongs_to_one_whole_run_and_to_nothing_else() {
        // Three runs, of which the receiver does not accept the end of the last one.
        let payload = Payload {
            bytes: Bytes::from_static(&[0; 2500]),
            chunk_bytes: 1024,
            chunked_bytes: 2560,
            chunk_crcs: smallvec![10, 11, 12],
        };
        for (start, end, crc) in [
            (0, 1024, Some(10)),
            (1024, 2048, Some(11)),
            (2048, 2560, Some(12)),
            (0, 1023, None),
            (0, 2048, None),
            (1, 1025, None),
            (1024, 2047, None),
            (2048, 2500, None),
            (2048, 3072, None),
            (2560, 2560, None),
            (3072, 2560, None),
        ] {
            assert_eq!(payload.crc(start, end), crc, "{start}..{end}");
        }
        let plain = Payload::plain(Bytes::from_static(b"abc"));
        assert_eq!((&plain.bytes[..], plain.crc(0, 3), plain.crc(0, 0)), (&b"abc"[..], None, None));
    }
}
