//! The classes of errors.

use fastrand::Rng;
use tcp_crc_shim::lab::Damage;

/// How a segment goes wrong between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A class of the laboratory, which the one's complement sum never sees.
    Unseen(Damage),
    /// A bit of two words in the same column, whatever they are.
    ColumnFlips,
    /// So many bits, anywhere.
    Flips(u8),
    /// Up to 32 bits in a row, the first and the last of them wrong.
    ShortBurst,
    /// From 33 to 256 bits in a row, the first and the last of them wrong.
    LongBurst,
    /// The head of one segment and the tail of another.
    Splice,
    /// Other bytes altogether.
    Random,
    /// The data and the CRC of another segment of the connection, under this one's header. Who has put it there has computed TCP's sum again.
    Misplaced,
}

impl Class {
    pub(super) const ALL: [Class; 14] = [
        Class::Unseen(Damage::WordsSwapped),
        Class::Unseen(Damage::BlocksReordered),
        Class::Unseen(Damage::ZeroWordMoved),
        Class::Unseen(Damage::ZeroForOnes),
        Class::Unseen(Damage::ColumnPair),
        Class::ColumnFlips,
        Class::Flips(1),
        Class::Flips(2),
        Class::Flips(3),
        Class::ShortBurst,
        Class::LongBurst,
        Class::Splice,
        Class::Random,
        Class::Misplaced,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Class::Unseen(damage) => damage.name(),
            Class::ColumnFlips => "two bits of one column, whatever they are",
            Class::Flips(1) => "one bit",
            Class::Flips(2) => "two bits",
            Class::Flips(_) => "three bits",
            Class::ShortBurst => "burst of at most 32 bits",
            Class::LongBurst => "burst of 33 to 256 bits",
            Class::Splice => "splice of two segments",
            Class::Random => "random data",
            Class::Misplaced => "another segment's data under this header",
        }
    }

    /// What is expected of TCP's sum, and of a CRC32C over the data.
    pub(super) fn expected(self) -> [&'static str; 2] {
        match self {
            Class::Unseen(_) => ["always", "2^-32"],
            Class::ColumnFlips => ["1/2", "never"],
            // The columns are the same once in 16, and the bits then differ once in 2.
            Class::Flips(2) => ["1/32", "never"],
            // Two of them in one column, the third in the next one, and signs that cancel.
            Class::Flips(3) => ["3/1024", "never"],
            Class::Flips(_) => ["never", "never"],
            Class::ShortBurst => ["below 1/1000", "never"],
            Class::LongBurst | Class::Splice | Class::Random => ["2^-16", "2^-32"],
            Class::Misplaced => ["always", "always by 4, never by 6, else 2^-32"],
        }
    }

    /// Damages `data`, of which another segment has `other`. Returns false if that changed nothing.
    pub(super) fn apply(self, data: &mut [u8], other: &[u8], rng: &mut Rng) -> bool {
        let bits = 8 * data.len();
        match self {
            Class::Unseen(damage) => return damage.apply(data, rng),
            Class::ColumnFlips => {
                let (a, b) = two(data.len() / 2, rng);
                let column = rng.usize(..16);
                flip(data, 16 * a + column);
                flip(data, 16 * b + column);
            }
            Class::Flips(count) => {
                let mut flipped = [usize::MAX; 3];
                for n in 0..usize::from(count).min(flipped.len()) {
                    let bit = std::iter::repeat_with(|| rng.usize(..bits)).find(|bit| !flipped.contains(bit));
                    flipped[n] = bit.unwrap_or_default();
                    flip(data, flipped[n]);
                }
            }
            Class::ShortBurst => burst(data, rng.usize(1..=32), rng),
            Class::LongBurst => burst(data, rng.usize(33..=256), rng),
            Class::Splice => {
                let cut = rng.usize(1..data.len());
                let before = data[cut..].to_vec();
                data[cut..].copy_from_slice(&other[cut..]);
                return data[cut..] != before[..];
            }
            Class::Random => rng.fill(data),
            Class::Misplaced => {
                let same = data == other;
                data.copy_from_slice(other);
                return !same;
            }
        }
        true
    }
}

/// Two different places of `count`.
fn two(count: usize, rng: &mut Rng) -> (usize, usize) {
    let a = rng.usize(..count);
    (a, (a + rng.usize(1..count)) % count)
}

fn flip(data: &mut [u8], bit: usize) {
    data[bit / 8] ^= 0x80 >> (bit % 8);
}

/// Changes at most `bits` bits in a row: the first, the last, and any between.
fn burst(data: &mut [u8], bits: usize, rng: &mut Rng) {
    let first = rng.usize(..=8 * data.len() - bits);
    flip(data, first);
    (first + 1..first + bits)
        .filter(|bit| bit + 1 == first + bits || rng.bool())
        .for_each(|bit| flip(data, bit));
}
