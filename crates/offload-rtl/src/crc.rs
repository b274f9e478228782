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

/// Inputs of `crc_wide` in one cycle. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct CrcWideIn {
    data: [u32; 16],
    init: u32,
    xor_out: u32,
    keep: u16,
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

/// 64 bytes of a message.
#[derive(Debug, Clone, Copy)]
pub struct BeatWide {
    /// The bytes; the first goes first.
    pub data: [u8; 64],
    /// Bit i: bytes 4 i to 4 i + 3 exist.
    pub keep: u16,
    /// Whether the message ends here.
    pub last: bool,
}

/// `crc_wide`: 512 bits in each cycle, a polynomial that is built in.
pub struct CrcWide {
    model: Model<CrcWideIn, CrcOut>,
    init: u32,
    xor_out: u32,
}

impl CrcWide {
    /// After power-up, with random contents from `seed`, and a reset. `init` is the register before the first byte, `xor_out` is combined
    /// with it after the last.
    pub fn new(polynomial: Polynomial, init: u32, xor_out: u32, seed: u16) -> Self {
        let functions = match polynomial {
            Polynomial::Crc32c => WIDE_CRC32C,
            Polynomial::Crc32 => WIDE_CRC32,
            Polynomial::Koopman => WIDE_KOOPMAN,
        };
        let mut model = Model::new(functions, seed);
        for _ in 0..2 {
            model.cycle(&CrcWideIn { rst: 1, ..CrcWideIn::default() });
        }
        Self { model, init, xor_out }
    }

    /// One cycle in which `beat` is offered; a beat is always accepted.
    pub fn cycle(&mut self, beat: Option<BeatWide>) -> Cycle {
        let mut inputs = CrcWideIn { init: self.init, xor_out: self.xor_out, ..CrcWideIn::default() };
        if let Some(beat) = beat {
            inputs.data = words(&beat.data);
            inputs.keep = beat.keep;
            inputs.last = beat.last.into();
            inputs.valid = 1;
        }
        Cycle::new(beat.is_some(), &self.model.cycle(&inputs))
    }
}
