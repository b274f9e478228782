//! A complete target and complete initiators in one thread on a virtual clock: the real shards, event loops and device servers on a
//! simulated network and a simulated medium, with all randomness derived from one seed.
//!
//! | module | its part |
//! |---|---|
//! | [`plan`] | turns a seed into the hosts and the faults of a run |
//! | [`run`] | builds it, lets time pass, judges |
//! | `hosts` | the processes: target and initiators |
//! | [`world`] | clock, events, processes |
//! | [`network`], [`driver`] | connections with delay, bandwidth and loss; the engine's interface to its system |
//! | [`store`] | a medium that can lose power |
//! | [`load`], [`oracle`] | what initiators do, and what every block may hold |
//! | [`watch`], `rules` | observe the wire: transcript, and the numbers of RFC 7143 |
//! | [`campaign`] | many seeds on all cores |
//! | [`kept`] | measurements of many seeds, that continue where they were interrupted |
//! | [`survival`] | how long a session over the air stands still when something happens to it |
//! | [`table`], [`recovery`] | pages for the documentation |
//! | `intruder` | a host that sends arbitrary data |
//!
//! Invariants checked throughout: no wrong byte is delivered or acknowledged; no write is lost, applied twice or applied late; every
//! command ends; no session exceeds its limits and nothing is left over at the end; the numbers on the wire are right.
//!
//! Threads are not simulated. What two shards do at the same time is interleaved here, event by event, never truly parallel.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod agreed;
pub mod air;
pub mod auto;
pub mod auto_map;
pub mod campaign;
pub mod driver;
mod hosts;
mod intruder;
pub mod kept;
pub mod load;
pub mod network;
pub mod oracle;
pub mod plan;
pub mod recovery;
mod rules;
pub mod run;
pub mod sabotage;
pub mod store;
pub mod survival;
pub mod table;
mod tcp_info;
pub mod trial;
pub mod verdict;
pub mod watch;
pub mod world;

pub use plan::Plan;
pub use run::{Report, Run};
pub use sabotage::Sabotage;

/// Runs a seed without a transcript.
pub fn run_seed(seed: u64) -> Report {
    Run::new(Plan::from_seed(seed), false, Sabotage::None).finish()
}
