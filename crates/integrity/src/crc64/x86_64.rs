//! CRC64-NVMe by carry-less multiplication. PCLMULQDQ serves short runs and machines that have nothing wider; the
//! others use the fold of `crc32c::x86_64::avx512`, with multipliers of 64 bits.
//!
//! ```text
//!  vectors of 64 B, four chains                     blocks of 16 B   tail
//! | v0 v1 v2 v3 | v4 v5 v6 v7 | ... +2048 bits | v v v | b b b | 0..15 B |
//! ```
//!
//! - Tail: loaded as the last whole block of the run with the bytes before the tail masked off; what precedes it is
//!   folded onto it by the tail's length. No load touches a byte outside the run.
//! - The end: one block times x^64, reduced by Barrett's method.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_and_si128, _mm_bsrli_si128, _mm_clmulepi64_si128, _mm_cvtsi64_si128,
    _mm_cvtsi128_si64, _mm_loadu_si128, _mm_set_epi64x, _mm_xor_si128, _mm256_castsi256_si128,
    _mm256_extracti128_si256, _mm256_xor_si256, _mm512_castsi512_si256, _mm512_extracti64x4_epi64,
    _mm512_loadu_si512, _mm512_maskz_mov_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::{POLY, mul_x, slicing};
use crate::crc32c::x86_64::avx512::{Chains, Multipliers, VECTOR_BYTES, fold, multipliers};
use crate::detect::detected;

/// Size of a block, bytes.
const BLOCK_BYTES: usize = 16;
/// Below this length, folding in 512-bit vectors costs more than it saves.
pub(super) const MIN_WIDE_BYTES: usize = 256;

/// Whether this machine has PCLMULQDQ.
pub(super) fn detect() -> bool {
    detected!("pclmulqdq")
}

/// `x^n mod P`, reflected.
const fn x_pow(n: u64) -> u64 {
    let mut power = 1 << 63;
    let mut i = 0;
    while i < n {
        power = mul_x(power);
        i += 1;
    }
    power
}

/// The multipliers of a fold by `bits`, for the low and the high quadword of a block. A product of two reflected
/// quadwords is one power of x too high, so each exponent is one less.
const fn pair(bits: u64) -> [u64; 2] {
    [x_pow(bits + 64 - 1), x_pow(bits - 1)]
}

static CHAINS: Chains = Chains::new([pair(512), pair(1024), pair(1536), pair(2048)]);
/// Moves every block onto the last one, which stays.
static ONTO_LAST_BLOCK: Multipliers = {
    let ([a, b], [c, d], [e, f]) = (pair(384), pair(256), pair(128));
    Multipliers([a, b, c, d, e, f, 0, 0])
};

/// The multipliers of a fold by the number of bytes that is the index.
static FORWARD: [[u64; 2]; BLOCK_BYTES] = {
    let mut t = [[0; 2]; BLOCK_BYTES];
    let mut bytes = 1;
    while bytes < BLOCK_BYTES {
        t[bytes] = pair(8 * bytes as u64);
        bytes += 1;
    }
    t
};

/// Masks: the 16 bytes from byte n on keep the last n bytes of a block.
static KEEP_LAST: [u8; 2 * BLOCK_BYTES] = {
    let mut mask = [0; 2 * BLOCK_BYTES];
    let mut i = BLOCK_BYTES;
    while i < 2 * BLOCK_BYTES {
        mask[i] = 0xff;
        i += 1;
    }
    mask
};

/// The quotient of x^128 by P, reflected, without its x^0 term: bit 0 is the coefficient of x^64.
const QUOTIENT: u64 = {
    let p = POLY.reverse_bits() as u128;
    let (mut rest, mut quotient, mut i) = (p << 64, 0_u64, 64);
    while i > 0 {
        i -= 1;
        if rest >> (64 + i) & 1 == 1 {
            quotient |= 1 << i;
            rest ^= (1 << 64 | p) << i;
        }
    }
    quotient.reverse_bits() << 1 | 1
};

#[inline]
fn load(block: &[u8; BLOCK_BYTES]) -> __m128i {
    // SAFETY: a reference to 16 bytes; SSE2 is part of the x86-64 baseline.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

/// `x` moved forward by the distance of the pair, added to `onto`.
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn fold_block(x: __m128i, [low, high]: [u64; 2], onto: __m128i) -> __m128i {
    let by = _mm_set_epi64x(high as i64, low as i64);
    let (low, high) = (_mm_clmulepi64_si128::<0x00>(x, by), _mm_clmulepi64_si128::<0x11>(x, by));
    _mm_xor_si128(_mm_xor_si128(low, high), onto)
}

/// The register after the last `rest` bytes of `data`. `x` stands for the bytes before them: one block or more.
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn finish(mut x: __m128i, data: &[u8], rest: usize) -> u64 {
    let (blocks, tail) = data[data.len() - rest..].as_chunks::<BLOCK_BYTES>();
    for block in blocks {
        x = fold_block(x, const { pair(128) }, load(block));
    }
    if !tail.is_empty() {
        let last = data.last_chunk().expect("a block came before");
        let keep = KEEP_LAST[tail.len()..].first_chunk().expect("a tail is shorter than a block");
        x = fold_block(x, FORWARD[tail.len()], _mm_and_si128(load(last), load(keep)));
    }
    reduce(x)
}

/// `x * x^64 mod P`.
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn reduce(x: __m128i) -> u64 {
    const X_127: i64 = x_pow(127) as i64;
    // 192 bits to 128; then the quotient of the upper 64 of these, and the remainder below them.
    let x = _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(x, _mm_cvtsi64_si128(X_127)), _mm_bsrli_si128::<8>(x));
    let quotient = _mm_clmulepi64_si128::<0x00>(x, _mm_cvtsi64_si128(QUOTIENT as i64));
    let multiple = _mm_clmulepi64_si128::<0x00>(quotient, _mm_cvtsi64_si128((POLY << 1 | 1) as i64));
    let rest = _mm_bsrli_si128::<8>(_mm_xor_si128(multiple, x));
    // Adds the x^0 term of P, which does not fit in the 64 bits.
    _mm_cvtsi128_si64(_mm_xor_si128(rest, quotient)) as u64
}

/// The register after `data`, starting from `register`, with four blocks in flight.
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "pclmulqdq")]
pub(super) unsafe fn narrow(register: u64, data: &[u8]) -> u64 {
    let (blocks, _) = data.as_chunks::<BLOCK_BYTES>();
    let Some((first, mut rest)) = blocks.split_first() else { return slicing(register, data) };
    let mut x = _mm_xor_si128(load(first), _mm_cvtsi64_si128(register as i64));
    if let [v, w, y, chained @ ..] = rest {
        let (mut a, mut b, mut c, mut d) = (x, load(v), load(w), load(y));
        let (chained, left_over) = chained.as_chunks::<4>();
        for [v, w, y, z] in chained {
            a = fold_block(a, const { pair(512) }, load(v));
            b = fold_block(b, const { pair(512) }, load(w));
            c = fold_block(c, const { pair(512) }, load(y));
            d = fold_block(d, const { pair(512) }, load(z));
        }
        let cd = fold_block(c, const { pair(128) }, d);
        x = fold_block(a, const { pair(384) }, fold_block(b, const { pair(256) }, cd));
        rest = left_over;
    }
    finish(x, data, BLOCK_BYTES * rest.len() + data.len() % BLOCK_BYTES)
}

/// The register after `data`, starting from `register`, with four vectors of four blocks in flight.
///
/// # Safety
/// - `crc32c::x86_64::avx512::detect` returns true.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vpclmulqdq,pclmulqdq")]
pub(super) unsafe fn wide(register: u64, data: &[u8]) -> u64 {
    let (vectors, tail) = data.as_chunks::<VECTOR_BYTES>();
    let load = |vector: &[u8; VECTOR_BYTES]| -> __m512i {
        // SAFETY: a reference to 64 bytes.
        unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) }
    };
    let Some((first, mut rest)) = vectors.split_first() else {
        // SAFETY: this function has the instructions.
        return unsafe { narrow(register, data) };
    };
    let mut x = _mm512_xor_si512(load(first), _mm512_zextsi128_si512(_mm_cvtsi64_si128(register as i64)));
    let by_512 = CHAINS.by_one();
    if let [v, w, y, chained @ ..] = rest {
        let by_2048 = CHAINS.by_four();
        let (mut a, mut b, mut c, mut d) = (x, load(v), load(w), load(y));
        let (chained, left_over) = chained.as_chunks::<4>();
        for [v, w, y, z] in chained {
            a = fold(a, by_2048, load(v));
            b = fold(b, by_2048, load(w));
            c = fold(c, by_2048, load(y));
            d = fold(d, by_2048, load(z));
        }
        x = CHAINS.join([a, b, c, d]);
        rest = left_over;
    }
    for v in rest {
        x = fold(x, by_512, load(v));
    }
    let x = fold(x, multipliers(&ONTO_LAST_BLOCK), _mm512_maskz_mov_epi64(0xc0, x));
    let halves = _mm256_xor_si256(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64::<1>(x));
    let block = _mm_xor_si128(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
    finish(block, data, tail.len())
}
