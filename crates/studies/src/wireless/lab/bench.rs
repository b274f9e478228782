//! One set of parameters for all figures, and runs on it.

use sim::trial::{Between, Trial};
use wireless::link::LinkSetup;
use wireless::mac::Mac;

use harness::statistics::Summary;

/// The thesis' 802.11b: acknowledgements at 1 Mbit/s, and 4 ms for everything in a command that is not the link (fitted to its reads
/// of 2 KiB), half of it each way.
pub(super) const B: LinkSetup = LinkSetup { latency_ns: 2_000_000, ..LinkSetup::of(Mac::B.with_r_ack(1.0)) };
/// Its 802.11g, with the same machines.
pub(super) const G: LinkSetup = LinkSetup { latency_ns: 2_000_000, ..LinkSetup::of(Mac::G) };
/// Its Fast Ethernet, with volumes in memory; the time that its machines added is not known.
pub(super) const ETHERNET: Between = Between::Wire { bytes_per_s: 12_500_000, latency_ns: 100_000 };
/// Bytes that a run moves, and its least and most commands.
const RUN_BYTES: u32 = 4 << 20;
const COMMANDS: (u32, u32) = (48, 600);

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lab {
    /// Runs whose mean a figure is.
    pub seeds: u64,
    /// Fewer sizes and shorter runs.
    pub quick: bool,
}

/// Means of runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// 10^6 bytes per second.
    pub mb_s: Summary,
    /// Commands per second.
    pub per_s: f64,
    /// Mean time of a command, ms.
    pub command_ms: f64,
}

impl Lab {
    /// Sizes of a command, KiB.
    pub(super) fn sizes_kib(&self) -> &'static [u32] {
        if self.quick { &[2, 8, 128] } else { &[2, 4, 8, 16, 32, 64, 128] }
    }

    /// Runs a trial with every seed.
    ///
    /// # Errors
    /// The invariant that did not hold: a read that was wrong, a command that was lost.
    pub(super) fn cell(&self, trial: Trial) -> Result<Cell, String> {
        let bytes = if self.quick { RUN_BYTES / 4 } else { RUN_BYTES };
        let commands = (bytes / trial.bytes).clamp(COMMANDS.0, COMMANDS.1);
        let runs: Vec<_> =
            (1..=self.seeds).map(|seed| Trial { commands, ..trial }.run(seed)).collect::<Result<_, _>>()?;
        let mean =
            |of: fn(&sim::trial::Measured) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let mb_s = Summary::of(&runs.iter().map(|run| run.mb_s).collect::<Vec<f64>>());
        Ok(Cell { mb_s, per_s: mean(|run| run.per_s), command_ms: mean(|run| run.command_ms) })
    }

    /// Megabytes per second of a trial.
    ///
    /// # Errors
    /// As [`Lab::cell`].
    pub(super) fn mb_s(&self, trial: Trial) -> Result<f64, String> {
        Ok(self.cell(trial)?.mb_s.mean)
    }
}

/// A cell of a table: mean and confidence.
pub(super) fn text(cell: &Cell) -> String {
    match cell.mb_s.ci95 > 0.0 {
        true => format!("{:.3} ±{:.3}", cell.mb_s.mean, cell.mb_s.ci95),
        false => format!("{:.3}", cell.mb_s.mean),
    }
}
