//! Shared by these tests: repeatable data, and the kernels under test.

#[path = "../support/random.rs"]
mod random;

use integrity::t10::kernels::{self, Kernel};
pub use random::Random;

/// Strides through positions of damage: all positions, except where every step is emulated.
pub const DAMAGE_STEP: usize = match () {
    _ if cfg!(miri) => 997,
    _ if cfg!(target_arch = "x86_64") => 1,
    _ => 29,
};

/// The kernels under test: all that run here except the reference.
pub fn under_test() -> impl Iterator<Item = &'static Kernel> {
    kernels::available().filter(|k| !std::ptr::eq(*k, kernels::reference()))
}

/// The guard by the reference.
pub fn reference(crc: u16, data: &[u8]) -> u16 {
    kernels::reference().append(crc, data)
}
