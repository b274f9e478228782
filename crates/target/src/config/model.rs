//! The configuration as the server uses it: every value present, checked, and never changed. A new configuration is a new
//! [`Config`]. The types can be compared, so that a reload changes only what differs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use blockstore::StoreSpec;
use iscsi_core::chap::{ChapAlgorithm, Credentials, Secret};
use iscsi_core::names::IscsiName;
use iscsi_core::params::{Bounds, PROTOCOL_LEVEL, TaskReporting};
use iscsi_core::target::login::NoSecret;
use scsi::AccessState;

use super::access::{AccessRules, NamePattern};

/// Portal group tag of portals without a configured one.
pub const DEFAULT_GROUP_TAG: u16 = 1;

/// Commands that a session may have outstanding, by default.
pub const DEFAULT_QUEUE_DEPTH: u32 = 128;

/// What a server serves, to whom, and within which limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where to listen; at least one.
    pub portals: Vec<PortalConfig>,
    /// The targets to serve; names are unique.
    pub targets: Vec<TargetConfig>,
    /// How initiators authenticate in discovery sessions.
    pub discovery_auth: Auth,
    /// Limits on the resources that peers can use.
    pub limits: Limits,
    /// Where persistent reservations are kept; `None`: next to the store, if that is a file.
    pub state_dir: Option<PathBuf>,
    /// Do not start unless every store can be opened. Otherwise units without their stores are not ready.
    pub require_every_store: bool,
}

impl Config {
    /// Serves `targets` on `addresses`, in portal group 1; discovery without authentication, default limits. Port 0 lets the
    /// system choose.
    ///
    /// Whoever reaches an address beyond loopback can use a target without [`Auth::Chap`] and without
    /// [`TargetConfig::access`].
    pub fn new(addresses: &[SocketAddr], targets: Vec<TargetConfig>) -> Self {
        let portal = |address: &SocketAddr| PortalConfig { address: *address, group_tag: DEFAULT_GROUP_TAG };
        Self {
            portals: addresses.iter().map(portal).collect(),
            targets,
            discovery_auth: Auth::None,
            limits: Limits::default(),
            state_dir: None,
            require_every_store: false,
        }
    }
}

/// One address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortalConfig {
    /// Address and port; with port 0 the system chooses one.
    pub address: SocketAddr,
    /// TargetPortalGroupTag (RFC 7143 13.9); 1 by default.
    pub group_tag: u16,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetConfig {
    /// TargetName.
    pub name: IscsiName,
    /// TargetAlias, for human readers.
    pub alias: Option<String>,
    /// Its logical units; numbers are unique.
    pub luns: Vec<LunConfig>,
    /// Which initiators may see and use it.
    pub access: AccessRules,
    /// How initiators authenticate.
    pub auth: Auth,
    /// The limits for negotiation.
    pub bounds: Bounds,
    /// Commands that a session may have outstanding; 128 by default.
    pub queue_depth: u32,
    /// TargetAddress values (without tag) to which initiators are sent instead of being served (status 0101).
    pub redirect: Option<Vec<String>>,
    /// Tags of the portal groups on which it is served; `None`: on all.
    pub portals: Option<Vec<u16>>,
    /// Initial asymmetric access states of target port groups (portal groups) that do not start as active/optimized; tags are
    /// unique.
    pub access_states: Vec<(u16, AccessState)>,
    /// Hosts may change these states with SET TARGET PORT GROUPS.
    pub hosts_set_access_states: bool,
    /// Where its units are managed, for VPD page 85h: an ASCII URL.
    pub management_url: Option<String>,
}

impl TargetConfig {
    /// A target with the defaults, open to anybody, whose logical units are `stores`, numbered from 0.
    pub fn new(name: IscsiName, stores: impl IntoIterator<Item = StoreSpec>) -> Self {
        let unit = |(number, store): (u16, StoreSpec)| LunConfig {
            read_only: store.is_read_only(),
            ..LunConfig::new(number, store)
        };
        Self {
            name,
            alias: None,
            luns: (0..).zip(stores).map(unit).collect(),
            access: AccessRules::default(),
            auth: Auth::None,
            bounds: default_bounds(),
            queue_depth: DEFAULT_QUEUE_DEPTH,
            redirect: None,
            access_states: Vec::new(),
            hosts_set_access_states: false,
            management_url: None,
            portals: None,
        }
    }

    /// Whether the target is served by portals with `group_tag`.
    pub fn is_served_on(&self, group_tag: u16) -> bool {
        self.portals.as_ref().is_none_or(|tags| tags.contains(&group_tag))
    }

    /// The initial access state of the target port group.
    pub fn access_state(&self, group_tag: u16) -> AccessState {
        let given = self.access_states.iter().find(|(tag, _)| *tag == group_tag);
        given.map(|(_, state)| *state).unwrap_or_default()
    }
}

/// The limits for negotiation unless the configuration changes them: full error recovery, and eight connections.
pub fn default_bounds() -> Bounds {
    Bounds {
        max_connections: 8,
        error_recovery_level: 2,
        task_reporting: TaskReporting::FastAbort,
        protocol_level: PROTOCOL_LEVEL,
        ..Bounds::default()
    }
}

/// One logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LunConfig {
    /// LUN, 0 to 16383.
    pub number: u16,
    /// Where its blocks are stored.
    pub store: StoreSpec,
    /// Serial number for VPD pages 80h and 83h; `None`: that of the volume ([`crate::identity`]).
    pub serial: Option<String>,
    /// PRODUCT IDENTIFICATION, up to 16 ASCII characters; `None`: the server's own.
    pub product: Option<String>,
    /// Reject writes.
    pub read_only: bool,
    /// Report and use a volatile write cache (WCE): writes are durable after SYNCHRONIZE CACHE or with FUA. True by default.
    pub write_cache: bool,
    /// Report a rotating medium.
    pub rotational: bool,
}

impl LunConfig {
    /// A logical unit with the defaults.
    pub fn new(number: u16, store: StoreSpec) -> Self {
        Self {
            number,
            store,
            serial: None,
            product: None,
            read_only: false,
            write_cache: true,
            rotational: false,
        }
    }
}

/// How initiators authenticate (RFC 7143 12.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// No authentication.
    #[default]
    None,
    /// By CHAP.
    Chap {
        /// The accounts; at least one.
        accounts: Vec<Account>,
        /// Our credentials, if an initiator requests mutual authentication.
        mutual: Option<Credentials>,
        /// Allowed hashes; at least one.
        algorithms: Vec<ChapAlgorithm>,
    },
}

/// A CHAP name that may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// CHAP_N.
    pub name: String,
    /// Its secret; 12 bytes or more.
    pub secret: Secret,
    /// Initiator names that may use it; empty: any.
    pub initiators: Vec<NamePattern>,
}

impl Account {
    /// Whether `initiator` may use this account.
    //= rfc7143 9.2 SEC-14
    pub fn may_speak_for(&self, initiator: &IscsiName) -> bool {
        self.initiators.is_empty() || self.initiators.iter().any(|pattern| pattern.matches(initiator))
    }
}

impl Auth {
    /// The secret of CHAP name `chap_name` for `initiator`.
    ///
    /// # Errors
    /// There is no such account, or `initiator` may not use it.
    pub fn secret_of(&self, initiator: &IscsiName, chap_name: &str) -> Result<&Secret, NoSecret> {
        let accounts = match self {
            Self::None => &[][..],
            Self::Chap { accounts, .. } => accounts,
        };
        let account = accounts.iter().find(|account| account.name == chap_name);
        let account = account.ok_or(NoSecret::UnknownName)?;
        match account.may_speak_for(initiator) {
            true => Ok(&account.secret),
            false => Err(NoSecret::OtherInitiator),
        }
    }
}

/// Limits on the resources that peers can use, and the timers of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent connections, including logins. Default 4096.
    pub max_connections: usize,
    /// Concurrent sessions. Default 1024.
    pub max_sessions: usize,
    /// How long a login may take. Default 15 s.
    pub login_timeout: Duration,
    /// Concurrent logins. Default 256.
    pub max_logins_in_progress: usize,
    /// Silence after which an initiator is pinged. Default 30 s; zero: never.
    pub ping_interval: Duration,
    /// How long the initiator may take to answer. Default 30 s.
    pub ping_timeout: Duration,
    /// Memory for data in flight, bytes. Default 1 GiB.
    pub buffer_bytes_max: u64,
    /// Shards (event loops); 0: one for each core.
    pub shards: usize,
    /// Threads for stores that block, shared by all units; when all are busy, a unit with work gets a thread of its own.
    /// Default 64.
    pub store_threads: usize,
    /// How many threads one logical unit may hold. Default 16.
    pub store_concurrency_per_lun: usize,
    /// How long an event loop polls for events before it sleeps; zero: never. Default 50 µs.
    pub poll_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_sessions: 1024,
            login_timeout: Duration::from_secs(15),
            max_logins_in_progress: 256,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(30),
            buffer_bytes_max: 1 << 30,
            shards: 0,
            store_threads: 64,
            store_concurrency_per_lun: 16,
            poll_time: engine::POLL_TIME,
        }
    }
}
