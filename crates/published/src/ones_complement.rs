//! The Internet checksum in the ways that the papers measured: by words of 16, 32 and 64 bits (Sahu 2019, 4.1; Petersen
//! 2007, "TCP Ref." and "TCP Opt."). RFC 1071 gives the algorithm and the reason why the width does not matter.
//!
//! All forms sum words as a little-endian machine sees them. Swapping the two bytes at the end gives the result of a
//! big-endian machine (RFC 1071, 2 (B)). An odd byte counts as if a zero followed.

use super::opaque_word;

/// Carries are folded after this many bytes, so that no accumulator overflows: 65536 words of 16 bits sum to less than
/// 2^32. The papers' programs folded once, at the end; their buffers were no longer.
const RUN_BYTES: usize = 128 << 10;

/// End-around carry down to 16 bits.
fn fold(mut sum: u64) -> u64 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Complement, and network order.
fn finish(sum: u64) -> u64 {
    u64::from((!fold(sum) as u16).swap_bytes())
}

/// Adds up runs. Each run starts at an even offset, so its sum counts like the others'.
fn by_runs(data: &[u8], sum: impl Fn(&[u8]) -> u64) -> u64 {
    finish(data.chunks(RUN_BYTES).map(|run| fold(sum(run))).sum())
}

/// The bytes left over by whole words: as words of four bytes, then two, then one.
fn tail(tail: &[u8]) -> u64 {
    let (fours, tail) = tail.as_chunks::<4>();
    let (twos, ones) = tail.as_chunks::<2>();
    let fours: u64 = fours.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
    let twos: u64 = twos.iter().map(|word| u64::from(u16::from_le_bytes(*word))).sum();
    fours + twos + ones.iter().map(|byte| u64::from(*byte)).sum::<u64>()
}

/// Section 4.1.1 of the thesis: words of 16 bits into an accumulator of 32.
pub(super) fn words16(data: &[u8]) -> u64 {
    by_runs(data, |run| {
        let (words, odd) = run.as_chunks::<2>();
        let sum: u32 = words.iter().map(|word| u32::from(u16::from_le_bytes(*word))).sum();
        u64::from(sum) + tail(odd)
    })
}

/// Section 4.1.2 of the thesis, and the optimised form of the note: words of 32 bits into an accumulator of 64.
pub(super) fn words32(data: &[u8]) -> u64 {
    by_runs(data, |run| {
        let (words, rest) = run.as_chunks::<4>();
        let sum: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
        sum + tail(rest)
    })
}

/// [`words16`] without vectors, as compilers without auto-vectorisation left it: one word after the other.
pub(super) fn words16_scalar(data: &[u8]) -> u64 {
    by_runs(data, |run| {
        let (words, odd) = run.as_chunks::<2>();
        scalar(words.iter().map(|word| u16::from_le_bytes(*word).into())) + tail(odd)
    })
}

/// [`words32`] without vectors.
pub(super) fn words32_scalar(data: &[u8]) -> u64 {
    by_runs(data, |run| {
        let (words, rest) = run.as_chunks::<4>();
        scalar(words.iter().map(|word| u32::from_le_bytes(*word).into())) + tail(rest)
    })
}

/// The sum, with each step hidden from the compiler, which can neither merge steps nor do several at once.
#[inline(always)]
fn scalar(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0, |sum, word| opaque_word(sum + word))
}

/// The reference of RFC 1071, 4.1: words of 16 bits into a C `long`, which has 64 bits on the note's machines.
pub(super) fn words16_into_long(data: &[u8]) -> u64 {
    by_runs(data, |run| {
        let (words, odd) = run.as_chunks::<2>();
        let sum: u64 = words.iter().map(|word| u64::from(u16::from_le_bytes(*word))).sum();
        sum + tail(odd)
    })
}

/// Section 4.1.3 of the thesis: words of 64 bits, added with the carry of the previous addition; four per step, then
/// two, then one, then the shorter rest.
pub(super) fn words64(data: &[u8]) -> u64 {
    by_carries(data, |sum| sum)
}

/// [`words64`] without vectors. A chain of carries cannot be vectorised anyway; this makes sure of it.
pub(super) fn words64_scalar(data: &[u8]) -> u64 {
    by_carries(data, opaque_word)
}

#[inline(always)]
fn by_carries(data: &[u8], after_step: impl Fn(u64) -> u64) -> u64 {
    let add = |sum, step: &[u8]| after_step(add_words(sum, step));
    let (steps, rest) = data.as_chunks::<32>();
    let mut sum = steps.iter().fold(0, |sum, step| add(sum, step));
    let (steps, rest) = rest.as_chunks::<16>();
    sum = steps.iter().fold(sum, |sum, step| add(sum, step));
    let (steps, rest) = rest.as_chunks::<8>();
    sum = steps.iter().fold(sum, |sum, step| add(sum, step));
    finish((sum & 0xffff_ffff) + (sum >> 32) + tail(rest))
}

/// `sum` plus the words of `step`. Each addition takes the carry of the previous one; the last carry is added at the
/// end.
#[inline(always)]
fn add_words(sum: u64, step: &[u8]) -> u64 {
    let (mut sum, mut carry) = (sum, false);
    for word in step.as_chunks::<8>().0 {
        let (partial, over) = sum.overflowing_add(u64::from_le_bytes(*word));
        let (full, carried_over) = partial.overflowing_add(u64::from(carry));
        (sum, carry) = (full, over | carried_over);
    }
    // This cannot wrap: a sum that carried is at most 2^64 - 2.
    sum.wrapping_add(u64::from(carry))
}
