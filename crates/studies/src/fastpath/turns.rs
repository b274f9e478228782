//! Taking turns: in each round every row receives its batch once.

use harness::progress::ProgressBar;

use super::caches::{Purge, Regime};
use super::contenders::{Contender, SARWATE, SLICING_8};
use super::marks::{Part, Parts, Whole};
use super::sandbox::{Sandbox, Shape, Way, Work};
use crate::clock::Clock;
use harness::noise;

/// Sizes of single PDUs in the paper's Figures 11, 15 and 16, bytes.
pub(super) const PDU_BYTES: [usize; 5] = [512, 1024, 2048, 4096, 8192];
/// The paper's MaxRecvDataSegmentLength, bytes.
pub(super) const LARGE_PDU_BYTES: usize = 8192;
/// Data-In PDUs of a command in Figure 12: reads of 8 to 64 KiB.
pub(super) const PDUS: std::ops::RangeInclusive<usize> = 1..=8;
/// Payload of a TCP segment in an Ethernet frame, in a jumbo frame, and as the kernel joins them, bytes.
pub(super) const SEGMENT_BYTES: [usize; 3] = [1448, 8960, 65536];
/// Bytes of PDUs between two markers: the synthetic markers of the paper's sandbox.
pub(super) const MARKER_INTERVAL_BYTES: usize = 2048;
/// Commands outstanding where everything is warm: with their segments they fit into a second-level cache.
const WARM_COMMANDS: usize = 16;
/// The workload of the paper's Table 2.
pub(super) const TABLE_2: Shape = Shape {
    connections: 8,
    commands: 40,
    pdus: 4,
    pdu_bytes: LARGE_PDU_BYTES,
    segment_bytes: SEGMENT_BYTES[0],
    in_order: false,
    markers: None,
};

/// One measured case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub way: Way,
    /// [`Contender::name`].
    pub contender: &'static str,
    pub shape: Shape,
    pub regime: Regime,
    /// Digests are negotiated.
    pub digests: bool,
    /// See [`Work`].
    pub crc: bool,
    pub copy: bool,
    /// Marks in the path instead of the time of the whole.
    pub marked: bool,
}

impl Subject {
    /// Everything is done, and the whole is timed.
    fn new(way: Way, contender: &'static str, shape: Shape, regime: Regime) -> Self {
        Self { way, contender, shape, regime, digests: true, crc: true, copy: true, marked: false }
    }
}

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub rounds: u32,
    /// Commands per round where the caches are emptied before each.
    pub cold_commands: usize,
}

/// A subject and its samples.
pub(super) struct Row {
    pub subject: Subject,
    contender: Contender,
    sandbox: Sandbox,
    /// Ticks for a PDU, in each round.
    pub whole: Vec<f64>,
    /// The same of the parts, and readings of the counter in them.
    pub parts: [Vec<f64>; Part::COUNT],
    pub readings: [f64; Part::COUNT],
}

impl Plan {
    fn shape(&self, regime: Regime, pdus: usize, pdu_bytes: usize) -> Shape {
        let commands = if regime == Regime::Warm { WARM_COMMANDS } else { self.cold_commands };
        Shape {
            connections: 1,
            commands,
            pdus,
            pdu_bytes,
            segment_bytes: SEGMENT_BYTES[0],
            in_order: true,
            markers: None,
        }
    }

    /// Everything that the figures need.
    pub(super) fn subjects(&self, contenders: &[Contender]) -> Vec<Subject> {
        let in_use = contenders.last().map_or(SLICING_8, |contender| contender.name);
        let mut subjects = Vec::new();
        for regime in Regime::ALL {
            for pdu_bytes in PDU_BYTES {
                let shape = self.shape(regime, 1, pdu_bytes);
                let of = |way, contender| Subject::new(way, contender, shape, regime);
                let is_large = pdu_bytes == LARGE_PDU_BYTES;
                if regime == Regime::Cold || is_large {
                    let all = contenders.iter().map(|contender| contender.name);
                    for name in all.filter(|name| is_large || [SARWATE, SLICING_8, in_use].contains(name)) {
                        let layered = of(Way::Layered, name);
                        subjects.extend([layered, of(Way::Interleaved, name)]);
                        subjects.push(Subject { marked: true, ..layered });
                    }
                    let layered = of(Way::Layered, in_use);
                    subjects.push(Subject { crc: false, ..layered });
                    subjects.push(Subject { crc: false, copy: false, ..layered });
                    let built = of(Way::AsBuilt, in_use);
                    subjects.extend([built, Subject { marked: true, ..built }]);
                    subjects.push(Subject { digests: false, crc: false, ..built });
                }
            }
            let single = self.shape(regime, 1, LARGE_PDU_BYTES);
            subjects.extend(self.protocol_alone(regime, in_use));
            let full = |way, contender, shape| Subject::new(way, contender, shape, regime);
            for segment_bytes in SEGMENT_BYTES {
                let shape = Shape { segment_bytes, ..single };
                subjects.extend(Way::ALL.map(|way| full(way, in_use, shape)));
            }
            if regime != Regime::BufferWarm {
                let marked = Shape { markers: Some(MARKER_INTERVAL_BYTES), ..single };
                for name in [SARWATE, SLICING_8, in_use] {
                    subjects.extend([Way::Layered, Way::Interleaved].map(|way| full(way, name, marked)));
                }
                subjects.extend(Way::ALL.map(|way| full(way, in_use, TABLE_2)));
                subjects.push(full(Way::Layered, in_use, Shape { in_order: true, ..TABLE_2 }));
                for name in [SARWATE, SLICING_8] {
                    subjects.push(full(Way::Layered, name, TABLE_2));
                    subjects.push(full(Way::Interleaved, name, TABLE_2));
                }
            }
        }
        let mut distinct: Vec<Subject> = Vec::new();
        for subject in subjects {
            if !distinct.contains(&subject) {
                distinct.push(subject);
            }
        }
        distinct
    }

    /// Figure 12: what is left of reads of several PDUs without CRC and copy.
    fn protocol_alone(&self, regime: Regime, contender: &'static str) -> Vec<Subject> {
        let of = |pdus| {
            let shape = self.shape(regime, pdus, LARGE_PDU_BYTES);
            Subject { crc: false, copy: false, ..Subject::new(Way::Layered, contender, shape, regime) }
        };
        if regime == Regime::BufferWarm { Vec::new() } else { PDUS.map(of).collect() }
    }
}

/// A row for each subject.
pub(super) fn rows(subjects: Vec<Subject>, contenders: &[Contender]) -> Vec<Row> {
    let row = |subject: Subject| {
        let contender = contenders.iter().find(|contender| contender.name == subject.contender)?;
        Some(Row {
            subject,
            contender: *contender,
            sandbox: match subject.regime {
                Regime::Warm => Sandbox::new(subject.shape, subject.digests),
                Regime::Cold | Regime::BufferWarm => {
                    Sandbox::new(subject.shape, subject.digests).with_decoy()
                }
            },
            whole: Vec::new(),
            parts: Default::default(),
            readings: [0.0; Part::COUNT],
        })
    };
    subjects.into_iter().filter_map(row).collect()
}

/// Measures all rows. One round before the first is not counted.
///
/// # Errors
/// Wrong bytes, or commands that did not complete.
pub(super) fn run(
    rows: &mut [Row],
    plan: &Plan,
    purge: &Purge,
    clock: &mut Clock,
    bar: &ProgressBar,
) -> Result<(), String> {
    for round in 0..=plan.rounds {
        clock.measure_core();
        for row in &mut *rows {
            // A cold row is as cold the first time.
            if round > 0 || row.subject.regime == Regime::Warm {
                row.turn(purge, round > 0)?;
            }
            bar.inc(1);
        }
    }
    Ok(())
}

impl Row {
    fn turn(&mut self, purge: &Purge, counts: bool) -> Result<(), String> {
        let Subject { way, regime, crc, copy, marked, .. } = self.subject;
        let work = Work { way, contender: &self.contender, crc, copy };
        self.sandbox.load();
        let (mut whole, mut parts) = (Whole::default(), Parts::default());
        match marked {
            true => self.sandbox.receive_all(&work, regime, purge, &mut parts),
            false => self.sandbox.receive_all(&work, regime, purge, &mut whole),
        }
        .map_err(|error| format!("{} with {}: {error}", way.title(), self.contender.name))?;
        if !counts {
            return Ok(());
        }
        if marked {
            for (n, samples) in self.parts.iter_mut().enumerate() {
                samples.push(parts.ticks[n] as f64 / parts.pdus as f64);
                self.readings[n] = parts.readings[n] as f64 / parts.pdus as f64;
            }
        } else {
            self.whole.push(whole.ticks as f64 / whole.pdus as f64);
        }
        Ok(())
    }
}

/// For each round, how slow it was relative to all: 1 is typical.
pub(super) fn round_factors(rows: &[Row]) -> Vec<f64> {
    let timed: Vec<&[f64]> = rows.iter().map(|row| &row.whole[..]).filter(|row| !row.is_empty()).collect();
    noise::round_factors(&timed, |figure, middle| figure / middle)
}
