//! CRC32C by the machine's CRC32 instruction, written once for every architecture that has one.
//!
//! The instruction takes eight bytes, can start every cycle, and delivers its result after three. A run is therefore
//! cut into three lanes that are digested side by side, and the lanes are joined by two carry-less products:
//!
//! ```text
//! | lane A: words | lane B: words | lane C: words |  next block or serial rest
//! register = A · x^(128·words) + B · x^(64·words) + C
//! ```
//!
//! The architecture supplies the instructions through [`Crc32Unit`]. The functions here are always inlined, so that
//! they end up inside the caller that carries the `target_feature` attribute.

use crate::combine::Field;
use crate::copy::pass::{COPY, READ, STREAM, pin};
use crate::gf2;

/// The instructions that the algorithm needs. Registers are unfinished values in the low 32 bits of a `u64`, as the
/// instructions take and return them.
pub(crate) trait Crc32Unit: Field {
    /// The register after eight more bytes, given as a little-endian word.
    ///
    /// # Safety
    /// - The machine has the instructions of this unit.
    unsafe fn word64(register: u64, word: u64) -> u64;

    /// The register after four more bytes.
    ///
    /// # Safety
    /// - The machine has the instructions of this unit.
    unsafe fn word32(register: u64, word: u32) -> u64;

    /// The register after one more byte.
    ///
    /// # Safety
    /// - The machine has the instructions of this unit.
    unsafe fn byte(register: u64, byte: u8) -> u64;

    /// Stores a word bypassing the caches if the machine can, else ordinarily.
    ///
    /// # Safety
    /// - The machine has the instructions of this unit.
    /// - `dst` is valid for a write of eight bytes and aligned to eight.
    /// - A [fence](crate::copy::fence) follows before anything else may read `dst`.
    unsafe fn stream(dst: *mut u64, word: u64);

    /// Prefetches the cache line at `dst`, which is about to be written. Any address is allowed.
    ///
    /// # Safety
    /// - The machine has the instructions of this unit.
    unsafe fn prefetch(dst: *mut u8);
}

/// The most words per lane: three lanes of 1360 bytes leave 16 bytes of a 4096-byte block.
const MAX_LANE_WORDS: usize = 170;
/// Below this, joining lanes costs more than the serial chain that it saves.
pub(crate) const MIN_BLOCK_BYTES: usize = 96;
/// Streamed lanes consist of whole cache lines, so the shortest block has three of them.
const MIN_STREAM_BLOCK_BYTES: usize = 3 * LINE_BYTES;
const LINE_BYTES: usize = 64;

/// The most words that [`lane_shift`] can move a register past.
pub(crate) const MAX_SHIFT_WORDS: usize = 4096;
const _: () = assert!(2 * MAX_LANE_WORDS <= MAX_SHIFT_WORDS);

/// The constant that moves a register past `words` words (1 to [`MAX_SHIFT_WORDS`]), by one product and one CRC32 of
/// the product: x^(64·words - 33).
///
/// The 33 is not a choice: as a 64-bit reflected polynomial, the product of two 32-bit values is one power of x too
/// high, and the CRC32 instruction multiplies by x^32.
#[inline(always)]
pub(crate) fn lane_shift(words: usize) -> u32 {
    LANE_SHIFT[words]
}

/// Entry 0 is never used.
static LANE_SHIFT: [u32; MAX_SHIFT_WORDS + 1] = {
    let mut t = [0; MAX_SHIFT_WORDS + 1];
    let (mut power, step) = (gf2::x_pow(64 - 33), gf2::x_pow(64));
    let mut w = 1;
    while w < t.len() {
        t[w] = power;
        power = gf2::mul(power, step);
        w += 1;
    }
    t
};

/// Loads eight bytes in memory order and, unless `PASS` is `READ`, stores the very word that was loaded.
///
/// # Safety
/// - `src + at` is valid for a read of eight bytes.
/// - Unless `PASS` is `READ`, `dst + at` is valid for a write of eight bytes, and for `STREAM` aligned to eight.
/// - For `STREAM`, a fence follows before anything else may read `dst`.
/// - The machine has the instructions of `U`.
#[inline(always)]
pub(crate) unsafe fn take64<U: Crc32Unit, const PASS: u8>(dst: *mut u8, src: *const u8, at: usize) -> u64 {
    // SAFETY: both addresses are valid for eight bytes, and the machine has the instructions, as the caller vouches.
    unsafe {
        let mut word = src.add(at).cast::<u64>().read_unaligned();
        if PASS != READ {
            word = pin(word);
        }
        match PASS {
            READ => {}
            STREAM => U::stream(dst.add(at).cast(), word),
            _ => dst.add(at).cast::<u64>().write_unaligned(word),
        }
        u64::from_le(word)
    }
}

/// [`take64`] for four bytes, never streamed.
///
/// # Safety
/// - `src + at` is valid for a read of four bytes.
/// - Unless `PASS` is `READ`, `dst + at` is valid for a write of four bytes.
#[inline(always)]
unsafe fn take32<const PASS: u8>(dst: *mut u8, src: *const u8, at: usize) -> u32 {
    // SAFETY: both addresses are valid for four bytes, as the caller vouches.
    unsafe {
        let mut word = src.add(at).cast::<u32>().read_unaligned();
        if PASS != READ {
            word = pin(u64::from(word)) as u32;
            dst.add(at).cast::<u32>().write_unaligned(word);
        }
        u32::from_le(word)
    }
}

/// [`take64`] for one byte, never streamed.
///
/// # Safety
/// - `src + at` is valid for a read.
/// - Unless `PASS` is `READ`, `dst + at` is valid for a write.
#[inline(always)]
unsafe fn take8<const PASS: u8>(dst: *mut u8, src: *const u8, at: usize) -> u8 {
    // SAFETY: both addresses are valid, as the caller vouches.
    unsafe {
        let mut byte = src.add(at).read();
        if PASS != READ {
            byte = pin(u64::from(byte)) as u8;
            dst.add(at).write(byte);
        }
        byte
    }
}

/// One chain of CRC32 instructions over `len` bytes: for short runs and for what the lanes leave over. All stores are
/// ordinary.
///
/// # Safety
/// - `src` is valid for reads of `len` bytes.
/// - Unless `PASS` is `READ`, `dst` is valid for writes of `len` bytes and does not overlap `src`.
/// - The machine has the instructions of `U`.
#[inline(always)]
pub(crate) unsafe fn serial<U: Crc32Unit, const PASS: u8>(
    register: u64,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    let (mut register, mut at) = (register, 0);
    // SAFETY: every access is at `at`, with at least its own size left before `len`. The caller vouches for that range
    // and for the instructions. Nothing is streamed.
    unsafe {
        while len - at >= 8 {
            register = match PASS {
                READ => U::word64(register, take64::<U, READ>(dst, src, at)),
                _ => U::word64(register, take64::<U, COPY>(dst, src, at)),
            };
            at += 8;
        }
        if len - at >= 4 {
            register = U::word32(register, take32::<PASS>(dst, src, at));
            at += 4;
        }
        while at < len {
            register = U::byte(register, take8::<PASS>(dst, src, at));
            at += 1;
        }
    }
    register
}

/// Continues `crc` (finished form) over `len` bytes at `src`, and copies them to `dst` unless `PASS` is `READ`.
///
/// # Safety
/// - `src` is valid for reads of `len` bytes.
/// - Unless `PASS` is `READ`, `dst` is valid for writes of `len` bytes and does not overlap `src`.
/// - For `STREAM`, `len` is at least 64, and a fence follows before anything else may read `dst`.
/// - The machine has the instructions of `U`.
#[inline(always)]
pub(crate) unsafe fn run<U: Crc32Unit, const PASS: u8>(
    crc: u32,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u32 {
    let mut register = u64::from(!crc);
    let mut at = 0;
    // SAFETY: `at <= len` always, and a block of `3 * words * 8 <= len - at` bytes starts there, so every access is
    // within `len` bytes of `src` and of `dst`. Streamed stores are aligned because the serial head ends on a line
    // of `dst` and lanes are whole lines. The caller vouches for the fence and for the instructions.
    unsafe {
        if PASS == STREAM {
            at = dst.addr().wrapping_neg() % LINE_BYTES;
            register = serial::<U, PASS>(register, dst, src, at);
        }
        let min_block = if PASS == STREAM { MIN_STREAM_BLOCK_BYTES } else { MIN_BLOCK_BYTES };
        while len - at >= min_block {
            let mut words = ((len - at) / 24).min(MAX_LANE_WORDS);
            if PASS == STREAM {
                words -= words % (LINE_BYTES / 8);
            }
            let lane = words * 8;
            let (mut a, mut b, mut c) = (register, 0, 0);
            let end_a = at + lane;
            // A copy goes line by line. Stores that change lanes at every word would hit three lines in turn, which
            // halves their rate once the lines are not in the first-level cache. The lanes still overlap, because the
            // machine looks further ahead than 24 words. But stores of one word fill the store buffer before the
            // machine has looked far enough ahead for its lines, so the lines of the next block are prefetched now.
            let prefetch = PASS == COPY && len - at >= 6 * lane;
            while PASS != READ && end_a - at >= LINE_BYTES {
                if prefetch {
                    for i in 3..6 {
                        U::prefetch(dst.wrapping_add(at + i * lane));
                    }
                }
                for i in 0..LINE_BYTES / 8 {
                    a = U::word64(a, take64::<U, PASS>(dst, src, at + 8 * i));
                }
                for i in 0..LINE_BYTES / 8 {
                    b = U::word64(b, take64::<U, PASS>(dst, src, at + lane + 8 * i));
                }
                for i in 0..LINE_BYTES / 8 {
                    c = U::word64(c, take64::<U, PASS>(dst, src, at + 2 * lane + 8 * i));
                }
                at += LINE_BYTES;
            }
            while at < end_a {
                a = U::word64(a, take64::<U, PASS>(dst, src, at));
                b = U::word64(b, take64::<U, PASS>(dst, src, at + lane));
                c = U::word64(c, take64::<U, PASS>(dst, src, at + 2 * lane));
                at += 8;
            }
            at += 2 * lane;
            let joined =
                U::product(a, u64::from(lane_shift(2 * words))) ^ U::product(b, u64::from(lane_shift(words)));
            register = u64::from(U::reduce(joined)) ^ c;
        }
        register = serial::<U, PASS>(register, dst.wrapping_add(at), src.add(at), len - at);
    }
    !(register as u32)
}
