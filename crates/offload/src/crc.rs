//! The CRC unit: 64 bits a step from eight tables, which the polynomial fills at run time.
//!
//! Bits are reflected, as iSCSI has them: the least significant bit of a byte first. The digest lies on the wire with its least
//! significant byte first. CRC32C, the polynomial of RFC 7143 13.1, goes to the kernels of `integrity` instead, which give the
//! same values (a test compares them) in less time.

/// CRC32C, highest power first, without x^32.
pub const CRC32C: u32 = 0x1edc_6f41;

/// A 32-bit CRC with its polynomial, first register value and final exclusive or.
#[derive(Clone)]
pub(crate) struct CrcUnit {
    polynomial: u32,
    init: u32,
    xor_out: u32,
    /// `tables[k][b]`: the register that byte `b` leaves after itself and `k` zero bytes. `None`: CRC32C.
    tables: Option<Box<[[u32; 256]; 8]>>,
}

impl CrcUnit {
    /// CRC32C.
    //= rfc7143 13.1 DIG-02
    pub(crate) fn crc32c() -> Self {
        Self { polynomial: CRC32C, init: u32::MAX, xor_out: u32::MAX, tables: None }
    }

    /// `polynomial` is written with the highest power first; `init` is the register before the first byte, `xor_out` is combined
    /// with it after the last.
    pub(crate) fn new(polynomial: u32, init: u32, xor_out: u32) -> Self {
        if (polynomial, init, xor_out) == (CRC32C, u32::MAX, u32::MAX) {
            return Self::crc32c();
        }
        Self { polynomial, init, xor_out, tables: Some(Box::new(tables(polynomial.reverse_bits()))) }
    }

    pub(crate) fn polynomial(&self) -> u32 {
        self.polynomial
    }

    /// The CRC of `bytes`, as it lies on the wire.
    pub(crate) fn digest(&self, bytes: &[u8]) -> [u8; 4] {
        let Some(tables) = &self.tables else { return integrity::crc32c(bytes).to_le_bytes() };
        let mut register = self.init;
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            let word = u64::from_le_bytes(*word) ^ u64::from(register);
            register = (0..8).fold(0, |sum, k| sum ^ tables[7 - k][usize::from((word >> (8 * k)) as u8)]);
        }
        for byte in tail {
            register = (register >> 8) ^ tables[0][usize::from(register as u8 ^ byte)];
        }
        (register ^ self.xor_out).to_le_bytes()
    }
}

fn tables(reflected: u32) -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    for (register, byte) in tables[0].iter_mut().zip(0_u32..) {
        *register = (0..8).fold(byte, |r, _| (r >> 1) ^ (reflected & (r & 1).wrapping_neg()));
    }
    for k in 1..8 {
        for byte in 0..256 {
            let before = tables[k - 1][byte];
            tables[k][byte] = (before >> 8) ^ tables[0][usize::from(before as u8)];
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crc::{CRC_32_ISCSI, CRC_32_ISO_HDLC, Crc};

    #[test]
    fn dig_02_crc32c_is_the_vectors_of_the_standard() {
        assert_eq!(CrcUnit::crc32c().digest(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(CrcUnit::crc32c().digest(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
    }

    #[test]
    fn every_polynomial_is_computed_as_an_independent_crate_does() {
        const KOOPMAN: crc::Algorithm<u32> = crc::Algorithm { poly: 0x741b_8cd7, ..CRC_32_ISCSI };
        let bytes: Vec<u8> = (0..600_u32).map(|n| ((n * 167) >> 2) as u8).collect();
        for algorithm in [&CRC_32_ISCSI, &CRC_32_ISO_HDLC, &KOOPMAN] {
            let oracle = Crc::<u32>::new(algorithm);
            let mut unit = CrcUnit::new(algorithm.poly, algorithm.init, algorithm.xorout);
            if unit.tables.is_none() {
                unit.tables = Some(Box::new(tables(algorithm.poly.reverse_bits())));
            }
            for length in 0..bytes.len() {
                let expected = oracle.checksum(&bytes[..length]).to_le_bytes();
                assert_eq!(unit.digest(&bytes[..length]), expected, "{:#x}, {length}", algorithm.poly);
            }
        }
    }
}
