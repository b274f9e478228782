//! The correct results, computed in the simplest way: a benchmark of wrong results is worthless.
//!
//! This code shares nothing with the measured code. CRCs come from the tables of the crate `crc`; the sums follow their
//! definitions step by step.

use crc::{CRC_16_T10_DIF, CRC_32_ISCSI, CRC_64_NVME, Crc};
use published::Family;

/// Bytes of a sector with a guard.
pub(crate) const SECTOR_BYTES: usize = 512;

/// What a contender computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Crc32c,
    Adler32,
    Fletcher32,
    OnesComplement,
    Xor,
    T10,
    Crc64Nvme,
    /// The exclusive or of the little-endian words of 64 bits; what is left over counts as if zeros followed.
    Words,
    /// CRC32C of all, and above it the T10 guards of sectors of [`SECTOR_BYTES`], each exclusive-ored into what the ones
    /// before it left, turned left by five bits.
    CrcAndGuards,
    /// No checksum: a copy, which is checked by its destination.
    Copy,
}

impl From<Family> for Answer {
    fn from(family: Family) -> Self {
        match family {
            Family::Crc32c => Self::Crc32c,
            Family::Adler32 => Self::Adler32,
            Family::Fletcher32 => Self::Fletcher32,
            Family::OnesComplement => Self::OnesComplement,
            Family::Xor => Self::Xor,
            Family::T10 => Self::T10,
        }
    }
}

/// The correct result for `data`.
pub(crate) fn right(answer: Answer, data: &[u8]) -> u64 {
    static CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
    static T10: Crc<u16> = Crc::<u16>::new(&CRC_16_T10_DIF);
    static CRC64: Crc<u64> = Crc::<u64>::new(&CRC_64_NVME);
    match answer {
        Answer::Crc32c => CRC32C.checksum(data).into(),
        Answer::T10 => T10.checksum(data).into(),
        Answer::Crc64Nvme => CRC64.checksum(data),
        Answer::Adler32 => {
            let step = |(a, b): (u64, u64), byte: &u8| {
                let a = (a + u64::from(*byte)) % 65521;
                (a, (b + a) % 65521)
            };
            let (a, b) = data.iter().fold((1, 0), step);
            b << 16 | a
        }
        Answer::Fletcher32 => {
            let (a, b) = words16(data, u16::from_le_bytes).fold((0u64, 0u64), |(a, b), word| {
                let a = around(a + u64::from(word));
                (a, around(b + a))
            });
            b << 16 | a
        }
        Answer::OnesComplement => {
            let sum = words16(data, u16::from_be_bytes).fold(0u64, |sum, word| around(sum + u64::from(word)));
            !sum & 0xffff
        }
        Answer::Xor => data.iter().fold(0, |all, byte| all ^ byte).into(),
        Answer::Words => data.chunks(8).fold(0, |all, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            all ^ u64::from_le_bytes(word)
        }),
        Answer::CrcAndGuards => {
            let guards = data.chunks(SECTOR_BYTES).map(|sector| u32::from(T10.checksum(sector)));
            let guards = guards.fold(0u32, |all, guard| all.rotate_left(5) ^ guard);
            u64::from(guards) << 32 | u64::from(CRC32C.checksum(data))
        }
        Answer::Copy => 0,
    }
}

/// End-around carry of a sum of two words of 16 bits.
fn around(sum: u64) -> u64 {
    (sum & 0xffff) + (sum >> 16)
}

/// An odd byte counts as if a zero followed.
fn words16(data: &[u8], word: fn([u8; 2]) -> u16) -> impl Iterator<Item = u16> {
    data.chunks(2).map(move |pair| word([pair[0], pair.get(1).copied().unwrap_or(0)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_are_the_published_ones() {
        for (answer, data, value) in [
            (Answer::Crc32c, &b"123456789"[..], 0xe306_9283),
            (Answer::T10, b"123456789", 0xd0db),
            (Answer::Crc64Nvme, b"123456789", 0xae8b_1486_0a79_9888),
            (Answer::Adler32, b"Wikipedia", 0x11e6_0398),
            (Answer::Fletcher32, b"abcdef", 0x5650_2d2a),
            // RFC 1071, section 3: the sum is ddf2.
            (Answer::OnesComplement, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0x220d),
            (Answer::Xor, &[1, 2, 4, 0x81], 0x86),
            (Answer::Words, &[1, 0, 0, 0, 0, 0, 0, 0x80, 3], 0x8000_0000_0000_0002),
            (Answer::CrcAndGuards, &[0; 1024][..32], 0x8a91_36aa),
            (Answer::Copy, b"x", 0),
        ] {
            assert_eq!(right(answer, data), value, "{answer:?}");
        }
    }
}
