//! Checksums made of sums: Fletcher-32 and Adler-32 (Sahu 2019, 4.2 and 4.3), and the exclusive or of all bytes
//! (Petersen 2007).

/// Words of 16 bits between folds: Nakassis' bound for two accumulators of 32 bits.
const FLETCHER_RUN_WORDS: usize = 360;

/// Section 4.2: two sums modulo 65535 by end-around carry, low word first, started at zero.
pub(super) fn fletcher32(data: &[u8]) -> u64 {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut sum0, mut sum1) = (0_u32, 0_u32);
    let (words, odd) = data.as_chunks::<2>();
    for run in words.chunks(FLETCHER_RUN_WORDS) {
        for word in run {
            sum0 += u32::from(u16::from_le_bytes(*word));
            sum1 += sum0;
        }
        (sum0, sum1) = (fold(sum0), fold(sum1));
    }
    if let Some(&byte) = odd.first() {
        sum0 += u32::from(byte);
        sum1 += sum0;
    }
    (sum0, sum1) = (fold(fold(sum0)), fold(fold(sum1)));
    u64::from(sum1 << 16 | sum0)
}

/// The largest prime below 2^16.
const ADLER_MODULUS: u32 = 65521;
/// The longest run after which two reduced 32-bit sums cannot have overflowed.
const ADLER_RUN_BYTES: usize = 5552;

/// Section 4.3: two sums modulo a prime. The section reduces after every byte, but the thesis' figures (1.3 cycles per
/// byte) are those of programs that reduce as seldom as they can, as this one does.
pub(super) fn adler32(data: &[u8]) -> u64 {
    let (mut sum0, mut sum1) = (1_u32, 0_u32);
    for run in data.chunks(ADLER_RUN_BYTES) {
        for &byte in run {
            sum0 += u32::from(byte);
            sum1 += sum0;
        }
        sum0 %= ADLER_MODULUS;
        sum1 %= ADLER_MODULUS;
    }
    u64::from(sum1 << 16 | sum0)
}

/// The note's cheapest: the exclusive or of all bytes.
pub(super) fn xor(data: &[u8]) -> u64 {
    u64::from(data.iter().fold(0, |sum, byte| sum ^ byte))
}
