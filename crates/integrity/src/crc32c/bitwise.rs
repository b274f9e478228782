//! The reference: CRC32C one bit at a time, as the definition reads. It is slow on purpose. The differential tests
//! compare every other kernel with it, so it shares no table and no trick with them.

use crate::gf2;

/// Continues `crc` (finished form) over `data`.
pub(crate) fn append(crc: u32, data: &[u8]) -> u32 {
    let mut register = !crc;
    for &byte in data {
        register ^= u32::from(byte);
        for _ in 0..8 {
            register = gf2::mul_x(register);
        }
    }
    !register
}
