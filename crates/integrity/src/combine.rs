//! The CRC32C of a concatenation from the CRC32Cs of its parts, without the bytes.
//!
//! Appending `n` bytes multiplies what came before by x^(8n); the initial and final complements cancel when both
//! values are finished, so crc(A ‖ B) = crc(A) · x^(8·|B|) + crc(B).

use crate::crc32c::active;
use crate::gf2;

/// `POWERS[k]` is x^(8·2^k) mod P: what 2^k zero bytes multiply by.
static POWERS: [u32; 64] = powers();

const fn powers() -> [u32; 64] {
    let mut t = [gf2::x_pow(8); 64];
    let mut k = 1;
    while k < 64 {
        t[k] = gf2::mul(t[k - 1], t[k - 1]);
        k += 1;
    }
    t
}

/// The CRC32C of A followed by B, from the CRC32C of A, that of B, and the length of B in bytes.
///
/// The cost is one multiplication per bit set in `len_b`, whatever the lengths are.
///
/// ```
/// use integrity::{crc32c, crc32c_combine};
/// assert_eq!(crc32c_combine(crc32c(b"1234"), crc32c(b"56789"), 5), crc32c(b"123456789"));
/// ```
#[inline]
pub fn crc32c_combine(crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    // SAFETY: `active` gives only kernels that this machine can run.
    unsafe { active().combine_unchecked(crc_a, crc_b, len_b) }
}

/// The combination by a given multiplication mod P; inlined always, so that `mul` meets the caller's instructions.
#[inline(always)]
pub(crate) fn with(mul: impl Fn(u32, u32) -> u32, crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    let (mut shifted, mut rest) = (crc_a, len_b);
    while rest != 0 {
        shifted = mul(shifted, POWERS[rest.trailing_zeros() as usize]);
        rest &= rest - 1;
    }
    shifted ^ crc_b
}
