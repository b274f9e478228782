//! CRC64-NVMe: the 64-bit guard of the NVM command set (NVM Express, "64b CRC definition"). Folding with VPCLMULQDQ
//! makes it as fast as the CRC32C, whose fold it shares.
//!
//! Reflected, with initial and final ones: polynomial 0xAD93D23594C93659. It is sent with the high byte first. Long
//! runs are folded in 512-bit vectors. Short runs, and all runs on machines without such vectors, are folded by
//! PCLMULQDQ in blocks of 128 bits. Runs shorter than a block, and all runs on machines without PCLMULQDQ, use
//! slicing-by-8 (tables of 16 KiB).

#[cfg(target_arch = "x86_64")]
mod x86_64;

/// The polynomial without its x^64 term, reflected.
const POLY: u64 = 0xAD93_D235_94C9_3659_u64.reverse_bits();

/// `a * x mod P`.
const fn mul_x(a: u64) -> u64 {
    (a >> 1) ^ (POLY & (a & 1).wrapping_neg())
}

/// `TABLES[k][b]` is the register after byte `b` and `k` zero bytes.
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

/// Continues `crc`, the CRC64-NVMe of the preceding bytes, over `data`; both values are finished.
///
/// ```
/// use integrity::{crc64_nvme, crc64_nvme_append};
/// assert_eq!(crc64_nvme_append(crc64_nvme(b"1234"), b"56789"), crc64_nvme(b"123456789"));
/// ```
pub fn crc64_nvme_append(crc: u64, data: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use crate::crc32c::x86_64::avx512;
        use crate::detect::Detected;
        static AVX512: Detected = Detected::new();
        static PCLMULQDQ: Detected = Detected::new();
        if data.len() >= x86_64::MIN_WIDE_BYTES && AVX512.get(avx512::detect) {
            // SAFETY: the machine has the instructions.
            return unsafe { !x86_64::wide(!crc, data) };
        }
        if PCLMULQDQ.get(x86_64::detect) {
            // SAFETY: the machine has the instructions.
            return unsafe { !x86_64::narrow(!crc, data) };
        }
    }
    !slicing(!crc, data)
}

/// The register after `data`, starting from `register`.
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
                    every_kernel(run, want);
                }
                digest.update(&data[align + len..][..1]);
            }
        }
    }

    /// Checks every kernel, not just the one that the length would choose.
    fn every_kernel(run: &[u8], want: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            if x86_64::detect() {
                // SAFETY: the machine has the instructions.
                let narrow = unsafe { x86_64::narrow(!0, run) };
                assert_eq!(!narrow, want, "128 bits: {} bytes", run.len());
            }
            if crate::crc32c::x86_64::avx512::detect() {
                // SAFETY: the machine has the instructions.
                let wide = unsafe { x86_64::wide(!0, run) };
                assert_eq!(!wide, want, "512 bits: {} bytes", run.len());
            }
        }
        assert_eq!(!slicing(!0, run), want, "slicing: {} bytes", run.len());
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

    /// The values published in the NVM command set for 4096 bytes.
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
