//! The counter that a benchmark reads before and after a few hundred cycles of work.
//!
//! `Instant` costs more than the work to be measured. What the counter counts differs by architecture, and it is not a core cycle: a
//! processor above or below its nominal frequency keeps counting at the nominal one. A report of a figure must name the [`COUNTER`] it
//! comes from.

/// What [`now`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// The time stamp counter of x86-64: cycles at the nominal frequency.
    TimeStamp,
    /// `CNTVCT_EL0` of aarch64: tens of MHz.
    VirtualCount,
    /// Nanoseconds of the operating system's monotonic clock.
    Nanoseconds,
}

/// What [`now`] counts here.
pub const COUNTER: Counter = if cfg!(miri) {
    Counter::Nanoseconds
} else if cfg!(target_arch = "x86_64") {
    Counter::TimeStamp
} else if cfg!(target_arch = "aarch64") {
    Counter::VirtualCount
} else {
    Counter::Nanoseconds
};

/// The counter now. Everything before the call has been executed when it is read, and nothing after the call has started.
#[inline(always)]
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub fn now() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 processor has both, and user mode may execute both on every Linux that does not forbid it
    // for the process (prctl PR_SET_TSC); neither touches memory. The fences keep work from moving across.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

/// The counter now. Everything before the call has been executed when it is read, and nothing after the call has started.
#[inline(always)]
#[cfg(all(target_arch = "aarch64", not(miri)))]
pub fn now() -> u64 {
    let ticks: u64;
    // SAFETY: Linux lets user mode read the virtual counter. The barriers keep work from moving across. No memory is touched.
    unsafe {
        core::arch::asm!("isb", "mrs {ticks}, cntvct_el0", "isb", ticks = out(reg) ticks, options(nostack));
    }
    ticks
}

/// The counter now.
#[inline(always)]
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub fn now() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_counter_counts_upwards() {
        let start = super::now();
        let later = (0..1_000_000).map(|_| super::now()).find(|now| *now > start);
        assert!(later.is_some());
    }
}
