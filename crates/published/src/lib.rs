//! The checksums of two papers, each as its paper describes it, for comparison and not for use:
//!
//! - Sahu, *Hardware Instruction Based CRC32C, a Better Alternative to the TCP One's Complement Checksum* (2019),
//!   chapter 4: thirteen implementations;
//! - Petersen, *A Note on Guard Tag Calculation Algorithms* (2007), section 1: five;
//!
//! and [`read_only`], the limit of all of them. If a modern compiler turns a paper's program into something else, the list has both,
//! distinguished by [`Build`].
//!
//! Invariants:
//! - Everything that a paper's measurement depends on is as in the paper: bits or bytes per step, tables, how a run is cut into lanes.
//! - Every implementation takes every length and every alignment; none allocates.
//! - Values are numbers that do not depend on the byte order of the machine.
//!
//! No product uses this crate: its checksums are in the crate `integrity`, which lends the machine's instructions
//! ([`integrity::unstable`]).
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod crc32c_instruction;
mod crc32c_table;
mod flush;
mod interleaved;
mod limit;
mod ones_complement;
mod sums;
mod t10;

pub use flush::flush_tables;
use integrity::unstable::opaque as opaque_word;
pub use interleaved::{Interleaved, interleaved};
pub use limit::read_only;

/// Hides the origin of `value` from the compiler.
#[inline(always)]
fn opaque(value: u32) -> u32 {
    opaque_word(u64::from(value)) as u32
}

/// The checksum that an implementation computes. Implementations of one family return equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// CRC32C in finished form, 32 bits: equal to [`integrity::crc32c`].
    Crc32c,
    /// Adler-32 (RFC 1950), 32 bits.
    Adler32,
    /// Fletcher's checksum over 16-bit words, low byte first, started at zero; 32 bits.
    Fletcher32,
    /// The Internet checksum (RFC 1071) as in a packet, high byte first; 16 bits.
    OnesComplement,
    /// The exclusive or of all bytes, 8 bits.
    Xor,
    /// The guard of T10 protection information (SBC-3, 4.22): CRC16-T10DIF, 16 bits.
    T10,
}

/// The paper that an implementation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Paper {
    /// Sahu 2019, chapter 4.
    Thesis2019,
    /// Petersen 2007, section 1.
    Note2007,
}

/// What the compiler may turn an implementation into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Build {
    /// The paper's program: step by step as the paper says, vectorised only where the paper's compiler did so.
    Paper,
    /// The same source with all optimisations of a compiler of 2026: a table instead of single bits.
    Compiled,
    /// One word after the other, never vectorised: for the paper's programs at GCC's -O1.
    Scalar,
}

/// What an implementation needs beyond the baseline of its architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Needs {
    /// Nothing: it runs everywhere.
    Nothing,
    /// An instruction for CRC32C: SSE4.2 on x86-64, the CRC extension on aarch64.
    CrcInstruction,
    /// That, and a carry-less multiplication: PCLMULQDQ on x86-64, PMULL on aarch64.
    CrcAndCarrylessProduct,
}

impl Needs {
    /// Whether this machine meets the requirement.
    #[inline]
    pub fn met(self) -> bool {
        match self {
            Self::Nothing => true,
            Self::CrcInstruction => integrity::unstable::has_crc32(),
            Self::CrcAndCarrylessProduct => integrity::unstable::has_crc32_and_product(),
        }
    }
}

/// One implementation of one checksum, as its paper measured it.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// A short, stable name for command lines and tables: `crc32c-bitwise`.
    pub name: &'static str,
    /// Its name in the paper's tables.
    pub title: &'static str,
    /// Paper and section.
    pub source: &'static str,
    /// Which checksum it is.
    pub family: Family,
    /// The paper that measured it.
    pub paper: Paper,
    /// What the compiler may make of it.
    pub build: Build,
    /// The [name](Self::name) of the paper's algorithm that this is a build of: its own name for [`Build::Paper`].
    pub build_of: &'static str,
    /// The instructions that it needs.
    pub needs: Needs,
    run: fn(&[u8]) -> u64,
}

impl Algorithm {
    /// Whether this machine has the instructions that it needs.
    #[inline]
    pub fn available(&self) -> bool {
        self.needs.met()
    }

    /// The checksum of `data`, in the low bits; the [`Family`] says how many.
    ///
    /// # Panics
    /// If the implementation is not [available](Self::available).
    ///
    /// ```
    /// let adler = published::find("adler-32").unwrap();
    /// assert_eq!(adler.checksum(b"Wikipedia"), 0x11e6_0398);
    /// ```
    #[inline]
    pub fn checksum(&self, data: &[u8]) -> u64 {
        (self.run)(data)
    }
}

const fn thesis(
    name: &'static str,
    title: &'static str,
    source: &'static str,
    family: Family,
    needs: Needs,
    run: fn(&[u8]) -> u64,
) -> Algorithm {
    let (paper, build) = (Paper::Thesis2019, Build::Paper);
    Algorithm { name, title, source, family, paper, build, build_of: name, needs, run }
}

const fn note(name: &'static str, title: &'static str, family: Family, run: fn(&[u8]) -> u64) -> Algorithm {
    let (source, paper, needs) = ("Petersen 2007, section 1", Paper::Note2007, Needs::Nothing);
    Algorithm { name, title, source, family, paper, build: Build::Paper, build_of: name, needs, run }
}

impl Algorithm {
    /// Another build of `self`, which needs no special instructions.
    const fn built(
        self,
        name: &'static str,
        title: &'static str,
        build: Build,
        run: fn(&[u8]) -> u64,
    ) -> Self {
        Self { name, title, build, run, ..self }
    }
}

const BITWISE: Algorithm = thesis(
    "crc32c-bitwise",
    "CRC32C bit-wise",
    "Sahu 2019, 4.4.1",
    Family::Crc32c,
    Needs::Nothing,
    crc32c_table::bitwise,
);

/// The TCP checksum with three word widths.
const SUMS: [Algorithm; 3] = {
    use Family::OnesComplement;
    use Needs::Nothing;
    [
        thesis(
            "ones-complement-16",
            "one's complement, 16-bit word",
            "Sahu 2019, 4.1.1",
            OnesComplement,
            Nothing,
            ones_complement::words16,
        ),
        thesis(
            "ones-complement-32",
            "one's complement, 32-bit word",
            "Sahu 2019, 4.1.2",
            OnesComplement,
            Nothing,
            ones_complement::words32,
        ),
        thesis(
            "ones-complement-64",
            "one's complement, 64-bit word",
            "Sahu 2019, 4.1.3",
            OnesComplement,
            Nothing,
            ones_complement::words64,
        ),
    ]
};

const T10_REFERENCE: Algorithm = note("t10-reference", "T10 Ref.", Family::T10, t10::reference);

/// In the order of the papers' tables (Table 6.1 of the thesis, Table 1 of the note), then other builds.
static ALL: [Algorithm; 23] = {
    use Build::{Compiled, Scalar};
    use Family::{Adler32, Crc32c, Fletcher32, OnesComplement, T10, Xor};
    use Needs::{CrcAndCarrylessProduct, CrcInstruction, Nothing};
    [
        BITWISE,
        thesis(
            "crc32c-nibble",
            "CRC32C nibble-wise",
            "Sahu 2019, 4.4.2",
            Crc32c,
            Nothing,
            crc32c_table::nibble,
        ),
        thesis("crc32c-byte", "CRC32C byte-wise", "Sahu 2019, 4.4.3", Crc32c, Nothing, crc32c_table::byte),
        thesis(
            "crc32c-slicing-4",
            "CRC32C slicing-by-4",
            "Sahu 2019, 4.4.4",
            Crc32c,
            Nothing,
            crc32c_table::slicing4,
        ),
        thesis(
            "crc32c-slicing-8",
            "CRC32C slicing-by-8",
            "Sahu 2019, 4.4.5",
            Crc32c,
            Nothing,
            crc32c_table::slicing8,
        ),
        thesis(
            "crc32c-instruction",
            "CRC32C, CRC32 instruction",
            "Sahu 2019, 4.4.6",
            Crc32c,
            CrcInstruction,
            crc32c_instruction::serial,
        ),
        thesis(
            "crc32c-pclmulqdq",
            "CRC32C, CRC32 + PCLMULQDQ recombination",
            "Sahu 2019, 4.4.7",
            Crc32c,
            CrcAndCarrylessProduct,
            crc32c_instruction::joined_by_product,
        ),
        thesis(
            "crc32c-table",
            "CRC32C, CRC32 + table recombination",
            "Sahu 2019, 4.4.8",
            Crc32c,
            CrcInstruction,
            crc32c_instruction::joined_by_table,
        ),
        thesis("adler-32", "Adler-32", "Sahu 2019, 4.3", Adler32, Nothing, sums::adler32),
        thesis("fletcher-32", "Fletcher-32", "Sahu 2019, 4.2", Fletcher32, Nothing, sums::fletcher32),
        SUMS[0],
        SUMS[1],
        SUMS[2],
        note("xor", "XOR", Xor, sums::xor),
        note("tcp-reference", "TCP Ref.", OnesComplement, ones_complement::words16_into_long),
        note("tcp-optimised", "TCP Opt.", OnesComplement, ones_complement::words32),
        T10_REFERENCE,
        note("t10-table", "T10 Opt.", T10, t10::table),
        BITWISE.built(
            "crc32c-bitwise-compiled",
            "CRC32C bit-wise, as a compiler of 2026 has it",
            Compiled,
            crc32c_table::bitwise_compiled,
        ),
        SUMS[0].built(
            "ones-complement-16-scalar",
            "one's complement, 16-bit word, no vectors",
            Scalar,
            ones_complement::words16_scalar,
        ),
        SUMS[1].built(
            "ones-complement-32-scalar",
            "one's complement, 32-bit word, no vectors",
            Scalar,
            ones_complement::words32_scalar,
        ),
        SUMS[2].built(
            "ones-complement-64-scalar",
            "one's complement, 64-bit word, no vectors",
            Scalar,
            ones_complement::words64_scalar,
        ),
        T10_REFERENCE.built(
            "t10-reference-compiled",
            "T10 Ref., as a compiler of 2026 has it",
            Compiled,
            t10::reference_compiled,
        ),
    ]
};

/// Every implementation, whether or not this machine can run it: in the order of the papers' tables, then other builds of them.
pub fn all() -> &'static [Algorithm] {
    &ALL
}

/// The implementation with that [name](Algorithm::name).
pub fn find(name: &str) -> Option<&'static Algorithm> {
    ALL.iter().find(|algorithm| algorithm.name == name)
}
