//! The limit of every checksum: reading every byte, as widely as the machine can, and joining what was read.

use integrity::unstable::{Program, with_vectors};

/// Bytes joined in one step; eight registers of the widest kind.
const STEP_BYTES: usize = 512;

/// The exclusive or of the little-endian 64-bit words in `data`; the last word is padded with zeros.
///
/// ```
/// assert_eq!(published::read_only(&[1, 0, 0, 0, 0, 0, 0, 0, 2]), 3);
/// ```
#[inline]
pub fn read_only(data: &[u8]) -> u64 {
    struct Joined<'a>(&'a [u8]);
    impl Program<()> for Joined<'_> {
        type Output = u64;

        #[inline(always)]
        fn run(self, (): ()) -> u64 {
            joined(self.0)
        }
    }
    with_vectors(Joined(data))
}

/// The one algorithm. The compiler gives it the widest loads of the function that it is inlined into.
#[inline(always)]
fn joined(data: &[u8]) -> u64 {
    let (steps, rest) = data.as_chunks::<STEP_BYTES>();
    let mut line = [0; 8];
    if !steps.is_empty() {
        let mut lanes = [0; STEP_BYTES / 8];
        for step in steps {
            join(&mut lanes, step.as_chunks().0);
        }
        for lanes in lanes.as_chunks::<8>().0 {
            lanes.iter().zip(&mut line).for_each(|(lane, line)| *line ^= lane);
        }
    }
    let (lines, rest) = rest.as_chunks::<64>();
    for part in lines {
        join(&mut line, part.as_chunks().0);
    }
    let all = line.iter().fold(0, |all, lane| all ^ lane);
    let (words, rest) = rest.as_chunks::<8>();
    let all = words.iter().fold(all, |all, word| all ^ u64::from_le_bytes(*word));
    rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)) ^ all
}

#[inline(always)]
fn join(lanes: &mut [u64], words: &[[u8; 8]]) {
    for (lane, word) in lanes.iter_mut().zip(words) {
        *lane ^= u64::from_le_bytes(*word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts_once_and_in_its_place() {
        for len in [0, 1, 7, 8, 63, 64, 511, 512, 513, 1600] {
            let mut room = [0; 1600];
            let data = &mut room[..len];
            for at in 0..len {
                data[at] = 0x5a;
                assert_eq!(read_only(data), 0x5a << (at % 8 * 8), "byte {at} of {len}");
                assert_eq!(joined(data), read_only(data));
                data[at] = 0;
            }
        }
    }
}
