//! Packed structs of SystemVerilog.

/// A packed struct of the circuits, from its lowest bit on: so the last member comes first.
pub struct Bits<const N: usize> {
    pub words: [u32; N],
    at: usize,
}

impl<const N: usize> Bits<N> {
    /// All zero; `put` begins with the last member.
    pub fn new() -> Self {
        Self { words: [0; N], at: 0 }
    }

    /// What a circuit says; `take` begins with the last member.
    pub fn of(words: &[u32; N]) -> Self {
        Self { words: *words, at: 0 }
    }

    /// The next member.
    pub fn put(mut self, value: u128, bits: usize) -> Self {
        for bit in 0..bits {
            self.words[self.at / 32] |= ((value >> bit & 1) as u32) << (self.at % 32);
            self.at += 1;
        }
        self
    }

    /// The next member, of up to 64 bits.
    pub fn take(&mut self, bits: usize) -> u64 {
        let at = self.at;
        self.at += bits;
        (at..self.at)
            .rev()
            .fold(0, |value, bit| value << 1 | u64::from(self.words[bit / 32] >> (bit % 32) & 1))
    }
}

/// The bytes of a beat or a record in a port of `N` words, filled up with zeros.
pub fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    assert!(bytes.len() <= 4 * N, "{} bytes in {N} words", bytes.len());
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    let mut words = bytes.chunks(4).map(word);
    std::array::from_fn(|_| words.next().unwrap_or(0))
}

/// The bytes of a port of 512 bits.
pub fn bytes(words: &[u32; 16]) -> [u8; 64] {
    std::array::from_fn(|i| words[i / 4].to_le_bytes()[i % 4])
}
