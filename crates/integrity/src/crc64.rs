//! CRC64-NVMe: the guard of 64 bits of the NVM command set (NVM Express, "64b CRC definition"), and by folding with
//! VPCLMULQDQ as fast as the CRC32C, whose fold it shares.
//!
//! Reflected, with initial and final ones: polynomial 0xAD93D23594C93659. It travels with the high byte first.
//! The machines without 512-bit vectors take slicing-by-8 (tables of 16 KiB), which the remainder of the fold is also
//! reduced by.

/// The polynomial without its x^64 term, reflected.
const POLY: u64 = 0xAD93_D235_94C9_3659_u64.reverse_bits();

/// `a * x mod P`.
const fn mul_x(a: u64) -> u64 {
    (a >> 1) ^ (POLY & (a & 1).wrapping_neg())
}

/// `TABLES[k][b]` is the register that byte `b` leaves behind after itself and `k` zero bytes.
static TABLES: [[u64; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u64;
        let mut k = 0;
        while k < 8 {
            let mut bit = 0;
            while bit < 8 {
                register = mul_x(register);
                bit += 1;
            }
            tables[k][byte] = register;
            k += 1;
        }
        byte += 1;
    }
    tables
};

/// The CRC64-NVMe of `data`, in finished form. On the wire: `.to_be_bytes()`.
///
/// ```
/// assert_eq!(integrity::crc64_nvme(b"123456789"), 0xae8b_1486_0a79_9888);
/// ```
#[inline]
pub fn crc64_nvme(data: &[u8]) -> u64 {
    crc64_nvme_append(0, data)
}

/// Continues `crc`, the CRC64-NVMe of what came before, over `data`; both values are finished.
///
/// ```
/// use integrity::{crc64_nvme, crc64_nvme_append};
/// assert_eq!(crc64_nvme_append(crc64_nvme(b"1234"), b"56789"), crc64_nvme(b"123456789"));
/// ```
pub fn crc64_nvme_append(crc: u64, data: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use crate::crc32c::x86_64::avx512;
        static AVX512: crate::detect::Detected = crate::detect::Detected::new();
        if AVX512.get(avx512::detect) {
            // SAFETY: the machine has the instructions.
            return unsafe { !folding::run(!crc, data) };
        }
    }
    !slicing(!crc, data)
}

/// The register after `data` on `register`.
fn slicing(mut register: u64, data: &[u8]) -> u64 {
    let (words, tail) = data.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word) ^ register;
        register = 0;
        for table in TABLES.iter().rev() {
            register ^= table[usize::from(word as u8)];
            word >>= 8;
        }
    }
    for &byte in tail {
        register = (register >> 8) ^ TABLES[0][usize::from(register as u8 ^ byte)];
    }
    register
}

/// The fold of `crc32c::x86_64::avx512`, with multipliers of 64 bits.
#[cfg(target_arch = "x86_64")]
mod folding {
    use core::arch::x86_64::{
        __m512i, _mm512_loadu_si512, _mm512_set_epi64, _mm512_storeu_si512, _mm512_xor_si512,
    };

    use super::{mul_x, slicing};
    use crate::crc32c::x86_64::avx512::{Multipliers, VECTOR_BYTES, fold, multipliers};

    /// `x^n mod P`, reflected.
    const fn x_pow(n: u64) -> u64 {
        let mut power = 1 << 63;
        let mut i = 0;
        while i < n {
            power = mul_x(power);
            i += 1;
        }
        power
    }

    /// Every block forward by `bits`: a product of two reflected quadwords stands one power of x too high.
    const fn uniform(bits: u64) -> Multipliers {
        let (low, high) = (x_pow(bits + 64 - 1), x_pow(bits - 1));
        Multipliers([low, high, low, high, low, high, low, high])
    }

    static BY_512: Multipliers = uniform(512);
    static BY_1024: Multipliers = uniform(1024);
    static BY_1536: Multipliers = uniform(1536);
    static BY_2048: Multipliers = uniform(2048);

    /// The register after `data` on `register`.
    ///
    /// # Safety
    /// - `crc32c::x86_64::avx512::detect` says yes.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vpclmulqdq,pclmulqdq")]
    pub(super) unsafe fn run(register: u64, data: &[u8]) -> u64 {
        // Odd bytes first: so there is no tail.
        let (head, body) = data.split_at(data.len() % VECTOR_BYTES);
        let register = slicing(register, head);
        let (vectors, _) = body.as_chunks::<VECTOR_BYTES>();
        let load = |vector: &[u8; VECTOR_BYTES]| -> __m512i {
            // SAFETY: a reference to 64 bytes.
            unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) }
        };
        let Some((first, mut rest)) = vectors.split_first() else { return register };
        let mut x = _mm512_xor_si512(load(first), _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, register as i64));
        let by_512 = multipliers(&BY_512);
        if let [v, w, y, chained @ ..] = rest {
            let by_2048 = multipliers(&BY_2048);
            let (mut a, mut b, mut c, mut d) = (x, load(v), load(w), load(y));
            let (chained, left_over) = chained.as_chunks::<4>();
            for [v, w, y, z] in chained {
                a = fold(a, by_2048, load(v));
                b = fold(b, by_2048, load(w));
                c = fold(c, by_2048, load(y));
                d = fold(d, by_2048, load(z));
            }
            let cd = fold(c, by_512, d);
            x = fold(a, multipliers(&BY_1536), fold(b, multipliers(&BY_1024), cd));
            rest = left_over;
        }
        for v in rest {
            x = fold(x, by_512, load(v));
        }
        let mut bytes = [0; VECTOR_BYTES];
        // SAFETY: the array is as long as the vector.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), x) };
        slicing(0, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn every_length_and_alignment_agrees_with_an_independent_implementation() {
        let oracle = crc::Crc::<u64>::new(&crc::CRC_64_NVME);
        let data = data(1100);
        let step = if cfg!(miri) { 37 } else { 1 };
        for align in (0..64).step_by(step) {
            let mut digest = oracle.digest();
            for len in 0..=1024 {
                let run = &data[align..align + len];
                if len % step == 0 {
                    let want = digest.clone().finalize();
                    assert_eq!(crc64_nvme(run), want, "{len} bytes, alignment {align}");
                    assert_eq!(!slicing(!0, run), want, "slicing: {len} bytes, alignment {align}");
                }
                digest.update(&data[align + len..][..1]);
            }
        }
    }

    #[test]
    fn every_split_point() {
        let data = data(if cfg!(miri) { 200 } else { 1500 });
        let whole = crc64_nvme(&data);
        for at in 0..=data.len() {
            let (head, tail) = data.split_at(at);
            assert_eq!(crc64_nvme_append(crc64_nvme(head), tail), whole, "split at {at}");
        }
    }

    /// The vectors of the NVM command set for 4096 bytes.
    #[test]
    fn published_values() {
        let counting: Vec<u8> = (0..4096).map(|i| i as u8).collect();
        let falling: Vec<u8> = (0..4096).map(|i| !(i as u8)).collect();
        assert_eq!(crc64_nvme(&[0; 4096]), 0x6482_d367_eb22_b64e);
        assert_eq!(crc64_nvme(&[0xff; 4096]), 0xc0dd_ba73_02ec_a3ac);
        assert_eq!(crc64_nvme(&counting), 0x3e72_9f5f_6750_449c);
        assert_eq!(crc64_nvme(&falling), 0x9a2d_f64b_8e9e_517e);
    }
}
