//! What these tests share: data that repeat, and the kernels under test.

use integrity::t10::kernels::{self, Kernel};

/// Strides through positions of damage: all of them, but where every step is emulated.
pub const DAMAGE_STEP: usize = match () {
    _ if cfg!(miri) => 997,
    _ if cfg!(target_arch = "x86_64") => 1,
    _ => 29,
};

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

/// The kernels under test: all that run here but the reference.
pub fn under_test() -> impl Iterator<Item = &'static Kernel> {
    kernels::available().filter(|k| !std::ptr::eq(*k, kernels::reference()))
}

/// The guard by the reference.
pub fn reference(crc: u16, data: &[u8]) -> u16 {
    kernels::reference().append(crc, data)
}
