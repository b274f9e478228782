//! The CRC32C of a concatenation from the CRC32Cs of its parts, without the bytes.
//!
//! Appending `n` bytes multiplies what came before by x^(8n); the initial and final complements cancel when both
//! values are finished, so crc(A ‖ B) = crc(A) · x^(8·|B|) + crc(B).
//!
//! The multiplier is kept as a *shift*: x^(8n - 33). The carry-less product of two reflected 32-bit values is one power
//! of x too high, and the CRC32 instruction that reduces it multiplies by x^32. So the whole step is one product by a
//! shift and one CRC32 of that product. Where several products are added, the sum is reduced once.

use crate::crc32c::active;
use crate::gf2;

/// Polynomial arithmetic, by instructions that the machine may not have.
pub(crate) trait Field {
    /// The carry-less product of two values of 32 bits each, unreduced (63 bits).
    ///
    /// # Safety
    /// - The machine has the instructions of this field.
    unsafe fn product(a: u64, b: u64) -> u64;

    /// The register after the eight bytes of `product`, starting from a register of 0.
    ///
    /// # Safety
    /// - The machine has the instructions of this field.
    unsafe fn reduce(product: u64) -> u32;
}

/// `SHIFTS[k]` moves a value past 2^k bytes.
static SHIFTS: [u32; 64] = {
    let mut t = [0; 64];
    let mut k = 0;
    while k < 64 {
        t[k] = shift(1 << k);
        k += 1;
    }
    t
};

/// The multiplier by which a value moves past `bytes` bytes: x^(8·bytes - 33).
const fn shift(bytes: u64) -> u32 {
    // Exponents count modulo the order of x. Adding that order keeps the exponent positive for 0 bytes too, and nothing
    // wraps.
    gf2::x_pow(8 * (bytes % gf2::ORDER_OF_X) + gf2::ORDER_OF_X - 33)
}

/// The CRC32C of A followed by B, from the CRC32C of A, that of B, and the length of B in bytes.
///
/// The cost is one multiplication per bit set in `len_b`, however long the parts are. If the length of B is known
/// beforehand, [`CombineBy`] needs only one multiplication.
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

/// Digests per step of [`crc32c_combine_blocks`]; a step costs one reduction.
const GROUP: usize = 8;

/// Combination by a length that is known beforehand.
///
/// ```
/// use integrity::{CombineBy, crc32c};
/// const BY_5: CombineBy = CombineBy::new(5);
/// assert_eq!(BY_5.combine(crc32c(b"1234"), crc32c(b"56789")), crc32c(b"123456789"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CombineBy {
    /// `shifts[i]` moves a value past `i + 1` times the length.
    shifts: [u32; GROUP],
}

impl CombineBy {
    /// Prepares the combination with a B of `len_b` bytes. This takes some microseconds: do it in a `const`, or once.
    pub const fn new(len_b: u64) -> Self {
        let mut shifts = [0; GROUP];
        let mut i = 0;
        while i < GROUP {
            shifts[i] = shift(len_b % gf2::ORDER_OF_X * (i as u64 + 1));
            i += 1;
        }
        Self { shifts }
    }

    /// The CRC32C of A followed by B, where B has the prepared length.
    #[inline]
    pub fn combine(&self, crc_a: u32, crc_b: u32) -> u32 {
        // SAFETY: `active` gives only kernels that this machine can run.
        unsafe { active().combine_by_unchecked(crc_a, crc_b, self) }
    }
}

/// Continues `crc` over blocks of equal length, in order, given only their CRC32Cs.
///
/// This turns the digests stored with the blocks of a medium into the digest of a PDU.
///
/// ```
/// use integrity::{CombineBy, crc32c, crc32c_combine_blocks};
/// const BY_4096: CombineBy = CombineBy::new(4096);
/// let data = [7; 3 * 4096];
/// let stored: Vec<u32> = data.chunks(4096).map(crc32c).collect();
/// assert_eq!(crc32c_combine_blocks(0, &stored, &BY_4096), crc32c(&data));
/// ```
#[inline]
pub fn crc32c_combine_blocks(crc: u32, block_crcs: &[u32], block: &CombineBy) -> u32 {
    // SAFETY: `active` gives only kernels that this machine can run.
    unsafe { active().combine_blocks_unchecked(crc, block_crcs, block) }
}

/// `crc` multiplied by one shift.
///
/// # Safety
/// - The machine has the instructions of `F`.
#[inline(always)]
unsafe fn moved<F: Field>(crc: u32, shift: u32) -> u32 {
    // SAFETY: the machine has the instructions of `F`: the caller vouches for it.
    unsafe { F::reduce(F::product(u64::from(crc), u64::from(shift))) }
}

/// [`crc32c_combine`] by the instructions of `F`; always inlined, so that they are compiled with the caller's target
/// features.
///
/// # Safety
/// - The machine has the instructions of `F`.
#[inline(always)]
pub(crate) unsafe fn with<F: Field>(crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    let (mut crc, mut rest) = (crc_a, len_b);
    while rest != 0 {
        // SAFETY: the machine has the instructions of `F`: the caller vouches for it.
        crc = unsafe { moved::<F>(crc, SHIFTS[rest.trailing_zeros() as usize]) };
        rest &= rest - 1;
    }
    crc ^ crc_b
}

/// [`CombineBy::combine`] by the instructions of `F`.
///
/// # Safety
/// - The machine has the instructions of `F`.
#[inline(always)]
pub(crate) unsafe fn by<F: Field>(crc_a: u32, crc_b: u32, by: &CombineBy) -> u32 {
    // SAFETY: the machine has the instructions of `F`: the caller vouches for it.
    unsafe { moved::<F>(crc_a, by.shifts[0]) ^ crc_b }
}

/// [`crc32c_combine_blocks`] by the instructions of `F`. One value at a time would wait for a product and a reduction
/// per block. A group waits for one of each, because only its first product depends on the groups before it.
///
/// # Safety
/// - The machine has the instructions of `F`.
#[inline(always)]
pub(crate) unsafe fn blocks<F: Field>(crc: u32, block_crcs: &[u32], by: &CombineBy) -> u32 {
    let (groups, rest) = block_crcs.as_chunks::<GROUP>();
    let mut crc = crc;
    // SAFETY: the machine has the instructions of `F`: the caller vouches for it.
    unsafe {
        for group in groups {
            // The first value moves past the whole group, the second past one block less, the last one not at all.
            let ([others @ .., last], [shifts @ .., past_all]) = (group, &by.shifts);
            let mut sum = F::product(u64::from(crc), u64::from(*past_all));
            for (value, shift) in others.iter().zip(shifts.iter().rev()) {
                sum ^= F::product(u64::from(*value), u64::from(*shift));
            }
            crc = F::reduce(sum) ^ last;
        }
        for block in rest {
            crc = moved::<F>(crc, by.shifts[0]) ^ block;
        }
    }
    crc
}
