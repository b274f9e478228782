//! Slicing-by-16: sixteen tables of 256 entries (8 KiB together) take sixteen bytes per step. It needs no instruction
//! beyond the baseline, so it is the kernel of every machine that no faster kernel supports.

use super::gf2;

/// `TABLES[k][b]` is the register after byte `b` and `k` zero bytes.
static TABLES: [[u16; 256]; 16] = {
    let mut tables = [[0; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        let mut register = (byte as u16) << 8;
        let mut k = 0;
        while k < 16 {
            let mut bit = 0;
            while bit < 8 {
                register = gf2::mul_x(register);
                bit += 1;
            }
            tables[k][byte] = register;
            k += 1;
        }
        byte += 1;
    }
    tables
};

/// Continues `crc` over `data`.
pub(super) fn append(crc: u16, data: &[u8]) -> u16 {
    let (blocks, tail) = data.as_chunks::<16>();
    let mut register = crc;
    for block in blocks {
        let mut block = u128::from_be_bytes(*block) ^ u128::from(register) << 112;
        register = 0;
        for table in &TABLES {
            register ^= table[usize::from(block as u8)];
            block >>= 8;
        }
    }
    for &byte in tail {
        register = register << 8 ^ TABLES[0][usize::from((register >> 8) as u8 ^ byte)];
    }
    register
}
