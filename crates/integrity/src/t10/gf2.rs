//! Polynomial arithmetic over GF(2) modulo the polynomial of the T10 guard, from which all its constants are derived.
//!
//! A register has the bit order of SBC-3 section 4.22.4: bit i is the coefficient of x^i. All functions are `const`.

/// The polynomial of the guard, 0x18BB7, without its x^16 term (SBC-3 section 4.22.4).
pub(super) const POLY: u16 = 0x8BB7;

/// `a * x mod P`.
pub(super) const fn mul_x(a: u16) -> u16 {
    (a << 1) ^ (POLY & (a >> 15).wrapping_neg())
}

/// `a * b mod P`.
pub(super) const fn mul(a: u16, b: u16) -> u16 {
    let (mut power, mut product) = (b, 0);
    let mut i = 0;
    while i < 16 {
        product ^= power & (a >> i & 1).wrapping_neg();
        power = mul_x(power);
        i += 1;
    }
    product
}

/// `x^n mod P`.
pub(super) const fn x_pow(n: u64) -> u16 {
    let (mut square, mut result, mut n) = (2, 1, n);
    while n > 0 {
        if n & 1 == 1 {
            result = mul(result, square);
        }
        square = mul(square, square);
        n >>= 1;
    }
    result
}

/// The quotient of x^64 by P, 49 bits: the multiplier of a Barrett reduction of 64 bits.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) const QUOTIENT: u64 = {
    let (mut rest, mut quotient) = (1_u128 << 64, 0);
    let mut degree = 64;
    while degree >= 16 {
        if rest >> degree & 1 == 1 {
            rest ^= (1 << 16 | POLY as u128) << (degree - 16);
            quotient |= 1 << (degree - 16);
        }
        degree -= 1;
    }
    quotient
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_x_agree_with_repeated_multiplication() {
        let mut p = 1;
        for n in 0..5000 {
            assert_eq!(x_pow(n), p, "x^{n}");
            p = mul_x(p);
        }
        assert_eq!(x_pow(16), POLY);
    }

    #[test]
    fn multiplication_commutes_and_one_is_neutral() {
        let (a, b) = (0x1234, 0x9abc);
        assert_eq!(mul(a, b), mul(b, a));
        assert_eq!(mul(a, 1), a);
        assert_eq!(mul(x_pow(77), x_pow(1000)), x_pow(1077));
    }
}
