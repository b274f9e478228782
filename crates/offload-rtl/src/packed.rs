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
