//! Cold tables: what an algorithm finds in the caches decides what it costs, so a benchmark must be able to set it.

use super::crc32c_table::{BYTES, SLICES_4, SLICES_8};

/// Entries of a table in one cache line of 64 bytes.
const LINE_ENTRIES: usize = 16;

/// Removes the tables of the byte-wise and the slicing algorithms from every cache. On processors without such an instruction it does
/// nothing.
pub fn flush_tables() {
    let rows = [&BYTES].into_iter().chain(&SLICES_4).chain(&SLICES_8);
    for line in rows.flat_map(|row| row.chunks(LINE_ENTRIES)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_stay_what_they_are() {
        let before = (BYTES, SLICES_4, SLICES_8);
        flush_tables();
        assert_eq!((BYTES, SLICES_4, SLICES_8), before);
    }
}
