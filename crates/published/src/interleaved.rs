//! Copies fused with the checksums of [`crc32c_table`](super::crc32c_table): each unit is loaded, stored, and digested from the register,
//! which is the "interleaved copy + CRC" of the 2005 paper on software iSCSI, section 3.3.
//!
//! The unit that is stored is hidden from the compiler: see [`integrity::unstable::opaque`]. Otherwise the compiler splits each loop into a call of
//! `memcpy` and a loop that digests, which is the copy that the paper compares with.

use integrity::LengthMismatch;

use super::crc32c_instruction::serial_copy;
use super::crc32c_table::{POLY, SLICES_4, SLICES_8, slices_4, slices_8, step};
use super::{Needs, opaque, opaque_word};

/// One copy that digests what it copies, unit by unit.
#[derive(Clone, Copy, Debug)]
pub struct Interleaved {
    /// The name of the [`Algorithm`](super::Algorithm) that it interleaves with the copy.
    pub name: &'static str,
    /// The instructions that it needs.
    pub needs: Needs,
    run: fn(u32, &mut [u8], &[u8]) -> u32,
}

impl Interleaved {
    /// Copies `src` to `dst`, continues `crc` (finished form) over the bytes copied, and returns the finished value.
    ///
    /// # Errors
    /// If `dst` and `src` differ in length; nothing was copied then.
    ///
    /// # Panics
    /// If this machine lacks the instructions that it [needs](Self::needs).
    ///
    /// ```
    /// let sarwate = published::interleaved("crc32c-byte").unwrap();
    /// let mut dst = [0; 9];
    /// assert_eq!(sarwate.copy(0, &mut dst, b"123456789"), Ok(0xe306_9283));
    /// assert_eq!(&dst, b"123456789");
    /// ```
    #[inline]
    pub fn copy(&self, crc: u32, dst: &mut [u8], src: &[u8]) -> Result<u32, LengthMismatch> {
        if dst.len() != src.len() {
            return Err(LengthMismatch { buffer: "destination", needed: src.len(), given: dst.len() });
        }
        Ok((self.run)(crc, dst, src))
    }
}

/// All of them, slowest first.
static ALL: &[Interleaved] = &[
    Interleaved { name: "crc32c-bitwise", needs: Needs::Nothing, run: bitwise },
    Interleaved { name: "crc32c-byte", needs: Needs::Nothing, run: byte },
    Interleaved { name: "crc32c-slicing-4", needs: Needs::Nothing, run: slicing4 },
    Interleaved { name: "crc32c-slicing-8", needs: Needs::Nothing, run: slicing8 },
    Interleaved { name: "crc32c-instruction", needs: Needs::CrcInstruction, run: serial_copy },
];

/// The copy that is interleaved with the [`Algorithm`](super::Algorithm) of this name, if there is one.
pub fn interleaved(name: &str) -> Option<&'static Interleaved> {
    ALL.iter().find(|copy| copy.name == name)
}

fn bitwise(crc: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    let mut register = !crc.reverse_bits();
    for (to, from) in dst.iter_mut().zip(src) {
        let byte = opaque(u32::from(*from)) as u8;
        *to = byte;
        register ^= u32::from(byte.reverse_bits()) << 24;
        for _ in 0..8 {
            register = opaque(if register >> 31 == 1 { register << 1 ^ POLY } else { register << 1 });
        }
    }
    !register.reverse_bits()
}

fn byte(crc: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    !bytes(&super::crc32c_table::BYTES, !crc, dst, src)
}

fn bytes(row: &[u32; 256], register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    dst.iter_mut().zip(src).fold(register, |register, (to, from)| {
        let byte = opaque(u32::from(*from)) as u8;
        *to = byte;
        step(row, register, byte)
    })
}

fn slicing4(crc: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    let (words, tail) = src.as_chunks::<4>();
    let (to, to_tail) = dst.as_chunks_mut::<4>();
    let mut register = !crc;
    for (to, from) in to.iter_mut().zip(words) {
        let word = opaque(u32::from_le_bytes(*from)).to_le_bytes();
        *to = word;
        register = slices_4(register, word);
    }
    !bytes(&SLICES_4[0], register, to_tail, tail)
}

fn slicing8(crc: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    let (words, tail) = src.as_chunks::<8>();
    let (to, to_tail) = dst.as_chunks_mut::<8>();
    let mut register = !crc;
    for (to, from) in to.iter_mut().zip(words) {
        let word = opaque_word(u64::from_le_bytes(*from)).to_le_bytes();
        *to = word;
        register = slices_8(register, word);
    }
    !bytes(&SLICES_8[0], register, to_tail, tail)
}
