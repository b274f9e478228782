//! Where to log in, as whom, and with which timeouts.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use iscsi_core::initiator::address::{DEFAULT_PORT, TargetAddress};
use iscsi_core::initiator::login::ChapConfig;
use iscsi_core::initiator::session::{Scheduling, SessionConfig};
use iscsi_core::names::IscsiName;
use iscsi_core::params::{Asymmetric, Bounds};
use iscsi_core::wire::{Cid, Isid};
use offload::{Caps, Engine, SoftwareEngine};

use crate::error::NotOffloaded;
use crate::offloaded::Agent;
use crate::protection::PiTags;

/// InitiatorName used by default.
pub const DEFAULT_INITIATOR_NAME: &str = "iqn.2026-01.io.intact:initiator";

/// A place where a target listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Portal {
    /// A portal on `host` at `port`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

impl Default for Portal {
    fn default() -> Self {
        Self::new("127.0.0.1", DEFAULT_PORT)
    }
}

impl From<&TargetAddress> for Portal {
    fn from(address: &TargetAddress) -> Self {
        Self::new(address.host.clone(), address.port)
    }
}

impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// What carries out the commands of a session: sends them, moves their data, and answers R2Ts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineKind {
    /// The session itself.
    #[default]
    None,
    /// The engine in software of `docs/engine-interface.md`, behind the interface that hardware has. The session then has one
    /// connection.
    Software,
    /// The circuit of `rtl/`, simulated. This library does not contain it: the program brings it along by
    /// [`Options::set_circuit`], and without it the session is refused. It has one connection too.
    Rtl,
}

impl EngineKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Software, Self::Rtl];

    /// Its name, as in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Software => "software",
            Self::Rtl => "rtl",
        }
    }

    /// The engine called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// How a session gets the engine of [`EngineKind::Rtl`]: one for each of its logins.
#[derive(Clone)]
pub struct Circuit(Arc<Maker>);

struct Maker {
    make: Box<dyn Fn() -> Box<dyn Engine + Send> + Send + Sync>,
    caps: OnceLock<Caps>,
}

impl Circuit {
    /// `make` returns an engine in which no connection is open. All that it returns have the same [`Engine::caps`]: the first is made
    /// only to be asked for them, before a login negotiates.
    pub fn new<E: Engine + Send + 'static>(make: impl Fn() -> E + Send + Sync + 'static) -> Self {
        Self(Arc::new(Maker { make: Box::new(move || Box::new(make())), caps: OnceLock::new() }))
    }

    fn caps(&self) -> Caps {
        *self.0.caps.get_or_init(|| self.engine().caps())
    }

    fn engine(&self) -> Box<dyn Engine + Send> {
        (self.0.make)()
    }
}

impl fmt::Debug for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuit").field("caps", &self.0.caps).finish_non_exhaustive()
    }
}

/// The ways that the connections of a session may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Further portals of the target, for the other connections of the session and for when a portal does not answer. Those of
    /// another portal group are ignored (RFC 7143 4.4.3).
    pub portals: Vec<Portal>,
    /// Once the session is established, asks the target for all portals of its portal group, and uses them like `portals`.
    pub find_portals: bool,
    /// Addresses of this machine to connect from. The connection with CID n takes the n-th address of the portal's family, wrapping
    /// around, and the next one if that fails. Empty leaves the choice to the system.
    pub local_addresses: Vec<IpAddr>,
}

/// What an initiator says of itself, besides its name.
#[derive(Clone, Debug, Default)]
pub struct InitiatorPort {
    /// InitiatorAlias, if any.
    pub alias: Option<String>,
    /// ISID; `None` takes one from `ports`. It is kept for the life of the session.
    pub isid: Option<Isid>,
    /// Directory of ISIDs that stay the same from run to run; `None` generates a random one.
    pub ports: Option<PathBuf>,
    /// X#NodeArchitecture to declare.
    pub node_architecture: Option<String>,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// One TCP connection to be established: 10 s by default.
    pub connect: Duration,
    /// One login: 15 s by default.
    pub login: Duration,
    /// A lost session to recover, before its commands fail: 60 s by default; with zero, recovery is not tried.
    pub reconnect: Duration,
    /// A command, before it is aborted: 30 s by default; zero waits for ever.
    pub command: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let [connect, login, reconnect, command] = [10, 15, 60, 30].map(Duration::from_secs);
        Self { connect, login, reconnect, command }
    }
}

/// How to open a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Where to log in first; every address of the host is tried.
    pub portal: Portal,
    /// Which ways its connections take.
    pub paths: Paths,
    /// The target; `None` opens a discovery session.
    pub target: Option<IscsiName>,
    /// InitiatorName.
    pub initiator: IscsiName,
    /// What else the initiator says of itself.
    pub port: InitiatorPort,
    /// CHAP for this session. Discovery sessions have their own options, and so their own CHAP.
    //= rfc7143 9.2 SEC-16
    pub chap: Option<ChapConfig>,
    /// Limits for the negotiation.
    pub bounds: Bounds,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Number of connections of the session, if the target allows that many (MaxConnections). At least 1.
    pub connections: u16,
    /// Highest ErrorRecoveryLevel to offer; `None` offers 0 for one connection and 2 for several.
    pub error_recovery_level: Option<u8>,
    /// Tags of the protection information that every [`Disk`](crate::Disk) of the session generates and checks; `None`: none. If set,
    /// a unit without protection information is refused.
    pub protection: Option<PiTags>,
    /// See [`Options::set_engine`].
    engine: EngineKind,
    /// See [`Options::set_circuit`].
    circuit: Option<Circuit>,
    /// See [`Options::set_poll_time`].
    poll_time: Duration,
    /// See [`Options::tune_connections`].
    tunes_connections: bool,
    /// Timers and policies of an established session.
    pub session: SessionConfig,
}

impl Options {
    /// A session with `target` at `portal`, everything else by default.
    pub fn new(portal: Portal, target: Option<IscsiName>) -> Self {
        // The target decides how long to wait after a loss: the larger value wins, so offer 0.
        let bounds = Bounds { default_time2wait_s: 0, ..Bounds::default() };
        Self {
            portal,
            paths: Paths::default(),
            target,
            initiator: IscsiName::parse(DEFAULT_INITIATOR_NAME).expect("a constant of the right form"),
            port: InitiatorPort::default(),
            chap: None,
            session: SessionConfig { bounds: bounds.clone(), ..SessionConfig::default() },
            bounds,
            timeouts: Timeouts::default(),
            connections: 1,
            tunes_connections: false,
            error_recovery_level: None,
            protection: None,
            engine: EngineKind::None,
            circuit: None,
            poll_time: engine::POLL_TIME,
        }
    }

    /// Sets how long the session's event loop polls for events before it sleeps: 50 µs by default, 1 ms at most; zero: never. If the
    /// caller provides the platform ([`Session::connect_on`](crate::Session::connect_on)), the platform decides instead.
    pub fn set_poll_time(&mut self, time: Duration) {
        self.poll_time = time;
    }

    /// Lets the session choose the number of its connections: it begins with one, opens more, at most `most`, where the measured
    /// throughput gains by it, and closes those that bring nothing. Commands are spread over all that are open. Not in asymmetric use.
    pub fn tune_connections(&mut self, most: u16) {
        self.connections = most.max(1);
        self.tunes_connections = true;
        self.session.scheduling = Scheduling::LeastOutstandingBytes;
    }

    /// Whether [`Options::tune_connections`] was called.
    pub fn tunes_connections(&self) -> bool {
        self.tunes_connections
    }

    /// The value set by [`Options::set_poll_time`].
    pub(crate) fn poll_time(&self) -> Duration {
        self.poll_time
    }

    /// Sets what carries out the commands: by default the session itself. With an engine it has one connection and no `protection`;
    /// anything else is refused when it is opened. Discovery sessions send no commands, and have no engine.
    pub fn set_engine(&mut self, engine: EngineKind) {
        self.engine = engine;
    }

    /// The value set by [`Options::set_engine`].
    pub fn engine(&self) -> EngineKind {
        self.engine
    }

    /// Sets what [`EngineKind::Rtl`] is: `RtlEngine` of `crates/offload-rtl`, or any other engine.
    pub fn set_circuit(&mut self, circuit: Circuit) {
        self.circuit = Some(circuit);
    }

    /// Whether the options can be had together.
    pub(crate) fn check(&self) -> Result<(), NotOffloaded> {
        match self.engine {
            EngineKind::None => Ok(()),
            _ if self.connections > 1 || self.bounds.asymmetric.is_used() => Err(NotOffloaded::Connections),
            _ if self.protection.is_some() => Err(NotOffloaded::Protection),
            EngineKind::Software => Ok(()),
            EngineKind::Rtl => self.circuit.as_ref().map(drop).ok_or(NotOffloaded::NoCircuit),
        }
    }

    /// What the engine can do, if there is one.
    pub(crate) fn engine_caps(&self) -> Option<Caps> {
        match self.engine {
            EngineKind::None => None,
            EngineKind::Software => Some(Caps::SOFTWARE),
            EngineKind::Rtl => self.circuit.as_ref().map(Circuit::caps),
        }
    }

    /// An engine for a connection; `None` where the session carries out its commands itself.
    pub(crate) fn new_engine(&self) -> Result<Option<Box<dyn Engine + Send>>, NotOffloaded> {
        match self.engine {
            EngineKind::None => Ok(None),
            EngineKind::Software => Ok(Some(Box::new(SoftwareEngine::new()))),
            EngineKind::Rtl => {
                let circuit = self.circuit.as_ref().ok_or(NotOffloaded::NoCircuit)?;
                Ok(Some(circuit.engine()))
            }
        }
    }

    /// Limits for the negotiation of a login.
    pub(crate) fn login_bounds(&self) -> Bounds {
        let bounds = self.session_bounds();
        match self.engine_caps() {
            Some(caps) => Agent::bounds(bounds, &caps),
            None => bounds,
        }
    }

    fn session_bounds(&self) -> Bounds {
        let several = if self.connections > 1 { 2 } else { self.bounds.error_recovery_level };
        Bounds {
            max_connections: self.bounds.max_connections.max(self.connections),
            error_recovery_level: self.error_recovery_level.unwrap_or(several),
            // Without the other connection, commands would wait for ever for their data.
            asymmetric: if self.connections > 1 { self.bounds.asymmetric } else { Asymmetric::No },
            ..self.bounds.clone()
        }
    }

    /// The address of this machine from which the connection `cid` connects to `remote`, after this many `tries`.
    pub(crate) fn local_address(&self, cid: Cid, tries: u32, remote: SocketAddr) -> Option<IpAddr> {
        let fits = |address: &&IpAddr| address.is_ipv4() == remote.is_ipv4();
        let n = self.paths.local_addresses.iter().filter(fits).count();
        let nth = (usize::from(cid.0) + tries as usize).checked_rem(n)?;
        self.paths.local_addresses.iter().filter(fits).nth(nth).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_is_never_used_asymmetrically() {
        let mut options = Options::new(Portal::default(), None);
        (options.bounds.asymmetric, options.bounds.max_connections) = (Asymmetric::Pairs, 4);
        assert!(
            !options.login_bounds().asymmetric.is_used(),
            "commands would wait for a connection that nobody brings"
        );
        options.connections = 2;
        assert!(options.login_bounds().asymmetric.is_used());
    }
}
