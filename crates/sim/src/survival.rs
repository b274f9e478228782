//! What a session over the air does when one of its connections is killed or starved, or when the air is silent for a while: how long it
//! stands still. That no command is lost or executed twice is checked by every run of the simulator.

use std::time::Duration;

use initiator::Scheduling;
use iscsi_core::params::{Bounds, DigestPolicy};
use wireless::link::LinkSetup;

use crate::air::AirPlan;
use crate::load::{LoadPlan, Measuring, Mix};
use crate::network::PathConfig;
use crate::plan::{Fault, InitiatorPlan, Plan, SECOND, US};
use crate::run::Run;
use crate::sabotage::Sabotage;
use crate::store::BLOCK_BYTES;
use crate::world::Nanos;

/// Blocks of the medium.
const BLOCKS: u64 = 8192;
/// When it happens: windows are open by then.
pub const MISHAP_NS: Nanos = 5 * SECOND;
/// How long the air is silent: a station roams.
pub const SILENCE_NS: Nanos = SECOND;
/// Everything is lost.
const ALL_PPM: u32 = 1_000_000;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing, for comparison.
    Nothing,
    /// One connection is reset at both ends.
    Killed,
    /// One connection delivers nothing any more in either direction, for so long.
    Starved(Nanos),
    /// The air loses everything for [`SILENCE_NS`].
    Silence,
}

/// A session at ErrorRecoveryLevel 2, and what happens to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Survival {
    /// The link.
    pub link: LinkSetup,
    /// Connections of the session.
    pub connections: u16,
    /// Commands outstanding.
    pub depth: usize,
    /// Bytes per command.
    pub bytes: u32,
    /// Writes per hundred commands; the rest are reads.
    pub writes: u8,
    /// Commands.
    pub commands: u32,
    /// Idle time before the initiator pings, and time it waits for the answer.
    pub ping: Duration,
    /// Timeouts of TCP after which it gives up a connection that delivers nothing while others do; zero: never.
    pub starved_timeouts: u32,
    /// DefaultTime2Wait: seconds until the tasks of a lost connection may be reassigned.
    pub time2wait_s: u16,
    /// What happens.
    pub mishap: Mishap,
}

/// How it went on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Survived {
    /// Longest time without a command that ends, from just before the mishap, ms.
    pub stall_ms: f64,
    /// Connections that the initiator lost or gave up.
    pub connections_lost: u64,
    /// Sessions that were lost: at level 2, none while a connection is left.
    pub sessions_lost: u64,
    /// Commands that ended, and that were given up.
    pub done: u64,
    /// See `done`.
    pub failed: u64,
    /// Throughput of the whole run, 10^6 bytes per second.
    pub mb_s: f64,
}

impl Survival {
    /// Runs it.
    ///
    /// # Errors
    /// The invariant that did not hold: a command that was lost or executed twice, a byte that is wrong.
    pub fn run(&self, seed: u64) -> Result<Survived, String> {
        let (report, course) = Run::new(self.plan(seed), false, Sabotage::None).finish_with_course();
        if let Some(what) = report.broken {
            return Err(what);
        }
        let ends: Vec<f64> = course.trace.iter().map(|(at, _)| at.as_secs_f64() * 1e3).collect();
        let from = MISHAP_NS as f64 / 1e6;
        let gaps = ends.windows(2).filter(|pair| pair[1] > from).map(|pair| pair[1] - pair[0]);
        Ok(Survived {
            stall_ms: gaps.fold(0.0, f64::max),
            connections_lost: course.recovery.connections_lost,
            sessions_lost: report.losses.recoveries,
            done: report.done,
            failed: report.failed,
            mb_s: report.bytes as f64 / 1e6 / (report.busy_ns[0].max(1) as f64 / 1e9),
        })
    }

    fn plan(&self, seed: u64) -> Plan {
        let path = PathConfig {
            delay_ns: self.link.latency_ns.max(100 * US),
            send_buffer_bytes: 1 << 20,
            air: Some(AirPlan { link: self.link, seed }),
            ..PathConfig::default()
        };
        let load = LoadPlan {
            operations: self.commands,
            depth: self.depth,
            max_blocks: u64::from(self.bytes) / BLOCK_BYTES as u64,
            mix: Mix { writes: self.writes, ..Mix::default() },
            ..LoadPlan::steady(1, 0..BLOCKS)
        };
        let steady = InitiatorPlan::steady(path, self.connections, load);
        let bounds = Bounds {
            header_digest: DigestPolicy::Required,
            data_digest: DigestPolicy::Required,
            default_time2wait_s: self.time2wait_s,
            ..steady.bounds.clone()
        };
        let initiator = InitiatorPlan {
            bounds,
            ping: self.ping,
            starved_timeouts: self.starved_timeouts,
            // Uses the connections in turn, so that the one concerned carries commands.
            scheduling: Scheduling::RoundRobin,
            measuring: Some(Measuring { until: iscsi_core::Time::MAX, trace_bytes: 1 }),
            ..steady
        };
        let bounds = initiator.bounds.clone();
        let mut plan = Plan::steady(seed, BLOCKS, bounds, vec![initiator]);
        plan.faults = self.faults();
        plan
    }

    fn faults(&self) -> Vec<(Nanos, Fault)> {
        // The second connection, if there is one: the first is the leading one.
        let which = u32::from(self.connections > 1);
        match self.mishap {
            Mishap::Nothing => vec![],
            Mishap::Killed => vec![(MISHAP_NS, Fault::Reset { which, only: None })],
            Mishap::Starved(for_ns) => vec![(MISHAP_NS, Fault::Hang { which, only: None, for_ns })],
            Mishap::Silence => vec![
                (MISHAP_NS, Fault::Loss { which: 0, ppm: ALL_PPM }),
                (MISHAP_NS + SILENCE_NS, Fault::Loss { which: 0, ppm: 0 }),
            ],
        }
    }
}
