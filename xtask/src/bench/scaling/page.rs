//! The figures as tables.

use std::fmt::Write as _;
use std::fs;

use super::site::Run;
use super::{Arrangement, Cell, Figures, Load, Options, Part, Processors};
use crate::bench::judge::{Judge, Rounds};

/// How much of its processors a target with more shards must turn into speed.
const SCALING_MIN: f64 = 0.9;
/// What a session that used several processors would have to gain.
const SHAPE_MIN: f64 = 1.5;
/// What a target on a processor of its own must move for each cycle: 128 KiB reads with digests.
const BYTES_PER_CYCLE_MIN: f64 = 1.2;
const JUDGE: Judge = Judge { median_max: 0.04, quarters_max: 0.12 };

/// The tables.
pub fn markdown(figures: &Figures, machine: &str, options: &Options) -> String {
    let mut text = format!(
        "{machine}\n{} rounds of {} s for each arrangement, in turn within each round; no polling before sleep, digests and lengths of all \
         answers checked. CPU is µs a command and s per 10⁹ bytes; medians, ratios within the rounds, and in brackets the interval that \
         contains the median with 95 % (of fewer than six rounds, the whole range).\n\n",
        options.rounds(),
        options.seconds()
    );
    for (at, runs) in &figures.controls {
        let cell = &figures.cells[*at];
        let load = format!("{}, {}", cell.load.name(), arranged(&cell.arrangement));
        text.push_str(&JUDGE.says(&load, "rate", &Rounds::ratios(rates(runs), rates(&cell.runs))));
        text.push('\n');
    }
    let part = |part: Part| -> Vec<&Cell> { figures.cells.iter().filter(|cell| cell.part == part).collect() };
    let (all, shapes, shares) = (part(Part::Grid), part(Part::Shapes), part(Part::Shares));
    if !all.is_empty() {
        summary(&all, &mut text);
        grid(&all, &mut text);
    }
    if !shapes.is_empty() {
        shaped(&shapes, &mut text);
    }
    if options.part.is_none_or(|part| part == Part::Shares) {
        shared(&shares, figures.no_shares.as_deref(), options.output.write, &mut text);
    }
    text
}

fn rates(runs: &[Run]) -> impl Iterator<Item = f64> {
    runs.iter().map(Run::rate)
}

fn middle(cell: &Cell, figure: impl Fn(&Run) -> f64) -> f64 {
    Rounds::new(cell.runs.iter().map(figure)).median()
}

fn ratio(cell: &Cell, to: &Cell, figure: impl Fn(&Run) -> f64) -> Rounds {
    Rounds::ratios(cell.runs.iter().map(&figure), to.runs.iter().map(&figure))
}

fn verdict(good: bool) -> &'static str {
    if good { "yes" } else { "**no**" }
}

fn speed(cell: &Cell) -> String {
    match cell.load.row.counts_commands() {
        true => format!("{:.0} IOPS", middle(cell, Run::rate)),
        false => format!("{:.0} MB/s", middle(cell, |run| run.sample.mb_per_s)),
    }
}

fn arranged(arrangement: &Arrangement) -> String {
    let Arrangement { shards, sessions, .. } = arrangement;
    match arrangement.processors {
        Processors::Apart => format!("apart, {shards} × {sessions}"),
        Processors::Together => format!("together, {shards} × {sessions}"),
    }
}

/// CPU time of a command, and for 10⁹ bytes.
fn cost(load: &Load, microseconds: f64) -> String {
    format!("{microseconds:.2} | {:.3}", microseconds * 1e3 / load.row.block_bytes as f64)
}

fn by_load<'a>(cells: &'a [&'a Cell]) -> impl Iterator<Item = &'a [&'a Cell]> {
    cells.chunk_by(|a, b| a.load.name() == b.load.name())
}

/// What more shards bring: one line for each load.
fn summary(cells: &[&Cell], text: &mut String) {
    let n = cells.iter().map(|cell| cell.arrangement.shards).max().unwrap_or(1);
    let _ = write!(
        text,
        "### What {n} shards bring\n\n{n} shards with {n} sessions, over one shard with one session; both ends have all {n} processors. *Speed*: \
         the clients use the same processors, so it cannot grow {n} times. *CPU*: of the target for a command. *With processors for the \
         clients*: {n} shards that are all busy, by that CPU time; the bar is {:.1}.\n\n\
         | load | speed | CPU of a command | with processors for the clients | within the bar |\n|---|--:|--:|--:|---|\n",
        SCALING_MIN * n as f64
    );
    for cells in by_load(cells) {
        let one = cells.iter().find(|cell| cell.arrangement == Arrangement::together(cell.load.row, 1, 1));
        let all = cells.iter().find(|cell| cell.arrangement == Arrangement::together(cell.load.row, n, n));
        let (Some(one), Some(all)) = (one, all) else { continue };
        let cost = ratio(all, one, Run::target_us);
        let projected = n as f64 / cost.median();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {projected:.2} | {} |",
            one.load.name(),
            ratio(all, one, Run::rate).with_interval(),
            cost.with_interval(),
            verdict(projected >= SCALING_MIN * n as f64)
        );
    }
    let reads = |cell: &&&Cell| {
        let Load { row, digests, store } = cell.load;
        row.name == "128 KiB sequential read" && digests && store == "RAM"
    };
    if let Some(cell) =
        cells.iter().filter(|cell| cell.arrangement.processors == Processors::Apart).find(reads)
        && let Some(mhz) = clock_mhz(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
    {
        let bytes = cell.load.row.block_bytes as f64 / (middle(cell, Run::target_us) * mhz);
        let _ = writeln!(
            text,
            "\nThe target alone on a processor of {mhz:.0} MHz (its nominal clock) moves {bytes:.2} bytes a cycle, digests on, 128 KiB reads: \
             at least {BYTES_PER_CYCLE_MIN} is asked for ({}). In 2005 it was 0.26 (445 MB/s at 1.7 GHz).",
            verdict(bytes >= BYTES_PER_CYCLE_MIN)
        );
    }
}

/// The clock of the first processor.
fn clock_mhz(cpuinfo: &str) -> Option<f64> {
    let line = cpuinfo.lines().find(|line| line.starts_with("cpu MHz"))?;
    line.split(':').nth(1)?.trim().parse().ok()
}

fn grid(cells: &[&Cell], text: &mut String) {
    text.push_str(
        "\n### Shards × sessions\n\n*Apart*: the target on one processor, the clients on another. *Together*: both on all. Each session has the \
         whole depth, 32 (4 KiB) or 8. *Imbalance*: the busiest shard over the average. A session is on one shard, so more shards than \
         sessions are as one shard for each session.\n\n\
         | load | processors, shards × sessions | speed | ratio to together, 1 × 1 | target: µs | s/GB | clients: µs | s/GB | shards busy | \
         imbalance |\n|---|---|--:|--:|--:|--:|--:|--:|---|--:|\n",
    );
    for cells in by_load(cells) {
        let one = cells.iter().find(|cell| cell.arrangement == Arrangement::together(cell.load.row, 1, 1));
        for cell in cells {
            let busy: Vec<String> = (0..cell.arrangement.shards)
                .map(|n| format!("{:.0} %", 100.0 * middle(cell, |run| run.busy[n])))
                .collect();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {:.2} |",
                cell.load.name(),
                arranged(&cell.arrangement),
                speed(cell),
                one.map_or_else(String::new, |one| ratio(cell, one, Run::rate).with_interval()),
                cost(&cell.load, middle(cell, Run::target_us)),
                cost(&cell.load, middle(cell, Run::client_us)),
                busy.join(", "),
                middle(cell, Run::imbalance)
            );
        }
    }
}

/// Sessions and connections at the same total depth.
fn shaped(cells: &[&Cell], text: &mut String) {
    let _ = write!(
        text,
        "\n### Sessions or connections\n\nThe same total depth in three shapes, both ends on all processors, as many shards as processors. A \
         session with its connections is on one shard. One that used more would have to gain {SHAPE_MIN} times over one with several \
         connections; several sessions are what it could reach at best, because they hand nothing from thread to thread \
         ([decision 002](decisions/002-shard-per-thread.md)).\n\n\
         | load | sessions × connections | speed | over one session with several connections | target: µs | s/GB | clients: µs | s/GB |\n\
         |---|---|--:|--:|--:|--:|--:|--:|\n"
    );
    for cells in by_load(cells) {
        let several = cells.iter().find(|cell| cell.arrangement.connections > 1).unwrap_or(&cells[0]);
        for cell in cells {
            let _ = writeln!(
                text,
                "| {} | {} × {} | {} | {} | {} | {} |",
                cell.load.name(),
                cell.arrangement.sessions,
                cell.arrangement.connections,
                speed(cell),
                ratio(cell, several, Run::rate).with_interval(),
                cost(&cell.load, middle(cell, Run::target_us)),
                cost(&cell.load, middle(cell, Run::client_us)),
            );
        }
    }
}

/// The speed of a target that has a part of a processor.
fn shared(cells: &[&Cell], missing: Option<&str>, has_picture: bool, text: &mut String) {
    text.push_str(
        "\n### Shares of a processor\n\nOne shard with one session, the client on a processor of its own; a control group limits the target to \
         a share of the other, in periods of 20 ms. It stands in for more processors than this machine has: it shows whether speed \
         follows the processor that is given. *Used*: what the target took of it.\n\n",
    );
    if let Some(why) = missing {
        let _ = writeln!(text, "**Skipped:** {why}.");
        return;
    }
    text.push_str("| load | share | used | speed | of the speed with the whole | target: µs | s/GB |\n|---|--:|--:|--:|--:|--:|--:|\n");
    for cells in by_load(cells) {
        let Some(whole) = cells.last() else { continue };
        for cell in cells {
            let _ = writeln!(
                text,
                "| {} | {} % | {:.0} % | {} | {} | {} |",
                cell.load.name(),
                cell.arrangement.share.unwrap_or(100),
                100.0 * middle(cell, Run::used),
                speed(cell),
                ratio(cell, whole, Run::rate).with_interval(),
                cost(&cell.load, middle(cell, Run::target_us)),
            );
        }
    }
    if has_picture {
        text.push_str("\n![Speed over the share of a processor](scaling.svg)\n");
    }
}

#[cfg(test)]
mod tests {
    use super::super::ROWS;
    use super::*;
    use crate::bench::Sample;

    fn run(iops: f64, target_us: f64, busy: &[f64]) -> Run {
        let sample = Sample {
            iops,
            mb_per_s: iops * 0.131_072,
            reads: iops as u64,
            writes: 0,
            cpu_seconds: iops * 30e-6,
            errors: 0,
            digests_verified: 0,
            digests_failed: 0,
            target_cpu_seconds: iops * target_us * 1e-6,
        };
        Run { sample, busy: busy.to_vec() }
    }

    fn cell(part: Part, arrangement: Arrangement, run: Run) -> Cell {
        let load = Load { row: &ROWS[4], digests: true, store: "RAM" };
        Cell { part, load, arrangement, runs: vec![run; 3] }
    }

    fn figures() -> Figures {
        let (apart, together) = (Arrangement::apart(&ROWS[4]), |n| Arrangement::together(&ROWS[4], n, n));
        let share = |percent| Arrangement { share: Some(percent), ..apart };
        let one = together(2);
        let cells = vec![
            cell(Part::Grid, apart, run(20_000.0, 50.0, &[1.0])),
            cell(Part::Grid, together(1), run(20_000.0, 40.0, &[0.8])),
            cell(Part::Grid, together(2), run(24_000.0, 50.0, &[0.9, 0.3])),
            cell(
                Part::Shapes,
                Arrangement { sessions: 1, connections: 2, ..one },
                run(10_000.0, 40.0, &[0.4, 0.0]),
            ),
            cell(Part::Shapes, one, run(12_000.0, 40.0, &[0.2, 0.2])),
            cell(Part::Shares, share(25), run(5_000.0, 50.0, &[0.25])),
            cell(Part::Shares, share(100), run(20_000.0, 50.0, &[1.0])),
        ];
        Figures { cells, controls: vec![(0, vec![run(20_400.0, 50.0, &[1.0]); 3])], no_shares: None }
    }

    fn text(figures: &Figures) -> String {
        use clap::Parser;
        #[derive(Parser)]
        struct Cli {
            #[command(flatten)]
            options: Options,
        }
        markdown(figures, "M", &Cli::parse_from(["scaling"]).options)
    }

    #[test]
    fn cost_decides_what_shards_bring_and_the_busiest_shard_what_is_uneven() {
        let text = text(&figures());
        assert!(crate::tidy::distrust(&text).is_empty(), "{text}");
        assert!(text.contains("| 1.20 [1.20, 1.20] | 1.25 [1.25, 1.25] | 1.60 | **no** |"), "{text}");
        assert!(text.contains("| 50.00 | 0.381 | 30.00 | 0.229 | 90 %, 30 % | 1.50 |"), "{text}");
        assert!(text.contains("| 2 × 1 | 1573 MB/s | 1.20 [1.20, 1.20] |"), "{text}");
        assert!(text.contains("| 25 % | 25 % | 655 MB/s | 0.25 [0.25, 0.25] |"), "{text}");
    }

    #[test]
    fn a_machine_that_differs_from_itself_is_not_trusted_and_missing_shares_are_said() {
        let mut figures = figures();
        figures.controls[0].1 = vec![run(22_000.0, 50.0, &[1.0]); 3];
        figures.no_shares = Some("no groups".into());
        let text = text(&figures);
        assert_eq!(crate::tidy::distrust(&text).len(), 1, "{text}");
        assert!(text.contains("**Skipped:** no groups."), "{text}");
    }

    #[test]
    fn the_clock_is_what_the_kernel_says() {
        assert_eq!(clock_mhz("processor\t: 0\ncpu MHz\t\t: 2600.100\ncpu MHz\t\t: 1.0\n"), Some(2600.1));
        assert_eq!(clock_mhz("model name : X\n"), None);
    }
}
