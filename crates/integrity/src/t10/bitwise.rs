//! The guard one bit at a time, as SBC-3 section 4.22.4 defines it: the reference for every other kernel.

use super::gf2;

/// Continues `crc` over `data`.
pub(super) fn append(crc: u16, data: &[u8]) -> u16 {
    data.iter().fold(crc, |register, &byte| {
        (0..8).fold(register ^ u16::from(byte) << 8, |register, _| gf2::mul_x(register))
    })
}
