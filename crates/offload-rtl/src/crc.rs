//! The CRC units.

use crate::ffi::{Model, model};
use crate::packed::words;

/// Inputs of `crc64` in one cycle. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct Crc64In {
    data: u64,
    polynomial: u32,
    init: u32,
    xor_out: u32,
    rst: u8,
    set_poly: u8,
    valid: u8,
    last: u8,
    keep: u8,
}

/// Inputs of `crc_wide` in one cycle, of the widest one. The same as in the shim.
#[repr(C)]
struct CrcWideIn {
    data: [u32; 64],
    keep: u64,
    init: u32,
    xor_out: u32,
    rst: u8,
    valid: u8,
    last: u8,
}

/// Outputs of either. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct CrcOut {
    digest: u32,
    ready: u8,
    digest_valid: u8,
}

model!(CRC64, Crc64In, CrcOut, crc64_new, crc64_free, crc64_cycle);
model!(CRC64_OF_5, Crc64In, CrcOut, crc64_of_5_new, crc64_of_5_free, crc64_of_5_cycle);
model!(WIDE_CRC32C, CrcWideIn, CrcOut, crc_wide_crc32c_new, crc_wide_crc32c_free, crc_wide_crc32c_cycle);
model!(WIDE_CRC32, CrcWideIn, CrcOut, crc_wide_crc32_new, crc_wide_crc32_free, crc_wide_crc32_cycle);
model!(WIDE_KOOPMAN, CrcWideIn, CrcOut, crc_wide_koopman_new, crc_wide_koopman_free, crc_wide_koopman_cycle);
model!(WIDE_OF_4, CrcWideIn, CrcOut, crc_wide_of_4_new, crc_wide_of_4_free, crc_wide_of_4_cycle);
model!(WIDE_1024, CrcWideIn, CrcOut, crc_wide_1024_new, crc_wide_1024_free, crc_wide_1024_cycle);
model!(WIDE_2048, CrcWideIn, CrcOut, crc_wide_2048_new, crc_wide_2048_free, crc_wide_2048_cycle);

/// The polynomials that a wide unit is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polynomial {
    /// 1EDC6F41h, of RFC 7143.
    Crc32c,
    /// 04C11DB7h, of Ethernet.
    Crc32,
    /// 741B8CD7h, which Koopman writes BA0DC66Bh.
    Koopman,
}

impl Polynomial {
    /// Highest power first, without x^32.
    pub fn value(self) -> u32 {
        match self {
            Self::Crc32c => 0x1edc_6f41,
            Self::Crc32 => 0x04c1_1db7,
            Self::Koopman => 0x741b_8cd7,
        }
    }
}

/// What a unit said in one cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    /// Whether the beat was accepted; false without a beat.
    pub accepted: bool,
    /// The digest of the oldest message that had none yet.
    pub digest: Option<u32>,
}

impl Cycle {
    fn new(offered: bool, out: &CrcOut) -> Self {
        Self { accepted: offered && out.ready != 0, digest: (out.digest_valid != 0).then_some(out.digest) }
    }
}

/// Eight bytes of a message.
#[derive(Debug, Clone, Copy)]
pub struct Beat64 {
    /// The bytes; the first goes first.
    pub data: [u8; 8],
    /// Bit i: byte i exists.
    pub keep: u8,
    /// Whether the message ends here.
    pub last: bool,
}

/// Bits of the address of a table of `crc64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableBits {
    /// For the RAM of an ECP5.
    Four,
    /// For that of UltraScale+.
    Five,
}

/// `crc64`: 64 bits in each cycle, any polynomial.
pub struct Crc64(Model<Crc64In, CrcOut>);

impl Crc64 {
    /// After power-up, with random contents from `seed`, and a reset. It accepts nothing before `set_polynomial`.
    pub fn new(tables: TableBits, seed: u16) -> Self {
        let functions = match tables {
            TableBits::Four => CRC64,
            TableBits::Five => CRC64_OF_5,
        };
        let mut model = Model::new(functions, seed);
        for _ in 0..2 {
            model.cycle(&Crc64In { rst: 1, ..Crc64In::default() });
        }
        Self(model)
    }

    /// Changes the polynomial (highest power first, without x^32, with an x^0 term), the register before the first byte, and what is
    /// combined with it after the last. Returns how many cycles pass until a beat is accepted.
    pub fn set_polynomial(&mut self, polynomial: u32, init: u32, xor_out: u32) -> u32 {
        self.0.cycle(&Crc64In { set_poly: 1, polynomial, init, xor_out, ..Crc64In::default() });
        let idle = Crc64In::default();
        1 + (0..1000).take_while(|_| self.0.cycle(&idle).ready == 0).count() as u32
    }

    /// One cycle in which `beat` is offered.
    pub fn cycle(&mut self, beat: Option<Beat64>) -> Cycle {
        let inputs = beat.map_or_else(Crc64In::default, |beat| Crc64In {
            data: u64::from_le_bytes(beat.data),
            keep: beat.keep,
            last: beat.last.into(),
            valid: 1,
            ..Crc64In::default()
        });
        Cycle::new(beat.is_some(), &self.0.cycle(&inputs))
    }
}

/// A beat of a wide unit.
#[derive(Debug, Clone, Copy)]
pub struct BeatWide<'a> {
    /// As many bytes as the unit takes in a cycle; the first goes first.
    pub data: &'a [u8],
    /// Bit i: bytes 4 i to 4 i + 3 exist. Bits beyond the unit's width mean nothing.
    pub keep: u64,
    /// Whether the message ends here.
    pub last: bool,
}

/// A build of `crc_wide`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WideBuild {
    /// 512 bits, sums of eight: the engine's unit.
    Engine(Polynomial),
    /// 512 bits, sums of four, CRC32C.
    Bits512,
    /// 1024 bits, sums of four, CRC32C.
    Bits1024,
    /// 2048 bits, sums of four, CRC32C.
    Bits2048,
}

impl WideBuild {
    /// Bytes of a beat.
    pub fn bytes(self) -> usize {
        match self {
            Self::Engine(_) | Self::Bits512 => 64,
            Self::Bits1024 => 128,
            Self::Bits2048 => 256,
        }
    }
}

/// `crc_wide`: 512 bits or more in each cycle, a polynomial that is built in.
pub struct CrcWide {
    model: Model<CrcWideIn, CrcOut>,
    build: WideBuild,
    init: u32,
    xor_out: u32,
}

impl CrcWide {
    /// After power-up, with random contents from `seed`, and a reset. `init` is the register before the first byte, `xor_out` is combined
    /// with it after the last.
    pub fn new(build: WideBuild, init: u32, xor_out: u32, seed: u16) -> Self {
        let functions = match build {
            WideBuild::Engine(Polynomial::Crc32c) => WIDE_CRC32C,
            WideBuild::Engine(Polynomial::Crc32) => WIDE_CRC32,
            WideBuild::Engine(Polynomial::Koopman) => WIDE_KOOPMAN,
            WideBuild::Bits512 => WIDE_OF_4,
            WideBuild::Bits1024 => WIDE_1024,
            WideBuild::Bits2048 => WIDE_2048,
        };
        let mut unit = Self { model: Model::new(functions, seed), build, init, xor_out };
        for _ in 0..2 {
            let reset = CrcWideIn { rst: 1, ..unit.idle() };
            unit.model.cycle(&reset);
        }
        unit
    }

    /// How it was built.
    pub fn build(&self) -> WideBuild {
        self.build
    }

    /// One cycle in which `beat` is offered; a beat is always accepted.
    ///
    /// # Panics
    /// If the beat does not have the unit's width.
    pub fn cycle(&mut self, beat: Option<BeatWide<'_>>) -> Cycle {
        let mut inputs = self.idle();
        if let Some(beat) = beat {
            assert_eq!(beat.data.len(), self.build.bytes(), "bytes of a beat");
            inputs.data = words(beat.data);
            inputs.keep = beat.keep;
            inputs.last = beat.last.into();
            inputs.valid = 1;
        }
        Cycle::new(beat.is_some(), &self.model.cycle(&inputs))
    }

    fn idle(&self) -> CrcWideIn {
        let (init, xor_out) = (self.init, self.xor_out);
        CrcWideIn { data: [0; 64], keep: 0, init, xor_out, rst: 0, valid: 0, last: 0 }
    }
}
