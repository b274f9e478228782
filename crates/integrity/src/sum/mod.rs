//! The IP checksum (RFC 1071): the guard of the Data Integrity Extensions between a host and its adapter.
//!
//! The one's complement sum of 16-bit words does not depend on the width in which it is computed, nor on the byte
//! order, except that its two bytes may be swapped. So words of 32 bits are added up in 64 bits, which the compiler
//! vectorises, and folded once at the end.

#[cfg(target_arch = "x86_64")]
use crate::detect::{Detected, detected};

/// The IP checksum of `data`; an odd last byte counts as the high byte of a word. On the wire: `.to_be_bytes()`.
///
/// A run of zeros has the checksum 0xffff, never 0.
///
/// ```
/// // The example of RFC 1071 section 3, whose sum is ddf2.
/// assert_eq!(integrity::ip_checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
/// ```
#[inline]
pub fn ip_checksum(data: &[u8]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    {
        static AVX512: Detected = Detected::new();
        static AVX2: Detected = Detected::new();
        if AVX512.get(|| detected!("avx512f", "avx512bw")) {
            // SAFETY: the machine has the instructions.
            return unsafe { wide512(data) };
        }
        if AVX2.get(|| detected!("avx2")) {
            // SAFETY: the machine has the instructions.
            return unsafe { wide256(data) };
        }
    }
    portable(data)
}

/// # Safety
/// - The machine has AVX-512 F and BW.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn wide512(data: &[u8]) -> u16 {
    checksum(data)
}

/// # Safety
/// - The machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn wide256(data: &[u8]) -> u16 {
    checksum(data)
}

fn portable(data: &[u8]) -> u16 {
    checksum(data)
}

/// Always inlined, so that the loop is compiled with the caller's target features.
#[inline(always)]
fn checksum(data: &[u8]) -> u16 {
    let (words, rest) = data.as_chunks::<4>();
    // A sum of more than 2^32 words could overflow 64 bits, so long runs are cut.
    const CUT_WORDS: usize = 1 << 28;
    let mut sum: u64 = 0;
    for words in words.chunks(CUT_WORDS) {
        let part: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
        sum += (part & 0xffff_ffff) + (part >> 32);
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_ne_bytes(last));
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // The words were added in memory order.
    !u16::from_be(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071 section 1, word by word.
    fn reference(data: &[u8]) -> u16 {
        let mut sum = 0u32;
        for word in data.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn every_form_agrees_with_the_reference_at_every_length_and_alignment() {
        let data: Vec<u8> =
            (0..1200u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 | 0x80).collect();
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut forms: Vec<unsafe fn(&[u8]) -> u16> = vec![portable, ip_checksum];
        #[cfg(target_arch = "x86_64")]
        if detected!("avx2") {
            forms.push(wide256);
        }
        let step = if cfg!(miri) { 37 } else { 1 };
        for len in (0..=1024).step_by(step) {
            for align in (0..64).step_by(step) {
                let run = &data[align..align + len];
                for form in &forms {
                    // SAFETY: the machine has the instructions: checked above.
                    assert_eq!(unsafe { form(run) }, reference(run), "{len} bytes, alignment {align}");
                }
            }
        }
    }

    #[test]
    fn zeros_and_ones_have_the_two_zeros() {
        assert_eq!(ip_checksum(&[0; 512]), 0xffff);
        assert_eq!(ip_checksum(&[]), 0xffff);
        assert_eq!(ip_checksum(&[0xff; 512]), 0);
        assert_eq!(ip_checksum(&[0xff; 70_000]), 0);
    }

    #[test]
    fn a_carry_out_of_every_word_comes_back() {
        assert_eq!(ip_checksum(&[0xff, 0xff, 0x00, 0x01]), reference(&[0xff, 0xff, 0x00, 0x01]));
        assert_eq!(ip_checksum(&[0xff; 3]), reference(&[0xff; 3]));
    }
}
