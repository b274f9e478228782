//! The processes of a run: the target and its initiators. Each gets a turn when it has noticed something or when its deadline has come.
//!
//! A process changes state only in a turn, so its next deadline is read once after each turn.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use blockstore::{BlockStore, StoreSpec};
use initiator::{Options, Portal, Workload};
use iscsi_core::Time;
use iscsi_core::chap::{Credentials, Secret};
use iscsi_core::initiator::login::ChapConfig;
use iscsi_core::names::IscsiName;
use iscsi_wire::Isid;
use parking_lot::Mutex;
use target::config::{AccessRules, Account, Auth, Config, Limits, LunConfig, PortalConfig, TargetConfig};
use target::observe::Observe;

use crate::load::Progress;
use crate::network::SimListener;
use crate::plan::{ChapPlan, InitiatorPlan, Plan, TARGET, host};
use crate::sabotage::Sabotage;
use crate::store::BLOCK_BYTES;
use crate::verdict::Verdict;
use crate::world::{DriverId, Nanos, Process, SimPlatform, World};

const TARGET_NAME: &str = "iqn.2026-01.io.intact:sim";
/// The deadline of a process that needs no turn unless something happens.
const NEVER: Nanos = Nanos::MAX;

fn moment(at: Option<Time>) -> Nanos {
    at.map_or(NEVER, |at| Nanos::try_from(at.as_nanos()).unwrap_or(NEVER))
}

/// The target.
pub(crate) struct Serving {
    pub owner: usize,
    pub target: target::Stepped<Process>,
    /// The drivers of its shards.
    pub drivers: Vec<DriverId>,
    deadlines: Vec<Nanos>,
    buffer_bytes: u64,
}

impl Serving {
    /// Starts it as the process `owner`, with `disk` as its only logical unit; the unit's serial number is `name`.
    pub(crate) fn start(
        world: &Arc<World>,
        owner: usize,
        plan: &Plan,
        sabotage: Sabotage,
        disk: &Arc<dyn BlockStore>,
        name: &str,
    ) -> Result<Self, String> {
        let platform = SimPlatform::new(world, TARGET.ip(), owner);
        let disk = Arc::clone(disk);
        let open: target::OpenStore = Arc::new(move |_| Ok(Arc::clone(&disk)));
        let config = config(plan, sabotage, name);
        let portal = config.portals[0].clone();
        let observe = Arc::new(Observe::new());
        let process = Process(Arc::clone(&platform));
        let target = target::Stepped::start(process, config, observe, open, plan.shards)
            .map_err(|error| format!("the target does not start: {error}"))?;
        target.set_send_order(plan.send_order());
        target.listen(SimListener(portal.address), portal);
        let drivers = platform.drivers();
        let deadlines = (0..drivers.len()).map(|shard| moment(target.next_deadline(shard))).collect();
        Ok(Self { owner, target, drivers, deadlines, buffer_bytes: plan.buffer_bytes })
    }

    /// Whether a normal session has a connection from `host`; discovery sessions do not count, because they are open to all.
    pub(crate) fn serves(&mut self, host: std::net::IpAddr) -> bool {
        let sessions = self.target.sessions();
        let normal = sessions.iter().filter(|session| session.names.target.is_some());
        normal.flat_map(|session| &session.connections).any(|c| c.peer.ip() == host)
    }

    /// The earliest deadline of a shard.
    pub(crate) fn deadline(&self) -> Nanos {
        self.deadlines.iter().copied().min().unwrap_or(NEVER)
    }

    /// Gives a turn to the shards that have noticed something or whose deadline has come. Returns whether there was one.
    pub(crate) fn turn(&mut self, world: &World, verdict: &Verdict) -> bool {
        let mut any = false;
        for (shard, &driver) in self.drivers.iter().enumerate() {
            if !world.take_noticed(driver) && self.deadlines[shard] > world.now() {
                continue;
            }
            any = true;
            if let Err(error) = self.target.turn(shard) {
                verdict.broken(format!("a shard has ended: {error}"));
            }
            self.deadlines[shard] = moment(self.target.next_deadline(shard));
        }
        if any {
            check_holdings(&self.target, self.buffer_bytes, verdict);
        }
        any
    }
}

/// An initiator.
pub(crate) struct Running {
    pub owner: usize,
    /// It has vanished.
    pub gone: bool,
    pub session: initiator::Stepped<Process>,
    pub progress: Arc<Mutex<Progress>>,
    pub drivers: Vec<DriverId>,
    /// Its first login was answered.
    pub opened: bool,
    pub began: Nanos,
    /// It logs in with a wrong secret.
    pub wrong_secret: bool,
    over: bool,
    deadline: Nanos,
}

impl Running {
    /// Starts initiator `number`, from 1, as the process `owner`.
    pub(crate) fn start(
        world: &Arc<World>,
        owner: usize,
        number: u8,
        plan: &Plan,
        wrong_secret: bool,
        load: Box<dyn Workload>,
        progress: Arc<Mutex<Progress>>,
    ) -> Result<Self, String> {
        let platform = SimPlatform::new(world, host(number), owner);
        let own = &plan.initiators[usize::from(number) - 1];
        let mut options = options(own, number);
        options.session.send_order = plan.send_order();
        if !plan.chap.is_empty() {
            options.chap = Some(chap(&own.chap, number, wrong_secret));
        }
        let session = initiator::Stepped::open(Process(Arc::clone(&platform)), options, load)
            .map_err(|error| format!("an initiator does not start: {error}"))?;
        let deadline = moment(session.next_deadline());
        let (drivers, began) = (platform.drivers(), world.now());
        Ok(Self {
            owner,
            gone: false,
            session,
            progress,
            drivers,
            opened: false,
            began,
            wrong_secret,
            over: false,
            deadline,
        })
    }

    /// Whether its logical unit has reported its identity; true also if the initiator is gone.
    pub(crate) fn knows_its_volume(&self) -> bool {
        self.gone || self.progress.lock().answered
    }

    /// Its deadline.
    pub(crate) fn deadline(&self) -> Nanos {
        if self.over || self.gone { NEVER } else { self.deadline }
    }

    /// Gives it a turn if it has noticed something or its deadline has come. Returns whether it got one.
    pub(crate) fn turn(&mut self, world: &World) -> bool {
        let mut noticed = false;
        for &driver in &self.drivers {
            noticed |= world.take_noticed(driver);
        }
        if self.over || self.gone || !(noticed || self.deadline <= world.now()) {
            return false;
        }
        self.over = !self.session.turn();
        self.deadline = moment(self.session.next_deadline());
        true
    }
}

/// The most bytes that one read of a load transfers.
const MAX_READ_BYTES: u64 = (256 * BLOCK_BYTES) as u64;

/// No session may hold more than its limits allow.
fn check_holdings(target: &target::Stepped<Process>, buffer_bytes: u64, verdict: &Verdict) {
    check_memory(target, buffer_bytes, verdict);
    for session in target.holdings() {
        let held = session.held;
        // Immediate commands come on top. A session that is being replaced still holds the commands that the store is executing.
        let tasks_max = session.queue_depth as usize + iscsi_core::limits::MAX_IMMEDIATE_TASKS;
        // A read starts while there is room, and may then take more than there is, on each connection.
        let data_max = session.tx_bytes_max + (session.connections as u64 + 1) * MAX_READ_BYTES;
        let bounds = [
            ("tasks", held.tasks as u64, tasks_max as u64),
            ("bytes of data that may be asked for again", held.retained_bytes, session.retained_bytes_max),
            ("bytes of data that R2Ts ask for", held.data_out.solicited_bytes, session.solicited_bytes_max),
            // Headers, digests and other responses come on top of the data.
            ("bytes to send", session.tx_bytes, data_max + data_max / 4),
        ];
        for (what, held, most) in bounds {
            if held > most {
                verdict.broken(format!("a session holds {held} {what}, {most} is its limit"));
            }
        }
    }
}

/// The data that all sessions together hold must fit into the memory reserved for it, whatever each of them requests.
fn check_memory(target: &target::Stepped<Process>, buffer_bytes: u64, verdict: &Verdict) {
    let sum =
        |part: fn(&target::SessionHoldings) -> u64| target.holdings().map(|held| part(&held)).sum::<u64>();
    for (what, held, most) in [
        ("in their books", sum(|session| session.data_bytes), buffer_bytes / 2),
        ("of Data-Out", sum(|session| session.held.data_out.kept_bytes), buffer_bytes / 4 * 3),
        ("that came unasked", sum(|session| session.held.data_out.early_bytes), buffer_bytes / 4),
        ("that may be asked for again", sum(|session| session.held.retained_bytes), buffer_bytes / 4),
    ] {
        if held > most {
            verdict.broken(format!("the sessions hold {held} bytes {what}, {most} are their limit"));
        }
    }
}

fn credentials(of: &str) -> Credentials {
    Credentials { name: of.to_owned(), secret: Secret::new(format!("the secret of {of}")) }
}

/// The secret of initiators that must not get in.
fn nobody() -> Secret {
    Secret::new("the secret of nobody")
}

/// How the target authenticates the initiators.
fn auth(plan: &Plan, sabotage: Sabotage) -> Auth {
    if plan.chap.is_empty() {
        return Auth::None;
    }
    let account = |number: usize| {
        let Credentials { name, mut secret } = credentials(&format!("i{number}"));
        if sabotage == Sabotage::StolenAccounts {
            secret = nobody();
        }
        Account { name, secret, initiators: Vec::new() }
    };
    Auth::Chap {
        accounts: (1..=plan.initiators.len()).map(account).collect(),
        mutual: Some(credentials("target")),
        algorithms: plan.chap.clone(),
    }
}

/// How initiator `number` authenticates. If `wrong`, one secret is wrong: the target's if authentication is mutual, else its own.
fn chap(plan: &ChapPlan, number: u8, wrong: bool) -> ChapConfig {
    let mut config = ChapConfig {
        own: credentials(&format!("i{number}")),
        target: plan.mutual.then(|| credentials("target")),
        algorithms: plan.algorithms.clone(),
        required: true,
    };
    if wrong {
        config.target.as_mut().unwrap_or(&mut config.own).secret = nobody();
    }
    config
}

fn config(plan: &Plan, sabotage: Sabotage, serial: &str) -> Config {
    let store = StoreSpec::Ram {
        size_bytes: 512,
        logical_block_bytes: None,
        resident_limit_bytes: None,
        protection: None,
    };
    let name = IscsiName::parse(TARGET_NAME).expect("a constant of the right form");
    Config {
        portals: vec![PortalConfig { address: TARGET, group_tag: 1 }],
        targets: vec![TargetConfig {
            name,
            alias: None,
            luns: vec![LunConfig { serial: Some(serial.to_owned()), ..LunConfig::new(0, store) }],
            access: AccessRules::default(),
            auth: auth(plan, sabotage),
            bounds: plan.bounds.clone(),
            queue_depth: plan.queue_depth,
            redirect: None,
            access_states: Vec::new(),
            hosts_set_access_states: false,
            management_url: None,
            portals: None,
        }],
        discovery_auth: Auth::None,
        limits: Limits {
            ping_interval: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(5),
            buffer_bytes_max: plan.buffer_bytes,
            shards: plan.shards,
            ..Limits::default()
        },
        state_dir: None,
        require_every_store: false,
    }
}

fn options(plan: &InitiatorPlan, number: u8) -> Options {
    let name = IscsiName::parse(TARGET_NAME).expect("a constant of the right form");
    let target: SocketAddr = TARGET;
    let mut options = Options::new(Portal::new(target.ip().to_string(), target.port()), Some(name));
    options.initiator =
        IscsiName::parse(&format!("iqn.2026-01.io.intact:i{number}")).expect("of the right form");
    options.port.isid = Some(Isid::random([0x51, 0x3d, number], 1));
    options.bounds = plan.bounds.clone();
    options.session.bounds = plan.bounds.clone();
    options.session.ping_interval = plan.ping;
    options.session.ping_timeout = plan.ping;
    options.session.starved_timeouts = plan.starved_timeouts;
    options.session.scheduling = plan.scheduling;
    options.connections = plan.connections;
    if plan.tunes {
        options.tune_connections(plan.connections);
    }
    options.error_recovery_level = Some(plan.recovery);
    // The rest of the plan may want several connections.
    if plan.connections == 1 && !plan.bounds.asymmetric.is_used() {
        options.set_engine(plan.engine);
    }
    options.timeouts.reconnect = Duration::from_secs(300);
    options
}
