//! The kernels of x86-64, with the safe faces by which the list of kernels names them.

pub(crate) mod avx512;
pub(crate) mod sse42;
