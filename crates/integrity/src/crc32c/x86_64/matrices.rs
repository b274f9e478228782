//! Four chains of 512 bits moved forward together by GF2P8AFFINEQB, which multiplies bytes by matrices of 8 x 8 bits.
//!
//! Four consecutive vectors stand for the polynomial v0·y^3 + v1·y^2 + v2·y + v3 with y = x^512. Bytes at the same place of the four vectors
//! have 32 bits together, as many as a remainder modulo P, and the powers 1, y, y^2 and y^3 of a byte are independent modulo P. So there are
//! exactly sixteen matrices A, the same for every place in a vector, such that for every byte b
//!
//! ```text
//! b · y^(3 - from) · y^4 = A[from][0] b · y^3 + A[from][1] b · y^2 + A[from][2] b · y + A[from][3] b    mod P
//! ```
//!
//! A step of four vectors is sixteen multiplications without a single shuffle. Alone it is as fast as folding on AMD's Zen 4, where two
//! products of VPCLMULQDQ move 64 bytes in four cycles, and four matrices do. Next to the CRC32 instruction it is faster by a fifth: the two
//! get in each other's way less (docs/integrity.md).

use core::arch::x86_64::{
    __m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_ternarylogic_epi64,
};

use super::avx512;
use super::braided::{Advance, Block};
use crate::detect::detected;
use crate::gf2;

/// Vectors that a step takes.
const CHAINS: usize = 4;
/// Distance of two vectors, bits.
const VECTOR_BITS: u64 = 512;
/// Exclusive or of three operands.
const XOR3: i32 = 0x96;

/// Whether this machine has the instructions.
pub(crate) fn detect() -> bool {
    avx512::detect() && detected!("gfni")
}

/// The four chains of a step are moved together by matrices.
pub(crate) struct Matrices;

/// `[from][to]`: the contribution of a chain's bytes to another chain, in the form of GF2P8AFFINEQB: byte 7 - n has the row of bit n.
static STEP: [[u64; CHAINS]; CHAINS] = step_matrices();

/// The power of x for a bit of a byte, `vectors` vectors before the last one. Bytes are reflected: bit 7 stands for x^0.
const fn bit_power(vectors: usize, bit: usize) -> u32 {
    gf2::x_pow(VECTOR_BITS * vectors as u64 + 7 - bit as u64)
}

/// Bit 8·n + i of the result says that bit i of chain n takes part in the sum that equals `power`; by Gaussian elimination.
const fn coordinates(pivots: &[[u32; 2]; 32], mut power: u32) -> u32 {
    let mut sum = 0;
    while power != 0 {
        let [row, bits] = pivots[power.ilog2() as usize];
        assert!(row != 0, "the powers are independent");
        power ^= row;
        sum ^= bits;
    }
    sum
}

/// For every leading bit a sum of powers that has it, and the bits of the chains that are in the sum.
const fn pivots() -> [[u32; 2]; 32] {
    let mut pivots = [[0; 2]; 32];
    let mut n = 0;
    while n < 32 {
        let (mut power, mut bits) = (bit_power(CHAINS - 1 - n / 8, n % 8), 1 << n);
        while power != 0 {
            let leading = power.ilog2() as usize;
            let [row, row_bits] = pivots[leading];
            if row == 0 {
                pivots[leading] = [power, bits];
                break;
            }
            power ^= row;
            bits ^= row_bits;
        }
        n += 1;
    }
    pivots
}

const fn step_matrices() -> [[u64; CHAINS]; CHAINS] {
    let pivots = pivots();
    let mut matrices = [[0; CHAINS]; CHAINS];
    let mut n = 0;
    while n < 32 {
        let (from, bit) = (n / 8, n % 8);
        let sum = coordinates(&pivots, bit_power(2 * CHAINS - 1 - from, bit));
        let mut m = 0;
        while m < 32 {
            let (to, row) = (m / 8, m % 8);
            matrices[from][to] |= ((sum >> m & 1) as u64) << (8 * (7 - row) + bit);
            m += 1;
        }
        n += 1;
    }
    matrices
}

impl Advance<__m512i, CHAINS> for Matrices {
    type By = [[__m512i; CHAINS]; CHAINS];
    const UNROLLED: bool = false;
    const ALIGNMENT: usize = 32;

    #[inline(always)]
    unsafe fn by() -> Self::By {
        // SAFETY: the machine has AVX-512: the caller vouches for it.
        unsafe {
            let mut by = [[_mm512_setzero_si512(); CHAINS]; CHAINS];
            for (row, matrices) in by.iter_mut().zip(&STEP) {
                for (by, matrix) in row.iter_mut().zip(matrices) {
                    *by = _mm512_set1_epi64(*matrix as i64);
                }
            }
            by
        }
    }

    #[inline(always)]
    unsafe fn step(chains: &mut [__m512i; CHAINS], by: Self::By, block: &mut Block, words: usize) {
        let before = *chains;
        for (n, chain) in chains.iter_mut().enumerate() {
            // SAFETY: the conditions are those of this function.
            unsafe {
                let parts = [
                    _mm512_gf2p8affine_epi64_epi8::<0>(before[0], by[0][n]),
                    _mm512_gf2p8affine_epi64_epi8::<0>(before[1], by[1][n]),
                    _mm512_gf2p8affine_epi64_epi8::<0>(before[2], by[2][n]),
                    _mm512_gf2p8affine_epi64_epi8::<0>(before[3], by[3][n]),
                ];
                let sum = _mm512_ternarylogic_epi64::<XOR3>(block.vector(), parts[0], parts[1]);
                *chain = _mm512_ternarylogic_epi64::<XOR3>(sum, parts[2], parts[3]);
                // The words are spread among the vectors.
                block.words(words * (n + 1) / CHAINS - words * n / CHAINS);
            }
        }
    }
}

/// What GF2P8AFFINEQB makes of a byte of chain `from` for chain `to`.
#[cfg(test)]
pub(crate) fn times(from: usize, to: usize, byte: u8) -> u8 {
    let rows = STEP[from][to].to_le_bytes();
    (0..8).map(|bit| u8::from((rows[7 - bit] & byte).count_ones() % 2 == 1) << bit).sum()
}
