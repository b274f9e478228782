//! What a session does when one of its connections is killed or starved, or the air is silent for a second.

use std::time::Duration;

use sim::plan::SECOND;
use sim::survival::{Mishap, Survival, Survived};
use wireless::link::LinkSetup;

use super::bench::{B, Lab};
use crate::wireless::report::Section;
use harness::document::Table;

/// Commands of a run, and their size: reads and writes in turn, for some 9 s of the link.
const COMMANDS: u32 = 600;
const BYTES: u32 = 8192;
/// Idle time before a ping, and time until the connection is given up without an answer.
const PING: Duration = Duration::from_secs(5);

/// DefaultTime2Wait of a target that does not say otherwise, seconds.
const TIME2WAIT_S: u16 = 2;

/// Timeouts that a starved connection is waited for.
const TIMEOUTS: u32 = 1;

/// What happens, and the timeouts that a starved connection is waited for.
const MISHAPS: [(&str, Mishap, u32); 7] = [
    ("nothing", Mishap::Nothing, TIMEOUTS),
    ("one connection is killed", Mishap::Killed, TIMEOUTS),
    ("one connection delivers nothing for a second", Mishap::Starved(SECOND), TIMEOUTS),
    ("the same, without roll calls", Mishap::Starved(SECOND), 0),
    ("one connection delivers nothing any more", Mishap::Starved(600 * SECOND), TIMEOUTS),
    ("the same, without roll calls", Mishap::Starved(600 * SECOND), 0),
    ("the air loses everything for a second", Mishap::Silence, TIMEOUTS),
];

/// Packets lost after the medium's retries, where roll calls are compared.
const LOSSES: [f64; 3] = [0.0, 0.01, 0.03];

/// The tables.
pub(super) fn figure(lab: &Lab) -> Result<Section, String> {
    let mut section = Section::new(
        "Survival",
        "Four connections at ErrorRecoveryLevel 2, 8 commands at a time, half of them writes of 8 KiB, digests on; after 5 s something happens. No \
         command is lost, executed twice or given up, and no session is lost: every run checks that. The stall is the longest time without a \
         command that ends; TCP's shortest timeout is 200 ms, and it doubles while nothing arrives. DefaultTime2Wait is 2 s, but the target says when \
         it has noticed that a connection is gone, and that nobody need wait for its tasks. A target carries out commands in order over all \
         connections, so one that delivers nothing stops the others too, until it delivers again or is given up: by a roll call, after a \
         timeout of TCP during which others answer, or else by pings (here 5 s idle, 5 s without an answer).",
    );
    section.tables.push(mishaps(lab)?);
    section.tables.push(roll_calls(lab)?);
    Ok(section)
}

fn survival(link: LinkSetup, starved_timeouts: u32, mishap: Mishap) -> Survival {
    Survival {
        link,
        connections: 4,
        depth: 8,
        bytes: BYTES,
        writes: 50,
        commands: COMMANDS,
        ping: PING,
        starved_timeouts,
        time2wait_s: TIME2WAIT_S,
        mishap,
    }
}

/// Runs of every seed, none of which may lose a command or the session.
fn runs(lab: &Lab, survival: Survival) -> Result<Vec<Survived>, String> {
    let runs: Vec<Survived> = (1..=lab.seeds).map(|seed| survival.run(seed)).collect::<Result<_, _>>()?;
    match runs.iter().find(|run| run.failed + run.sessions_lost > 0) {
        Some(run) => Err(format!("{survival:?}: {run:?}")),
        None => Ok(runs),
    }
}

fn mean(runs: &[Survived], of: fn(&Survived) -> f64) -> f64 {
    runs.iter().map(of).sum::<f64>() / runs.len() as f64
}

fn mishaps(lab: &Lab) -> Result<Table, String> {
    let mut table = Table::new("", &["what happens", "longest stall, ms", "mean stall, ms", "MB/s"]);
    for (name, mishap, starved_timeouts) in MISHAPS {
        let runs = runs(lab, survival(B, starved_timeouts, mishap))?;
        let longest = runs.iter().map(|run| run.stall_ms).fold(0.0, f64::max);
        table.rows.push(vec![
            name.to_owned(),
            format!("{longest:.0}"),
            format!("{:.0}", mean(&runs, |run| run.stall_ms)),
            format!("{:.3}", mean(&runs, |run| run.mb_s)),
        ]);
    }
    Ok(table)
}

/// What the patience of roll calls is worth and costs: a connection that has lost the end of what it sent is as silent as a starved one until
/// TCP's timeout, so impatience gives up connections that would have gone on.
fn roll_calls(lab: &Lab) -> Result<Table, String> {
    let columns =
        LOSSES.map(|loss| format!("given up per 1000 commands, and MB/s, {:.0} % lost", 1e2 * loss));
    let mut head = vec!["timeouts", "mean stall of a starved connection, ms"];
    head.extend(columns.iter().map(String::as_str));
    let mut table = Table::new("How long a roll call waits, and nothing but losses happens", &head);
    for timeouts in 0..=4 {
        let starved = runs(lab, survival(B, timeouts, Mishap::Starved(600 * SECOND)))?;
        let mut row = vec![
            if timeouts == 0 { "no roll calls".to_owned() } else { timeouts.to_string() },
            format!("{:.0}", mean(&starved, |run| run.stall_ms)),
        ];
        for loss in LOSSES {
            let runs = runs(lab, survival(LinkSetup { loss, ..B }, timeouts, Mishap::Nothing))?;
            let lost = 1e3 / f64::from(COMMANDS) * mean(&runs, |run| run.connections_lost as f64);
            row.push(format!("{lost:.1}, {:.3}", mean(&runs, |run| run.mb_s)));
        }
        table.rows.push(row);
    }
    Ok(table)
}
