//! Shared by the tests of the kernels: repeatable data, buffers of known alignment, and the kernels under test.

#[path = "../support/random.rs"]
mod random;

use integrity::Store;
use integrity::kernels::{self, Kernel};
pub use random::Random;

pub const STORES: [Store; 2] = [Store::Temporal, Store::NonTemporal];
pub const ALIGNMENTS: usize = 64;

/// Bytes whose first is on a cache line boundary, so that an offset is an alignment.
pub struct Aligned {
    storage: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub fn filled(len: usize, byte: u8) -> Self {
        let storage = vec![byte; len + ALIGNMENTS];
        let start = storage.as_ptr().addr().wrapping_neg() % ALIGNMENTS;
        Self { storage, start, len }
    }

    pub fn of(data: &[u8]) -> Self {
        let mut aligned = Self::filled(data.len(), 0);
        aligned.bytes_mut().copy_from_slice(data);
        aligned
    }

    pub fn bytes(&self) -> &[u8] {
        &self.storage[self.start..][..self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..][..self.len]
    }
}

/// The kernels under test: all that run here except the reference.
pub fn under_test() -> impl Iterator<Item = &'static Kernel> {
    kernels::available().filter(|k| !std::ptr::eq(*k, kernels::reference()))
}
