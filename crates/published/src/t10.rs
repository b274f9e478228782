//! CRC16-T10DIF in the two ways of the 2007 note: like the reference program of SBC-3, and by a table.

use super::opaque;

/// x^16 + x^15 + x^11 + x^9 + x^8 + x^7 + x^5 + x^4 + x^2 + x + 1 without its first term (SBC-3, 4.22.4).
const POLY: u16 = 0x8bb7;

const fn mul_x(register: u16) -> u16 {
    if register >> 15 == 1 { register << 1 ^ POLY } else { register << 1 }
}

/// "T10 Ref.": two bytes go in, then sixteen bits are shifted out, one at a time. SBC-3's program does not handle odd
/// lengths; here an odd byte takes eight shifts.
///
/// The result of each step is hidden from the compiler. Otherwise the compiler recognises a CRC in the loop and uses a
/// table of 256 entries: [`reference_compiled`].
pub(super) fn reference(data: &[u8]) -> u64 {
    by_bits(data, |register| opaque(u32::from(register)) as u16)
}

/// The same source, for the compiler to optimise as it can.
pub(super) fn reference_compiled(data: &[u8]) -> u64 {
    by_bits(data, |register| register)
}

#[inline(always)]
fn by_bits(data: &[u8], after_step: impl Fn(u16) -> u16) -> u64 {
    let (words, odd) = data.as_chunks::<2>();
    let mut register = 0;
    for word in words {
        register ^= u16::from_be_bytes(*word);
        for _ in 0..16 {
            register = after_step(mul_x(register));
        }
    }
    for &byte in odd {
        register ^= u16::from(byte) << 8;
        for _ in 0..8 {
            register = after_step(mul_x(register));
        }
    }
    u64::from(register)
}

/// 512 bytes: the register after one byte.
static BYTES: [u16; 256] = {
    let mut t = [0; 256];
    let mut b = 0;
    while b < 256 {
        let (mut register, mut bit) = ((b as u16) << 8, 0);
        while bit < 8 {
            register = mul_x(register);
            bit += 1;
        }
        t[b] = register;
        b += 1;
    }
    t
};

/// "T10 Opt.": one look-up per byte.
pub(super) fn table(data: &[u8]) -> u64 {
    let step = |register: u16, byte: &u8| register << 8 ^ BYTES[usize::from((register >> 8) as u8 ^ byte)];
    u64::from(data.iter().fold(0, step))
}
