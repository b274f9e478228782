//! Damage that TCP's sum does not detect.

use fastrand::Rng;
use tcp_crc::Packet;

use super::{End, Middle, Pass};

/// A kind of damage to a segment's data. No kind changes the one's complement sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Damage {
    /// Two 16-bit words change places.
    WordsSwapped,
    /// Two blocks of 64 bytes change places, as when a controller reassembles cells in the wrong order.
    BlocksReordered,
    /// A word of zeros moves, and the words in between move with it.
    ZeroWordMoved,
    /// A word of zeros becomes ones, or vice versa: both are zero to the sum.
    ZeroForOnes,
    /// A bit is set in one word and the same bit cleared in another.
    ColumnPair,
}

impl Damage {
    /// Every kind.
    pub const ALL: [Damage; 5] = [
        Damage::WordsSwapped,
        Damage::BlocksReordered,
        Damage::ZeroWordMoved,
        Damage::ZeroForOnes,
        Damage::ColumnPair,
    ];

    /// A readable name.
    pub fn name(self) -> &'static str {
        match self {
            Damage::WordsSwapped => "two 16-bit words swapped",
            Damage::BlocksReordered => "64-byte blocks reordered",
            Damage::ZeroWordMoved => "a zero word moved",
            Damage::ZeroForOnes => "0000h for FFFFh, or back",
            Damage::ColumnPair => "two bits of one column",
        }
    }

    /// Damages `data`, which starts at an even offset of its segment. Returns whether this kind could be applied to it.
    pub fn apply(self, data: &mut [u8], rng: &mut Rng) -> bool {
        let words = data.len() / 2;
        if words < 2 {
            return false;
        }
        let word = |data: &[u8], i: usize| [data[2 * i], data[2 * i + 1]];
        let (a, b) = (rng.usize(..words), rng.usize(..words));
        match self {
            Damage::WordsSwapped => swap(data, 2 * a, 2 * b, 2),
            Damage::BlocksReordered => {
                let blocks = data.len() / 64;
                blocks > 1 && swap(data, 64 * rng.usize(..blocks), 64 * rng.usize(..blocks), 64)
            }
            Damage::ZeroWordMoved => {
                let Some(from) = (a..words).find(|i| word(data, *i) == [0, 0]) else { return false };
                let range = from.min(b)..from.max(b) + 1;
                let moved = &mut data[2 * range.start..2 * range.end];
                let before = moved.to_vec();
                if from < b {
                    moved.rotate_left(2)
                } else {
                    moved.rotate_right(2)
                }
                moved != before
            }
            Damage::ZeroForOnes => {
                let is_zero = |pair: [u8; 2]| pair == [0, 0] || pair == [0xff, 0xff];
                let Some(at) = (a..words).find(|i| is_zero(word(data, *i))) else { return false };
                data[2 * at..][..2].iter_mut().for_each(|byte| *byte = !*byte);
                true
            }
            Damage::ColumnPair => {
                let (byte, bit) = (rng.usize(..2), 1 << rng.u8(..8));
                let (a, b) = (2 * a + byte, 2 * b + byte);
                let opposite = data[a] & bit != data[b] & bit;
                if opposite {
                    data[a] ^= bit;
                    data[b] ^= bit;
                }
                opposite
            }
        }
    }
}

fn swap(data: &mut [u8], a: usize, b: usize, bytes: usize) -> bool {
    if data[a..a + bytes] == data[b..b + bytes] {
        return false;
    }
    (0..bytes).for_each(|i| data.swap(a + i, b + i));
    true
}

/// Sends a damaged twin before segments with data. Without a CRC the twin is accepted, and TCP takes the original for a repetition; with
/// one the twin is discarded, and there is no loss to recover from.
pub struct Damager {
    rng: Rng,
    every: u32,
    next: usize,
    count: std::sync::Arc<[std::sync::atomic::AtomicU64; Damage::ALL.len()]>,
}

impl Damager {
    /// Damages one of `every` segments with data, on average, at random from `seed`. Also returns the counters of twins sent, in the order
    /// of [`Damage::ALL`].
    pub fn new(
        seed: u64,
        every: u32,
    ) -> (Damager, std::sync::Arc<[std::sync::atomic::AtomicU64; Damage::ALL.len()]>) {
        let count: std::sync::Arc<[std::sync::atomic::AtomicU64; Damage::ALL.len()]> = Default::default();
        let damager =
            Damager { rng: Rng::with_seed(seed), every, next: 0, count: std::sync::Arc::clone(&count) };
        (damager, count)
    }

    /// The damager in the form of a [`Middle`].
    pub fn middle(mut self) -> Middle {
        Box::new(move |_: End, packet: &mut Vec<u8>| match self.twin(packet) {
            Some(twin) => Pass::These(vec![twin, std::mem::take(packet)]),
            None => Pass::On,
        })
    }

    fn twin(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let packet = Packet::parse(bytes).ok()?;
        if packet.data().is_empty() || packet.flags().syn() || self.rng.u32(..self.every) != 0 {
            return None;
        }
        // A sum that is already wrong would be detected anyway. With value 3 there is no sum: the receiver's shim makes one.
        let had_sum = packet.sum_is_right();
        let data_at = packet.bytes().len() - packet.data().len();
        let mut twin = packet.bytes().to_vec();
        // If this data does not allow a kind of damage, the next kind has its turn.
        let applied = (0..Damage::ALL.len())
            .map(|i| (self.next + i) % Damage::ALL.len())
            .find(|kind| (0..4).any(|_| Damage::ALL[*kind].apply(&mut twin[data_at..], &mut self.rng)))?;
        self.next = applied + 1;
        assert_eq!(
            Packet::parse(&twin).is_ok_and(|twin| twin.sum_is_right()),
            had_sum,
            "the sum is blind to it"
        );
        self.count[applied].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Some(twin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ones_sum(data: &[u8]) -> u32 {
        let words =
            data.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
        words.fold(0, |sum, word| (sum + word) % 0xffff)
    }

    #[test]
    fn every_kind_changes_data_and_leaves_the_sum() {
        let mut rng = Rng::with_seed(1);
        for kind in Damage::ALL {
            let mut applied = 0;
            for round in 0..2000 {
                let mut data = vec![0; 2 + round % 1459];
                data.iter_mut().for_each(|byte| *byte = rng.u8(..));
                let words = data.len() / 2;
                data[2 * rng.usize(..words)..][..2].fill(0);
                let before = data.clone();
                let changed = kind.apply(&mut data, &mut rng);
                assert_eq!(changed, data != before, "{kind:?}");
                assert_eq!(ones_sum(&data), ones_sum(&before), "{kind:?}");
                applied += usize::from(changed);
            }
            assert!(applied > 500, "{kind:?}: {applied}");
        }
    }
}
