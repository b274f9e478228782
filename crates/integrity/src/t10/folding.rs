//! The guard by folding with carry-less multiplication, written once on top of a small vector trait.
//!
//! A run is one long polynomial, 16 bytes per block; a vector holds one block or two. A vector is *folded* forward
//! by d bits by multiplying the high and the low half of each block by x^(d+64) and x^d mod P, and adding both
//! products to the vector that lies d bits further on; the remainder mod P of the whole is unchanged.
//!
//! ```text
//!  head       vectors, eight (or four) chains            left over
//! | 0..31 B | v0 v1 .. v7 | v8 v9 .. v15 | ... +1024 bits | v v v |
//! ```
//!
//! - Bytes that do not fill a vector are taken from the front by the portable kernel, so there is no tail.
//! - The end: all chains are folded into one block, and the block is reduced by Barrett's method.

use super::{gf2, slicing16};

/// The multipliers that move a block forward, for its low and for its high half.
#[derive(Clone, Copy)]
pub(super) struct Pair(pub(super) [u64; 2]);

impl Pair {
    /// The pair for a distance in bits.
    const fn forward(bits: u64) -> Self {
        Self([gf2::x_pow(bits) as u64, gf2::x_pow(bits + 64) as u64])
    }

    /// The pairs that move each of `N` vectors onto the last, which stays.
    const fn onto_last<const N: usize>(vector_bits: u64) -> [Self; N] {
        let mut pairs = [Self([0, 0]); N];
        let mut i = 0;
        while i < N {
            pairs[i] = Self::forward((N - 1 - i) as u64 * vector_bits);
            i += 1;
        }
        pairs
    }
}

/// A vector of blocks, and the carry-less multiplication.
///
/// # Safety
/// All methods: the machine has the implementor's instructions.
pub(super) trait Vector: Copy {
    /// Size of a vector in bytes: 16 for each block.
    const BYTES: usize;
    /// The vector whose first byte is `register`, high byte first, and the rest zero.
    unsafe fn first_bytes(register: u16) -> Self;
    /// The vector at `src`; in each block the first byte becomes the highest.
    ///
    /// # Safety
    /// - `src` is valid for reads of `BYTES` bytes.
    unsafe fn load(src: *const u8) -> Self;
    /// `a + b`.
    unsafe fn add(a: Self, b: Self) -> Self;
    /// `self` moved forward by the distance of `by`, added to `onto`.
    unsafe fn fold(self, by: Pair, onto: Self) -> Self;
    /// All blocks folded into one with the same remainder: low and high half.
    unsafe fn one_block(self) -> [u64; 2];
    /// The carry-less product of two words: low and high half.
    unsafe fn product(a: u64, b: u64) -> [u64; 2];
}

/// The distance between neighbouring blocks of a vector.
#[cfg(target_arch = "x86_64")]
pub(super) const BY_ONE_BLOCK: Pair = Pair::forward(128);

/// Continues `crc` over `data` with `CHAINS` vectors in flight.
///
/// # Safety
/// - The machine has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const CHAINS: usize>(crc: u16, data: &[u8]) -> u16 {
    if data.len() < 2 * V::BYTES {
        return slicing16::append(crc, data);
    }
    let (head, body) = data.split_at(data.len() % V::BYTES);
    let register = slicing16::append(crc, head);
    let count = body.len() / V::BYTES;
    // SAFETY: the machine has the instructions, as the caller vouches; vectors are loaded only below `count`.
    unsafe {
        let load = |i: usize| V::load(body.as_ptr().add(i * V::BYTES));
        let mut x = V::add(load(0), V::first_bytes(register));
        let mut taken = 1;
        if count >= 2 * CHAINS {
            let by_all = const { Pair::forward((8 * CHAINS * V::BYTES) as u64) };
            let onto_last = const { Pair::onto_last::<CHAINS>(8 * V::BYTES as u64) };
            let mut chains = [x; CHAINS];
            for (i, chain) in chains.iter_mut().enumerate().skip(1) {
                *chain = load(i);
            }
            taken = CHAINS;
            while count - taken >= CHAINS {
                for (i, chain) in chains.iter_mut().enumerate() {
                    *chain = chain.fold(by_all, load(taken + i));
                }
                taken += CHAINS;
            }
            x = chains[CHAINS - 1];
            for (chain, by) in chains.iter().zip(onto_last).take(CHAINS - 1) {
                x = chain.fold(by, x);
            }
        }
        let by_one = const { Pair::forward(8 * V::BYTES as u64) };
        while taken < count {
            x = x.fold(by_one, load(taken));
            taken += 1;
        }
        reduce::<V>(x.one_block())
    }
}

/// `block * x^16 mod P`.
///
/// # Safety
/// - The machine has the instructions of `V`.
#[inline(always)]
unsafe fn reduce<V: Vector>([low, high]: [u64; 2]) -> u16 {
    const X_64: u64 = gf2::x_pow(64) as u64;
    const X_80: u64 = gf2::x_pow(80) as u64;
    // SAFETY: the machine has the instructions, as the caller vouches.
    unsafe {
        // 128 bits and x^16 to 80 bits, 80 bits to 64, 64 bits to 16.
        let [a, b] = V::product(high, X_80);
        let (a, b) = (a ^ low << 16, b ^ low >> 48);
        let x = a ^ V::product(b, X_64)[0];
        let [q, r] = V::product(x >> 16, gf2::QUOTIENT);
        let quotient = q >> 48 | r << 16;
        (x ^ V::product(quotient, 1 << 16 | gf2::POLY as u64)[0]) as u16
    }
}
