//! The result: the source of all tables and charts, and what `--json` prints.
//!
//! Within one [`SCHEMA`] the names and meanings of fields do not change; fields may be added.

use serde::Serialize;

use super::caches::Regime;
use super::marks::Part;
use super::outbound::Sent;
use super::sandbox::{Shape, Way};
use super::threads::Together;
use super::turns::{Row, SEGMENT_BYTES, Subject};
use crate::clock::Frequency;
use crate::source::Origin;
use harness::machine::Machine;
use harness::noise::Noise;
use harness::statistics::{Summary, median};

/// Version of the JSON format.
pub(super) const SCHEMA: u32 = 1;

/// One CRC.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ContenderFacts {
    pub name: &'static str,
    pub title: &'static str,
    pub origin: Origin,
    pub in_use: bool,
}

/// What one PDU costs in one setting.
#[derive(Debug, Serialize)]
pub(crate) struct Measurement {
    pub way: Way,
    pub contender: &'static str,
    pub shape: Shape,
    pub regime: Regime,
    /// Digests were negotiated.
    pub digests: bool,
    /// Digests were computed: if they were negotiated and this is false, a stub with the same control flow took those received for right.
    pub crc: bool,
    /// Data was copied to the SCSI buffer.
    pub copy: bool,
    /// Cycles of a PDU; absent where the parts were marked.
    pub cycles: Option<Summary>,
    /// Cycles of its parts by marks in the path: medians. Absent where the whole was taken.
    pub parts: Option<Split>,
}

/// The parts of the work on one PDU, cycles.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Split {
    pub protocol: f64,
    pub crc: f64,
    pub copy: f64,
    pub copy_and_crc: f64,
    /// From the segments to a receive buffer: what `recv` does.
    pub receive: f64,
    pub framing_and_crc: f64,
}

impl Split {
    /// All of it.
    pub(crate) fn sum(&self) -> f64 {
        self.protocol + self.crc + self.copy + self.copy_and_crc + self.receive + self.framing_and_crc
    }
}

/// What one processor could receive, and what that is projected from.
#[derive(Debug, Serialize)]
pub(crate) struct Figure17 {
    /// What TCP costs the receiver on the loopback without the copy, cycles per byte; absent where there is no loopback.
    pub tcp_cycles_per_byte: Option<f64>,
    /// What 10 Gbit/s Ethernet carries of the data of PDUs of 8 KiB, 10^6 bytes per second.
    pub ten_gigabit_mb_per_s: f64,
    pub projections: Vec<Projection>,
}

/// What one processor could receive, as the paper projects it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Projection {
    pub way: Way,
    pub contender: &'static str,
    pub pdu_bytes: usize,
    /// 10^6 bytes per second.
    pub mb_per_s: f64,
}

/// How it was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    pub rounds: u32,
    /// What is read to empty the caches, bytes.
    pub purged_bytes: usize,
}

/// The whole result.
#[derive(Debug, Serialize)]
pub struct Report {
    pub(crate) schema: u32,
    pub(crate) benchmark: &'static str,
    pub(crate) machine: Machine,
    /// The CRC32C kernel in use.
    pub(crate) kernel: &'static str,
    pub(crate) frequency: Frequency,
    pub(crate) noise: Noise,
    pub(crate) settings: Settings,
    #[serde(flatten)]
    pub(crate) figure_17: Figure17,
    pub(crate) contenders: Vec<ContenderFacts>,
    /// Data-Out, warm: eight PDUs of 8 KiB in a command.
    pub(crate) outbound: Vec<Sent>,
    /// Several threads at the same time, each with a session of its own.
    pub(crate) threads: Vec<Together>,
    pub(crate) measurements: Vec<Measurement>,
}

/// A question for the cycles of one PDU: as in the paper's sandbox, unless it is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub way: Way,
    pub contender: &'static str,
    pub regime: Regime,
    pub connections: u16,
    pub pdus: usize,
    pub pdu_bytes: usize,
    pub segment_bytes: usize,
    pub markers: Option<usize>,
    pub in_order: bool,
    pub digests: bool,
    pub crc: bool,
    pub copy: bool,
}

impl Query {
    /// One command of one PDU with everything, in Ethernet segments, the caches cold.
    pub(crate) fn new(way: Way, contender: &'static str, pdu_bytes: usize) -> Self {
        Self {
            way,
            contender,
            regime: Regime::Cold,
            connections: 1,
            pdus: 1,
            pdu_bytes,
            segment_bytes: SEGMENT_BYTES[0],
            markers: None,
            in_order: true,
            digests: true,
            crc: true,
            copy: true,
        }
    }

    fn matches(&self, m: &Measurement) -> bool {
        let Shape { connections, pdus, pdu_bytes, segment_bytes, in_order, markers, .. } = m.shape;
        (self.way, self.contender, self.regime) == (m.way, m.contender, m.regime)
            && (self.connections, self.pdus, self.in_order) == (connections, pdus, in_order)
            && (self.pdu_bytes, self.segment_bytes, self.markers) == (pdu_bytes, segment_bytes, markers)
            && (self.digests, self.crc, self.copy) == (m.digests, m.crc, m.copy)
    }
}

impl Report {
    /// Cycles of a PDU: the median.
    pub(crate) fn cycles(&self, query: Query) -> Option<f64> {
        self.measurements
            .iter()
            .filter(|m| query.matches(m))
            .find_map(|m| m.cycles)
            .map(|summary| summary.median)
    }

    /// The parts of a PDU, by marks in its path.
    pub(crate) fn marked(&self, query: Query) -> Option<Split> {
        self.measurements.iter().filter(|m| query.matches(m)).find_map(|m| m.parts)
    }

    /// The parts of a PDU that is received layered, by leaving one after the other out.
    pub(crate) fn by_difference(&self, query: Query) -> Option<Split> {
        // Without the passes it does not matter which CRC is left out: it was measured for the kernel in use.
        let stub = Query { contender: self.in_use(), crc: false, ..query };
        let (whole, without_crc) = (self.cycles(query)?, self.cycles(stub)?);
        let protocol = self.cycles(Query { copy: false, ..stub })?;
        Some(Split { protocol, copy: without_crc - protocol, crc: whole - without_crc, ..Split::default() })
    }

    /// The name of the kernel in use.
    pub(crate) fn in_use(&self) -> &'static str {
        self.contenders
            .iter()
            .find(|contender| contender.in_use)
            .map_or(self.kernel, |contender| contender.name)
    }
}

/// The result of a row.
pub(super) fn measurement(row: &Row, frequency: &Frequency) -> Measurement {
    let Subject { way, contender, shape, regime, digests, crc, copy, marked } = row.subject;
    let (per_tick, empty) = (frequency.cycles_per_tick(), frequency.empty_sample_cycles);
    let cycles: Vec<f64> = row.whole.iter().map(|ticks| ticks * per_tick - empty).collect();
    let part = |part: Part| {
        let n = part as usize;
        (median(&row.parts[n]) * per_tick - row.readings[n] * empty).max(0.0)
    };
    let parts = || Split {
        protocol: part(Part::Protocol),
        crc: part(Part::Crc),
        copy: part(Part::Copy),
        copy_and_crc: part(Part::CopyAndCrc),
        receive: part(Part::Receive),
        framing_and_crc: part(Part::FramingAndCrc),
    };
    Measurement {
        way,
        contender,
        shape,
        regime,
        digests,
        crc,
        copy,
        cycles: (!marked).then(|| Summary::of(&cycles)),
        parts: marked.then(parts),
    }
}
