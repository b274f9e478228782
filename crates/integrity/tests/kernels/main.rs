//! The tests of the kernels, all through the public interface.

mod combination;
mod compound;
mod differential;
#[cfg(all(target_os = "linux", not(miri)))]
mod memory;
mod support;
mod vectors;
