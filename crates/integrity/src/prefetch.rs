//! Asking for memory before it is needed.

const LINE_BYTES: usize = 64;

/// Lets the processor fetch `bytes` into its nearest cache while it does something else. A hint: it changes nothing, and where the
/// processor knows no such thing it does nothing.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the instruction needs no more than SSE, which every x86-64 processor has, and reads nothing that can be seen; the
        // address is that of a byte that is there.
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
