//! Chooses the kernel: the first in the list that this machine can run and that suits its processor, unless the
//! environment names another.

use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::kernels::{self, Kernel};

/// The environment variable that names a kernel to use instead of the chosen one, for tests and comparisons. It is read
/// at the first call that needs a kernel, once; without the feature `std` it is never read. Beside those of
/// [`kernels::all`] it may name two algorithms of the papers, which are never chosen: `sarwate` and `slicing-8-serial`.
pub const KERNEL_VARIABLE: &str = "INTACT_CRC32C_KERNEL";

/// The kernel in use and the reason for it, for logs and tables of figures.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    kernel: &'static Kernel,
    named: Named,
}

/// What [`KERNEL_VARIABLE`] said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// It was not set.
    None,
    /// The kernel in use.
    This,
    /// A kernel that does not exist or cannot run here.
    Unknown,
}

impl Choice {
    /// The kernel for this machine if the variable has this value.
    fn of(variable: Option<&str>) -> Self {
        let fastest = || kernels::available().find(|kernel| kernel.suits()).unwrap_or(kernels::reference());
        let Some(name) = variable else { return Self { kernel: fastest(), named: Named::None } };
        match kernels::named(name) {
            Some(kernel) => Self { kernel, named: Named::This },
            None => Self { kernel: fastest(), named: Named::Unknown },
        }
    }

    /// The kernel for this machine in this environment.
    fn made() -> Self {
        #[cfg(feature = "std")]
        return Self::of(std::env::var(KERNEL_VARIABLE).ok().as_deref());
        #[cfg(not(feature = "std"))]
        Self::of(None)
    }

    /// The kernel.
    pub fn kernel(&self) -> &'static Kernel {
        self.kernel
    }
}

/// The reason, as a sentence without its full stop.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.named {
            Named::This => return write!(f, "{KERNEL_VARIABLE} names it"),
            Named::Unknown => write!(f, "{KERNEL_VARIABLE} names none that this machine can run; so: ")?,
            Named::None => {}
        }
        f.write_str(self.kernel.why())
    }
}

/// The kernel in use, and why.
pub fn choice() -> Choice {
    let now = Choice::made();
    // Changing the variable after the first call has no effect.
    match ptr::eq(now.kernel, active()) {
        true => now,
        false => Choice { kernel: active(), named: Named::This },
    }
}

/// The kernel in use. After the first call this is one load and one branch.
#[inline]
pub(crate) fn active() -> &'static Kernel {
    static ACTIVE: AtomicPtr<Kernel> = AtomicPtr::new(ptr::null_mut());
    #[cold]
    fn choose() -> &'static Kernel {
        let chosen = Choice::made().kernel;
        ACTIVE.store(ptr::from_ref(chosen).cast_mut(), Ordering::Relaxed);
        chosen
    }
    // SAFETY: the pointer is null or points to a static, which was complete before the program began; nothing is ever
    // written through it.
    unsafe { ACTIVE.load(Ordering::Relaxed).as_ref() }.unwrap_or_else(choose)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_named_serves() {
        for kernel in kernels::available().chain(kernels::papers()) {
            let choice = Choice::of(Some(kernel.name()));
            assert!(ptr::eq(choice.kernel(), kernel), "{}", kernel.name());
            assert_eq!(choice.to_string(), "INTACT_CRC32C_KERNEL names it");
        }
    }

    #[test]
    fn without_a_name_or_with_a_wrong_one_the_first_that_suits_serves() {
        let choice = Choice::of(None);
        let first = kernels::available().find(|kernel| kernel.suits()).expect("two run everywhere");
        assert!(ptr::eq(choice.kernel(), first));
        assert_eq!(choice.to_string(), first.why());
        let wrong = Choice::of(Some("sse99"));
        assert!(ptr::eq(wrong.kernel(), first));
        assert!(wrong.to_string().starts_with("INTACT_CRC32C_KERNEL names none"), "{wrong}");
    }
}
