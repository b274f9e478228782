//! Which initiator may log in where: the decisions that a login requires (RFC 7143 6.3.1, 9.2, 11.13.5).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use engine::Platform;
use iscsi_core::chap::Secret;
use iscsi_core::names::IscsiName;
use iscsi_core::params::{Bounds, Params};
use iscsi_core::target::login::{Admission, AuthPolicy, LoginNames, LoginPolicy, NoSecret, Refusal};
use iscsi_core::wire::LoginStatus;

use crate::config::{Auth, PortalConfig, TargetConfig};
use crate::memory::{ANONYMOUS, share_bytes};
use crate::registry::TargetSet;
use crate::shared::Shared;

/// The response of an existing session to a login that names its TSIH.
pub(crate) enum Joining {
    /// No session has that TSIH for this initiator, ISID and target.
    Unknown,
    /// It may add the connection; these are its parameters.
    Welcome(Params),
    /// It already has its maximum number of connections.
    Full,
    /// It belongs to another portal group.
    OtherGroup,
}

/// The policy for one login.
pub(crate) struct Policy<'a, P: Platform> {
    /// The state shared by all shards.
    pub shared: &'a Shared<P>,
    /// What is currently served.
    pub set: Arc<TargetSet>,
    /// The address of the initiator.
    pub peer: SocketAddr,
    /// The portal that it reached.
    pub portal: &'a PortalConfig,
    /// Queries the shard's sessions.
    pub joining: &'a dyn Fn(&LoginNames) -> Joining,
    /// Whether the nexus of the login has a session, which the login would replace.
    pub replaces: &'a dyn Fn(&LoginNames) -> bool,
}

impl<P: Platform> Policy<'_, P> {
    fn auth(&self, names: &LoginNames) -> Auth {
        match names.target.as_ref().filter(|_| !names.discovery) {
            Some(target) => {
                self.set.targets.get(target).map(|node| node.config().auth.clone()).unwrap_or_default()
            }
            //= rfc7143 9.2 SEC-16
            None => self.set.config.discovery_auth.clone(),
        }
    }

    /// Refuses a login that would open one session too many. Discovery sessions do not belong to hosts: they have their own limit,
    /// and the oldest makes room.
    //= rfc7143 11.13.5 LGN-20
    fn check_room(&self, names: &LoginNames) -> Result<(), Refusal> {
        let limit = self.set.config.limits.max_sessions;
        let opens = names.tsih.0 == 0 && !names.discovery;
        match opens && self.shared.is_full(limit) && !(self.replaces)(names) {
            true => Err(too_many_sessions(limit)),
            false => Ok(()),
        }
    }

    /// The configuration of a target that admits `initiator` here.
    fn admitting(&self, target: &IscsiName, initiator: &IscsiName) -> Result<Arc<TargetConfig>, Refusal> {
        let Some(node) = self.set.targets.get(target) else {
            return Err(not_served(target, self.set.removed.contains(target)));
        };
        let config = node.config();
        if !config.is_served_on(self.portal.group_tag) {
            return Err(not_in_group(target, self.portal.group_tag));
        }
        if !config.access.allows(initiator, self.peer.ip()) {
            return Err(no_access(target, initiator, self.peer.ip()));
        }
        match &config.redirect {
            Some(addresses) => Err(Refusal { redirect: addresses.clone(), ..served_elsewhere(target) }),
            None => Ok(config),
        }
    }

    /// What may be negotiated with a target. The unsolicited data of one command must fit into the memory for it, however small that
    /// is.
    fn bounds(&self, config: &TargetConfig) -> Bounds {
        let room = share_bytes(self.set.config.limits.buffer_bytes_max, self.shared.shards().len());
        let mut bounds = config.bounds.clone();
        bounds.bursts.first_burst_length =
            bounds.bursts.first_burst_length.min(u32::try_from(room).unwrap_or(u32::MAX));
        bounds
    }

    /// The parameters of the session that the login joins.
    //= rfc7143 6.3.1 LGN-03 LGN-04
    fn joined(&self, names: &LoginNames) -> Result<Params, Refusal> {
        match (self.joining)(names) {
            Joining::Welcome(params) => Ok(params),
            Joining::Unknown => Err(no_such_session(names)),
            Joining::Full => Err(too_many_connections()),
            Joining::OtherGroup => Err(session_of_other_group()),
        }
    }
}

/// The server is shutting down.
pub(crate) fn shutting_down() -> Refusal {
    Refusal::new(
        LoginStatus::ServiceUnavailable,
        "RFC 7143 11.13.5",
        "the target is shutting down",
        "try again later",
    )
}

/// There is no room for one more session.
pub(crate) fn too_many_sessions(limit: usize) -> Refusal {
    Refusal::new(
        LoginStatus::OutOfResources,
        "limits.max_sessions",
        format!("{limit} sessions exist already"),
        "close sessions that are not needed, or raise limits.max_sessions",
    )
}

/// The session has no room for one more connection.
//= rfc7143 11.13.5 LGN-20
pub(crate) fn too_many_connections() -> Refusal {
    Refusal::new(
        LoginStatus::TooManyConnections,
        "RFC 7143 13.2",
        "the session has as many connections as were negotiated",
        "close one first, or negotiate a higher MaxConnections",
    )
}

/// The nexus has a session of another account, or another account waits for its end.
//= rfc7143 9.2 SEC-13
pub(crate) fn other_account(names: &LoginNames, theirs: &str, ours: &str) -> Refusal {
    let what = format!(
        "the session of {} with ISID {} is of the account {theirs:?}, and this login proved to be {ours:?}",
        names.initiator, names.isid
    );
    Refusal::new(
        LoginStatus::AuthorizationFailure,
        "RFC 7143 9.2",
        what,
        "give each host an InitiatorName of its own, and each account the `initiators` that it is for",
    )
    .tried_as(ours)
}

/// No target has that name here; `removed`: one had.
fn not_served(target: &IscsiName, removed: bool) -> Refusal {
    let (status, what) = match removed {
        true => (LoginStatus::TargetRemoved, "is no longer served here"),
        false => (LoginStatus::NotFound, "is not served here"),
    };
    Refusal::new(
        status,
        "RFC 7143 11.13.5",
        format!("{target} {what}"),
        "ask for the list of targets with SendTargets, or correct the name",
    )
}

/// The target has no portal in this group.
fn not_in_group(target: &IscsiName, group_tag: u16) -> Refusal {
    Refusal::new(
        LoginStatus::NotFound,
        "targets.portals",
        format!("{target} is not served in portal group {group_tag}"),
        "log in through a portal that SendTargets lists for it",
    )
}

/// The target redirects its initiators.
fn served_elsewhere(target: &IscsiName) -> Refusal {
    Refusal::new(
        LoginStatus::TargetMovedTemporarily,
        "targets.redirect",
        format!("{target} is served elsewhere"),
        "follow the redirection",
    )
}

/// The login names the TSIH of no session of its nexus.
fn no_such_session(names: &LoginNames) -> Refusal {
    Refusal::new(
        LoginStatus::SessionDoesNotExist,
        "RFC 7143 6.3.1",
        format!("no session of {} has TSIH {}", names.initiator, names.tsih.0),
        "log in anew with TSIH 0",
    )
}

/// The session that the login names was opened through another portal group.
fn session_of_other_group() -> Refusal {
    Refusal::new(
        LoginStatus::CannotIncludeInSession,
        "RFC 7143 4.4.3",
        "the session belongs to another portal group than this portal",
        "open all connections of a session through portals of one group",
    )
}

/// No rule of the target allows this initiator at this address.
pub(crate) fn no_access(target: &IscsiName, initiator: &IscsiName, peer: IpAddr) -> Refusal {
    Refusal::new(
        LoginStatus::AuthorizationFailure,
        "targets.access",
        format!("no access rule of {target} allows {initiator} from {peer}"),
        "add the initiator's name and network to the target's access rules",
    )
}

impl<P: Platform> LoginPolicy for Policy<'_, P> {
    //= rfc7143 11.13.5 LGN-06
    fn admit(&mut self, names: &LoginNames) -> Result<Admission, Refusal> {
        if self.shared.is_shutting_down() {
            return Err(shutting_down());
        }
        self.check_room(names)?;
        let (bounds, target_alias) = match names.target.as_ref().filter(|_| !names.discovery) {
            Some(target) => {
                let config = self.admitting(target, &names.initiator)?;
                (self.bounds(&config), config.alias.clone())
            }
            None => {
                let max_recv_data_segment_length = ANONYMOUS.data_segment_bytes;
                (Bounds { max_recv_data_segment_length, ..Bounds::default() }, None)
            }
        };
        let joins = match names.tsih.0 {
            0 => None,
            _ => Some(self.joined(names)?),
        };
        let auth = match self.auth(names) {
            Auth::None => AuthPolicy::None,
            Auth::Chap { mutual, algorithms, .. } => AuthPolicy::Chap { algorithms, mutual },
        };
        Ok(Admission { auth, bounds, portal_group_tag: self.portal.group_tag, target_alias, joins })
    }

    fn secret_of(&mut self, names: &LoginNames, chap_name: &str) -> Result<Secret, NoSecret> {
        self.auth(names).secret_of(&names.initiator, chap_name).cloned()
    }

    fn challenge_issued(&mut self, challenge: &[u8]) {
        self.shared.remember_challenge(challenge);
    }

    fn was_issued(&mut self, challenge: &[u8]) -> bool {
        self.shared.is_own_challenge(challenge)
    }

    fn fill_random(&mut self, bytes: &mut [u8]) {
        self.shared.platform.fill_random(bytes);
    }
}
