//! Which bytes of a PDU its digests cover; no other module knows (RFC 7143 11.2.3, 13.1).
//!
//! The header digest covers the BHS and all AHS. The data digest covers the data segment and its padding, and is absent when the
//! segment is empty. Both are CRC32C, sent with the least significant byte of the finished value first.

use iscsi_wire::{Bhs, padded_length};

/// Bytes that one digest takes on the wire.
pub const DIGEST_BYTES: usize = 4;

/// The digests in effect in one direction of a connection. None during login (RFC 7143 13.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DigestScope {
    /// CRC32C after BHS and AHS.
    pub header: bool,
    /// CRC32C after a non-empty data segment and its padding.
    pub data: bool,
}

/// Where the parts of one PDU lie on the wire, in bytes from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PduLayout {
    /// End of BHS and AHS: what the header digest covers.
    pub header_end: usize,
    /// Start of the data segment, after the header digest if there is one.
    pub data_start: usize,
    /// Length of the data segment without padding.
    pub data_len: usize,
    /// End of data and padding: the data digest covers `data_start..covered_end`.
    pub covered_end: usize,
    /// Length of the whole PDU.
    pub total: usize,
}

impl DigestScope {
    /// No digest in either place: the state of every connection until full feature phase.
    pub const NONE: Self = Self { header: false, data: false };

    /// Lays out the PDU that begins with `bhs`.
    //= rfc7143 11.2.3 DIG-03 PDU-01
    pub fn layout(self, bhs: &Bhs) -> PduLayout {
        let header_end = Bhs::SIZE + bhs.total_ahs_length();
        let data_start = header_end + if self.header { DIGEST_BYTES } else { 0 };
        let data_len = bhs.data_segment_length();
        let covered_end = data_start + padded_length(data_len);
        let total = covered_end + if self.data && data_len > 0 { DIGEST_BYTES } else { 0 };
        PduLayout { header_end, data_start, data_len, covered_end, total }
    }
}

/// A CRC32C in the byte order of the wire.
//= rfc7143 13.1 DIG-02
pub const fn to_wire(crc: u32) -> [u8; DIGEST_BYTES] {
    crc.to_le_bytes()
}

/// Whether `digest`, as received, is the CRC32C of `covered`.
pub fn verify(covered: &[u8], digest: &[u8]) -> bool {
    integrity::crc32c(covered).to_le_bytes() == *digest
}

/// The CRC32C of `bytes`, for crates that use this one and not the checksum library.
pub fn checksum(bytes: &[u8]) -> u32 {
    integrity::crc32c(bytes)
}
