//! Prefetching memory before it is needed.

const LINE_BYTES: usize = 64;
/// Lines that are requested without a branch between them, so that a block of 4 KiB takes a hundred instructions and not five hundred.
const LINES_AT_ONCE: usize = 8;

/// Has the processor fetch `bytes` into its nearest cache in the background. This is a hint: it changes nothing, and on processors without
/// such an instruction it does nothing.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    let (runs, rest) = bytes.as_chunks::<{ LINE_BYTES * LINES_AT_ONCE }>();
    for run in runs {
        for line in run.as_chunks::<LINE_BYTES>().0 {
            fetch(&line[0]);
        }
    }
    for line in rest.chunks(LINE_BYTES) {
        fetch(&line[0]);
    }
}

/// Requests the line of a byte.
#[inline(always)]
fn fetch(byte: &u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction needs only SSE, which every x86-64 processor has, and its read has no visible effect. The address is that
    // of an existing byte.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(byte).cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint to the memory system: it changes no register and no memory, and does not fault.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) byte, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = byte;
}
