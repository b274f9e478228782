//! CRC32C by the machine's CRC32 instruction (Sahu 2019, 4.4.6 to 4.4.8): one chain, and two ways of running three
//! chains side by side and joining their registers.
//!
//! The joins are cut as in the programs that the paper measured. By carry-less products, as in Gopal et al.: three
//! lanes of 1024 bytes, then three that share the rest, and one chain below 200 bytes. By tables, as in Adler's
//! program: three lanes of 8192 bytes, then of 256, each length with a table of 4 KiB. Both first advance to an address
//! that is a multiple of eight.

use integrity::unstable::{self, Crc32, Crc32AndProduct, Program, with_crc32, with_crc32_and_product};

use super::opaque_word;

/// What a caller learns who did not ask [`Needs`](super::Needs) first.
const LACKING: &str = "this machine has the instructions that the algorithm needs";

/// Section 4.4.6: one chain of instructions, eight bytes each.
pub(super) fn serial(data: &[u8]) -> u64 {
    struct Serial<'a>(&'a [u8]);
    impl Program<Crc32> for Serial<'_> {
        type Output = u64;

        #[inline(always)]
        fn run(self, machine: Crc32) -> u64 {
            finish(chain(machine, START, self.0))
        }
    }
    with_crc32(Serial(data)).expect(LACKING)
}

/// [`serial`], and a copy from the register of each unit.
pub(super) fn serial_copy(crc: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    struct Copy<'a>(u32, &'a mut [u8], &'a [u8]);
    impl Program<Crc32> for Copy<'_> {
        type Output = u32;

        #[inline(always)]
        fn run(self, machine: Crc32) -> u32 {
            let Self(crc, dst, src) = self;
            let (words, tail) = src.as_chunks::<8>();
            let (to, to_tail) = dst.as_chunks_mut::<8>();
            let mut register = u64::from(!crc);
            for (to, from) in to.iter_mut().zip(words) {
                let word = opaque_word(u64::from_le_bytes(*from));
                *to = word.to_le_bytes();
                register = machine.word64(register, word);
            }
            for (to, from) in to_tail.iter_mut().zip(tail) {
                let byte = opaque_word(u64::from(*from)) as u8;
                *to = byte;
                register = machine.byte(register, byte);
            }
            !(register as u32)
        }
    }
    with_crc32(Copy(crc, dst, src)).expect(LACKING)
}

/// Section 4.4.7: three chains, joined by carry-less products.
pub(super) fn joined_by_product(data: &[u8]) -> u64 {
    struct ByProduct<'a>(&'a [u8]);
    impl Program<Crc32AndProduct> for ByProduct<'_> {
        type Output = u64;

        #[inline(always)]
        fn run(self, machine: Crc32AndProduct) -> u64 {
            let crc32 = machine.crc32();
            let (head, mut rest) = to_multiple_of_8(self.0);
            let mut register = chain(crc32, START, head);
            while rest.len() >= MIN_LANES_BYTES {
                let words = (rest.len() / 24).min(MAX_LANE_WORDS);
                let (block, after) = rest.split_at(24 * words);
                let [a, b, c] = lanes(crc32, register, block);
                let joined = machine.product(a, u64::from(SHIFTS[2 * words]))
                    ^ machine.product(b, u64::from(SHIFTS[words]));
                register = crc32.word64(0, joined) ^ c;
                rest = after;
            }
            finish(chain(crc32, register, rest))
        }
    }
    with_crc32_and_product(ByProduct(data)).expect(LACKING)
}

/// Section 4.4.8: three chains, joined by tables.
pub(super) fn joined_by_table(data: &[u8]) -> u64 {
    struct ByTable<'a>(&'a [u8]);
    impl Program<Crc32> for ByTable<'_> {
        type Output = u64;

        #[inline(always)]
        fn run(self, machine: Crc32) -> u64 {
            let (head, mut rest) = to_multiple_of_8(self.0);
            let mut register = chain(machine, START, head);
            for (lane_bytes, past_lane) in [(LONG_BYTES, &PAST_LONG), (SHORT_BYTES, &PAST_SHORT)] {
                while rest.len() >= 3 * lane_bytes {
                    let (block, after) = rest.split_at(3 * lane_bytes);
                    let [a, b, c] = lanes(machine, register, block);
                    register = shift(past_lane, shift(past_lane, a) ^ b) ^ c;
                    rest = after;
                }
            }
            finish(chain(machine, register, rest))
        }
    }
    with_crc32(ByTable(data)).expect(LACKING)
}

const START: u64 = u32::MAX as u64;

fn finish(register: u64) -> u64 {
    u64::from(!(register as u32))
}

/// Shorter runs use one chain.
const MIN_LANES_BYTES: usize = 200;
const MAX_LANE_WORDS: usize = 128;

/// `SHIFTS[w]` is x^(64w - 33): the product with it, reduced by the CRC32 instruction, moves a register past `w` words.
/// Entry 0 is never used.
static SHIFTS: [u32; 2 * MAX_LANE_WORDS + 1] = {
    let mut t = [0; 2 * MAX_LANE_WORDS + 1];
    let (mut power, step) = (unstable::x_pow(64 - 33), unstable::x_pow(64));
    let mut w = 1;
    while w < t.len() {
        t[w] = power;
        power = unstable::mul(power, step);
        w += 1;
    }
    t
};

const LONG_BYTES: usize = 8192;
const SHORT_BYTES: usize = 256;

static PAST_LONG: [[u32; 256]; 4] = past(LONG_BYTES);
static PAST_SHORT: [[u32; 256]; 4] = past(SHORT_BYTES);

/// `past(n)[k][b]` is what byte `k` of a register, with the value `b`, becomes after `n` zero bytes.
const fn past(bytes: usize) -> [[u32; 256]; 4] {
    let power = unstable::x_pow(8 * bytes as u64);
    let mut t = [[0; 256]; 4];
    let mut k = 0;
    while k < 4 {
        let mut b = 1_usize;
        while b < 256 {
            // The table is linear, so only a byte with one bit set costs a multiplication.
            let lowest = b & b.wrapping_neg();
            t[k][b] = match b ^ lowest {
                0 => unstable::mul((b as u32) << (8 * k), power),
                others => t[k][others] ^ t[k][lowest],
            };
            b += 1;
        }
        k += 1;
    }
    t
}

fn shift(past: &[[u32; 256]; 4], register: u64) -> u64 {
    let [a, b, c, d] = (register as u32).to_le_bytes().map(usize::from);
    u64::from(past[0][a] ^ past[1][b] ^ past[2][c] ^ past[3][d])
}

/// Splits off the bytes before the first address that is a multiple of eight.
fn to_multiple_of_8(data: &[u8]) -> (&[u8], &[u8]) {
    data.split_at(data.as_ptr().align_offset(8).min(data.len()))
}

/// One chain: words of eight bytes, then one of four, then bytes.
#[inline(always)]
fn chain(machine: Crc32, register: u64, data: &[u8]) -> u64 {
    let (words, mut tail) = data.as_chunks::<8>();
    let mut register = register;
    for word in words {
        register = machine.word64(register, u64::from_le_bytes(*word));
    }
    if let Some((word, after)) = tail.split_first_chunk::<4>() {
        register = machine.word32(register, u32::from_le_bytes(*word));
        tail = after;
    }
    for &byte in tail {
        register = machine.byte(register, byte);
    }
    register
}

/// Three chains side by side over the thirds of `block`, whose length is a multiple of 24; the first continues
/// `register`, the others start from zero.
#[inline(always)]
fn lanes(machine: Crc32, register: u64, block: &[u8]) -> [u64; 3] {
    let words = block.as_chunks::<8>().0;
    let (first, others) = words.split_at(words.len() / 3);
    let (second, third) = others.split_at(first.len());
    let [mut a, mut b, mut c] = [register, 0, 0];
    for ((x, y), z) in first.iter().zip(second).zip(third) {
        a = machine.word64(a, u64::from_le_bytes(*x));
        b = machine.word64(b, u64::from_le_bytes(*y));
        c = machine.word64(c, u64::from_le_bytes(*z));
    }
    [a, b, c]
}
