//! What programs need that are measured next to the kernels of this crate and are no part of it: the CRC32 instruction and the
//! carry-less product of the machine, its widest vectors, a value that the compiler knows nothing of, cold memory, and the arithmetic
//! from which tables are derived.
//!
//! Only with the feature `unstable`, and outside of the promises of semantic versioning: every release may change it. Everything here
//! is safe to use, so that such programs need no `unsafe`: a token stands for instructions that were detected.
//!
//! ```
//! use integrity::unstable::{Crc32, Program, with_crc32};
//!
//! /// CRC32C of one word.
//! struct Word(u64);
//!
//! impl Program<Crc32> for Word {
//!     type Output = u32;
//!
//!     #[inline(always)]
//!     fn run(self, machine: Crc32) -> u32 {
//!         !(machine.word64(u32::MAX.into(), self.0) as u32)
//!     }
//! }
//!
//! if let Some(crc) = with_crc32(Word(0)) {
//!     assert_eq!(crc, integrity::crc32c(&[0; 8]));
//! }
//! ```

#[cfg(target_arch = "aarch64")]
use crate::crc32c::aarch64::CrcPmull as Machine;
#[cfg(target_arch = "x86_64")]
use crate::crc32c::x86_64::sse42::Sse42 as Machine;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::{combine::Field, crc32c::interleaved::Crc32Unit, detect::detected};
use crate::{copy::pass, gf2};

/// `a * x` modulo the polynomial of CRC32C, reflected.
pub const fn mul_x(a: u32) -> u32 {
    gf2::mul_x(a)
}

/// `a * b` modulo the polynomial of CRC32C, reflected.
pub const fn mul(a: u32, b: u32) -> u32 {
    gf2::mul(a, b)
}

/// `x^n` modulo the polynomial of CRC32C, reflected.
pub const fn x_pow(n: u64) -> u32 {
    gf2::x_pow(n)
}

/// Hides the origin of `word` from the compiler: it can neither compute the value beforehand nor load it a second time.
#[inline(always)]
pub fn opaque(word: u64) -> u64 {
    pass::pin(word)
}

/// A computation that is compiled for the instructions that `M` stands for. [`run`](Self::run) needs `#[inline(always)]`: it gets
/// the instructions of the function that it is inlined into.
pub trait Program<M> {
    /// What it returns.
    type Output;

    /// Computes it.
    fn run(self, machine: M) -> Self::Output;
}

/// The CRC32C instruction: SSE4.2 on x86-64, the CRC extension on aarch64. Registers are unfinished values in the low 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Crc32(());

/// [`Crc32`], and a carry-less product: PCLMULQDQ on x86-64, PMULL on aarch64.
#[derive(Clone, Copy, Debug)]
pub struct Crc32AndProduct(Crc32);

/// Whether this machine has the instruction of [`Crc32`].
#[inline]
pub fn has_crc32() -> bool {
    #[cfg(target_arch = "x86_64")]
    return detected!("sse4.2");
    #[cfg(target_arch = "aarch64")]
    return detected!("crc");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Whether this machine has the instructions of [`Crc32AndProduct`].
#[inline]
pub fn has_crc32_and_product() -> bool {
    #[cfg(target_arch = "x86_64")]
    return detected!("sse4.2", "pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return detected!("crc", "aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

impl Crc32 {
    /// The register after eight more bytes, given as a little-endian word.
    #[inline(always)]
    pub fn word64(self, register: u64, word: u64) -> u64 {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        // SAFETY: `self` exists only where the instruction was detected.
        return unsafe { Machine::word64(register, word) };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        unreachable!("{register} {word}: no such machine")
    }

    /// The register after four more bytes.
    #[inline(always)]
    pub fn word32(self, register: u64, word: u32) -> u64 {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        // SAFETY: `self` exists only where the instruction was detected.
        return unsafe { Machine::word32(register, word) };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        unreachable!("{register} {word}: no such machine")
    }

    /// The register after one more byte.
    #[inline(always)]
    pub fn byte(self, register: u64, byte: u8) -> u64 {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        // SAFETY: `self` exists only where the instruction was detected.
        return unsafe { Machine::byte(register, byte) };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        unreachable!("{register} {byte}: no such machine")
    }
}

impl Crc32AndProduct {
    /// The instruction of [`Crc32`].
    #[inline(always)]
    pub fn crc32(self) -> Crc32 {
        self.0
    }

    /// The carry-less product of two values of 32 bits each, unreduced (63 bits).
    #[inline(always)]
    pub fn product(self, a: u64, b: u64) -> u64 {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        // SAFETY: `self` exists only where the instruction was detected.
        return unsafe { Machine::product(a, b) };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        unreachable!("{a} {b}: no such machine")
    }
}

/// Runs `program`, compiled for the instruction of [`Crc32`]; `None`: this machine lacks it.
#[inline]
pub fn with_crc32<P: Program<Crc32>>(program: P) -> Option<P::Output> {
    /// Compiles `program` for the instruction.
    ///
    /// # Safety
    /// - [`has_crc32`] returns true.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse4.2"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "crc"))]
    unsafe fn inside<P: Program<Crc32>>(program: P) -> P::Output {
        program.run(Crc32(()))
    }
    // SAFETY: the instruction was just detected.
    has_crc32().then(|| unsafe { inside(program) })
}

/// Runs `program`, compiled for the instructions of [`Crc32AndProduct`]; `None`: this machine lacks one.
#[inline]
pub fn with_crc32_and_product<P: Program<Crc32AndProduct>>(program: P) -> Option<P::Output> {
    /// Compiles `program` for the instructions.
    ///
    /// # Safety
    /// - [`has_crc32_and_product`] returns true.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse4.2,pclmulqdq"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "crc,aes"))]
    unsafe fn inside<P: Program<Crc32AndProduct>>(program: P) -> P::Output {
        program.run(Crc32AndProduct(Crc32(())))
    }
    // SAFETY: the instructions were just detected.
    has_crc32_and_product().then(|| unsafe { inside(program) })
}

/// Runs `program`, compiled for the widest vectors of this machine: AVX-512, AVX2, or those that every machine of the architecture has.
#[inline]
pub fn with_vectors<P: Program<()>>(program: P) -> P::Output {
    #[cfg(target_arch = "x86_64")]
    {
        /// # Safety
        /// - The machine has AVX-512F.
        #[target_feature(enable = "avx512f")]
        unsafe fn avx512<P: Program<()>>(program: P) -> P::Output {
            program.run(())
        }
        /// # Safety
        /// - The machine has AVX2.
        #[target_feature(enable = "avx2")]
        unsafe fn avx2<P: Program<()>>(program: P) -> P::Output {
            program.run(())
        }
        if detected!("avx512f") {
            // SAFETY: AVX-512 was just detected.
            return unsafe { avx512(program) };
        }
        if detected!("avx2") {
            // SAFETY: AVX2 was just detected.
            return unsafe { avx2(program) };
        }
    }
    program.run(())
}

/// Removes `words` from every cache. On processors without such an instruction it does nothing.
pub fn flush(words: &[u32]) {
    /// Words in one cache line of 64 bytes.
    const LINE_WORDS: usize = 16;
    // The last word also, because the words need not begin where a line does.
    for line in words.chunks(LINE_WORDS).chain(words.last().map(core::slice::from_ref)) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: every x86-64 processor has the instruction. It changes where the line is held and not what it holds, and the address is
        // that of existing memory.
        unsafe {
            core::arch::x86_64::_mm_clflush(line.as_ptr().cast());
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: Linux lets user mode execute it. It changes where the line is held and not what it holds, and the address is that of
        // existing memory.
        unsafe {
            core::arch::asm!("dc civac, {0}", in(reg) line.as_ptr(), options(nostack, preserves_flags));
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = line;
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE2 is part of the x86-64 baseline.
    unsafe {
        core::arch::x86_64::_mm_mfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier changes no register and no memory.
    unsafe {
        core::arch::asm!("dsb ish", options(nostack, preserves_flags));
    }
}
