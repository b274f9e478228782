//! The figures as tables.

use std::fmt::Write as _;

use super::{Cell, DEPTH, Figures, Load, Options};
use crate::bench::judge::{Judge, Rounds};
use crate::bench::median;

/// What the requirements allow: CPU time over that of one session alone, memory of an idle session, logins a second.
const RATIO_MAX: f64 = 1.10;
const RESIDENT_MAX_KIB: f64 = 64.0;
const LOGINS_MIN: f64 = 1000.0;
const JUDGE: Judge = Judge { median_max: 0.03, quarters_max: 0.10 };

fn ratios(cell: &Cell, to: &Cell) -> Rounds {
    Rounds::ratios(cell.cpu_us.iter().copied(), to.cpu_us.iter().copied())
}

/// The median, the quarters, and whether the median is within the limit, as cells of a table.
fn within(ratios: &Rounds) -> String {
    let verdict = if ratios.median() <= RATIO_MAX { "yes" } else { "**no**" };
    format!("{} | {verdict} |", ratios.cells())
}

fn middle(values: &[f64]) -> f64 {
    median(values.iter().copied())
}

/// The tables.
pub fn markdown(figures: &Figures, machine: &str, options: &Options) -> String {
    let mut text = format!(
        "{machine}\n{} rounds of {} s for each cell, in turn within each round; target and initiators pinned to a core each, one shard, \
         no polling before sleep, volume in memory, no digests, every block read compared. CPU is the target's; medians, ratios within \
         the rounds and their quarters; the bar is {RATIO_MAX:.2}.\n",
        options.rounds, options.seconds
    );
    judge(figures, &mut text);
    spread(figures, &mut text);
    beside(figures, &mut text);
    idle(figures, &mut text);
    logins(figures, &mut text);
    text
}

/// What the load that was measured twice says of the machine.
fn judge(figures: &Figures, text: &mut String) {
    let same = ratios(&figures.control, &figures.cells[0]);
    let _ = writeln!(text, "{}", JUDGE.says("the first load", "CPU time", &same));
}

fn spread(figures: &Figures, text: &mut String) {
    let _ = write!(
        text,
        "### {DEPTH} commands, spread over sessions\n\n4 KiB random reads, {DEPTH} outstanding in all. *Sockets alone*: the same traffic \
         without a protocol, on the same driver. *Beyond them*: the difference, which is what the sessions cost.\n\n\
         | sessions | reads/s | CPU µs a read | ratio | quarters | within the bar | sockets alone, µs | ratio | beyond them, µs |\n\
         |--:|--:|--:|--:|---|---|--:|--:|--:|\n"
    );
    let floor_of = |n: usize| figures.cells.iter().find(|cell| cell.load == Load::Floor { connections: n });
    for cell in &figures.cells {
        let Load::Spread { sessions } = cell.load else { continue };
        let ratio = within(&ratios(cell, &figures.cells[0]));
        let (rate, cpu) = (middle(&cell.per_second), middle(&cell.cpu_us));
        let _ = write!(text, "| {sessions} | {rate:.0} | {cpu:.2} | {ratio}");
        let _ = match (floor_of(sessions), floor_of(1)) {
            (Some(floor), Some(one)) => {
                let beyond = cell.cpu_us.iter().zip(&floor.cpu_us).map(|(all, sockets)| all - sockets);
                let times = ratios(floor, one).median();
                writeln!(text, " {:.2} | {times:.2} | {:.2} |", middle(&floor.cpu_us), median(beyond))
            }
            _ => writeln!(text, " - | - | - |"),
        };
    }
}

fn beside(figures: &Figures, text: &mut String) {
    text.push_str(
        "\n### One active session beside idle ones\n\n4 KiB random reads; the idle sessions answer pings.\n\n\
         | depth | idle sessions | reads/s | CPU µs a read | ratio | quarters | within the bar |\n|--:|--:|--:|--:|--:|---|---|\n",
    );
    for cell in &figures.cells {
        let Load::Beside { idle, depth } = cell.load else { continue };
        let alone = figures.cells.iter().find(|other| other.load == Load::Beside { idle: 0, depth });
        let ratio = within(&ratios(cell, alone.unwrap_or(cell)));
        let (rate, cpu) = (middle(&cell.per_second), middle(&cell.cpu_us));
        let _ = writeln!(text, "| {depth} | {idle} | {rate:.0} | {cpu:.2} | {ratio}");
    }
}

fn idle(figures: &Figures, text: &mut String) {
    let idle = &figures.idle;
    let resident = middle(&idle.resident_bytes) / 1024.0;
    let verdict = |good| if good { "yes" } else { "**no**" };
    let _ = write!(
        text,
        "\n### {} idle sessions\n\n| what | figure | bar | within |\n|---|--:|--:|---|\n\
         | memory of each, resident | {resident:.1} KiB | {RESIDENT_MAX_KIB:.0} KiB | {} |\n\
         | wake-ups before the first ping was due, 8 s | {} | 0 | {} |\n\
         | CPU time meanwhile | {:.2} ms | | |\n\
         | pings answered, in the 34 s after | {} | | |\n\
         | wake-ups meanwhile | {} | not above the pings | {} |\n\
         | CPU time of the target for each ping | {:.2} µs | | |\n",
        idle.sessions,
        verdict(resident <= RESIDENT_MAX_KIB),
        idle.quiet_wake_ups,
        verdict(idle.quiet_wake_ups == 0),
        idle.quiet_cpu_ms,
        idle.pings,
        idle.wake_ups,
        verdict(idle.wake_ups <= idle.pings),
        idle.pinged_cpu_ms * 1e3 / idle.pings.max(1) as f64,
    );
}

fn logins(figures: &Figures, text: &mut String) {
    text.push_str(
        "\n### Logins\n\n32 under way at a time. *In and out*: login and logout, on a connection of its own each. *Stay*: sessions that \
         remain, of hosts of their own; their cost is compared with that of the first. The client has no other sessions.\n\n\
         | logins | a second | CPU µs each | ratio | quarters | within the bar | 1,000 a second |\n|---|--:|--:|--:|---|---|---|\n",
    );
    let mut first: Option<&Cell> = None;
    for cell in &figures.cells {
        let name = match cell.load {
            Load::Churn { idle } => format!("in and out, beside {idle} sessions"),
            Load::Arrivals { from, to } => format!("stay: {from} to {to}"),
            Load::Spread { .. } | Load::Floor { .. } | Load::Beside { .. } => continue,
        };
        let base = match first {
            Some(base) if std::mem::discriminant(&base.load) == std::mem::discriminant(&cell.load) => base,
            _ => *first.insert(cell),
        };
        let rate = middle(&cell.per_second);
        let enough = if rate >= LOGINS_MIN { "yes" } else { "**no**" };
        let ratio = within(&ratios(cell, base));
        let _ = writeln!(text, "| {name} | {rate:.0} | {:.1} | {ratio} {enough} |", middle(&cell.cpu_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sessions::Idle;

    fn cell(load: Load, cpu_us: &[f64]) -> Cell {
        Cell { load, cpu_us: cpu_us.to_vec(), per_second: vec![2000.0; cpu_us.len()] }
    }

    fn figures(control: &[f64], many: &[f64]) -> Figures {
        let idle = Idle {
            sessions: 10,
            resident_bytes: vec![40.0 * 1024.0],
            quiet_wake_ups: 0,
            quiet_cpu_ms: 0.0,
            wake_ups: 9,
            pings: 10,
            pinged_cpu_ms: 1.0,
        };
        let base = [1.0, 2.0, 4.0];
        let cells = vec![
            cell(Load::Spread { sessions: 1 }, &base),
            cell(Load::Spread { sessions: 4 }, many),
            cell(Load::Churn { idle: 0 }, &base),
            cell(Load::Churn { idle: 10 }, many),
        ];
        Figures { cells, control: cell(Load::Spread { sessions: 1 }, control), idle }
    }

    fn tables(figures: &Figures) -> String {
        let mut text = String::new();
        judge(figures, &mut text);
        spread(figures, &mut text);
        idle(figures, &mut text);
        logins(figures, &mut text);
        text
    }

    #[test]
    fn ratios_are_of_the_same_round_and_the_bar_decides() {
        let text = tables(&figures(&[1.0, 2.0, 4.0], &[1.2, 2.4, 4.0]));
        assert!(text.contains("| 4 | 2000 | 2.40 | **1.200** | 1.000 - 1.200 | **no** |"), "{text}");
        assert!(text.contains("beside 10 sessions | 2000 | 2.4 | **1.200**"), "{text}");
        assert!(crate::tidy::distrust(&text).is_empty());
    }

    #[test]
    fn a_load_that_differs_from_itself_makes_the_page_untrusted() {
        assert_eq!(crate::tidy::distrust(&tables(&figures(&[1.05, 2.1, 4.2], &[1.0; 3]))).len(), 1);
    }
}
