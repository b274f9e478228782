//! Figures that need the link in real time: other programs as peers, the kernel's TCP, processor time.
//!
//! Each cell has a stage of its own. A cell whose packets were late is measured again, at most [`TRIES`] times; if it stays late, the
//! whole result is not to be trusted.

mod disk;
mod nfs;
mod peers;
mod programs;
mod storage;
mod times;

use std::cell::{Cell, RefCell};
use std::io;

use wireless::link::LinkSetup;

use self::programs::Need;
use crate::wireless::air::LATENESS_P99_MAX_US;
use crate::wireless::report::Section;
use crate::wireless::stage::{Stage, on_stage};
use harness::document::Table;
use harness::machine::Machine;
use harness::text::complain;

/// A figure, and the function that measures it.
type Figure = (&'static str, fn(&Live) -> Result<Section, String>);

/// All figures.
pub(super) const FIGURES: [Figure; 6] = [
    ("6.4", nfs::figures),
    ("6.14", times::response),
    ("6.15", times::processors),
    ("6.16", times::hops),
    ("peers", peers::figure),
    ("storage", storage::figure),
];

/// Times that a cell is measured at most.
const TRIES: u64 = 3;
/// Rounds of a cell, and seconds of a round.
const ROUNDS: u64 = 3;
const SECONDS: f64 = 5.0;
const QUICK_SECONDS: f64 = 2.0;

/// Measurements in real time.
#[derive(Default)]
pub(super) struct Live {
    /// One round, shorter.
    quick: bool,
    /// Cells that stayed late.
    late: RefCell<Vec<String>>,
    /// The highest 99th percentile of lateness of all cells that count, µs.
    worst_us: Cell<u64>,
    /// Congestion control of TCP.
    congestion: RefCell<String>,
}

impl Live {
    /// Nothing measured yet; `quick`: one round, shorter.
    pub(super) fn new(quick: bool) -> Live {
        Live { quick, ..Live::default() }
    }

    fn rounds(&self) -> u64 {
        if self.quick { 1 } else { ROUNDS }
    }

    fn seconds(&self) -> f64 {
        if self.quick { QUICK_SECONDS } else { SECONDS }
    }

    /// Measures a cell on a stage of its own.
    fn cell<T>(
        &self,
        what: &str,
        link: &LinkSetup,
        act: impl Fn(&Stage) -> io::Result<T>,
    ) -> Result<T, String> {
        let mut last = None;
        for seed in 1..=TRIES {
            let (result, passed) = on_stage(link, seed, |stage| {
                self.congestion.replace(programs::congestion_control(stage)?);
                act(stage)
            })
            .map_err(|error| format!("{what}: {error}"))?;
            if passed.is_in_time() {
                self.worst_us.set(self.worst_us.get().max(passed.lateness_p99_us()));
                return Ok(result);
            }
            last = Some((result, passed.lateness_p99_us()));
        }
        let (result, late_us) = last.ok_or_else(|| format!("{what}: never measured"))?;
        self.late.borrow_mut().push(format!(
            "{what}: packets were late by {late_us} µs (p99; {LATENESS_P99_MAX_US} are too many) in {TRIES} runs"
        ));
        Ok(result)
    }

    /// Mean of the rounds of a cell.
    fn mean(
        &self,
        what: &str,
        link: &LinkSetup,
        act: impl Fn(&Stage) -> io::Result<f64>,
    ) -> Result<f64, String> {
        let runs: Vec<f64> =
            (0..self.rounds()).map(|_| self.cell(what, link, &act)).collect::<Result<_, _>>()?;
        Ok(runs.iter().sum::<f64>() / runs.len() as f64)
    }

    /// What a reader must know of the machine.
    pub(super) fn surroundings(&self) -> Section {
        let machine = Machine::this();
        let mut section = Section::new("Where it was measured", "");
        section.tables.push(Table::of_facts([
            ("processor", format!("{}, {} in use", machine.cpu, machine.cpus)),
            ("kernel", format!("{}, TCP {}", machine.kernel, self.congestion.borrow())),
            ("program", format!("{} {}, opt-level {}", machine.version, machine.commit, machine.opt_level)),
            ("packets late by, p99 of the worst cell", format!("{} µs", self.worst_us.get())),
            ("rounds of a cell, seconds of a round", format!("{}, {}", self.rounds(), self.seconds())),
        ]));
        section
    }

    /// Reasons not to trust the figures.
    pub(super) fn distrust(&self) -> Vec<String> {
        self.late.borrow().clone()
    }
}

/// What a figure needs that is missing; it is said at once, too.
fn missing(figure: &str, needs: &[Need]) -> Option<String> {
    let remedy = programs::missing(needs)?;
    complain(format_args!("intact: figure {figure} is left out: {remedy}"));
    Some(format!("not measured: {remedy}"))
}
