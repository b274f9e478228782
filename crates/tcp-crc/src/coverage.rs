//! Which bytes the CRC of each method covers, and in which order (thesis 7). Nothing else in the crate knows this.

use integrity::{crc32c, crc32c_append};

use crate::method::Method;

/// The CRC32C of what a segment's CRC covers before the data, which continue it.
///
/// * `pseudo` - the pseudo header of IPv4 (12 bytes) or IPv6 (40 bytes).
/// * `header` - the TCP header with options; Checksum and the content of the data option must be zero.
/// * `offset` - the offset of the first byte of the data from the initial sequence number, modulo 2^32.
/// * `data_bytes` - how many there are.
///
/// In a segment without data, [`Method::Data`] covers nothing: its CRC is 0.
pub(crate) fn crc_of_head(
    method: Method,
    pseudo: &[u8],
    header: &[u8],
    offset: u32,
    data_bytes: usize,
) -> u32 {
    match method {
        Method::Data => 0,
        Method::Placed => {
            let place = u64::from(offset) << 32 | data_bytes as u64;
            crc32c(&place.to_be_bytes())
        }
        Method::Split | Method::Whole => crc32c_append(crc32c(pseudo), header),
    }
}
