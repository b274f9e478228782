//! The kernels of x86-64, and the multipliers shared by those that fold.

use crate::gf2;

pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod braided;
pub(crate) mod matrices;
pub(crate) mod sse42;

/// The multipliers, for the low and the high quadword, that move a block of 128 bits forward by `bits`.
///
/// A reflected block holds x^127..x^64 in its low quadword and x^63..x^0 in its high one. A product of two reflected
/// quadwords is one power of x too high, so each exponent here is one less than the distance.
pub(crate) const fn fold_pair(bits: u64) -> [u64; 2] {
    [(gf2::x_pow(bits + 64 - 1) as u64) << 32, (gf2::x_pow(bits - 1) as u64) << 32]
}
