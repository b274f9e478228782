//! Turns a seed into a run: the hosts, the paths between them, what each side will negotiate, the loads, and the faults with their times.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use blockstore::Placement;
use fastrand::Rng;
use initiator::{EngineKind, Scheduling};
use iscsi_core::chap::ChapAlgorithm;
use iscsi_core::initiator::SessionConfig;
use iscsi_core::params::{Asymmetric, Bounds, Bursts, DigestPolicy, TaskReporting};
use iscsi_core::send_order::SendOrder;

use crate::load::{LoadPlan, Measuring, Mix};
use crate::network::PathConfig;
use crate::store::BLOCK_BYTES;
use crate::watch::Part;
use crate::world::{Latencies, Nanos};

/// Microseconds, milliseconds and seconds in nanoseconds.
pub const US: Nanos = 1_000;
/// See [`US`].
pub const MS: Nanos = 1_000_000;
/// See [`US`].
pub const SECOND: Nanos = 1_000_000_000;

/// The policies that a seed chooses from.
const SCHEDULING: [Scheduling; 3] =
    [Scheduling::FillFirst, Scheduling::LeastOutstandingBytes, Scheduling::RoundRobin];

/// Address of the target.
pub const TARGET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1)), 3260);

/// Address of initiator `number`, from 1.
pub fn host(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

/// A fault. `which` selects among the candidates at that moment.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A connection is reset, at one end or at both.
    Reset {
        /// Which connection.
        which: u32,
        /// The end that gets the reset; `None`: both.
        only: Option<usize>,
    },
    /// A connection delivers nothing for a while, in one direction or in both.
    Hang {
        /// Which connection.
        which: u32,
        /// The direction, by the end that sends; `None`: both.
        only: Option<usize>,
        /// How long, nanoseconds.
        for_ns: Nanos,
    },
    /// A bit flips undetected by the TCP checksum, where a digest covers it.
    Flip {
        /// Which connection.
        which: u32,
        /// The end that sends.
        side: usize,
        /// Which part of a PDU.
        part: Part,
    },
    /// The path of an initiator loses more from now on.
    Loss {
        /// Which path.
        which: u32,
        /// Lost segments per million.
        ppm: u32,
    },
    /// The store fails some operations.
    StoreErrors {
        /// How many.
        times: u64,
        /// Writes; else reads.
        writes: bool,
        /// A write is cut short before it fails.
        torn: bool,
    },
    /// The store does not answer for a while.
    StoreHang {
        /// How long, nanoseconds.
        for_ns: Nanos,
    },
    /// An initiator vanishes without resetting its connections.
    Vanish {
        /// Which initiator.
        which: u32,
    },
    /// The target dies and comes back.
    Restart {
        /// Time until it is back, nanoseconds.
        down_ns: Nanos,
        /// Its medium loses power with it.
        power: bool,
        /// Its connections are not reset.
        silent: bool,
        /// Its LUN has another volume for a while.
        other: bool,
    },
}

/// How an initiator authenticates, if the target requires it.
#[derive(Clone, Debug, Default)]
pub struct ChapPlan {
    /// It authenticates the target as well.
    pub mutual: bool,
    /// The algorithms it offers, best first; the mandatory one is among them.
    pub algorithms: Vec<ChapAlgorithm>,
    /// It starts with a wrong secret, its own or the target's, and must not get in.
    pub wrong_first: bool,
}

/// One initiator.
#[derive(Clone, Debug)]
pub struct InitiatorPlan {
    /// The path between it and the target.
    pub path: PathConfig,
    /// The bounds within which it negotiates.
    pub bounds: Bounds,
    /// Its load.
    pub load: LoadPlan,
    /// Idle time before it pings, and time it waits for the answer.
    pub ping: Duration,
    /// Timeouts of TCP after which it gives up a connection that delivers nothing while others do; zero: never.
    pub starved_timeouts: u32,
    /// Connections of its session, if the target allows as many.
    pub connections: u16,
    /// It chooses their number itself, up to `connections`.
    pub tunes: bool,
    /// ErrorRecoveryLevel to offer.
    pub recovery: u8,
    /// How it spreads commands over its connections.
    pub scheduling: Scheduling,
    /// How it authenticates.
    pub chap: ChapPlan,
    /// How its load is measured, if it is.
    pub measuring: Option<Measuring>,
    /// What carries out its commands, if its session has one connection.
    pub engine: EngineKind,
}

impl InitiatorPlan {
    /// The negotiation bounds of an initiator with this number of connections, for measurements.
    pub fn bounds_of(connections: u16) -> Bounds {
        Bounds { max_connections: connections, error_recovery_level: 2, ..Bounds::default() }
    }

    /// An initiator that works without pauses and does not ping a peer that is merely slow.
    pub fn steady(path: PathConfig, connections: u16, load: LoadPlan) -> Self {
        Self {
            path,
            bounds: Self::bounds_of(connections),
            load,
            ping: Duration::from_secs(60),
            starved_timeouts: SessionConfig::default().starved_timeouts,
            connections,
            tunes: false,
            recovery: 2,
            scheduling: Scheduling::default(),
            chap: ChapPlan::default(),
            measuring: None,
            engine: EngineKind::None,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed it was made from.
    pub seed: u64,
    /// Blocks of the medium.
    pub blocks: u64,
    /// Where calls of the store run.
    pub placement: Placement,
    /// How long things take.
    pub latencies: Latencies,
    /// Shards of the target.
    pub shards: usize,
    /// The bounds within which the target negotiates.
    pub bounds: Bounds,
    /// Commands that a session may have outstanding.
    pub queue_depth: u32,
    /// The initiators.
    pub initiators: Vec<InitiatorPlan>,
    /// Faults with their times.
    pub faults: Vec<(Nanos, Fault)>,
    /// Connections of a host that sends arbitrary data.
    pub intrusions: u32,
    /// The target requires CHAP with one of these algorithms; empty: no authentication.
    pub chap: Vec<ChapAlgorithm>,
    /// Memory of the target for data in flight, bytes.
    pub buffer_bytes: u64,
    /// In which order both ends send data where any is allowed.
    send_order: SendOrder,
}

impl Plan {
    /// A run without faults, for measurements: one shard, a store that answers at once.
    pub fn steady(seed: u64, blocks: u64, bounds: Bounds, initiators: Vec<InitiatorPlan>) -> Self {
        Self {
            seed,
            blocks,
            placement: Placement::Inline,
            latencies: Latencies { notice_ns: 10 * US, job_ns: (0, 0) },
            shards: 1,
            bounds,
            queue_depth: 128,
            initiators,
            faults: Vec::new(),
            intrusions: 0,
            chap: Vec::new(),
            buffer_bytes: 64 << 20,
            send_order: SendOrder::InPlace,
        }
    }

    /// The run that `seed` produces.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5157_1a2e_0d5e_ed00);
        let count = if rng.bool() { 1 } else { rng.usize(2..=3) };
        let own = rng.u64(16..=256);
        let shared = if count > 1 { rng.u64(1..=4) } else { 0 };
        let blocks = shared + own * count as u64;
        let window = MS * if rng.bool() { rng.u64(20..=500) } else { rng.u64(500..=20_000) };
        let digests = random_digests(&mut rng);
        let initiators = (0..count)
            .map(|n| {
                let from = shared + own * n as u64;
                random_initiator(&mut rng, n as u32 + 1, from..from + own, 0..shared, window, digests)
            })
            .collect();
        let faults = random_faults(&mut rng, window);
        let slow_store = rng.u8(..) < 64;
        let mut plan = Self {
            seed,
            blocks,
            placement: if rng.u8(..) < 160 { Placement::Offload } else { Placement::Inline },
            latencies: Latencies {
                notice_ns: rng.u64(0..=100) * US,
                job_ns: if slow_store { (50 * US, 20 * MS) } else { (5 * US, 500 * US) },
            },
            shards: rng.usize(1..=2),
            bounds: random_bounds(&mut rng, digests),
            queue_depth: *rng.choice(&[1, 2, 8, 32, 128]).unwrap_or(&128),
            initiators,
            faults,
            intrusions: if rng.u8(..) < 48 { rng.u32(1..=6) } else { 0 },
            chap: Vec::new(),
            buffer_bytes: 64 << 20,
            send_order: SendOrder::InPlace,
        };
        plan.draw_more(&mut rng);
        plan
    }

    /// Draws the settings that do not depend on the rest.
    fn draw_more(&mut self, rng: &mut Rng) {
        if rng.u8(..) < 64 {
            self.chap = random_algorithms(rng);
        }
        self.buffer_bytes = *rng.choice(&[1 << 20, 4 << 20, 64 << 20]).unwrap_or(&(64 << 20));
        // Both ends often support both, so that they get used.
        let (level_2, free) = (rng.u8(..) < 160, rng.u8(..) < 80);
        let know = |bounds: &mut Bounds, rng: &mut Rng| {
            bounds.protocol_level = if level_2 && rng.u8(..) < 224 { 2 } else { 1 };
            let asymmetric = free && rng.u8(..) < 224;
            bounds.asymmetric = if asymmetric { Asymmetric::Pairs } else { Asymmetric::No };
        };
        know(&mut self.bounds, rng);
        let managed = rng.u8(..) < 96;
        for initiator in &mut self.initiators {
            know(&mut initiator.bounds, rng);
            initiator.chap = ChapPlan {
                mutual: rng.bool(),
                algorithms: random_algorithms(rng),
                wrong_first: rng.u8(..) < 32,
            };
            if managed && rng.u8(..) < 192 {
                initiator.load.functions = rng.u32(1..=8);
            }
        }
        for (_, fault) in &mut self.faults {
            if let Fault::Restart { other, .. } = fault {
                *other = rng.u8(..) < 64;
            }
        }
        for initiator in &mut self.initiators {
            initiator.scheduling = *rng.choice(&SCHEDULING).unwrap_or(&Scheduling::FillFirst);
        }
        if rng.u8(..) < 80 {
            self.draw_order(rng);
        }
        // The target knows both asymmetric uses or neither; the initiator chooses.
        for initiator in &mut self.initiators {
            if rng.bool() && initiator.bounds.asymmetric.is_used() {
                initiator.bounds.asymmetric = Asymmetric::Halves;
            }
        }
        for initiator in &mut self.initiators {
            initiator.starved_timeouts = rng.u32(0..=3);
        }
    }

    /// Lets data travel in any order, at the only ErrorRecoveryLevel at which it may. Both ends want that most of the time.
    fn draw_order(&mut self, rng: &mut Rng) {
        let want = |bounds: &mut Bounds, rng: &mut Rng| {
            bounds.error_recovery_level = 0;
            bounds.data_in_order.pdus = rng.u8(..) < 48;
            bounds.data_in_order.sequences = rng.u8(..) < 48;
        };
        want(&mut self.bounds, rng);
        for initiator in &mut self.initiators {
            initiator.recovery = 0;
            want(&mut initiator.bounds, rng);
        }
        if rng.u8(..) < 224 {
            self.send_order = SendOrder::Drawn(rng.u64(..));
        }
    }

    /// Whether there is time for everything: no path loses anything, and every timeout is at least twice the time that all commands of all
    /// initiators take in sequence. Then nothing needs to be given up. Otherwise every attempt may end in a timeout.
    pub fn has_time(&self) -> bool {
        let loses = self.initiators.iter().any(|initiator| initiator.path.loss_ppm > 0)
            || self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Loss { .. }));
        let time = |initiator: &InitiatorPlan| initiator.load.depth as u64 * self.command_ns(initiator);
        let all = Duration::from_nanos(self.initiators.iter().map(time).sum());
        !loses && self.initiators.iter().all(|initiator| initiator.load.timeout >= 2 * all)
    }

    /// The time that the longest command of an initiator takes alone, nanoseconds: round trips for its bursts and for the sender's window,
    /// the bytes on the wire, the medium.
    fn command_ns(&self, initiator: &InitiatorPlan) -> Nanos {
        let (path, bytes) = (&initiator.path, initiator.load.max_blocks * BLOCK_BYTES as u64);
        let round_trip_ns = 2 * (path.delay_ns + path.jitter_ns + self.latencies.notice_ns);
        let burst_bytes =
            u64::from(self.bounds.bursts.max_burst_length.min(initiator.bounds.bursts.max_burst_length));
        let window_bytes = path.send_buffer_bytes.min(path.receive_window_bytes) as u64;
        let round_trips = 2 + bytes.div_ceil(burst_bytes) + bytes.div_ceil(window_bytes);
        let wire_ns = path.bandwidth.map_or(0, |rate| bytes * SECOND / rate);
        round_trips * round_trip_ns + wire_ns + 2 * self.latencies.job_ns.1
    }

    /// In which order both ends send data where any is allowed.
    pub fn send_order(&self) -> SendOrder {
        self.send_order.clone()
    }

    /// When the last fault starts.
    pub fn last_fault(&self) -> Nanos {
        self.faults.iter().map(|(at, _)| *at).max().unwrap_or(0)
    }
}

/// A random selection; MD5, which every implementation has, is always included.
fn random_algorithms(rng: &mut Rng) -> Vec<ChapAlgorithm> {
    let mut all: Vec<ChapAlgorithm> = ChapAlgorithm::ALL.to_vec();
    all.retain(|algorithm| *algorithm == ChapAlgorithm::Md5 || rng.bool());
    all
}

/// Digests are on most of the time: bits flip only under a digest.
fn random_digests(rng: &mut Rng) -> (bool, bool) {
    let dice = rng.u8(..);
    (dice < 200, !(40..=232).contains(&dice) || dice < 190)
}

fn random_bounds(rng: &mut Rng, (header, data): (bool, bool)) -> Bounds {
    let policy = |rng: &mut Rng, on: bool| match on {
        true => {
            *rng.choice(&[DigestPolicy::Offered, DigestPolicy::Required]).unwrap_or(&DigestPolicy::Offered)
        }
        false => DigestPolicy::Off,
    };
    let size = |rng: &mut Rng, most: u32| {
        let shift = rng.u32(9..=17);
        let odd = if rng.bool() { 0 } else { rng.u32(0..512) & !3 };
        ((1 << shift) + odd).min(most)
    };
    let max_burst_length = size(rng, 1 << 17).max(512);
    Bounds {
        header_digest: policy(rng, header),
        data_digest: policy(rng, data),
        max_recv_data_segment_length: size(rng, 1 << 17),
        bursts: Bursts {
            max_burst_length,
            first_burst_length: size(rng, max_burst_length),
            initial_r2t: rng.bool(),
            immediate_data: rng.bool(),
            max_outstanding_r2t: *rng.choice(&[1, 1, 2, 8]).unwrap_or(&1),
        },
        max_connections: *rng.choice(&[1, 2, 4, 4]).unwrap_or(&1),
        error_recovery_level: *rng.choice(&[0, 1, 2, 2]).unwrap_or(&0),
        task_reporting: *rng
            .choice(&[TaskReporting::Rfc3720, TaskReporting::ResponseFence, TaskReporting::FastAbort])
            .unwrap_or(&TaskReporting::Rfc3720),
        default_time2wait_s: rng.u16(0..=3),
        default_time2retain_s: rng.u16(0..=20),
        ..Bounds::default()
    }
}

fn random_initiator(
    rng: &mut Rng,
    writer: u32,
    own: std::ops::Range<u64>,
    shared: std::ops::Range<u64>,
    window: Nanos,
    digests: (bool, bool),
) -> InitiatorPlan {
    let operations = if rng.u8(..) < 32 { rng.u32(100..=400) } else { rng.u32(10..=100) };
    let delay_ns = if rng.bool() { rng.u64(5..=500) * US } else { rng.u64(1..=40) * MS };
    let path = PathConfig {
        delay_ns,
        jitter_ns: rng.u64(0..=delay_ns / 2),
        bandwidth: rng.bool().then(|| rng.u64(1_000_000..=1_000_000_000)),
        loss_ppm: if rng.u8(..) < 96 { rng.u32(0..=20_000) } else { 0 },
        segment_bytes: *rng.choice(&[1448, 8948, 65_536]).unwrap_or(&8948),
        send_buffer_bytes: *rng.choice(&[4096, 65_536, 1 << 20]).unwrap_or(&65_536),
        receive_window_bytes: *rng.choice(&[16_384, 262_144, 1 << 20]).unwrap_or(&262_144),
        ..PathConfig::default()
    };
    // Bursts may be as short as a block, and each takes a round trip: no single operation should take minutes.
    let most_blocks = (400 * MS / delay_ns).clamp(8, 256);
    let load = LoadPlan {
        writer,
        own,
        shared,
        operations,
        depth: *rng.choice(&[1, 2, 4, 16, 32]).unwrap_or(&4),
        max_blocks: most_blocks.min(*rng.choice(&[1, 8, 64, 256]).unwrap_or(&8)),
        exact: false,
        functions: 0,
        mix: Mix { writes: rng.u8(10..=70), flushes: rng.u8(0..=8), swaps: rng.u8(0..=20) },
        timeout: Duration::from_millis(rng.u64(1_000..=30_000))
            + Duration::from_nanos(most_blocks * 4 * delay_ns),
        pause_ns: 4 * window / u64::from(operations),
        watches: true,
    };
    let ping = Duration::from_millis(rng.u64(500..=5_000));
    let connections = if rng.bool() { 1 } else { rng.u16(2..=4) };
    let recovery = rng.u8(0..=2);
    let (bounds, chap) = (random_bounds(rng, digests), ChapPlan::default());
    let scheduling = Scheduling::default();
    // The draws of the plans that follow stay as they are.
    let engine = if rng.clone().bool() { EngineKind::Software } else { EngineKind::None };
    InitiatorPlan {
        path,
        bounds,
        load,
        ping,
        starved_timeouts: 0,
        connections,
        tunes: false,
        recovery,
        scheduling,
        chap,
        measuring: None,
        engine,
    }
}

fn random_faults(rng: &mut Rng, window: Nanos) -> Vec<(Nanos, Fault)> {
    let count = if rng.u8(..) < 40 { 0 } else { rng.usize(1..=6) };
    let mut faults: Vec<(Nanos, Fault)> =
        (0..count).map(|_| (rng.u64(0..=window), random_fault(rng))).collect();
    faults.sort_by_key(|(at, _)| *at);
    faults
}

fn random_fault(rng: &mut Rng) -> Fault {
    let which = rng.u32(..);
    let side = rng.usize(0..=1);
    let only = rng.bool().then_some(side);
    match rng.u8(0..100) {
        0..30 => {
            let part = if rng.bool() { Part::Header } else { Part::Data };
            Fault::Flip { which, side, part }
        }
        30..50 => Fault::Reset { which, only },
        50..65 => Fault::Hang {
            which,
            only,
            for_ns: if rng.bool() { rng.u64(1..=2_000) * MS } else { 3600 * SECOND },
        },
        65..72 => Fault::Loss { which, ppm: rng.u32(0..=100_000) },
        72..82 => {
            let writes = rng.bool();
            Fault::StoreErrors { times: rng.u64(1..=5), writes, torn: writes && rng.bool() }
        }
        82..84 => Fault::Vanish { which },
        84..90 => Fault::StoreHang { for_ns: rng.u64(1..=8_000) * MS },
        _ => Fault::Restart {
            down_ns: rng.u64(1..=3_000) * MS,
            power: rng.bool(),
            silent: rng.u8(..) < 64,
            other: false,
        },
    }
}
