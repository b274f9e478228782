//! The list of kernels, fastest first, for the dispatch, the differential tests and the benches.
//!
//! Ordinary callers want [`crc32c`](crate::crc32c()) and its relatives, which use the first available entry.

use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use super::aarch64;
#[cfg(target_arch = "x86_64")]
use super::x86_64::{avx512, sse42};
use super::{HEADER_BYTES, bitwise, slicing8};
use crate::copy::{self, Store};
use crate::{combine, gf2};

/// One implementation of CRC32C and of the copy fused with it.
///
/// The function pointers are private because some of them need instructions that this machine may not have;
/// the methods check that first, so that no safe call can reach an instruction that does not exist.
pub struct Kernel {
    name: &'static str,
    detect: fn() -> bool,
    /// What `detect` said: a kernel that needs many features would otherwise ask for each of them in every call.
    detected: OnceLock<bool>,
    append: unsafe fn(u32, &[u8]) -> u32,
    header: unsafe fn(&[u8; HEADER_BYTES]) -> u32,
    copy: unsafe fn(u32, &mut [u8], &[u8], Store) -> u32,
    combine: unsafe fn(u32, u32, u64) -> u32,
}

impl Kernel {
    /// A short, stable name, for logs and tables of figures.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether this machine has the instructions that this kernel needs.
    pub fn available(&self) -> bool {
        *self.detected.get_or_init(self.detect)
    }

    /// Like [`crc32c_append`](crate::crc32c_append), with this kernel.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub fn append(&self, crc: u32, data: &[u8]) -> u32 {
        assert!(self.available(), "this machine lacks the instructions of CRC32C kernel {}", self.name);
        // SAFETY: the machine has the kernel's instructions: asserted above.
        unsafe { self.append_unchecked(crc, data) }
    }

    /// Like [`crc32c_header`](crate::crc32c_header), with this kernel.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub fn header(&self, header: &[u8; HEADER_BYTES]) -> u32 {
        assert!(self.available(), "this machine lacks the instructions of CRC32C kernel {}", self.name);
        // SAFETY: the machine has the kernel's instructions: asserted above.
        unsafe { self.header_unchecked(header) }
    }

    /// Like [`copy_crc32c`](crate::copy_crc32c), with this kernel.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available), or if `dst` and `src` differ in length.
    pub fn copy(&self, crc: u32, dst: &mut [u8], src: &[u8], store: Store) -> u32 {
        assert!(self.available(), "this machine lacks the instructions of CRC32C kernel {}", self.name);
        // SAFETY: the machine has the kernel's instructions: asserted above.
        unsafe { self.copy_unchecked(crc, dst, src, store) }
    }

    /// Like [`crc32c_combine`](crate::crc32c_combine), with this kernel.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub fn combine(&self, crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
        assert!(self.available(), "this machine lacks the instructions of CRC32C kernel {}", self.name);
        // SAFETY: the machine has the kernel's instructions: asserted above.
        unsafe { self.combine_unchecked(crc_a, crc_b, len_b) }
    }

    /// [`append`](Self::append) without the check of the machine.
    ///
    /// # Safety
    /// - The kernel is [available](Self::available).
    #[inline]
    pub(crate) unsafe fn append_unchecked(&self, crc: u32, data: &[u8]) -> u32 {
        // SAFETY: the entry's only condition is that the machine has its instructions; the caller vouches for it.
        unsafe { (self.append)(crc, data) }
    }

    /// [`header`](Self::header) without the check of the machine.
    ///
    /// # Safety
    /// - The kernel is [available](Self::available).
    #[inline]
    pub(crate) unsafe fn header_unchecked(&self, header: &[u8; HEADER_BYTES]) -> u32 {
        // SAFETY: the entry's only condition is that the machine has its instructions; the caller vouches for it.
        unsafe { (self.header)(header) }
    }

    /// [`copy`](Self::copy) without the check of the machine; the lengths are still checked.
    ///
    /// # Safety
    /// - The kernel is [available](Self::available).
    #[inline]
    pub(crate) unsafe fn copy_unchecked(&self, crc: u32, dst: &mut [u8], src: &[u8], store: Store) -> u32 {
        assert_eq!(dst.len(), src.len(), "copy_crc32c: dst and src differ in length");
        // SAFETY: the machine has the entry's instructions, as the caller vouches; the lengths are equal.
        unsafe { (self.copy)(crc, dst, src, store) }
    }

    /// [`combine`](Self::combine) without the check of the machine.
    ///
    /// # Safety
    /// - The kernel is [available](Self::available).
    #[inline]
    pub(crate) unsafe fn combine_unchecked(&self, crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
        // SAFETY: the entry's only condition is that the machine has its instructions; the caller vouches for it.
        unsafe { (self.combine)(crc_a, crc_b, len_b) }
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).field("available", &self.available()).finish()
    }
}

const COUNT: usize =
    2 + if cfg!(target_arch = "x86_64") { 2 } else { cfg!(target_arch = "aarch64") as usize };

/// Every kernel compiled for this architecture, fastest first; the last two run everywhere.
static ALL: [Kernel; COUNT] = [
    #[cfg(target_arch = "x86_64")]
    Kernel {
        name: "avx512-vpclmulqdq",
        detect: avx512::detect,
        detected: OnceLock::new(),
        append: avx512::append,
        header: sse42::header,
        copy: avx512::copy,
        combine: sse42::combine,
    },
    #[cfg(target_arch = "x86_64")]
    Kernel {
        name: "sse42-pclmulqdq",
        detect: sse42::detect,
        detected: OnceLock::new(),
        append: sse42::append,
        header: sse42::header,
        copy: sse42::copy,
        combine: sse42::combine,
    },
    #[cfg(target_arch = "aarch64")]
    Kernel {
        name: "aarch64-crc-pmull",
        detect: aarch64::detect,
        detected: OnceLock::new(),
        append: aarch64::append,
        header: aarch64::header,
        copy: aarch64::copy,
        combine: aarch64::combine,
    },
    Kernel {
        name: "slicing-8",
        detect: || true,
        detected: OnceLock::new(),
        append: slicing8::append,
        header: |header| slicing8::append(0, header),
        copy: |crc, dst, src, _| slicing8::copy(crc, dst, src),
        combine: |crc_a, crc_b, len_b| combine::with(gf2::mul, crc_a, crc_b, len_b),
    },
    Kernel {
        name: "bitwise",
        detect: || true,
        detected: OnceLock::new(),
        append: bitwise::append,
        header: |header| bitwise::append(0, header),
        copy: |crc, dst, src, _| copy::blockwise(bitwise::append, crc, dst, src),
        combine: |crc_a, crc_b, len_b| combine::with(gf2::mul, crc_a, crc_b, len_b),
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

/// The kernel that the reference answers come from.
pub fn reference() -> &'static Kernel {
    &ALL[ALL.len() - 1]
}
