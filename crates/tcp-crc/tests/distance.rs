//! How many wrong bits a CRC of a segment always finds (thesis 3.2; Castagnoli 1993, Koopman 2002), computed from the polynomials alone.
//!
//! Both polynomials have x + 1 as a factor, so they find every odd number of wrong bits. So the Hamming distance is 6 up to the length at
//! which the first four bits exist whose errors cancel: 1 + x^i + x^j + x^k = 0 modulo P.

use tcp_crc::Method;

/// The CRC of every value, without its leading bit.
const CRC32C: u32 = 0x1edc_6f41;
/// Reserved as value 7. Koopman writes it BA0DC66Bh, with the leading bit and without the last.
const KOOPMAN: u32 = 0x741b_8cd7;

/// The powers of x modulo a polynomial, from x^0 on.
fn powers(polynomial: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1_u32), move |power| Some((power << 1) ^ (polynomial * (power >> 31))))
}

/// The first k for which 1 + x^i + x^j + x^k = 0 has a solution with i < j < k, or none below `bits`. Until then no two wrong bits cancel
/// either: that is asserted.
fn first_of_weight_four(polynomial: u32, bits: usize) -> Option<usize> {
    // Where each power stands; most questions are answered by the map of their low 24 bits, which is small.
    let mut place = std::collections::HashMap::new();
    let mut may_be = vec![false; 1 << 24];
    let low = |power: u32| (power & 0xff_ffff) as usize;
    let mut before: Vec<u32> = Vec::new();
    for (k, power) in powers(polynomial).enumerate().take(bits) {
        let is_zero_with = |other: &u32| {
            let sum = 1 ^ power ^ other;
            may_be[low(sum)] && place.contains_key(&sum)
        };
        if before.iter().skip(1).any(is_zero_with) {
            return Some(k);
        }
        may_be[low(power)] = true;
        assert_eq!(place.insert(power, k), None, "x^{k} is an earlier power: two wrong bits cancel");
        before.push(power);
    }
    None
}

/// Whether x + 1 divides the polynomial: the number of its terms is even. The leading one is not in the word.
fn finds_odd_numbers(polynomial: u32) -> bool {
    polynomial.count_ones() % 2 == 1
}

#[test]
fn a_crc32c_finds_five_wrong_bits_of_5243_and_three_of_a_full_segment() {
    assert!(finds_odd_numbers(CRC32C));
    // Of k + 1 bits, 32 are the CRC. One bit less is safe.
    let k = first_of_weight_four(CRC32C, 6000).expect("a full segment is longer");
    assert_eq!(k - 32, 5243);
}

#[test]
fn the_polynomial_of_koopman_finds_five_wrong_bits_of_a_full_segment() {
    assert!(finds_odd_numbers(KOOPMAN));
    let k = first_of_weight_four(KOOPMAN, 17_000).expect("it is not without end");
    assert_eq!(k - 32, 16_360);
    assert_eq!(Method::from_value(Method::RESERVED_FOR_KOOPMAN), None, "it is not implemented");
}
