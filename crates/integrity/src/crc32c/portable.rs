//! Products of polynomials in software, for combination by the kernels without instructions of their own.

use super::{bitwise, slicing8};
use crate::combine::Field;

/// The field with the tables of [`slicing8`].
pub(crate) struct Sliced;

impl Field for Sliced {
    unsafe fn product(a: u64, b: u64) -> u64 {
        product(a, b)
    }

    unsafe fn reduce(product: u64) -> u32 {
        // Complemented on both sides, because `append` takes and returns finished values, and a register of 0 is
        // needed.
        !slicing8::append(!0, &product.to_le_bytes())
    }
}

/// The field without any table.
pub(crate) struct Bitwise;

impl Field for Bitwise {
    unsafe fn product(a: u64, b: u64) -> u64 {
        product(a, b)
    }

    unsafe fn reduce(product: u64) -> u32 {
        !bitwise::append(!0, &product.to_le_bytes())
    }
}

/// The carry-less product of two 32-bit values.
pub(crate) fn product(a: u64, b: u64) -> u64 {
    (0..32).fold(0, |product, bit| product ^ (a << bit & (b >> bit & 1).wrapping_neg()))
}
