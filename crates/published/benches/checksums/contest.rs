//! Rows of a table of measurements: contenders that take turns, comparison of their results, and bars to reach.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The difference between two runs on a quiet machine; a ratio this close to a bar has reached it.
const REPEATABILITY: f64 = 0.02;

/// The work of one contender: makes the given number of calls and returns the result of the last one, or nothing if
/// there is no comparable result (a plain copy).
pub type Work<'a> = Box<dyn FnMut(usize) -> Option<u64> + 'a>;

/// Why a contender is in the row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// This crate. The first such contender of a row is compared with the bars.
    Ours,
    /// Another implementation with the same result.
    Peer,
    /// A physical limit, such as a plain copy.
    Limit,
}

struct Contender<'a> {
    name: &'static str,
    role: Role,
    work: Work<'a>,
    times_ns: Vec<f64>,
}

/// What ours is compared with.
pub enum Against {
    /// The fastest peer of this run.
    BestPeer,
    /// The peer or limit of this name.
    Named(&'static str),
    /// The best figure known from elsewhere, in the row's unit. Machines differ, so it says less than a ratio.
    Known(f64),
}

/// How many times faster than something ours must be.
struct Bar {
    against: Against,
    factor: f64,
}

/// Contenders for one task on one size of data.
pub struct Row<'a> {
    name: String,
    /// Bytes per call, for rows in GB/s; none for rows in ns per call.
    bytes: Option<usize>,
    calls: usize,
    contenders: Vec<Contender<'a>>,
    bars: Vec<Bar>,
}

impl<'a> Row<'a> {
    /// A row in GB/s: `calls` calls of `bytes` bytes each make one turn.
    pub fn rate(name: impl Into<String>, bytes: usize, calls: usize) -> Self {
        Self { bytes: Some(bytes), ..Self::latency(name, calls) }
    }

    /// A row in nanoseconds per call.
    pub fn latency(name: impl Into<String>, calls: usize) -> Self {
        Self { name: name.into(), bytes: None, calls, contenders: Vec::new(), bars: Vec::new() }
    }

    /// Adds a contender whose closure makes the given number of calls.
    pub fn calls(
        mut self,
        role: Role,
        name: &'static str,
        work: impl FnMut(usize) -> Option<u64> + 'a,
    ) -> Self {
        self.contenders.push(Contender { name, role, work: Box::new(work), times_ns: Vec::new() });
        self
    }

    /// Adds a contender whose closure makes one call; suitable if a call takes much longer than its overhead.
    pub fn one(self, role: Role, name: &'static str, mut work: impl FnMut() -> Option<u64> + 'a) -> Self {
        self.calls(role, name, move |n| (0..n).map(|_| work()).last().flatten())
    }

    /// Adds a bar: ours must be `factor` times faster than `against`.
    pub fn bar(mut self, factor: f64, against: Against) -> Self {
        self.bars.push(Bar { against, factor });
        self
    }

    /// Lets all contenders take turns for `budget` (at least one turn each), and prints the result.
    ///
    /// # Panics
    /// If two contenders give different results.
    pub fn run(mut self, budget: Duration, tally: &mut Tally) {
        if !tally.wants(&self.name) {
            return;
        }
        let started = Instant::now();
        let mut first_round = true;
        // The first round only warms up: caches, predictors, and the clock of a core that was idle.
        while first_round || self.contenders[0].times_ns.is_empty() || started.elapsed() < budget {
            let mut answers = Vec::new();
            for contender in &mut self.contenders {
                let start = Instant::now();
                let answer = (contender.work)(black_box(self.calls));
                let time_ns = start.elapsed().as_nanos() as f64 / self.calls as f64;
                answers.extend(answer.map(|a| (contender.name, a)));
                if !first_round || budget.is_zero() {
                    contender.times_ns.push(time_ns);
                }
            }
            for pair in answers.windows(2) {
                let ((a, x), (b, y)) = (pair[0], pair[1]);
                assert_eq!(x, y, "{}: {a} and {b} answer differently", self.name);
            }
            first_round = false;
        }
        self.report(tally);
    }

    fn report(&mut self, tally: &mut Tally) {
        let unit = if self.bytes.is_some() { "GB/s" } else { "ns" };
        println!("\n{} ({unit}; best, median)", self.name);
        let mut best = Vec::new();
        for contender in &mut self.contenders {
            contender.times_ns.sort_by(f64::total_cmp);
            let times = &contender.times_ns;
            let (low, median) = (times[0], times[times.len() / 2]);
            let show = |ns: f64| self.bytes.map_or(ns, |bytes| bytes as f64 / ns);
            let noise = if median > 1.3 * low { "  noisy" } else { "" };
            println!("  {:<28} {:>9.2} {:>9.2}{noise}", contender.name, show(low), show(median));
            tally.noisy += usize::from(!noise.is_empty());
            tally.measured += 1;
            best.push(low);
        }
        for bar in &self.bars {
            let peers = self.contenders.iter().zip(&best).skip(1);
            let (what, other) = match bar.against {
                Against::Known(figure) => {
                    (format!("{figure} {unit} known"), self.bytes.map_or(figure, |b| b as f64 / figure))
                }
                Against::Named(name) => match peers.into_iter().find(|(c, _)| c.name == name) {
                    Some((c, time)) => (c.name.to_owned(), *time),
                    None => continue,
                },
                Against::BestPeer => {
                    match peers.filter(|(c, _)| c.role == Role::Peer).min_by(|a, b| a.1.total_cmp(b.1)) {
                        Some((c, time)) => (c.name.to_owned(), *time),
                        None => continue,
                    }
                }
            };
            let ratio = other / best[0];
            let reached = ratio >= bar.factor * (1.0 - REPEATABILITY);
            let verdict = if reached { "reached" } else { "MISSED" };
            println!("    {verdict}: {ratio:.2} times {what}; to reach {:.2}", bar.factor);
            tally
                .bars
                .push((format!("{}: {ratio:.2} times {what}, not {:.2}", self.name, bar.factor), reached));
        }
    }
}

/// The results of all rows.
#[derive(Default)]
pub struct Tally {
    /// Only rows whose name contains this are run.
    pub filter: Option<String>,
    bars: Vec<(String, bool)>,
    noisy: usize,
    measured: usize,
}

impl Tally {
    /// Whether the caller selected rows with this name; without a filter all rows are selected, else those whose names
    /// contain it.
    pub fn wants(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|f| name.contains(f.as_str()))
    }

    /// Prints how many bars were reached, which were not, and whether the machine was quiet enough for the result to be
    /// trusted.
    pub fn print(&self) {
        let reached = self.bars.iter().filter(|(_, reached)| *reached).count();
        println!("\n{reached} of {} bars reached", self.bars.len());
        for (name, _) in self.bars.iter().filter(|(_, reached)| !reached) {
            println!("  missed: {name}");
        }
        println!("{} of {} measurements noisy (median above 1.3 times the best)", self.noisy, self.measured);
    }
}
