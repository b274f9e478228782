//! Prefetching memory before it is needed.

const LINE_BYTES: usize = 64;

/// Memory that is to be fetched into the nearest cache of the processor, some lines at a time.
///
/// A processor has a small number of lines on their way at once, and an instruction that asks for one more waits. So whoever asks for a block
/// of 4 KiB at once waits for most of it; whoever asks for a few lines between one piece of work and the next waits for none.
///
/// It holds addresses and borrows nothing: a hint may name memory that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefetch {
    next: usize,
    end: usize,
}

impl Prefetch {
    /// Nothing of `bytes` is requested yet.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        let start = bytes.as_ptr().addr();
        Self { next: start, end: start + bytes.len() }
    }

    /// How many lines of 64 bytes are not requested yet.
    pub fn lines(&self) -> usize {
        (self.end - self.next).div_ceil(LINE_BYTES)
    }

    /// Requests up to `lines` more lines. This is a hint: it changes nothing, and on processors without such an instruction it
    /// does nothing. Returns how many of `lines` are left.
    #[inline]
    pub fn request(&mut self, lines: usize) -> usize {
        let mut left = lines;
        while left > 0 && self.next < self.end {
            fetch(self.next);
            self.next = self.end.min(self.next + LINE_BYTES);
            left -= 1;
        }
        left
    }
}

/// Requests the line of an address.
#[inline(always)]
fn fetch(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction needs only SSE, which every x86-64 processor has. It has no visible effect, and does not fault, whatever the
    // address is.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::without_provenance(address));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint to the memory system: it changes no register and no memory, and does not fault.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_requested_once() {
        let memory = [0; 4096];
        let mut all = Prefetch::of(&memory[..1000]);
        assert_eq!((all.lines(), all.request(10), all.lines()), (16, 0, 6));
        assert_eq!((all.request(10), all.lines(), all.request(10)), (4, 0, 10));
        let mut nothing = Prefetch::default();
        assert_eq!((nothing.lines(), nothing.request(3)), (0, 3));
    }
}
