//! What a session does when one of its connections is killed or starved, or the air is silent for a second.

use std::time::Duration;

use sim::plan::SECOND;
use sim::survival::{Mishap, Survival, Survived};

use super::bench::{B, Lab};
use crate::cmd::bench::kit::document::Table;
use crate::cmd::wireless::report::Section;

/// Commands of a run, and their size: reads and writes in turn, for some 9 s of the link.
const COMMANDS: u32 = 600;
const BYTES: u32 = 8192;
/// Idle time before a ping, and time until the connection is given up without an answer.
const PING: Duration = Duration::from_secs(5);

/// DefaultTime2Wait of a target that does not say otherwise, seconds.
const TIME2WAIT_S: u16 = 2;

/// What happens, and DefaultTime2Wait.
const MISHAPS: [(&str, Mishap, u16); 6] = [
    ("nothing", Mishap::Nothing, TIME2WAIT_S),
    ("one connection is killed", Mishap::Killed, TIME2WAIT_S),
    ("the same with DefaultTime2Wait 0", Mishap::Killed, 0),
    ("one connection delivers nothing for a second", Mishap::Starved(SECOND), TIME2WAIT_S),
    ("one connection delivers nothing any more", Mishap::Starved(600 * SECOND), TIME2WAIT_S),
    ("the air loses everything for a second", Mishap::Silence, TIME2WAIT_S),
];

/// The table.
pub fn figure(lab: &Lab) -> Result<Section, String> {
    let mut section = Section::new(
        "Survival",
        "Four connections at ErrorRecoveryLevel 2, 8 commands at a time, half of them writes of 8 KiB, digests on; after 5 s something happens. No \
         command is lost, executed twice or given up, and no session is lost: every run checks that. The stall is the longest time without a \
         command that ends; TCP's shortest timeout is 200 ms, and it doubles while nothing arrives. The tasks of a lost connection may be reassigned after DefaultTime2Wait (2 s unless both \
         ends want less). A target carries out commands in order over all \
         connections, so one that delivers nothing stops the others too, until it delivers again or pings (here 5 s idle, 5 s without an \
         answer) give it up.",
    );
    let mut table = Table::new("", &["what happens", "longest stall, ms", "mean stall, ms", "MB/s"]);
    for (name, mishap, time2wait_s) in MISHAPS {
        let survival = Survival {
            link: B,
            connections: 4,
            depth: 8,
            bytes: BYTES,
            writes: 50,
            commands: COMMANDS,
            ping: PING,
            time2wait_s,
            mishap,
        };
        let runs: Vec<Survived> = (1..=lab.seeds).map(|seed| survival.run(seed)).collect::<Result<_, _>>()?;
        if let Some(run) = runs.iter().find(|run| run.failed + run.sessions_lost > 0) {
            return Err(format!("{name}: {run:?}"));
        }
        let mean = |of: fn(&Survived) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let longest = runs.iter().map(|run| run.stall_ms).fold(0.0, f64::max);
        table.rows.push(vec![
            name.to_owned(),
            format!("{longest:.0}"),
            format!("{:.0}", mean(|run| run.stall_ms)),
            format!("{:.3}", mean(|run| run.mb_s)),
        ]);
    }
    section.tables.push(table);
    Ok(section)
}
