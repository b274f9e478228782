//! A measurement over the air: the real target and the real initiator on a link of [`wireless`], with a fixed number of commands
//! outstanding. Every read is verified, and digests are on.
//!
//! Processor time is not modelled.

use initiator::Scheduling;
use iscsi_core::params::{Asymmetric, Bounds, DigestPolicy};
use wireless::link::LinkSetup;

use crate::air::AirPlan;
use crate::load::{LoadPlan, Mix};
use crate::network::PathConfig;
use crate::plan::{InitiatorPlan, Plan, US};
use crate::run::Run;
use crate::sabotage::Sabotage;
use crate::store::BLOCK_BYTES;
use crate::world::Nanos;

/// Blocks of each session's part of the medium.
const BLOCKS: u64 = 8192;

/// The path between initiator and target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Between {
    /// A link over the air; the time that machines and disks take is part of its latency.
    Air(LinkSetup),
    /// A wire with congestion windows (see [`crate::network`]).
    Wire {
        /// In each direction.
        bytes_per_s: u64,
        /// One way, nanoseconds.
        latency_ns: Nanos,
    },
}

impl From<LinkSetup> for Between {
    fn from(link: LinkSetup) -> Self {
        Self::Air(link)
    }
}

impl Between {
    fn path(self, seed: u64) -> PathConfig {
        let send_buffer_bytes = 1 << 20;
        match self {
            Self::Air(link) => PathConfig {
                delay_ns: link.latency_ns.max(100 * US),
                send_buffer_bytes,
                air: Some(AirPlan { link, seed }),
                ..PathConfig::default()
            },
            Self::Wire { bytes_per_s, latency_ns } => PathConfig {
                delay_ns: latency_ns,
                bandwidth: Some(bytes_per_s),
                segment_bytes: 1448,
                send_buffer_bytes,
                queue_bytes: 512 << 10,
                congestion: true,
                ..PathConfig::default()
            },
        }
    }
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The path between initiator and target.
    pub between: Between,
    /// Sessions, each with its own share of `depth`; all over the same link.
    pub sessions: u8,
    /// Connections of each session.
    pub connections: u16,
    /// Commands on one half of the connections, status and at least some of the data on the other.
    pub asymmetric: Asymmetric,
    /// Commands outstanding, over all sessions and connections.
    pub depth: usize,
    /// Bytes per command, a multiple of the block size.
    pub bytes: u32,
    /// Writes; else reads.
    pub writes: bool,
    /// Commands, over all sessions.
    pub commands: u32,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Throughput, 10^6 bytes per second.
    pub mb_s: f64,
    /// Commands per second.
    pub per_s: f64,
    /// Mean time of a command, ms: the depth over the rate (Little's law, exact in a closed system).
    pub command_ms: f64,
    /// A checksum over everything that was sent: always the same for the same seed.
    pub sum: u64,
}

impl Trial {
    /// Reads of `bytes` over one connection, one at a time.
    pub fn reads(between: impl Into<Between>, bytes: u32) -> Trial {
        Trial {
            between: between.into(),
            sessions: 1,
            connections: 1,
            asymmetric: Asymmetric::No,
            depth: 1,
            bytes,
            writes: false,
            commands: 400,
        }
    }

    /// Runs the trial.
    ///
    /// # Errors
    /// The invariant that did not hold.
    pub fn run(&self, seed: u64) -> Result<Measured, String> {
        let report = Run::new(self.plan(seed), false, Sabotage::None).finish();
        if let Some(what) = report.broken {
            return Err(what);
        }
        let seconds = report.busy_ns.iter().copied().max().unwrap_or(0).max(1) as f64 / 1e9;
        let per_s = report.done as f64 / seconds;
        let command_ms = self.depth as f64 / per_s * 1e3;
        Ok(Measured { mb_s: report.bytes as f64 / 1e6 / seconds, per_s, command_ms, sum: report.sum })
    }

    fn plan(&self, seed: u64) -> Plan {
        let sessions = u64::from(self.sessions.max(1));
        let path = self.between.path(seed);
        let initiators = (0..sessions).map(|n| {
            let load = LoadPlan {
                operations: self.commands / sessions as u32,
                depth: (self.depth / sessions as usize).max(1),
                max_blocks: u64::from(self.bytes) / BLOCK_BYTES as u64,
                mix: Mix { writes: if self.writes { 100 } else { 0 }, ..Mix::default() },
                ..LoadPlan::steady(n as u32 + 1, n * BLOCKS..(n + 1) * BLOCKS)
            };
            // Uses the connections in turn, so that all of them carry commands at any depth.
            let scheduling = Scheduling::RoundRobin;
            let bounds = Bounds {
                asymmetric: self.asymmetric,
                header_digest: DigestPolicy::Required,
                data_digest: DigestPolicy::Required,
                ..InitiatorPlan::bounds_of(self.connections)
            };
            InitiatorPlan { scheduling, bounds, ..InitiatorPlan::steady(path, self.connections, load) }
        });
        let initiators: Vec<InitiatorPlan> = initiators.collect();
        let bounds = initiators[0].bounds.clone();
        Plan::steady(seed, sessions * BLOCKS, bounds, initiators)
    }
}
