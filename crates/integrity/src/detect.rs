//! Which instructions this machine has: detected at run time with the feature `std`, else those the crate was compiled
//! for.

use core::sync::atomic::{AtomicU8, Ordering};

/// Whether this machine has all the named target features of the target architecture.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! detected {
    ($($feature:tt),+) => {{
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        let all = $(std::arch::is_x86_feature_detected!($feature))&&+;
        #[cfg(all(feature = "std", target_arch = "aarch64"))]
        let all = $(std::arch::is_aarch64_feature_detected!($feature))&&+;
        #[cfg(not(feature = "std"))]
        let all = $(cfg!(target_feature = $feature))&&+;
        all
    }};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use detected;

/// Whether AMD made the processor. Under Miri the answer is no.
#[cfg(target_arch = "x86_64")]
pub(crate) fn made_by_amd() -> bool {
    if cfg!(miri) {
        return false;
    }
    let leaf = core::arch::x86_64::__cpuid(0);
    [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
}

/// Whether the processor is of AMD's family 26 (Zen 5) or a later one. Under Miri the answer is no.
#[cfg(target_arch = "x86_64")]
pub(crate) fn amd_family_26() -> bool {
    // Eight more bits count if the first four are all ones (AMD64 manual, volume 3, Fn0000_0001_EAX).
    let family = || {
        let signature = core::arch::x86_64::__cpuid(1).eax;
        let (base, extended) = (signature >> 8 & 0xf, signature >> 20 & 0xff);
        if base == 0xf { base + extended } else { base }
    };
    made_by_amd() && family() >= 26
}

/// A cached detection result. Without it, a kernel that needs many features would check each of them on every call.
pub(crate) struct Detected(AtomicU8);

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

impl Detected {
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(UNKNOWN))
    }

    /// The result of `detect`. Two threads may both detect at the first call; they get the same result.
    pub(crate) fn get(&self, detect: fn() -> bool) -> bool {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => {
                let present = detect();
                self.0.store(if present { PRESENT } else { ABSENT }, Ordering::Relaxed);
                present
            }
            answer => answer == PRESENT,
        }
    }
}
