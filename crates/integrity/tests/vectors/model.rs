//! The definitions that the vectors come from: a CRC of any width one bit at a time, as CRC catalogues describe one, and
//! the Internet checksum word by word. Nothing here knows the crate under test.

/// A CRC by its catalogue parameters; the initial register and the final complement are all ones or all zeroes.
pub struct Crc {
    /// Degree of the polynomial, which is the number of bits of the value; at most 64.
    pub width: u32,
    /// The polynomial without its highest term, x^(width - 1) first.
    pub poly: u64,
    /// Whether every byte goes in lowest bit first, and the value is reversed at the end.
    pub reflected: bool,
    /// Whether the register starts as all ones and is complemented in the end.
    pub ones: bool,
}

/// CRC32C of RFC 7143, section 13.1.
pub const CRC32C: Crc = Crc { width: 32, poly: 0x1edc_6f41, reflected: true, ones: true };
/// The guard of SBC-3, section 4.22.4.
pub const CRC16_T10DIF: Crc = Crc { width: 16, poly: 0x8bb7, reflected: false, ones: false };
/// The 64-bit guard of the NVM Command Set Specification, section 5.2.1.3.4.
pub const CRC64_NVME: Crc = Crc { width: 64, poly: 0xad93_d235_94c9_3659, reflected: true, ones: true };

impl Crc {
    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    /// What is added to the register before and after: all ones or zero.
    fn complement(&self) -> u64 {
        if self.ones { self.mask() } else { 0 }
    }

    fn turned(&self, register: u64) -> u64 {
        if self.reflected { register.reverse_bits() >> (64 - self.width) } else { register }
    }

    /// `register * x`.
    fn mul_x(&self, register: u64) -> u64 {
        let reduced = if register >> (self.width - 1) & 1 == 1 { self.poly } else { 0 };
        (register << 1 & self.mask()) ^ reduced
    }

    /// `a * b`.
    fn mul(&self, a: u64, b: u64) -> u64 {
        (0..self.width).rev().fold(0, |product, bit| {
            let shifted = self.mul_x(product);
            if a >> bit & 1 == 1 { shifted ^ b } else { shifted }
        })
    }

    /// The value of `data`, one bit at a time.
    pub fn of(&self, data: &[u8]) -> u64 {
        let mut register = self.complement();
        for &byte in data {
            let byte = if self.reflected { byte.reverse_bits() } else { byte };
            register ^= u64::from(byte) << (self.width - 8);
            register = (0..8).fold(register, |register, _| self.mul_x(register));
        }
        self.turned(register) ^ self.complement()
    }

    /// The value of A followed by B, from both values and the length of B in bytes: A's polynomial is shifted up by
    /// eight bits per byte of B.
    pub fn combined(&self, crc_a: u64, crc_b: u64, len_b: u64) -> u64 {
        let (mut power, mut square, mut bits) = (1, 2, 8 * u128::from(len_b));
        while bits > 0 {
            if bits & 1 == 1 {
                power = self.mul(power, square);
            }
            square = self.mul(square, square);
            bits >>= 1;
        }
        self.turned(self.mul(self.turned(crc_a), power)) ^ crc_b
    }
}

/// The Internet checksum (RFC 1071): the complement of the one's complement sum of big-endian words, an odd byte
/// padded with a zero.
pub fn internet_checksum(data: &[u8]) -> u16 {
    let sum = data.chunks(2).fold(0_u16, |sum, word| {
        let word = u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    });
    !sum
}
