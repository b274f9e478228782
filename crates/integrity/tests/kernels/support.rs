//! What the tests of the kernels share: data that repeat, buffers of known alignment, and the kernels under test.

use integrity::Store;
use integrity::kernels::{self, Kernel};

pub const STORES: [Store; 2] = [Store::Temporal, Store::NonTemporal];
pub const ALIGNMENTS: usize = 64;

/// SplitMix64: small, and good enough to leave no structure in the data.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Bytes whose first lies on a cache line, so that an offset is an alignment.
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

/// The kernels under test: all that run here but the reference.
pub fn under_test() -> impl Iterator<Item = &'static Kernel> {
    kernels::available().filter(|k| !std::ptr::eq(*k, kernels::reference()))
}
