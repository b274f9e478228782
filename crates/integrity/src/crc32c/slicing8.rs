//! Slicing-by-8, braided, in plain code: the kernel of every machine without an instruction for CRC32C.
//!
//! Eight tables of 256 entries take eight bytes per step (Kounavis and Berry). A step needs the register of the
//! previous step, so a single chain spends most of its time waiting for the first-level cache. Here four chains take
//! turns, as in the braids of Kadatch and Jenkins: chain `j` takes words `j`, `j + 4`, `j + 8`..., with tables that
//! move a register past all four words at once.
//!
//! ```text
//! | w0 | w1 | w2 | w3 | w4 | w5 | w6 | w7 | ... | last four words |
//!   c0   c1   c2   c3   c0   c1   c2   c3         every word meets its chain and the register before it
//! ```
//!
//! The last block joins the chains at the cost of four ordinary steps, without multiplication. The run is read in
//! order, which lets the copy be interleaved with it (Joglekar, Kounavis and Berry 2005, section 3.3).
//!
//! Invariant: a copy digests the words that it stores; each is loaded once.

use crate::copy::pass::pin;
use crate::gf2;

/// Chains that take turns. Four was the fastest of two to five; see docs/integrity.md.
const CHAINS: usize = 4;
const BLOCK_BYTES: usize = 8 * CHAINS;

/// `TABLES[k][b]` is the register after byte `b` and `k` zero bytes, for one chain.
static TABLES: [[u32; 256]; 8] = tables(0);
/// The same, after the words of the other chains as well.
static BRAIDED: [[u32; 256]; 8] = tables(BLOCK_BYTES - 8);

const fn tables(zero_bytes: usize) -> [[u32; 256]; 8] {
    let mut t = [[0; 256]; 8];
    let mut k = 0;
    while k < 8 {
        let power = gf2::x_pow(8 * (zero_bytes + k + 1) as u64);
        let mut b = 1_usize;
        while b < 256 {
            // The table is linear, so only a byte with one bit set costs a multiplication.
            let lowest = b & b.wrapping_neg();
            t[k][b] = match b ^ lowest {
                0 => gf2::mul(b as u32, power),
                others => t[k][others] ^ t[k][lowest],
            };
            b += 1;
        }
        k += 1;
    }
    t
}

/// The register after eight bytes; the old register is already mixed into the first four of them. Those are looked up
/// last and joined first, so the others need not wait for the register.
#[inline(always)]
fn step(t: &[[u32; 256]; 8], word: u64) -> u32 {
    let entry = |row: usize, shift: u32| t[row][usize::from((word >> shift) as u8)];
    let late = (entry(3, 32) ^ entry(2, 40)) ^ (entry(1, 48) ^ entry(0, 56));
    late ^ ((entry(7, 0) ^ entry(6, 8)) ^ (entry(5, 16) ^ entry(4, 24)))
}

#[inline(always)]
fn byte_step(register: u32, byte: u8) -> u32 {
    (register >> 8) ^ TABLES[0][usize::from(register as u8 ^ byte)]
}

/// Each chain takes its word of a block other than the last.
#[inline(always)]
fn braid(chains: &mut [u32; CHAINS], words: [u64; CHAINS]) {
    for (chain, word) in chains.iter_mut().zip(words) {
        *chain = step(&BRAIDED, word ^ u64::from(*chain));
    }
}

/// The last block, in which the chains become one register.
#[inline(always)]
fn join(chains: [u32; CHAINS], words: [u64; CHAINS]) -> u32 {
    chains
        .into_iter()
        .zip(words)
        .fold(0, |register, (chain, word)| step(&TABLES, word ^ u64::from(chain) ^ u64::from(register)))
}

#[inline(always)]
fn words(block: &[u8; BLOCK_BYTES]) -> [u64; CHAINS] {
    let mut words = [0; CHAINS];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

#[inline(always)]
fn copy_word(to: &mut [u8; 8], from: &[u8; 8]) -> u64 {
    let word = pin(u64::from_ne_bytes(*from));
    *to = word.to_ne_bytes();
    u64::from_le(word)
}

#[inline(always)]
fn copy_words(to: &mut [u8; BLOCK_BYTES], from: &[u8; BLOCK_BYTES]) -> [u64; CHAINS] {
    let mut words = [0; CHAINS];
    for ((word, to), from) in words.iter_mut().zip(to.as_chunks_mut().0).zip(from.as_chunks().0) {
        *word = copy_word(to, from);
    }
    words
}

/// Continues `crc` (finished form) over `data`.
pub(crate) fn append(crc: u32, data: &[u8]) -> u32 {
    let mut register = !crc;
    let (blocks, rest) = data.as_chunks();
    if let Some((last, blocks)) = blocks.split_last() {
        let mut chains = [register, 0, 0, 0];
        for block in blocks {
            braid(&mut chains, words(block));
        }
        register = join(chains, words(last));
    }
    in_one_chain(register, rest)
}

/// The CRC after `rest`, in one chain, from the register before it.
#[inline(always)]
fn in_one_chain(mut register: u32, rest: &[u8]) -> u32 {
    let (words, bytes) = rest.as_chunks();
    for word in words {
        register = step(&TABLES, u64::from_le_bytes(*word) ^ u64::from(register));
    }
    !bytes.iter().fold(register, |register, &byte| byte_step(register, byte))
}

/// Continues `crc` (finished form) over `data` in one chain, as Kounavis and Berry have it.
pub(crate) fn append_serial(crc: u32, data: &[u8]) -> u32 {
    in_one_chain(!crc, data)
}

/// Continues `crc` (finished form) over `data` byte by byte, with one table (Sarwate 1988).
pub(crate) fn append_bytes(crc: u32, data: &[u8]) -> u32 {
    !data.iter().fold(!crc, |register, &byte| byte_step(register, byte))
}

/// Copies `src` to `dst`, which has the same length, and continues `crc` (finished form) over the bytes copied.
pub(crate) fn copy(crc: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    let mut register = !crc;
    let (to_blocks, to_rest) = dst.as_chunks_mut();
    let (blocks, rest) = src.as_chunks();
    if let (Some((to_last, to_blocks)), Some((last, blocks))) =
        (to_blocks.split_last_mut(), blocks.split_last())
    {
        let mut chains = [register, 0, 0, 0];
        for (to, block) in to_blocks.iter_mut().zip(blocks) {
            braid(&mut chains, copy_words(to, block));
        }
        register = join(chains, copy_words(to_last, last));
    }
    let (to_words, to_bytes) = to_rest.as_chunks_mut();
    let (words, bytes) = rest.as_chunks();
    for (to, word) in to_words.iter_mut().zip(words) {
        register = step(&TABLES, copy_word(to, word) ^ u64::from(register));
    }
    for (to, byte) in to_bytes.iter_mut().zip(bytes) {
        *to = pin(u64::from(*byte)) as u8;
        register = byte_step(register, *to);
    }
    !register
}
