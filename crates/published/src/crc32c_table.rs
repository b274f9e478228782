//! CRC32C in plain code: bit by bit, and by tables that take from four bits to eight bytes per step (Sahu 2019, 4.4.1
//! to 4.4.5; the slicing tables are those of Kounavis and Berry).
//!
//! Except for the sixteen entries of the nibble-wise form, all tables are rows of the slicing-by-8 table. A shorter
//! table is a static of its own, so that each implementation touches as much cache as the paper says.

use integrity::unstable;

use super::opaque;

/// `tables()[k][b]` is the register after byte `b` and `k` zero bytes.
const fn tables<const ROWS: usize>() -> [[u32; 256]; ROWS] {
    let mut t = [[0u32; 256]; ROWS];
    let mut b = 0;
    while b < 256 {
        let mut register = b as u32;
        let mut k = 0;
        while k < ROWS {
            let mut bit = 0;
            while bit < 8 {
                register = unstable::mul_x(register);
                bit += 1;
            }
            t[k][b] = register;
            k += 1;
        }
        b += 1;
    }
    t
}

/// 64 bytes: the register after four bits.
static NIBBLES: [u32; 16] = {
    let mut t = [0; 16];
    let mut n = 0;
    while n < 16 {
        t[n] = unstable::mul_x(unstable::mul_x(unstable::mul_x(unstable::mul_x(n as u32))));
        n += 1;
    }
    t
};
/// 1 KiB.
pub(super) static BYTES: [u32; 256] = tables::<1>()[0];
/// 4 KiB.
pub(super) static SLICES_4: [[u32; 256]; 4] = tables();
/// 8 KiB.
pub(super) static SLICES_8: [[u32; 256]; 8] = tables();

/// The polynomial without its x^32 term, in the order of the definition, x^31 first.
pub(super) const POLY: u32 = 0x1EDC_6F41;

/// Section 4.4.1: the register is in the bit order of the definition, so every byte is reversed before it goes in, and
/// the register is reversed at the end. Each step handles one bit, by testing the highest.
///
/// The result of each step is hidden from the compiler. Otherwise the compiler recognises a CRC in the loop and uses a
/// table of 256 entries: [`bitwise_compiled`].
pub(super) fn bitwise(data: &[u8]) -> u64 {
    by_bits(data, opaque)
}

/// The same source, for the compiler to optimise as it can.
pub(super) fn bitwise_compiled(data: &[u8]) -> u64 {
    by_bits(data, |register| register)
}

#[inline(always)]
fn by_bits(data: &[u8], after_step: impl Fn(u32) -> u32) -> u64 {
    let mut register = u32::MAX;
    for &byte in data {
        register ^= u32::from(byte.reverse_bits()) << 24;
        for _ in 0..8 {
            register = after_step(if register >> 31 == 1 { register << 1 ^ POLY } else { register << 1 });
        }
    }
    u64::from(!register.reverse_bits())
}

/// Section 4.4.2: sixteen entries, two steps per byte.
pub(super) fn nibble(data: &[u8]) -> u64 {
    let mut register = u32::MAX;
    for &byte in data {
        register ^= u32::from(byte);
        register = register >> 4 ^ NIBBLES[(register & 15) as usize];
        register = register >> 4 ^ NIBBLES[(register & 15) as usize];
    }
    u64::from(!register)
}

/// One byte by the first row of a table.
pub(super) fn step(row: &[u32; 256], register: u32, byte: u8) -> u32 {
    register >> 8 ^ row[usize::from(register as u8 ^ byte)]
}

/// Section 4.4.3: Sarwate's algorithm, 256 entries, one step per byte.
pub(super) fn byte(data: &[u8]) -> u64 {
    u64::from(!data.iter().fold(u32::MAX, |register, &byte| step(&BYTES, register, byte)))
}

/// Section 4.4.4: four bytes per step, four look-ups that do not wait for each other.
pub(super) fn slicing4(data: &[u8]) -> u64 {
    let (words, tail) = data.as_chunks::<4>();
    let mut register = u32::MAX;
    for word in words {
        register = slices_4(register, *word);
    }
    u64::from(!tail.iter().fold(register, |register, &byte| step(&SLICES_4[0], register, byte)))
}

/// The register after four more bytes.
#[inline(always)]
pub(super) fn slices_4(register: u32, word: [u8; 4]) -> u32 {
    let [a, b, c, d] = (u32::from_le_bytes(word) ^ register).to_le_bytes().map(usize::from);
    SLICES_4[3][a] ^ SLICES_4[2][b] ^ SLICES_4[1][c] ^ SLICES_4[0][d]
}

/// Section 4.4.5: eight bytes per step; only the first four are mixed with the register.
pub(super) fn slicing8(data: &[u8]) -> u64 {
    let (words, tail) = data.as_chunks::<8>();
    let mut register = u32::MAX;
    for word in words {
        register = slices_8(register, *word);
    }
    u64::from(!tail.iter().fold(register, |register, &byte| step(&SLICES_8[0], register, byte)))
}

/// The register after eight more bytes.
#[inline(always)]
pub(super) fn slices_8(register: u32, word: [u8; 8]) -> u32 {
    let [a, b, c, d, e, f, g, h] = word;
    let first = (u32::from_le_bytes([a, b, c, d]) ^ register).to_le_bytes();
    let [a, b, c, d] = first.map(usize::from);
    let [e, f, g, h] = [e, f, g, h].map(usize::from);
    SLICES_8[7][a]
        ^ SLICES_8[6][b]
        ^ SLICES_8[5][c]
        ^ SLICES_8[4][d]
        ^ SLICES_8[3][e]
        ^ SLICES_8[2][f]
        ^ SLICES_8[1][g]
        ^ SLICES_8[0][h]
}
