//! Target and initiators, whole, in one thread on a virtual clock: the real shards, the real event loops, the real device servers
//! on a simulated network and a simulated medium, everything random from one seed.
//!
//! | module | its part |
//! |---|---|
//! | [`plan`] | from a seed to who is there and what goes wrong when |
//! | [`run`] | builds it, lets time pass, judges |
//! | `hosts` | the processes: target and initiators |
//! | [`world`] | clock, events, processes |
//! | [`network`], [`driver`] | connections with delay, bandwidth, loss; what the engine asks of a system |
//! | [`store`] | a medium that can lose its power |
//! | [`load`], [`oracle`] | what initiators do, and what every block may hold |
//! | [`watch`], `rules` | reads along on the wire: transcript, and the numbers of RFC 7143 |
//! | [`campaign`] | many seeds on all cores |
//! | [`table`], [`recovery`] | what the documentation shows of it |
//! | `intruder` | a host that sends what it likes |
//!
//! Invariants that are checked all the time: no wrong byte is delivered or acknowledged; no write is lost, applied twice or late;
//! every command ends; sessions hold what they may hold and nothing is left in the end; the numbers on the wire are right.
//!
//! Left out: threads. What two shards do at the same time is interleaved here, event by event, never truly parallel.
#![forbid(unsafe_code)]

pub mod air;
pub mod campaign;
pub mod driver;
mod hosts;
mod intruder;
pub mod load;
pub mod network;
pub mod oracle;
pub mod plan;
pub mod recovery;
mod rules;
pub mod run;
pub mod store;
pub mod table;
pub mod trial;
pub mod verdict;
pub mod watch;
pub mod world;

pub use plan::Plan;
pub use run::{Report, Run, Sabotage};

/// Runs the seed, without a transcript.
pub fn run_seed(seed: u64) -> Report {
    Run::new(Plan::from_seed(seed), false, Sabotage::None).finish()
}
