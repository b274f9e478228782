//! The packet controller of the receive module.

use crate::ffi::{Functions, Model, model};
use crate::packed::words;

/// Inputs of `rx_packet` in one cycle, for either width. The same as in the shim.
#[repr(C)]
#[derive(Clone, Default)]
struct RxPacketIn {
    data: [u32; 16],
    restart_position: u64,
    max_data: u32,
    count: u8,
    rst: u8,
    restart: u8,
    header_digest: u8,
    data_digest: u8,
    valid: u8,
    seg_ready: u8,
}

/// Outputs of `rx_packet`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct RxPacketOut {
    seg_data: [u32; 16],
    verdict_position: u64,
    /// Asserts that have failed so far.
    failed: u32,
    ready: u8,
    seg_valid: u8,
    seg_is_data: u8,
    seg_first: u8,
    seg_last: u8,
    seg_words: u8,
    verdict_valid: u8,
    verdict: u8,
    stopped: u8,
}

model!(RX64, RxPacketIn, RxPacketOut, rx_packet64_new, rx_packet64_free, rx_packet64_cycle);
model!(RX512, RxPacketIn, RxPacketOut, rx_packet512_new, rx_packet512_free, rx_packet512_cycle);
model!(CHECKED64, RxPacketIn, RxPacketOut, rx_checked64_new, rx_checked64_free, rx_checked64_cycle);
model!(CHECKED512, RxPacketIn, RxPacketOut, rx_checked512_new, rx_checked512_free, rx_checked512_cycle);

/// The width of a beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 8 bytes.
    Bits64,
    /// 64 bytes.
    Bits512,
}

impl Width {
    /// Bytes of a beat.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bits64 => 8,
            Self::Bits512 => 64,
        }
    }

    /// The largest data segment in either direction, in bytes.
    pub fn buffer_bytes(self) -> u32 {
        match self {
            Self::Bits64 => 4096,
            Self::Bits512 => 65536,
        }
    }
}

/// What login has settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxSettings {
    /// HeaderDigest=CRC32C.
    pub header_digest: bool,
    /// DataDigest=CRC32C.
    pub data_digest: bool,
    /// MaxRecvDataSegmentLength in bytes, below 2^24.
    pub max_data: u32,
}

/// What the controller says about a PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its digests match.
    Good,
    /// Its header digest does not: the connection stops.
    HeaderDigest,
    /// Its DataSegmentLength is above the bound: the connection stops.
    TooLong,
    /// Its data digest does not match.
    DataDigest,
}

/// A part of a header (BHS, AHS) or of a data segment with its padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Whether it is data.
    pub is_data: bool,
    /// It begins the header or the data.
    pub first: bool,
    /// It ends the header or the data.
    pub last: bool,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What the controller said in one cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RxCycle {
    /// Whether the beat was accepted; false without a beat.
    pub accepted: bool,
    /// What the parser gave out; not to be used before the verdict.
    pub segment: Option<Segment>,
    /// The verdict about the oldest PDU without one, and the position of its first byte in the stream.
    pub verdict: Option<(Verdict, u64)>,
    /// Nothing is received until a restart.
    pub stopped: bool,
    /// Asserts of the circuit that have failed since its reset.
    pub failed: u32,
}

/// `rx_packet` for one width, or `rx_checked`.
pub struct RxPacket {
    model: Model<RxPacketIn, RxPacketOut>,
    idle: RxPacketIn,
    width: Width,
    /// Asserts see random registers until the first reset is over.
    ignored: u32,
}

impl RxPacket {
    /// After power-up, with random contents from `seed`, and a reset. It receives nothing before `restart`.
    pub fn new(width: Width, seed: u16) -> Self {
        let functions = match width {
            Width::Bits64 => RX64,
            Width::Bits512 => RX512,
        };
        Self::reset(functions, width, seed)
    }

    /// The same with the Rx buffer behind it: 4 KiB at 64 bit, 64 KiB at 512 bit. A segment comes only when
    /// the verdict about its PDU is known, and `RxCycle::verdict` is there in the last cycle of a PDU. `max_data` is at most the buffer.
    pub fn with_buffer(width: Width, seed: u16) -> Self {
        let functions = match width {
            Width::Bits64 => CHECKED64,
            Width::Bits512 => CHECKED512,
        };
        Self::reset(functions, width, seed)
    }

    fn reset(functions: Functions<RxPacketIn, RxPacketOut>, width: Width, seed: u16) -> Self {
        let mut model = Model::new(functions, seed);
        let reset = RxPacketIn { rst: 1, ..RxPacketIn::default() };
        let ignored = (0..3).map(|_| model.cycle(&reset).failed).last().unwrap_or(0);
        Self { model, idle: RxPacketIn::default(), width, ignored }
    }

    /// A PDU begins with the next beat, at `position` of the stream. What was under way is dropped.
    pub fn restart(&mut self, settings: RxSettings, position: u64) {
        self.idle = RxPacketIn {
            header_digest: settings.header_digest.into(),
            data_digest: settings.data_digest.into(),
            max_data: settings.max_data,
            ..RxPacketIn::default()
        };
        let restart = RxPacketIn { restart: 1, restart_position: position, ..self.idle.clone() };
        self.model.cycle(&restart);
    }

    /// One cycle. `beat` is the next bytes of the stream, at least one and at most a beat, and `rubbish` fills the rest of the beat;
    /// `ready` says whether a segment can be taken.
    pub fn cycle(&mut self, beat: Option<&[u8]>, rubbish: u8, ready: bool) -> RxCycle {
        let mut inputs = RxPacketIn { seg_ready: ready.into(), ..self.idle.clone() };
        if let Some(bytes) = beat {
            let mut filled = [rubbish; 64];
            filled[..bytes.len()].copy_from_slice(bytes);
            inputs.data = words(&filled);
            inputs.count = bytes.len() as u8;
            inputs.valid = 1;
        }
        let out = self.model.cycle(&inputs);
        RxCycle {
            accepted: beat.is_some() && out.ready != 0,
            segment: (out.seg_valid != 0).then(|| segment(&out)),
            verdict: (out.verdict_valid != 0).then(|| (verdict(out.verdict), out.verdict_position)),
            stopped: out.stopped != 0,
            failed: out.failed - self.ignored,
        }
    }

    /// The width of a beat.
    pub fn width(&self) -> Width {
        self.width
    }
}

fn segment(out: &RxPacketOut) -> Segment {
    let words = &out.seg_data[..usize::from(out.seg_words)];
    Segment {
        is_data: out.seg_is_data != 0,
        first: out.seg_first != 0,
        last: out.seg_last != 0,
        bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
    }
}

fn verdict(code: u8) -> Verdict {
    match code {
        0 => Verdict::Good,
        1 => Verdict::HeaderDigest,
        2 => Verdict::TooLong,
        _ => Verdict::DataDigest,
    }
}
