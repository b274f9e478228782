//! What is known about a session and its connections.

use std::net::SocketAddr;
use std::time::Duration;

use engine::LinkStats;
use iscsi_core::chap::ChapAlgorithm;
use iscsi_core::initiator::login::{KeyLine, LoggedIn};
use iscsi_core::initiator::session::{CloseReason, Event, RecoveryCounters};
use iscsi_core::params::Params;
use iscsi_core::wire::{Cid, Isid, Tsih};

use crate::protection::PiCounters;
use crate::tuning::TuningInfo;

/// The answer to a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pong {
    /// The data came back as it was sent, and its digest matched.
    pub intact: bool,
    /// Time between request and answer.
    pub round_trip: Duration,
}

/// The last login of a session.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LoginInfo {
    /// Address of the portal.
    pub address: Option<SocketAddr>,
    /// Time that the TCP connection took to be established: about one round trip.
    pub connect_time: Duration,
    /// Parameters in effect.
    pub params: Params,
    /// TSIH.
    pub tsih: Tsih,
    /// ISID.
    pub isid: Isid,
    /// TargetPortalGroupTag, if the target sent it.
    pub portal_group_tag: Option<u16>,
    /// TargetAlias, if the target sent it.
    pub target_alias: Option<String>,
    /// CHAP algorithm used, if any.
    pub chap: Option<ChapAlgorithm>,
    /// All keys of the last login in order.
    pub keys: Vec<KeyLine>,
    /// Logins so far: more than one if the session was lost and recovered.
    pub logins: u64,
}

/// Information about a session.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its last login.
    pub login: LoginInfo,
    /// How often the session was lost.
    pub losses: u64,
    /// Why it was lost last.
    pub last_loss: Option<CloseReason>,
    /// Why the session has ended, once it has.
    pub ended: Option<CloseReason>,
    /// Commands whose data did not match their digest.
    pub data_digest_errors: u64,
    /// Asynchronous messages from the target.
    pub events: u64,
    /// Traffic of all connections of the session.
    pub link: LinkStats,
    /// The established connections, by CID.
    pub connections: Vec<ConnectionInfo>,
    /// Connections after the first that joined, including reconnections.
    pub joins: u64,
    /// Connections that the target refused to add.
    pub refused_connections: u64,
    /// Recoveries of the sessions so far.
    pub recovery: RecoveryCounters,
    /// See [`SessionInfo::tuning`].
    tuning: Option<TuningInfo>,
    /// Blocks of the session's disks whose protection information failed a check, here or at the target.
    pub protection: PiCounters,
}

/// One connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// CID.
    pub cid: Cid,
    /// Address of the portal.
    pub address: SocketAddr,
    /// Its traffic.
    pub link: LinkStats,
}

impl SessionInfo {
    pub(crate) fn new(isid: Isid) -> Self {
        Self { login: LoginInfo { isid, ..LoginInfo::default() }, ..Self::default() }
    }

    /// What a session that chooses the number of its connections itself has done; `None` if it does not.
    pub fn tuning(&self) -> Option<TuningInfo> {
        self.tuning
    }

    pub(crate) fn set_tuning(&mut self, tuning: Option<TuningInfo>) {
        self.tuning = tuning;
    }

    pub(crate) fn with_protection(self, protection: PiCounters) -> Self {
        Self { protection, ..self }
    }

    pub(crate) fn update(&mut self, login: &LoggedIn, address: SocketAddr, connect_time: Duration) {
        self.login = LoginInfo {
            address: Some(address),
            connect_time,
            params: login.params.clone(),
            tsih: login.tsih,
            isid: self.login.isid,
            portal_group_tag: login.portal_group_tag,
            target_alias: login.target_alias.clone(),
            chap: login.chap,
            keys: login.keys.clone(),
            logins: self.login.logins + 1,
        };
    }

    pub(crate) fn note(&mut self, event: &Event) {
        tracing::info!(?event, "the target tells something");
        self.events += 1;
    }

    /// A session has ended, with these counts.
    pub(crate) fn add_counts(&mut self, link: LinkStats, recovery: RecoveryCounters) {
        (self.link, self.recovery) = (link, add(self.recovery, recovery));
        self.connections.clear();
    }

    pub(crate) fn lost(&mut self, link: LinkStats, recovery: RecoveryCounters, reason: &CloseReason) {
        self.add_counts(link, recovery);
        self.losses += 1;
        self.last_loss = Some(reason.clone());
    }
}

/// The sum of the recoveries of two sessions.
pub(crate) fn add(a: RecoveryCounters, b: RecoveryCounters) -> RecoveryCounters {
    RecoveryCounters {
        connections_lost: a.connections_lost + b.connections_lost,
        snacks_sent: a.snacks_sent + b.snacks_sent,
        tasks_reassigned: a.tasks_reassigned + b.tasks_reassigned,
        commands_begun_anew: a.commands_begun_anew + b.commands_begun_anew,
        commands_retried: a.commands_retried + b.commands_retried,
    }
}
