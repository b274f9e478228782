//! Slicing-by-8: eight tables of 256 entries take eight bytes per step. It needs no instruction beyond the
//! baseline, so it is the kernel of every machine for which nothing better is known.

use crate::gf2;

/// `TABLES[k][b]` is the register that byte `b` leaves behind after itself and `k` zero bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut t = [[0u32; 256]; 8];
    let mut b = 0;
    while b < 256 {
        let mut register = b as u32;
        let mut k = 0;
        while k < 8 {
            let mut bit = 0;
            while bit < 8 {
                register = gf2::mul_x(register);
                bit += 1;
            }
            t[k][b] = register;
            k += 1;
        }
        b += 1;
    }
    t
}

/// Continues `crc` (finished form) over `data`.
pub(crate) fn append(crc: u32, data: &[u8]) -> u32 {
    let (words, tail) = data.as_chunks::<8>();
    let mut register = !crc;
    for word in words {
        let [a, b, c, d, e, f, g, h] = (u64::from_le_bytes(*word) ^ u64::from(register)).to_le_bytes();
        register = TABLES[7][usize::from(a)]
            ^ TABLES[6][usize::from(b)]
            ^ TABLES[5][usize::from(c)]
            ^ TABLES[4][usize::from(d)]
            ^ TABLES[3][usize::from(e)]
            ^ TABLES[2][usize::from(f)]
            ^ TABLES[1][usize::from(g)]
            ^ TABLES[0][usize::from(h)];
    }
    for &byte in tail {
        register = (register >> 8) ^ TABLES[0][usize::from(register as u8 ^ byte)];
    }
    !register
}
