//! Marks in the path of a PDU: which part took how long.

use engine::cycles;

/// A part of the work on a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything but the passes over bytes.
    Protocol,
    /// Digests of header and data.
    Crc,
    /// From the segments, or from the receive buffer, to the SCSI buffer.
    Copy,
    /// Copy and CRC in one pass.
    CopyAndCrc,
    /// From the segments to the receive buffer: what `recv` does.
    Receive,
    /// The reader of PDUs, which verifies digests.
    FramingAndCrc,
}

impl Part {
    pub(super) const COUNT: usize = 6;
}

/// Takes the time of PDUs and of their parts.
pub(super) trait Marks {
    /// A PDU is about to be received.
    fn begin(&mut self);
    /// What was done since the last mark belongs to `part`.
    fn at(&mut self, part: Part);
    /// The PDU is done.
    fn end(&mut self);
}

/// No marks, and no time: for a profiler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unmarked;

impl Marks for Unmarked {
    fn begin(&mut self) {}
    fn at(&mut self, _: Part) {}
    fn end(&mut self) {}
}

/// The time of whole PDUs, without marks between.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Whole {
    began: u64,
    /// Ticks, and PDUs.
    pub ticks: u64,
    pub pdus: u64,
}

impl Marks for Whole {
    #[inline(always)]
    fn begin(&mut self) {
        self.began = cycles::now();
    }

    #[inline(always)]
    fn at(&mut self, _: Part) {}

    #[inline(always)]
    fn end(&mut self) {
        self.ticks += cycles::now().wrapping_sub(self.began);
        self.pdus += 1;
    }
}

/// The time of parts. The readings themselves are in the figures: [`Parts::readings`] says how many.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    last: u64,
    pub ticks: [u64; Part::COUNT],
    pub readings: [u64; Part::COUNT],
    pub pdus: u64,
}

impl Marks for Parts {
    #[inline(always)]
    fn begin(&mut self) {
        self.last = cycles::now();
    }

    #[inline(always)]
    fn at(&mut self, part: Part) {
        let now = cycles::now();
        self.ticks[part as usize] += now.wrapping_sub(self.last);
        self.readings[part as usize] += 1;
        self.last = now;
    }

    #[inline(always)]
    fn end(&mut self) {
        self.pdus += 1;
    }
}
