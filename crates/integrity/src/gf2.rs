//! Polynomial arithmetic over GF(2), from which every constant of this crate is derived.
//!
//! A CRC32C register is kept reflected, like the digest on the wire (RFC 7143 section 13.1): bit 31 is the coefficient
//! of x^0 and bit 0 that of x^31. All functions are `const`, so tables cost nothing at run time.

/// The Castagnoli polynomial 0x11EDC6F41 without its x^32 term, reflected.
pub(crate) const CRC32C_POLY: u32 = 0x1EDC_6F41_u32.reverse_bits();

/// The smallest n > 0 with x^n = 1 mod P: P is x + 1 times a primitive polynomial of degree 31.
pub(crate) const ORDER_OF_X: u64 = (1 << 31) - 1;

/// The polynomial 1, reflected.
const ONE: u32 = 1 << 31;

/// `a * x mod P`.
pub(crate) const fn mul_x(a: u32) -> u32 {
    (a >> 1) ^ (CRC32C_POLY & (a & 1).wrapping_neg())
}

/// `a * b mod P`, one bit of `a` at a time.
pub(crate) const fn mul(a: u32, b: u32) -> u32 {
    let (mut power, mut product) = (b, 0);
    let mut i = 0;
    while i < 32 {
        product ^= power & (a >> (31 - i) & 1).wrapping_neg();
        power = mul_x(power);
        i += 1;
    }
    product
}

/// `x^n mod P`.
pub(crate) const fn x_pow(n: u64) -> u32 {
    let (mut square, mut result, mut n) = (mul_x(ONE), ONE, n);
    while n > 0 {
        if n & 1 == 1 {
            result = mul(result, square);
        }
        square = mul(square, square);
        n >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_x_agree_with_repeated_multiplication() {
        let mut p = ONE;
        for n in 0..5000 {
            assert_eq!(x_pow(n), p, "x^{n}");
            p = mul_x(p);
        }
    }

    #[test]
    fn x_has_the_order_that_is_said() {
        // The order is prime, so the only smaller candidate is 1.
        assert_eq!(x_pow(ORDER_OF_X), ONE);
        assert_ne!(x_pow(1), ONE);
    }

    #[test]
    fn x_to_the_32_is_the_polynomial() {
        assert_eq!(x_pow(32), CRC32C_POLY);
    }

    #[test]
    fn multiplication_commutes_and_one_is_neutral() {
        let (a, b) = (0x1234_5678, 0x9abc_def1);
        assert_eq!(mul(a, b), mul(b, a));
        assert_eq!(mul(a, ONE), a);
        assert_eq!(mul(x_pow(77), x_pow(1000)), x_pow(1077));
    }
}
