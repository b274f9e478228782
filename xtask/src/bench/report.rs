//! The figures as a table and as a picture.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::judge::Rounds;
use super::place::Placement;
use super::rows::Row;
use super::{Sample, median};

/// The line before the table of targets in docs/performance.md, and the line after any table.
pub const BEGIN: &str = "<!-- begin: cargo xtask bench target --write -->";
const END: &str = "<!-- end -->";

/// One load in one placement.
#[derive(Clone, Copy)]
pub struct Placed {
    pub row: &'static Row,
    pub place: &'static Placement,
}

impl Placed {
    pub fn name(&self) -> String {
        format!("{}, {}", self.row.name, self.place.name)
    }
}

/// All samples: by row, digests off and on, our target and tgt.
#[derive(Serialize)]
pub struct Table {
    #[serde(skip)]
    rows: Vec<Placed>,
    names: Vec<String>,
    samples: Vec<[[Vec<Sample>; 2]; 2]>,
}

impl Table {
    pub fn new(rows: &[Placed]) -> Self {
        Self {
            rows: rows.to_vec(),
            names: rows.iter().map(Placed::name).collect(),
            samples: vec![Default::default(); rows.len()],
        }
    }

    pub fn add(&mut self, row: usize, digests: bool, server: usize, sample: Sample) {
        self.samples[row][usize::from(digests)][server].push(sample);
    }

    fn median(&self, row: usize, digests: usize, server: usize, f: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples[row][digests][server].iter().map(f))
    }

    /// Median over the rounds of the ratio within a round: the variations of the machine cancel out.
    fn ratio(&self, row: usize, digests: usize, f: impl Fn(&Sample) -> f64) -> f64 {
        let [ours, theirs] = &self.samples[row][digests];
        Rounds::ratios(ours.iter().map(&f), theirs.iter().map(&f)).median()
    }

    /// Our speed with digests on as a fraction of that with digests off, round by round.
    fn on_off(&self, row: usize) -> f64 {
        let [off, on] = &self.samples[row];
        Rounds::ratios(on[0].iter().map(|on| on.iops), off[0].iter().map(|off| off.iops)).median()
    }

    /// The tables as Markdown.
    pub fn markdown(&self, machine: &str, seconds: f64, rounds: usize) -> String {
        let mut text = format!(
            "{machine}\n{rounds} rounds of {seconds} s, the targets in turn within each, pinned; medians.\n\n"
        );
        text.push_str("| load | digests | intact | tgt | ratio | floor | SPDK's ratio |\n|---|---|---|---|---|---|---|\n");
        for (r, Placed { row, .. }) in self.rows.iter().enumerate() {
            for d in [0, 1] {
                let speed = |s: usize| match row.counts_commands() {
                    true => format!("{:.0} IOPS", self.median(r, d, s, |x| x.iops)),
                    false => format!("{:.0} MB/s", self.median(r, d, s, |x| x.mb_per_s)),
                };
                let known = |n: f64| if n > 0.0 { format!("{n:.1}") } else { String::from("-") };
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} | **{:.2}** | {} | {} |",
                    self.names[r],
                    ["off", "on"][d],
                    speed(0),
                    speed(1),
                    self.ratio(r, d, |x| x.iops),
                    known(row.floor[d]),
                    known(row.spdk[d])
                );
            }
        }
        text.push_str("\nCPU time, seconds. The client is the same for both targets: our load generator, which checks every digest it receives.\n\n");
        text.push_str("| load | digests | target per GB: intact | tgt | ratio | target per 100,000 I/Os: intact | tgt | client per GB | on / off |\n|---|---|---|---|---|---|---|---|---|\n");
        for (r, Placed { row, .. }) in self.rows.iter().enumerate() {
            for d in [0, 1] {
                let on_off = if d == 1 { format!("{:.2}", self.on_off(r)) } else { String::from("-") };
                let _ = writeln!(
                    text,
                    "| {} | {} | {:.3} | {:.3} | **{:.2}** | {:.2} | {:.2} | {:.3} | {on_off} |",
                    self.names[r],
                    ["off", "on"][d],
                    self.median(r, d, 0, |x| x.target_cpu_per_gb(row)),
                    self.median(r, d, 1, |x| x.target_cpu_per_gb(row)),
                    self.ratio(r, d, |x| x.target_cpu_per_gb(row)),
                    self.median(r, d, 0, Sample::target_cpu_per_100k),
                    self.median(r, d, 1, Sample::target_cpu_per_100k),
                    self.median(r, d, 0, |x| x.client_cpu_per_gb(row)),
                );
            }
        }
        text
    }

    /// Ratios to tgt as bars, with the floor as a mark.
    pub fn svg(&self) -> String {
        const BAR: f64 = 16.0;
        const UNIT: f64 = 42.0;
        const LEFT: f64 = 330.0;
        let bars = self.rows.len() * 2;
        let height = 50.0 + bars as f64 * (BAR + 6.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"920\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"10\" y=\"20\" font-size=\"14\">Speed of intact, as a multiple of tgt's (mark: floor)</text>\n\
             <line x1=\"{x}\" y1=\"30\" x2=\"{x}\" y2=\"{height}\" stroke=\"#888\" stroke-dasharray=\"3\"/>\n",
            x = LEFT + UNIT
        );
        for bar in 0..bars {
            let (r, d) = (bar / 2, bar % 2);
            let ratio = self.ratio(r, d, |x| x.iops);
            let y = 38.0 + bar as f64 * (BAR + 6.0);
            let _ = write!(
                svg,
                "<text x=\"10\" y=\"{ty}\">{}, {}</text>\n<rect x=\"{LEFT}\" y=\"{y}\" width=\"{w:.1}\" height=\"{BAR}\" fill=\"{}\"/>\n<text x=\"{tx:.1}\" y=\"{ty}\">{ratio:.2}</text>\n",
                self.names[r],
                ["off", "on"][d],
                ["#7aa6c2", "#1f5f8b"][d],
                ty = y + 12.0,
                w = ratio.min(13.0) * UNIT,
                tx = LEFT + ratio.min(13.0) * UNIT + 6.0,
            );
            let floor = self.rows[r].row.floor[d];
            if floor > 0.0 {
                let x = LEFT + floor * UNIT;
                let _ = writeln!(
                    svg,
                    "<line x1=\"{x}\" y1=\"{y}\" x2=\"{x}\" y2=\"{}\" stroke=\"#c33\" stroke-width=\"2\"/>",
                    y + BAR
                );
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// CPU, kernel, TCP congestion control (BBR paces with timers, so two ends that share a machine settle into one rhythm or
/// another for a whole run), commit and load of this machine, in one line.
pub fn machine(root: &Path) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let cpu = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown CPU", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let git = Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(root).output();
    let commit = git.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default();
    let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
    format!(
        "{cpu}, {cores} cores, Linux {}, TCP {}, commit {commit}, load {load} at the end.",
        read("/proc/sys/kernel/osrelease").trim(),
        read("/proc/sys/net/ipv4/tcp_congestion_control").trim()
    )
}

/// What is measured, and where the figures go.
#[derive(clap::Args)]
pub struct Output {
    /// The build that is measured; by default it is built from this tree
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Put the result into its page in docs/, if the machine was quiet
    #[arg(long)]
    pub write: bool,
    /// Write all figures to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Output {
    /// The build to measure, when `built` was built from this tree.
    pub fn binary<'a>(&'a self, built: &'a Path) -> &'a Path {
        self.binary.as_deref().unwrap_or(built)
    }

    /// Writes all figures to the file that was given.
    pub fn keep(&self, figures: &impl Serialize) -> Result<()> {
        match &self.json {
            Some(path) => Ok(fs::write(path, serde_json::to_string_pretty(figures)?)?),
            None => Ok(()),
        }
    }

    /// Prints `text`, and puts it into `page` of the project, after `begin`, if that is wanted; true if it did. A text that is not to be
    /// trusted is not put there.
    pub fn publish(&self, root: &Path, page: &str, begin: &str, text: &str) -> Result<bool> {
        println!("{text}");
        if !self.write {
            return Ok(false);
        }
        let reasons = crate::tidy::distrust(text);
        if !reasons.is_empty() {
            bail!("{page} is as it was: {}", reasons.join("; "));
        }
        write(&root.join(page), begin, text).map(|()| true)
    }
}

/// Inserts a text into `page`, after `begin`.
pub fn write(page: &Path, begin: &str, text: &str) -> Result<()> {
    let name = page.display();
    let old = fs::read_to_string(page).with_context(|| name.to_string())?;
    let (head, rest) = old.split_once(begin).with_context(|| format!("{name} has no place {begin}"))?;
    let (_, tail) = rest.split_once(END).with_context(|| format!("{name}: {begin} has no end"))?;
    fs::write(page, format!("{head}{begin}\n{text}\n{END}{tail}"))?;
    Ok(())
}
