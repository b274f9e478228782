//! The guards of many sectors by GF2P8AFFINEQB, and in the same pass a copy and the CRC32C of what is copied.
//!
//! Multiplying a byte by a power of x mod P is a linear map from 8 bits to 16, which is two 8-by-8 bit matrices, and
//! GF2P8AFFINEQB applies such a matrix to all bytes of a quadword. So a block of 512 bytes is reduced without
//! carry-less multiplication. That leaves the one port per core for carry-less products to the CRC32C:
//!
//! ```text
//!  block of 512 bytes                 low = sum of low matrix[p] * v[p]    one quadword per quadword and
//!   v0 v1 v2 v3 v4 v5 v6 v7  ───►    high = sum of high matrix[p] * v[p]   place in its quadword; only the
//!                                                                          place r of a byte is still open
//!  eight blocks, or fewer
//!   low[0..8], high[0..8]  ─ add the quadwords of each ─►  one vector of each: quadword = block
//!                          ─ transpose the bytes ───────►  quadword = place r, byte = block
//!                          ─ matrix[r], add quadwords ──►  eight remainders of 16 bits
//! ```
//!
//! - A sector is a whole number of blocks. The remainders of its blocks are combined by powers of x^4096.
//! - The CRC32C runs in four chains, folded by 2048 bits, and by 64 more where an eight-byte protection tuple, treated
//!   as zeros here, lies between two sectors.
//! - Each byte is loaded once; what is stored is what was digested.
//! - The matrices and the multiplier are kept in registers: loading them between stores would wait for those stores.

use core::arch::x86_64::{
    __m128i, __m512i, _MM_HINT_ET0, _mm_bsrli_si128, _mm_crc32_u64, _mm_cvtsi128_si32, _mm_prefetch,
    _mm_set_epi8, _mm_shuffle_epi8, _mm_srli_epi64, _mm_storeu_si128, _mm_xor_si128, _mm256_castsi256_si128,
    _mm256_extracti128_si256, _mm256_xor_si256, _mm512_castsi512_si256, _mm512_extracti64x4_epi64,
    _mm512_gf2p8affine_epi64_epi8, _mm512_load_si512, _mm512_permutexvar_epi8, _mm512_set_epi64,
    _mm512_setzero_si512, _mm512_shuffle_i64x2, _mm512_ternarylogic_epi64, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use crate::copy::pass::{COPY, READ, STREAM};
use crate::copy::{self, Store};
use crate::crc32c::x86_64::avx512::{
    CHAINS, Multipliers, VECTOR_BYTES, first_bytes, fold, multipliers, pin, reduce, take,
};
use crate::crc32c::x86_64::fold_pair;
use crate::t10::gf2;
use crate::t10::run::Run;

/// Sectors are a whole number of these blocks.
pub(crate) const BLOCK_BYTES: usize = 512;
/// Vectors of a block.
const VECTORS: usize = BLOCK_BYTES / VECTOR_BYTES;
/// How far ahead of the stores their lines are prefetched. A block takes so many instructions that a core would reach
/// the next lines too late.
const PREFETCH_BYTES: usize = 768;
/// Blocks that are reduced together.
const BATCH: usize = 8;
/// With fewer blocks, the work before the first and after the last one (loading sixteen matrices; a reduction of ten
/// steps, each waiting for the one before) costs more than computing one CRC after the other.
const MIN_BLOCKS: usize = 4;

/// One matrix for each quadword.
#[repr(C, align(64))]
struct Matrices([u64; 8]);

/// The matrix for GF2P8AFFINEQB that maps a byte to bits `8 * half ..` of the byte times x^n mod P.
const fn times_x_pow(n: u64, half: u32) -> u64 {
    let columns = [0, 1, 2, 3, 4, 5, 6, 7];
    let mut matrix = 0;
    let mut j = 0;
    while j < 8 {
        let column = gf2::x_pow(n + columns[j]) >> (8 * half);
        let mut row = 0;
        while row < 8 {
            // The instruction expects the row of bit 7 in the lowest byte.
            matrix |= ((column >> row & 1) as u64) << (8 * (7 - row) + j as u32);
            row += 1;
        }
        j += 1;
    }
    matrix
}

/// The matrices that map the bytes of quadword q to bits `8 * half ..` of their product with x^(start - q * step).
const fn falling(start: u64, step: u64, half: u32) -> Matrices {
    let mut m = [0; 8];
    let mut q = 0;
    while q < 8 {
        m[q] = times_x_pow(start - q as u64 * step, half);
        q += 1;
    }
    Matrices(m)
}

/// For each half and each vector of a block: moves every byte to the last quadword of the block, keeping its place in
/// the quadword, and by x^16, as the remainder requires.
static TO_LAST_WORD: [[Matrices; VECTORS]; 2] = [to_last_word(0), to_last_word(1)];

const fn to_last_word(half: u32) -> [Matrices; VECTORS] {
    let mut m = [const { Matrices([0; 8]) }; VECTORS];
    let mut p = 0;
    while p < VECTORS {
        m[p] = falling(16 + 8 * (BLOCK_BYTES as u64 - 8 - (p * VECTOR_BYTES) as u64), 64, half);
        p += 1;
    }
    m
}

/// Matrices for the sum of `low` and `high * x^8`, each in two such halves.
struct Halves {
    low: [Matrices; 2],
    high: [Matrices; 2],
}

const fn halves(start: u64, step: u64) -> Halves {
    Halves {
        low: [falling(start, step, 0), falling(start, step, 1)],
        high: [falling(start + 8, step, 0), falling(start + 8, step, 1)],
    }
}

/// Moves byte r of a quadword, which is in quadword r by now, to the end of the quadword.
static TO_LAST_BYTE: Halves = halves(56, 8);
/// Moves block s of a sector of eight, which is quadword s, to the end of the sector.
static TO_LAST_BLOCK: Halves = halves(7 * 8 * BLOCK_BYTES as u64, 8 * BLOCK_BYTES as u64);

/// The multiplier of everything that precedes a batch of blocks.
const BATCH_FORWARD: u16 = gf2::x_pow((8 * BATCH * BLOCK_BYTES) as u64);

/// From one sector to the next across a tuple.
static BY_2112: Multipliers = Multipliers::uniform(fold_pair(2048 + 64));

#[inline]
#[target_feature(enable = "avx512f")]
fn matrices(m: &'static Matrices) -> __m512i {
    // SAFETY: `m` is 64 bytes long and aligned to 64.
    unsafe { _mm512_load_si512(m.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

/// Low and high halves of the bytes' products with the matrices `by`.
#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn transform(low: __m512i, high: __m512i, by: &'static Halves) -> [__m512i; 2] {
    let (low_by, high_by) = (&by.low, &by.high);
    let of_half = |half: usize| {
        _mm512_xor_si512(
            _mm512_gf2p8affine_epi64_epi8::<0>(low, matrices(&low_by[half])),
            _mm512_gf2p8affine_epi64_epi8::<0>(high, matrices(&high_by[half])),
        )
    };
    [of_half(0), of_half(1)]
}

/// The sum of the quadwords of vector s, in quadword s.
#[inline]
#[target_feature(enable = "avx512f")]
fn sums(v: &[__m512i; BATCH]) -> __m512i {
    let pair = |s: usize| {
        _mm512_xor_si512(_mm512_unpacklo_epi64(v[s], v[s + 1]), _mm512_unpackhi_epi64(v[s], v[s + 1]))
    };
    let join = |a, b| {
        _mm512_xor_si512(
            _mm512_shuffle_i64x2::<0b10_00_10_00>(a, b),
            _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b),
        )
    };
    join(join(pair(0), pair(2)), join(pair(4), pair(6)))
}

/// Bits 8 * half .. of the remainders of eight blocks, in quadword `half`; or, if `WHOLE`, eight parts of the remainder
/// of the sector that they form.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi,gfni,ssse3,avx2")]
fn remainders<const WHOLE: bool>(low: &[__m512i; BATCH], high: &[__m512i; BATCH]) -> __m128i {
    let (mut low, mut high) = (sums(low), sums(high));
    if WHOLE {
        [low, high] = transform(low, high, &TO_LAST_BLOCK);
    }
    const FIRST_BYTES: i64 = 0x3830_2820_1810_0800;
    const NEXT: i64 = 0x0101_0101_0101_0101;
    let columns = _mm512_set_epi64(
        FIRST_BYTES + 7 * NEXT,
        FIRST_BYTES + 6 * NEXT,
        FIRST_BYTES + 5 * NEXT,
        FIRST_BYTES + 4 * NEXT,
        FIRST_BYTES + 3 * NEXT,
        FIRST_BYTES + 2 * NEXT,
        FIRST_BYTES + NEXT,
        FIRST_BYTES,
    );
    let (low, high) = (_mm512_permutexvar_epi8(columns, low), _mm512_permutexvar_epi8(columns, high));
    let [low, high] = transform(low, high, &TO_LAST_BYTE);
    let both = _mm512_xor_si512(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    let both = _mm256_xor_si256(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64::<1>(both));
    let both = _mm_xor_si128(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
    // Puts the two halves of each remainder next to each other.
    _mm_shuffle_epi8(both, _mm_set_epi8(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0))
}

/// The remainders of eight blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi,gfni,ssse3,avx2")]
fn of_each(low: &[__m512i; BATCH], high: &[__m512i; BATCH]) -> [u16; BATCH] {
    let mut each = [0; BATCH];
    // SAFETY: the array is as long as the vector.
    unsafe { _mm_storeu_si128(each.as_mut_ptr().cast(), remainders::<false>(low, high)) }
    each
}

/// The remainder of eight blocks together.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi,gfni,ssse3,avx2")]
fn of_all(low: &[__m512i; BATCH], high: &[__m512i; BATCH]) -> u16 {
    let x = remainders::<true>(low, high);
    let x = _mm_xor_si128(x, _mm_bsrli_si128::<8>(x));
    let x = _mm_xor_si128(x, _mm_srli_epi64::<32>(x));
    _mm_cvtsi128_si32(_mm_xor_si128(x, _mm_srli_epi64::<16>(x))) as u16
}

/// The sectors to process, from a [`Run`].
struct Addresses<'a> {
    src: *const u8,
    src_stride: usize,
    /// Not used when only reading.
    dst: *mut u8,
    dst_stride: usize,
    sector_bytes: usize,
    guards: &'a mut [u16],
}

/// State carried from block to block.
struct Pass {
    src: *const u8,
    dst: *mut u8,
    to_last_word: [[__m512i; VECTORS]; 2],
    by_2048: __m512i,
    /// The four chains of the CRC32C.
    chains: [__m512i; 4],
    /// What is mixed into the first block.
    register: __m512i,
}

impl Pass {
    /// Processes one block: returns the low and the high half of its sum, and advances both addresses.
    ///
    /// # Safety
    /// - The block is valid as [`run`] requires.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,vpclmulqdq,pclmulqdq,sse4.2,gfni"
    )]
    unsafe fn block<const PASS: u8, const DIGEST: bool>(&mut self, from_last_block: __m512i) -> [__m512i; 2] {
        let (src, dst) = (self.src, self.dst);
        let mut sum = [_mm512_setzero_si512(); 2];
        macro_rules! pair {
            ($p:expr) => {{
                let (at, next) = ($p * VECTOR_BYTES, ($p + 1) * VECTOR_BYTES);
                if PASS == COPY {
                    // SAFETY: a prefetch may name any address.
                    #[allow(unused_unsafe, reason = "safe for some compilers only")]
                    unsafe {
                        _mm_prefetch::<_MM_HINT_ET0>(dst.wrapping_add(at + PREFETCH_BYTES).cast());
                        _mm_prefetch::<_MM_HINT_ET0>(dst.wrapping_add(next + PREFETCH_BYTES).cast());
                    }
                }
                // SAFETY: these vectors belong to the block; for `STREAM` they are aligned, and `run` adds the fence.
                let v = unsafe {
                    [
                        take::<PASS>(dst.wrapping_add(at), src.wrapping_add(at)),
                        take::<PASS>(dst.wrapping_add(next), src.wrapping_add(next)),
                    ]
                };
                for half in [0, 1] {
                    let by = &self.to_last_word[half];
                    sum[half] = add3(
                        sum[half],
                        _mm512_gf2p8affine_epi64_epi8::<0>(v[0], by[$p]),
                        _mm512_gf2p8affine_epi64_epi8::<0>(v[1], by[$p + 1]),
                    );
                }
                v
            }};
        }
        let [v0, v1] = pair!(0);
        let [v2, v3] = pair!(2);
        let [v4, v5] = pair!(4);
        let [v6, v7] = pair!(6);
        if DIGEST {
            let [a, b, c, d] = self.chains;
            let v0 = _mm512_xor_si512(v0, self.register);
            self.register = _mm512_setzero_si512();
            self.chains = [
                fold(fold(a, from_last_block, v0), self.by_2048, v4),
                fold(fold(b, from_last_block, v1), self.by_2048, v5),
                fold(fold(c, from_last_block, v2), self.by_2048, v6),
                fold(fold(d, from_last_block, v3), self.by_2048, v7),
            ];
        }
        (self.src, self.dst) = (src.wrapping_add(BLOCK_BYTES), dst.wrapping_add(BLOCK_BYTES));
        sum
    }
}

/// Computes the guard of every sector; unless `PASS` is `READ`, copies the sectors; and if `DIGEST`, continues `crc`
/// (finished form) over them, as if `tuple_bytes` (0 or 8) zero bytes followed each.
///
/// # Safety
/// - `avx512::detect` returns true.
/// - Every sector is valid for reads, and unless `PASS` is `READ`, its copy for writes; no copy overlaps a sector.
/// - For `STREAM`, copies are aligned to 64 bytes.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,vpclmulqdq,pclmulqdq,sse4.2,gfni"
)]
unsafe fn run<const PASS: u8, const DIGEST: bool>(
    crc: u32,
    tuple_bytes: usize,
    sectors: Addresses<'_>,
) -> u32 {
    let Addresses { src, src_stride, dst, dst_stride, sector_bytes, guards } = sectors;
    if guards.is_empty() {
        return crc;
    }
    let (src_gap, dst_gap) = (src_stride - sector_bytes, dst_stride.wrapping_sub(sector_bytes));
    let by_2048 = pin(CHAINS.by_four());
    let from_last_sector = if tuple_bytes == 0 { by_2048 } else { multipliers(&BY_2112) };
    let zero = _mm512_setzero_si512();
    let mut to_last_word = [[zero; VECTORS]; 2];
    for (registers, half) in to_last_word.iter_mut().zip(&TO_LAST_WORD) {
        for (register, of_vector) in registers.iter_mut().zip(half) {
            *register = pin(matrices(of_vector));
        }
    }
    let mut pass = Pass { src, dst, to_last_word, by_2048, chains: [zero; 4], register: first_bytes(!crc) };
    let (mut low, mut high) = ([zero; BATCH], [zero; BATCH]);
    if sector_bytes == BLOCK_BYTES {
        for group in guards.chunks_mut(BATCH) {
            for (low, high) in low.iter_mut().zip(&mut high).take(group.len()) {
                // SAFETY: the next sector, which is a block, is valid.
                [*low, *high] = unsafe { pass.block::<PASS, DIGEST>(from_last_sector) };
                (pass.src, pass.dst) = (pass.src.wrapping_add(src_gap), pass.dst.wrapping_add(dst_gap));
            }
            let each = of_each(&low, &high);
            match group.first_chunk_mut::<BATCH>() {
                Some(whole) => *whole = each,
                None => group.copy_from_slice(&each[..group.len()]),
            }
        }
    } else {
        let blocks = sector_bytes / BLOCK_BYTES;
        for guard in guards {
            // The first batch may lack blocks: zeros before a run do not count.
            let mut missing = blocks.wrapping_neg() % BATCH;
            if missing > 0 {
                (low, high) = ([zero; BATCH], [zero; BATCH]);
            }
            let mut from_last_block = from_last_sector;
            for batch in 0..blocks.div_ceil(BATCH) {
                for i in missing..BATCH {
                    // SAFETY: the next block of the sector is valid.
                    [low[i], high[i]] = unsafe { pass.block::<PASS, DIGEST>(from_last_block) };
                    from_last_block = by_2048;
                }
                missing = 0;
                let part = of_all(&low, &high);
                *guard = if batch == 0 { part } else { gf2::mul(*guard, BATCH_FORWARD) ^ part };
            }
            (pass.src, pass.dst) = (pass.src.wrapping_add(src_gap), pass.dst.wrapping_add(dst_gap));
        }
    }
    if PASS == STREAM {
        copy::fence(Store::NonTemporal);
    }
    if !DIGEST {
        return crc;
    }
    let register = reduce(CHAINS.join(pass.chains));
    // Adds the zeros after the last sector.
    !(if tuple_bytes == 0 { register } else { _mm_crc32_u64(u64::from(register), 0) as u32 })
}

/// Processes `sectors`, as [`Kernel::run`](crate::t10::kernels::Kernel::run) says. Returns `None`, with nothing done,
/// if they are not whole blocks, or if the kernel for one run is faster.
///
/// # Safety
/// - `avx512::detect` returns true.
#[target_feature(
    enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,vpclmulqdq,pclmulqdq,sse4.2,gfni"
)]
pub(crate) unsafe fn sectors(crc: Option<u32>, tuple_bytes: usize, sectors: &mut Run<'_>) -> Option<u32> {
    let (sector_bytes, src_stride) = (sectors.sector_bytes, sectors.src_stride);
    let only_guards = sectors.copy.is_none() && crc.is_none();
    if !sector_bytes.is_multiple_of(BLOCK_BYTES) || only_guards && sector_bytes > BLOCK_BYTES {
        return None;
    }
    let (count, blocks) = (sectors.guards.len(), sector_bytes / BLOCK_BYTES);
    if count < MIN_BLOCKS && count * blocks < MIN_BLOCKS {
        return None;
    }
    let src = sectors.src.as_ptr();
    let (dst, dst_stride, stream) = match &mut sectors.copy {
        None => (core::ptr::null_mut(), 0, None),
        Some(copy) => {
            let dst = copy.dst.as_mut_ptr();
            let aligned = (dst.addr() | copy.stride).is_multiple_of(VECTOR_BYTES);
            (dst, copy.stride, Some(copy.store == Store::NonTemporal && aligned))
        }
    };
    let of = Addresses { src, src_stride, dst, dst_stride, sector_bytes, guards: sectors.guards };
    // SAFETY: `Run` holds only slices as long as its sectors need, and a `&mut` overlaps no `&`; only aligned copies are
    // streamed.
    unsafe {
        Some(match (stream, crc) {
            (None, None) => run::<READ, false>(0, tuple_bytes, of),
            (None, Some(crc)) => run::<READ, true>(crc, tuple_bytes, of),
            (Some(false), None) => run::<COPY, false>(0, tuple_bytes, of),
            (Some(false), Some(crc)) => run::<COPY, true>(crc, tuple_bytes, of),
            (Some(true), None) => run::<STREAM, false>(0, tuple_bytes, of),
            (Some(true), Some(crc)) => run::<STREAM, true>(crc, tuple_bytes, of),
        })
    }
}

/// The register after each word, starting from 0.
///
/// # Safety
/// - `avx512::detect` returns true.
#[target_feature(enable = "sse4.2")]
pub(crate) unsafe fn words(words: &[[u8; 8]], registers: &mut [u32]) {
    for (word, register) in words.iter().zip(registers) {
        *register = _mm_crc32_u64(0, u64::from_le_bytes(*word)) as u32;
    }
}
