//! `cargo xtask bench sessions`: what sessions cost each other. CPU time of the target for a command as the same number of commands
//! is spread over more sessions, and beside idle ones; memory and wake-ups of idle sessions; logins.
//!
//! Target and initiators have a core each, the target has one shard, and every block that is read carries its number. All cells of a
//! table are measured in each round, and a ratio is the median of the ratios within the rounds. The loads that read take turns within a
//! round, in slices and in alternating order: what disturbs the machine for a second then meets all of them. One cell is measured twice
//! per round: its ratio to itself says what the machine adds (the judge of the page).

mod page;
mod site;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use self::site::Site;
use super::place::Surroundings;
use super::{progress, report, turns};

/// Where the tables go in docs/scaling.md.
const BEGIN: &str = "<!-- begin: cargo xtask bench sessions -->";
/// Sessions over which the commands are spread.
const SPREAD: [usize; 6] = [1, 4, 16, 64, 256, 1000];
/// Commands outstanding in all.
const DEPTH: usize = 32;
/// Depths of the active session beside idle ones.
const DEPTHS: [usize; 2] = [DEPTH, 1];
/// Parts into which the measured time of a load that reads is divided.
const SLICES: usize = 10;
/// Seconds that a load runs before each of its slices is measured: its target's caches have forgotten it while others were at work.
const LEAD_IN: f64 = 0.05;
/// By then a target has done what a login defers, and no session is due for a ping.
const SETTLED: Duration = Duration::from_secs(4);
/// How long a target with idle sessions is watched before their pings are due.
const QUIET: Duration = Duration::from_secs(8);
/// How long it is watched afterwards: long enough that each session is pinged once.
const PINGED: Duration = Duration::from_secs(34);

/// Options of `cargo xtask bench sessions`.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub surroundings: Surroundings,
    /// Idle sessions: few, and many
    #[arg(long, num_args = 2, default_values_t = [1000, 10_000])]
    idle: Vec<usize>,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Measured seconds of each cell and round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    #[command(flatten)]
    pub output: report::Output,
}

/// What is measured in a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
enum Load {
    /// Reads of 4 KiB by so many sessions, which have no others beside them.
    Spread { sessions: usize },
    /// The same traffic without a protocol: what the sockets alone cost.
    Floor { connections: usize },
    /// Reads of 4 KiB by one session.
    Beside { idle: usize, depth: usize },
    /// Logins with their logouts.
    Churn { idle: usize },
    /// Logins that stay: the first, and the last.
    Arrivals { from: usize, to: usize },
}

/// A load and its figures, one for each round.
#[derive(Clone, Debug, Serialize)]
struct Cell {
    load: Load,
    /// CPU time of the target for each read or login, µs.
    cpu_us: Vec<f64>,
    /// Reads or logins a second.
    per_second: Vec<f64>,
}

/// What idle sessions use.
#[derive(Clone, Debug, Serialize)]
struct Idle {
    sessions: usize,
    /// Memory for each, in each round, bytes.
    resident_bytes: Vec<f64>,
    /// Wake-ups before any ping was due.
    quiet_wake_ups: u64,
    quiet_cpu_ms: f64,
    /// Wake-ups, pings that were answered, and CPU time while pings were due.
    wake_ups: u64,
    pings: u64,
    pinged_cpu_ms: f64,
}

/// All figures.
#[derive(Debug, Serialize)]
struct Figures {
    cells: Vec<Cell>,
    /// The first cell again, in each round.
    control: Cell,
    idle: Idle,
}

/// Measures, and prints the tables.
pub fn run(root: &Path, built: &Path, options: &Options) -> Result<()> {
    let intact = options.output.binary(built);
    let figures = measure(intact, options)?;
    options.output.keep(&figures)?;
    let text = page::markdown(&figures, &report::machine(root), options);
    options.output.publish(root, "docs/scaling.md", BEGIN, &text).map(drop)
}

/// The sites that stay over all rounds: without other sessions, with those that take turns, and with idle ones.
struct Sites {
    alone: Site,
    spread: Site,
    few: Site,
    many: Site,
    floor: Site,
}

fn measure(intact: &Path, options: &Options) -> Result<Figures> {
    let [few, many] = [options.idle[0], options.idle[1]];
    let (many_site, mut idle) = watch_idle(intact, many)?;
    let most = SPREAD[SPREAD.len() - 1];
    let mut floor = Site::floor(intact, most)?;
    floor.open(most)?;
    let mut sites = Sites {
        alone: site(intact, 1, 0)?,
        spread: site(intact, most, 0)?,
        few: site(intact, 1, few)?,
        many: many_site,
        floor,
    };
    let (mut reading, mut others): (Vec<Cell>, Vec<Cell>) =
        loads(few, many).into_iter().map(Cell::of).partition(|cell| cell.load.reads());
    let control = reading[0].load.clone();
    reading.push(Cell::of(control.clone()));
    for round in 0..options.rounds {
        let words = format!("round {} of {}", round + 1, options.rounds);
        // The kernel is still freeing the ten thousand connections of the round before.
        control.take(&mut sites, few, options.seconds)?;
        in_turn(&mut reading, &mut sites, few, options.seconds, &words)?;
        for cell in &mut others {
            progress::show(format_args!("{words}: {:?}", cell.load));
            if let Some(done) = cell.load.take(&mut sites, few, options.seconds)? {
                cell.note(&done);
            }
        }
        arrivals(intact, many, &mut others, &mut idle)?;
    }
    progress::end();
    let control = reading.pop().context("the control was put there")?;
    reading.append(&mut others);
    Ok(Figures { cells: reading, control, idle })
}

/// Measures each cell for so many seconds, in slices; `words` say in which round.
fn in_turn(cells: &mut [Cell], sites: &mut Sites, few: usize, seconds: f64, words: &str) -> Result<()> {
    let mut done = vec![site::Done::default(); cells.len()];
    for slice in 0..SLICES {
        progress::show(format_args!("{words}: slice {} of {SLICES} of the reads", slice + 1));
        for at in turns(slice, cells.len()) {
            cells[at].load.take(sites, few, LEAD_IN)?;
            if let Some(more) = cells[at].load.take(sites, few, seconds / SLICES as f64)? {
                done[at].add(&more);
            }
        }
    }
    cells.iter_mut().zip(&done).for_each(|(cell, done)| cell.note(done));
    Ok(())
}

fn loads(few: usize, many: usize) -> Vec<Load> {
    let spread = SPREAD.iter().flat_map(|&n| [Load::Spread { sessions: n }, Load::Floor { connections: n }]);
    let beside = DEPTHS.iter().flat_map(|&depth| [0, few, many].map(|idle| Load::Beside { idle, depth }));
    let churn = [0, many].map(|idle| Load::Churn { idle });
    let tenth = many / 10;
    let arrivals = [(0, tenth), (many - tenth, many)].map(|(from, to)| Load::Arrivals { from, to });
    spread.chain(beside).chain(churn).chain(arrivals).collect()
}

/// A target with `sessions` that may work and others that are `idle`, and a volume that was written.
fn site(intact: &Path, sessions: usize, idle: usize) -> Result<Site> {
    let mut site = Site::start(intact, sessions + idle)?;
    site.open(sessions)?;
    site.fill()?;
    if idle > 0 {
        site.open_idle(idle)?;
    }
    Ok(site)
}

impl Cell {
    fn of(load: Load) -> Self {
        Self { load, cpu_us: Vec::new(), per_second: Vec::new() }
    }

    fn note(&mut self, done: &site::Done) {
        self.cpu_us.push(done.cpu_us());
        self.per_second.push(done.per_second());
    }
}

impl Load {
    /// Does it read?
    fn reads(&self) -> bool {
        matches!(self, Load::Spread { .. } | Load::Floor { .. } | Load::Beside { .. })
    }

    /// Carries it out; logins that stay are no matter of time, and need a target of their own.
    fn take(&self, sites: &mut Sites, few: usize, seconds: f64) -> Result<Option<site::Done>> {
        let beside =
            |idle: usize, sites: &mut Sites, order: &dyn Fn(&mut Site) -> Result<site::Done>| match idle {
                0 => order(&mut sites.alone),
                idle if idle == few => order(&mut sites.few),
                _ => order(&mut sites.many),
            };
        let done = match *self {
            Load::Spread { sessions: 1 } => sites.alone.read(1, DEPTH, seconds)?,
            Load::Spread { sessions } => sites.spread.read(sessions, DEPTH, seconds)?,
            Load::Floor { connections } => sites.floor.read(connections, DEPTH, seconds)?,
            Load::Beside { idle, depth } => beside(idle, sites, &|site| site.read(1, depth, seconds))?,
            Load::Churn { idle } => beside(idle, sites, &|site| site.churn(seconds))?,
            Load::Arrivals { .. } => return Ok(None),
        };
        Ok(Some(done))
    }
}

/// Fills a fresh target with sessions: what the first and the last logins cost, and what a session holds. The client of both has no other
/// sessions.
fn arrivals(intact: &Path, many: usize, cells: &mut [Cell], idle: &mut Idle) -> Result<()> {
    let mut site = Site::start(intact, many)?;
    // The first session brings what the program loads once.
    site.open_idle(1)?;
    let empty = site.usage()?.resident_bytes;
    for cell in cells {
        match cell.load {
            Load::Arrivals { from: 0, to } => cell.note(&site.open_idle(to)?),
            Load::Arrivals { from, to } => {
                site.open_idle(from)?;
                cell.note(&site.open(to - from)?);
            }
            _ => {}
        }
    }
    let full = site.usage()?.resident_bytes;
    idle.resident_bytes.push(full.saturating_sub(empty) as f64 / (many - 1) as f64);
    Ok(())
}

/// Watches a target with idle sessions: first before any of them is due for a ping, then while each is pinged once.
fn watch_idle(intact: &Path, many: usize) -> Result<(Site, Idle)> {
    let mut site = site(intact, 1, many)?;
    let watch = |site: &Site, time: Duration| -> Result<(u64, f64)> {
        let before = site.usage()?;
        std::thread::sleep(time);
        let after = site.usage()?;
        Ok((after.wake_ups - before.wake_ups, (after.cpu_seconds - before.cpu_seconds) * 1e3))
    };
    std::thread::sleep(SETTLED);
    let answered = site.pings()?;
    let (quiet_wake_ups, quiet_cpu_ms) = watch(&site, QUIET)?;
    if site.pings()? != answered {
        bail!("sessions were pinged before their time: logging in {many} of them took too long");
    }
    progress::show(format_args!("waiting until {many} idle sessions have been pinged"));
    let (wake_ups, pinged_cpu_ms) = watch(&site, PINGED)?;
    let pings = site.pings()? - answered;
    let idle = Idle {
        sessions: many,
        resident_bytes: Vec::new(),
        quiet_wake_ups,
        quiet_cpu_ms,
        wake_ups,
        pings,
        pinged_cpu_ms,
    };
    Ok((site, idle))
}
