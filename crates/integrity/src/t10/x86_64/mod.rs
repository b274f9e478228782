//! The guard kernels of x86-64.

pub(super) mod avx2;
pub(super) mod avx512;
pub(super) mod blocks;
pub(super) mod ssse3;
