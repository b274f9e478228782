//! The list of kernels for the choice, the differential tests and the benches.
//!
//! Ordinary callers use [`crc32c`](crate::crc32c()) and its relatives, which run the kernel of [`kernel_choice`](crate::kernel_choice).

use core::fmt;

#[cfg(target_arch = "aarch64")]
use super::aarch64;
#[cfg(target_arch = "x86_64")]
use super::x86_64::braided::{with_avx2, with_gfni};
#[cfg(target_arch = "x86_64")]
use super::x86_64::{avx2, avx512, matrices, sse42};
use super::{HEADER_BYTES, bitwise, portable, slicing8};
use crate::combine::{self, CombineBy};
use crate::copy::{self, LengthMismatch, Store};
use crate::detect::Detected;

/// One implementation of CRC32C and of the copy fused with it.
///
/// The function pointers are private because some of them need instructions that this machine may not have;
/// the methods check that first, so that no safe call can reach an instruction that does not exist.
pub struct Kernel {
    name: &'static str,
    detect: fn() -> bool,
    fastest: Fastest,
    detected: Detected,
    append: unsafe fn(u32, &[u8]) -> u32,
    header: unsafe fn(&[u8; HEADER_BYTES]) -> u32,
    copy: unsafe fn(u32, &mut [u8], &[u8], Store) -> u32,
    combine: unsafe fn(u32, u32, u64) -> u32,
    combine_by: unsafe fn(u32, u32, &CombineBy) -> u32,
    combine_blocks: unsafe fn(u32, &[u32], &CombineBy) -> u32,
}

/// The condition under which a kernel is at least as fast as all those after it in the list.
struct Fastest {
    on: fn() -> bool,
    why: &'static str,
}

const EVERYWHERE: fn() -> bool = || true;

/// For callers that name a kernel.
impl Kernel {
    /// A short, stable name, for logs and tables of figures.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether this machine has the instructions that this kernel needs.
    pub fn available(&self) -> bool {
        self.detected.get(self.detect)
    }

    /// Whether no kernel after this one in the list is faster on this processor. The kernel may still not be [available](Self::available).
    pub fn suits(&self) -> bool {
        (self.fastest.on)()
    }

    /// Why it is chosen if it [suits](Self::suits), in a few words.
    pub fn why(&self) -> &'static str {
        self.fastest.why
    }

    /// Like [`crc32c_append`](crate::crc32c_append), with this kernel.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub fn append(&self, crc: u32, data: &[u8]) -> u32 {
        self.assert_available();
        // SAFETY: the machine has the kernel's instructions: asserted above.
        unsafe { self.append_unchecked(crc, data) }
    }

    /// Like [`crc32c_header`](crate::crc32c_header), with this kernel.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub fn header(&self, header: &[u8; HEADER_BYTES]) -> u32 {
        self.assert_available();
        // SAFETY: the machine has the kernel's instructions: asserted above.
        unsafe { self.header_unchecked(header) }
    }

    /// Like [`copy_crc32c`](crate::copy_crc32c), with this kernel.
    ///
    /// # Errors
    /// If `dst` and `src` differ in length; nothing was copied then.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub fn copy(&self, crc: u32, dst: &mut [u8], src: &[u8], store: Store) -> Result<u32, LengthMismatch> {
        self.assert_available();
        // SAFETY: the machine has the kernel's instructions: asserted above.
        unsafe { copy::whole(self, crc, dst, src, store) }
    }

    /// Like [`crc32c_combine`](crate::crc32c_combine), with this kernel.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub fn combine(&self, crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
        self.assert_available();
        // SAFETY: the machine has the kernel's instructions: asserted above.
        unsafe { self.combine_unchecked(crc_a, crc_b, len_b) }
    }

    /// Like [`CombineBy::combine`], with this kernel.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub fn combine_by(&self, crc_a: u32, crc_b: u32, by: &CombineBy) -> u32 {
        self.assert_available();
        // SAFETY: the machine has the kernel's instructions: asserted above.
        unsafe { self.combine_by_unchecked(crc_a, crc_b, by) }
    }

    /// Like [`crc32c_combine_blocks`](crate::crc32c_combine_blocks), with this kernel.
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub fn combine_blocks(&self, crc: u32, block_crcs: &[u32], block: &CombineBy) -> u32 {
        self.assert_available();
        // SAFETY: the machine has the kernel's instructions: asserted above.
        unsafe { self.combine_blocks_unchecked(crc, block_crcs, block) }
    }

    fn assert_available(&self) {
        assert!(self.available(), "this machine lacks the instructions of CRC32C kernel {}", self.name);
    }
}

/// The same without checking the machine, for callers that have done so.
impl Kernel {
    /// [`append`](Self::append) without checking the machine.
    ///
    /// # Safety
    /// - The kernel is [available](Self::available).
    #[inline]
    pub(crate) unsafe fn append_unchecked(&self, crc: u32, data: &[u8]) -> u32 {
        // SAFETY: the entry's only condition is that the machine has its instructions; the caller vouches for it.
        unsafe { (self.append)(crc, data) }
    }

    /// [`header`](Self::header) without checking the machine.
    ///
    /// # Safety
    /// - The kernel is [available](Self::available).
    #[inline]
    pub(crate) unsafe fn header_unchecked(&self, header: &[u8; HEADER_BYTES]) -> u32 {
        // SAFETY: the entry's only condition is that the machine has its instructions; the caller vouches for it.
        unsafe { (self.header)(header) }
    }

    /// [`copy`](Self::copy) without checking the machine or the lengths, and without the fence.
    ///
    /// # Safety
    /// - The kernel is [available](Self::available).
    /// - `dst` and `src` have the same length.
    /// - [`copy::fence`] for `store` follows before anything else may read `dst`.
    #[inline]
    pub(crate) unsafe fn copy_unchecked(&self, crc: u32, dst: &mut [u8], src: &[u8], store: Store) -> u32 {
        debug_assert_eq!(dst.len(), src.len());
        // SAFETY: the conditions of the entry are those of this function; the caller vouches for them.
        unsafe { (self.copy)(crc, dst, src, store) }
    }

    /// [`combine`](Self::combine) without checking the machine.
    ///
    /// # Safety
    /// - The kernel is [available](Self::available).
    #[inline]
    pub(crate) unsafe fn combine_unchecked(&self, crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
        // SAFETY: the entry's only condition is that the machine has its instructions; the caller vouches for it.
        unsafe { (self.combine)(crc_a, crc_b, len_b) }
    }

    /// [`combine_by`](Self::combine_by) without checking the machine.
    ///
    /// # Safety
    /// - The kernel is [available](Self::available).
    #[inline]
    pub(crate) unsafe fn combine_by_unchecked(&self, crc_a: u32, crc_b: u32, by: &CombineBy) -> u32 {
        // SAFETY: the entry's only condition is that the machine has its instructions; the caller vouches for it.
        unsafe { (self.combine_by)(crc_a, crc_b, by) }
    }

    /// [`combine_blocks`](Self::combine_blocks) without checking the machine.
    ///
    /// # Safety
    /// - The kernel is [available](Self::available).
    #[inline]
    pub(crate) unsafe fn combine_blocks_unchecked(&self, crc: u32, crcs: &[u32], block: &CombineBy) -> u32 {
        // SAFETY: the entry's only condition is that the machine has its instructions; the caller vouches for it.
        unsafe { (self.combine_blocks)(crc, crcs, block) }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).field("available", &self.available()).finish()
    }
}

const COUNT: usize =
    2 + if cfg!(target_arch = "x86_64") { 5 } else { cfg!(target_arch = "aarch64") as usize };

#[cfg(target_arch = "x86_64")]
const BRAIDED: Fastest = Fastest {
    on: crate::detect::made_by_amd,
    why: "on AMD the CRC32 instruction and VPCLMULQDQ run in different units, side by side",
};
#[cfg(target_arch = "x86_64")]
const BRAIDED_BY_MATRICES: Fastest = Fastest {
    on: crate::detect::made_by_amd,
    why: "on AMD the CRC32 instruction and GF2P8AFFINEQB run in different units, side by side",
};
#[cfg(target_arch = "x86_64")]
const FOLDED: Fastest = Fastest { on: EVERYWHERE, why: "the widest carry-less product that the machine has" };
#[cfg(target_arch = "x86_64")]
const LANES: Fastest = Fastest { on: EVERYWHERE, why: "a CRC32 instruction, and no wide carry-less product" };

/// A kernel of x86-64. Headers and combinations are short; the SSE4.2 instructions are enough for them.
#[cfg(target_arch = "x86_64")]
const fn of_x86_64(
    name: &'static str,
    detect: fn() -> bool,
    fastest: Fastest,
    append: unsafe fn(u32, &[u8]) -> u32,
    copy: unsafe fn(u32, &mut [u8], &[u8], Store) -> u32,
) -> Kernel {
    Kernel {
        name,
        detect,
        fastest,
        detected: Detected::new(),
        append,
        header: sse42::header,
        copy,
        combine: sse42::combine,
        combine_by: sse42::combine_by,
        combine_blocks: sse42::combine_blocks,
    }
}

/// Every kernel compiled for this architecture, in the order in which the choice tries them; the last two run everywhere.
static ALL: [Kernel; COUNT] = [
    #[cfg(target_arch = "x86_64")]
    of_x86_64("avx512-gfni-braided", matrices::detect, BRAIDED_BY_MATRICES, with_gfni::append, avx512::copy),
    #[cfg(target_arch = "x86_64")]
    of_x86_64("avx2-braided", avx2::detect, BRAIDED, with_avx2::append, avx2::copy),
    #[cfg(target_arch = "x86_64")]
    of_x86_64("avx512-vpclmulqdq", avx512::detect, FOLDED, avx512::append, avx512::copy),
    #[cfg(target_arch = "x86_64")]
    of_x86_64("avx2-vpclmulqdq", avx2::detect, FOLDED, avx2::append, avx2::copy),
    #[cfg(target_arch = "x86_64")]
    of_x86_64("sse42-pclmulqdq", sse42::detect, LANES, sse42::append, sse42::copy),
    #[cfg(target_arch = "aarch64")]
    Kernel {
        name: "aarch64-crc-pmull",
        detect: aarch64::detect,
        fastest: Fastest { on: EVERYWHERE, why: "the machine has a CRC32C instruction" },
        detected: Detected::new(),
        append: aarch64::append,
        header: aarch64::header,
        copy: aarch64::copy,
        combine: aarch64::combine,
        combine_by: aarch64::combine_by,
        combine_blocks: aarch64::combine_blocks,
    },
    Kernel {
        name: "slicing-8",
        detect: EVERYWHERE,
        fastest: Fastest { on: EVERYWHERE, why: "the machine has no instruction for CRC32C" },
        detected: Detected::new(),
        append: slicing8::append,
        header: |header| slicing8::append(0, header),
        copy: |crc, dst, src, _| slicing8::copy(crc, dst, src),
        combine: combine::with::<portable::Sliced>,
        combine_by: combine::by::<portable::Sliced>,
        combine_blocks: combine::blocks::<portable::Sliced>,
    },
    Kernel {
        name: "bitwise",
        detect: EVERYWHERE,
        fastest: Fastest { on: EVERYWHERE, why: "nothing else is there" },
        detected: Detected::new(),
        append: bitwise::append,
        header: |header| bitwise::append(0, header),
        copy: |crc, dst, src, _| copy::blockwise(bitwise::append, crc, dst, src),
        combine: combine::with::<portable::Bitwise>,
        combine_by: combine::by::<portable::Bitwise>,
        combine_blocks: combine::blocks::<portable::Bitwise>,
    },
];

/// Algorithms of the papers as kernels: nothing chooses them, but the environment may name one, to see what it would cost the whole
/// product. Sarwate's (1988), and Slicing-by-8 in one chain (Kounavis and Berry).
static PAPERS: [Kernel; 2] = [
    of_paper(
        "sarwate",
        slicing8::append_bytes,
        |header| slicing8::append_bytes(0, header),
        |crc, dst, src, _| copy::blockwise(slicing8::append_bytes, crc, dst, src),
    ),
    of_paper(
        "slicing-8-serial",
        slicing8::append_serial,
        |header| slicing8::append_serial(0, header),
        |crc, dst, src, _| copy::blockwise(slicing8::append_serial, crc, dst, src),
    ),
];

/// A kernel of [`PAPERS`].
const fn of_paper(
    name: &'static str,
    append: unsafe fn(u32, &[u8]) -> u32,
    header: unsafe fn(&[u8; HEADER_BYTES]) -> u32,
    copy: unsafe fn(u32, &mut [u8], &[u8], Store) -> u32,
) -> Kernel {
    Kernel {
        name,
        detect: EVERYWHERE,
        fastest: Fastest { on: || false, why: "it is never chosen" },
        detected: Detected::new(),
        append,
        header,
        copy,
        combine: combine::with::<portable::Sliced>,
        combine_by: combine::by::<portable::Sliced>,
        combine_blocks: combine::blocks::<portable::Sliced>,
    }
}

/// Every kernel compiled for this architecture, widest first, whether or not this machine can run it.
pub fn all() -> &'static [Kernel] {
    &ALL
}

/// The kernels that this machine can run, widest first. That is not always fastest first: see [`suits`](Kernel::suits). Never empty: the
/// last two run everywhere.
pub fn available() -> impl Iterator<Item = &'static Kernel> {
    ALL.iter().filter(|k| k.available())
}

/// The algorithms of the papers, which run everywhere and are never chosen.
pub(super) fn papers() -> impl Iterator<Item = &'static Kernel> {
    PAPERS.iter()
}

/// The kernel of this name, also one of the papers', if this machine can run it.
pub(super) fn named(name: &str) -> Option<&'static Kernel> {
    available().chain(papers()).find(|kernel| kernel.name() == name)
}

/// The kernel that supplies the reference values.
pub fn reference() -> &'static Kernel {
    &ALL[ALL.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_kernels_compute_what_the_reference_does_and_are_never_chosen() {
        let data: Vec<u8> = (0..9000u32).map(|n| ((n * 31) >> 3) as u8).collect();
        for kernel in papers() {
            assert!(kernel.available() && !kernel.suits());
            for length in (0..70).chain([4095, 4096, 4097, 9000]) {
                let (data, mut copied) = (&data[9000 - length..], vec![0; length]);
                let crc = reference().append(7, data);
                assert_eq!(kernel.append(7, data), crc, "{}: {length}", kernel.name());
                assert_eq!(kernel.copy(7, &mut copied, data, Store::Temporal), Ok(crc), "{}", kernel.name());
                assert_eq!(copied, data);
            }
        }
    }
}
