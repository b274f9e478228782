//! The list of guard kernels, fastest first, for the dispatch, the differential tests and the benches.
//!
//! Ordinary callers use [`crc16_t10dif`](crate::crc16_t10dif) and [the guards of sectors](super::guards), which run the
//! first available entry.

#[cfg(target_arch = "aarch64")]
use super::aarch64;
use super::run::Run;
#[cfg(target_arch = "x86_64")]
use super::x86_64::{avx2, avx512, blocks, ssse3};
use super::{bitwise, slicing16};
use crate::crc32c::crc32c_append;
use crate::detect::Detected;

/// One implementation of the T10 guard.
///
/// The function pointers are private because some of them need instructions that this machine may not have;
/// the methods check that first, so that no safe call can reach an instruction that does not exist.
pub struct Kernel {
    name: &'static str,
    detect: fn() -> bool,
    /// The cached result of `detect`.
    detected: Detected,
    append: unsafe fn(u16, &[u8]) -> u16,
    /// A pass over many sectors; `None` if the kernel does not handle sectors of such a size.
    sectors: unsafe fn(Option<u32>, usize, &mut Run<'_>) -> Option<u32>,
    /// The CRC32C register after each word, starting from 0.
    words: unsafe fn(&[[u8; 8]], &mut [u32]),
}

impl Kernel {
    /// A short, stable name, for logs and tables of figures.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether this machine has the instructions that this kernel needs.
    pub fn available(&self) -> bool {
        self.detected.get(self.detect)
    }

    /// Like [`crc16_t10dif_append`](crate::crc16_t10dif_append), with this kernel.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    #[inline]
    pub fn append(&self, crc: u16, data: &[u8]) -> u16 {
        self.require();
        // SAFETY: the machine has the kernel's instructions.
        unsafe { (self.append)(crc, data) }
    }

    /// Goes over the sectors of `run` once: stores the guard of each, and copies them if `run` has a copy. If there is
    /// a `crc`, returns it (finished form) continued over the sectors, each as if followed by `tuple_bytes` (0 or 8)
    /// zero bytes.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    #[inline(always)]
    pub(crate) fn run(&self, crc: Option<u32>, tuple_bytes: usize, mut run: Run<'_>) -> u32 {
        self.require();
        // SAFETY: the machine has the kernel's instructions.
        unsafe {
            match (self.sectors)(crc, tuple_bytes, &mut run) {
                Some(crc) => crc,
                None => run.piecewise(self.append, crc, tuple_bytes),
            }
        }
    }

    /// The CRC32C register (without initial and final ones) after each word, starting from 0.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub(crate) fn words(&self, words: &[[u8; 8]], registers: &mut [u32]) {
        self.require();
        // SAFETY: the machine has the kernel's instructions.
        unsafe { (self.words)(words, registers) }
    }

    #[inline]
    fn require(&self) {
        assert!(self.available(), "this machine lacks the instructions of T10 guard kernel {}", self.name);
    }
}

impl core::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).field("available", &self.available()).finish()
    }
}

/// For a kernel that handles only one run of bytes at a time.
fn none_at_once(_crc: Option<u32>, _tuple_bytes: usize, _run: &mut Run<'_>) -> Option<u32> {
    None
}

fn words_by_append(words: &[[u8; 8]], registers: &mut [u32]) {
    for (word, register) in words.iter().zip(registers) {
        // The complements undo those of finished form.
        *register = !crc32c_append(!0, word);
    }
}

const COUNT: usize =
    2 + if cfg!(target_arch = "x86_64") { 3 } else { cfg!(target_arch = "aarch64") as usize };

/// Every kernel compiled for this architecture, fastest first; the last two run everywhere.
static ALL: [Kernel; COUNT] = [
    #[cfg(target_arch = "x86_64")]
    Kernel {
        name: "avx512-vpclmulqdq-gfni",
        detect: avx512::detect,
        detected: Detected::new(),
        append: avx512::append,
        sectors: blocks::sectors,
        words: blocks::words,
    },
    #[cfg(target_arch = "x86_64")]
    Kernel {
        name: "avx2-vpclmulqdq",
        detect: avx2::detect,
        detected: Detected::new(),
        append: avx2::append,
        sectors: none_at_once,
        words: words_by_append,
    },
    #[cfg(target_arch = "x86_64")]
    Kernel {
        name: "ssse3-pclmulqdq",
        detect: ssse3::detect,
        detected: Detected::new(),
        append: ssse3::append,
        sectors: none_at_once,
        words: words_by_append,
    },
    #[cfg(target_arch = "aarch64")]
    Kernel {
        name: "aarch64-pmull",
        detect: aarch64::detect,
        detected: Detected::new(),
        append: aarch64::append,
        sectors: none_at_once,
        words: words_by_append,
    },
    Kernel {
        name: "slicing-16",
        detect: || true,
        detected: Detected::new(),
        append: slicing16::append,
        sectors: none_at_once,
        words: words_by_append,
    },
    Kernel {
        name: "bitwise",
        detect: || true,
        detected: Detected::new(),
        append: bitwise::append,
        sectors: none_at_once,
        words: words_by_append,
    },
];

/// Every kernel compiled for this architecture, fastest first, whether or not this machine can run it.
pub fn all() -> &'static [Kernel] {
    &ALL
}

/// The kernels that this machine can run, fastest first. Never empty: the last two run everywhere.
pub fn available() -> impl Iterator<Item = &'static Kernel> {
    ALL.iter().filter(|k| k.available())
}

/// The kernel that supplies the reference values.
pub fn reference() -> &'static Kernel {
    &ALL[ALL.len() - 1]
}

/// The first kernel in the list that this machine can run. Each kernel before it costs one load and one branch.
#[inline]
pub(crate) fn active() -> &'static Kernel {
    available().next().unwrap_or(reference())
}
