//! Prefetching memory before it is needed.

const LINE_BYTES: usize = 64;

/// Has the processor fetch `bytes` into its nearest cache in the background. This is a hint: it changes nothing, and on processors without
/// such an instruction it does nothing.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the instruction needs only SSE, which every x86-64 processor has, and its read has no visible effect. The address is that
        // of an existing byte.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast());
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: a hint to the memory system: it changes no register and no memory, and does not fault.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) line.as_ptr(), options(nostack, preserves_flags, readonly));
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = line;
    }
}
