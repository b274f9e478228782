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

/// The bytes of a beat or a record in a port of 512 bits, filled up with zeros.
pub fn words(bytes: &[u8]) -> [u32; 16] {
    let mut filled = [0; 64];
    filled[..bytes.len()].copy_from_slice(bytes);
    let (words, _) = filled.as_chunks::<4>();
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

/// The bytes of such a port.
pub fn bytes(words: &[u32; 16]) -> [u8; 64] {
    std::array::from_fn(|i| words[i / 4].to_le_bytes()[i % 4])
}
