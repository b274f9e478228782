//! Connections that have no session yet: routing, the login itself, and the creation or reinstatement of the session
//! (RFC 7143 6.3).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::{Driver, Platform, Token};
use iscsi_core::names::IscsiName;
use iscsi_core::pdu_reader::{FramingError, RxPdu};
use iscsi_core::target::actions::CloseReason;
use iscsi_core::target::login::{Established, LoginNames, LoginReply, Refusal};
use iscsi_core::wire::{Isid, LoginStage, LoginStatus, Opcode};

use super::Shard;
use super::connections::{Connection, State};
use super::message::{Message, Migrant, Progress};
use super::slots::SessionKey;
use crate::home::Home;
use crate::memory::answer_bytes_max;
use crate::observe::{EventKind, LoginEvent};
use crate::policy::{
    Policy, no_access, other_account, shutting_down, too_many_connections, too_many_sessions,
};

/// Maximum number of bytes queued on a connection of a session with several connections; above this nothing more is received on
/// it. It is more than the reads of one connection can ever queue.
const SHARED_ORDER_HIGH_WATER_BYTES: usize = 64 << 20;

impl<P: Platform> Shard<P> {
    pub(super) fn login_pdu(&mut self, token: Token, pdu: &RxPdu) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        if connection.home.is_none() {
            // A stray first PDU is rejected right here; a login goes to the shard where its session lives or will live.
            if pdu.bhs.opcode() == Opcode::LoginRequest as u8 {
                let bytes = pdu.bhs.as_bytes();
                let isid = Isid([bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13]]);
                let home = self.shared.home_of(isid, initiator_in(&pdu.data));
                if home.shard != self.number {
                    return self.migrate(token, Progress::Begun(Box::new(pdu.clone())), home);
                }
                connection.home = Some(home);
            }
        }
        let State::Login(login) = &mut connection.state else { return };
        let (peer, portal) = (connection.peer, Arc::clone(&connection.portal));
        let sessions = &self.sessions;
        let mut policy = Policy {
            shared: &self.shared,
            set: self.shared.set.load_full(),
            peer,
            portal: &portal,
            joining: &|names| sessions.joining(names, portal.group_tag),
            replaces: &|names| sessions.same_nexus(names, portal.group_tag).is_some(),
        };
        let reply = login.handle_pdu(pdu, &mut policy);
        match reply {
            LoginReply::Send(answer) => self.connections.push(token, answer),
            LoginReply::Complete(established) => self.login_complete(token, established),
            LoginReply::Refuse { response, refusal } => {
                self.report_refusal(token, &refusal, None);
                if let Some(response) = response {
                    self.connections.push(token, response);
                }
                self.say_goodbye(token);
            }
        }
    }

    /// Moves a connection to the shard where its session lives.
    fn migrate(&mut self, token: Token, progress: Progress, home: Home) {
        let deadline = self.connections.deadline(token).unwrap_or(self.now);
        let Some(stream) = self.driver.release(token) else { return self.drop_connection(token) };
        let Some(connection) = self.connections.remove(token) else { return };
        let shard = home.shard;
        let migrant = Migrant {
            stream,
            link: connection.link,
            progress,
            peer: connection.peer,
            portal: connection.portal,
            home,
            deadline,
        };
        self.shared.shards()[shard].send(Message::Migrate(Box::new(migrant)));
    }

    /// Accepts a connection from another shard.
    pub(super) fn arrive(&mut self, migrant: Migrant<P::Driver>) {
        let Migrant { stream, link, progress, peer, portal, home, deadline } = migrant;
        if let Some(token) = self.adopt(stream, link, peer, portal, home, deadline) {
            match progress {
                Progress::Begun(first) => self.login_pdu(token, &first),
                Progress::Complete(established) => self.login_complete(token, established),
            }
            self.take_pdus(token);
        }
    }

    /// The login is accepted: reinstate, join, or create a session.
    //= rfc7143 6.3.1 LGN-03
    fn login_complete(&mut self, token: Token, established: Box<Established>) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let names = &established.names;
        if !connection.home.as_ref().is_some_and(|home| home.is_of(&names.initiator)) {
            // The name was not complete in the first PDU.
            let home = self.shared.home_of(names.isid, Some(names.initiator.clone()));
            if home.shard != self.number {
                return self.migrate(token, Progress::Complete(established), home);
            }
            connection.home = Some(home);
        }
        if established.names.tsih.0 != 0 {
            return self.join_session(token, *established);
        }
        //= rfc7143 6.3.5 SES-01 SES-05 DSC-08
        let old = self.sessions.same_nexus(&established.names, established.portal_group_tag);
        let ours = established.authenticated_as.as_deref();
        if let Some(old) = old
            && let Some(theirs) = self.sessions.other_account(old, ours)
        {
            let refusal = other_account(&established.names, theirs, ours.unwrap_or_default());
            return self.refuse_late(token, &established, &refusal);
        }
        match old {
            Some(old) => self.reinstate(token, old, established),
            None => self.create_session(token, *established),
        }
    }

    /// Ends the session `old`; the login continues when it has ended.
    fn reinstate(&mut self, token: Token, old: SessionKey, established: Box<Established>) {
        let (before, earlier) = self.sessions.replace(old, token);
        // If several logins wait for the same end, the last one wins, as if they had arrived one after the other.
        if let Some(earlier) = earlier {
            self.say_goodbye(earlier);
        }
        let before = before.and_then(|token| self.connections.get_mut(token)).map(|c| c.peer.ip());
        let Some(connection) = self.connections.get_mut(token) else { return };
        let (initiator, isid) = (&established.names.initiator, established.names.isid);
        // The session's last log line says that it was replaced.
        if let Some(before) = before.filter(|before| *before != connection.peer.ip())
            && self.shared.observe.events.admits(EventKind::LoginAccepted, self.now)
        {
            tracing::warn!(
                %initiator, %isid, peer = %connection.peer, %before,
                "the session is taken over from another host; if both go on, give them different initiator names"
            );
        }
        connection.state = State::Reinstating(established);
        self.end_session(old, CloseReason::Replaced, "");
    }

    /// The session for whose end the login on `token` waited is gone: the login continues, unless it has given up.
    pub(super) fn resume_reinstatement(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        if !matches!(connection.state, State::Reinstating(_)) {
            return;
        }
        if let State::Reinstating(established) = std::mem::replace(&mut connection.state, State::Closing) {
            self.login_complete(token, established);
            self.connections.touch(token);
            self.take_pdus(token);
        }
    }

    fn create_session(&mut self, token: Token, established: Established) {
        let Some(peer) = self.connections.get_mut(token).map(|c| c.peer.ip()) else { return };
        if self.shared.is_shutting_down() {
            return self.refuse_late(token, &established, &shutting_down());
        }
        let set = self.shared.set.load_full();
        let target = match &established.names.target {
            Some(name) if !established.names.discovery => match set.targets.get(name) {
                // The rules may have changed since the first request.
                Some(node) if !node.config().access.allows(&established.names.initiator, peer) => {
                    let refusal = no_access(name, &established.names.initiator, peer);
                    return self.refuse_late(token, &established, &refusal);
                }
                Some(node) => Some(Arc::clone(node)),
                None => {
                    let refusal = Refusal::new(
                        LoginStatus::TargetRemoved,
                        "RFC 7143 11.13.5",
                        format!("{name} was removed during the login"),
                        "ask for the list of targets",
                    );
                    return self.refuse_late(token, &established, &refusal);
                }
            },
            _ => None,
        };
        let limit = set.config.limits.max_sessions;
        if established.names.discovery {
            self.make_room_for_discovery();
        } else if !self.shared.book_session(limit) {
            return self.refuse_late(token, &established, &too_many_sessions(limit));
        }
        if self.shared.sessions.load(Ordering::Relaxed) > limit {
            self.end_a_lost_session(self.shared.shards().len());
        }
        let Some(tsih) = self.shared.allocate_tsih() else {
            self.shared.release_session(established.names.discovery);
            let refusal = Refusal::new(
                LoginStatus::OutOfResources,
                "RFC 7143 11.12.6",
                "no session handle is left",
                "close sessions that are not needed",
            );
            return self.refuse_late(token, &established, &refusal);
        };
        self.report_acceptance(token, &established);
        let key = self.open_session(token, established, tsih, target);
        self.enter_full_feature(token, key);
    }

    fn join_session(&mut self, token: Token, established: Established) {
        match self.sessions.find_joined(&established.names, established.portal_group_tag) {
            //= rfc7143 9.2 SEC-13
            Some(key) if !self.sessions.is_authenticated_as(key, established.authenticated_as.as_deref()) => {
                let refusal = Refusal::new(
                    LoginStatus::AuthenticationFailure,
                    "RFC 7143 9.2",
                    "the session's first connection proved another identity than this one",
                    "authenticate all connections of a session with the same method and name",
                );
                self.refuse_late(token, &established, &refusal);
            }
            Some(key) if !self.sessions.has_room_for(key, established.names.cid) => {
                self.refuse_late(token, &established, &too_many_connections());
            }
            Some(key) => {
                self.report_acceptance(token, &established);
                self.add_connection(key, token, established);
                self.enter_full_feature(token, key);
            }
            None => {
                let refusal = Refusal::new(
                    LoginStatus::SessionDoesNotExist,
                    "RFC 7143 6.3.1",
                    "the session ended during the login",
                    "log in anew with TSIH 0",
                );
                self.refuse_late(token, &established, &refusal);
            }
        }
    }

    /// From here on the connection belongs to a session; PDUs after the final response carry digests.
    //= rfc7143 13.1 DIG-04
    fn enter_full_feature(&mut self, token: Token, key: SessionKey) {
        let Some((cid, params)) = self.sessions.connection_of(key, token) else { return };
        let Some(connection) = self.connections.get_mut(token) else { return };
        connection.state = State::FullFeature(key, cid);
        self.connections.set_deadline(token, None);
        let is_discovery = self.sessions.is_discovery(key);
        self.run_session(key);
        if let Some(connection) = self.connections.get_mut(token) {
            connection.link.set_tx_digests(params.digests);
            connection.link.set_rx_digests(params.digests);
            if is_discovery {
                return;
            }
            connection.is_hosts = true;
            connection.link.set_max_data_bytes(params.max_recv_data_segment_length as usize);
            let limits = &self.shared.set.load().config.limits;
            let answers = answer_bytes_max(limits.buffer_bytes_max, limits.max_connections);
            connection.link.set_answer_high_water(answers);
            if params.max_connections > 1 {
                // The other connections may be waiting for commands that were sent here. Queued read data of this connection must
                // not prevent these from being received.
                connection.link.set_tx_high_water(SHARED_ORDER_HIGH_WATER_BYTES);
            }
        }
    }

    fn refuse_late(&mut self, token: Token, established: &Established, refusal: &Refusal) {
        self.report_refusal(token, refusal, Some(&established.names));
        self.connections.push(token, established.refuse(refusal));
        self.say_goodbye(token);
    }

    pub(super) fn login_framing_error(&mut self, token: Token, error: &FramingError) {
        let refusal = Refusal::new(
            LoginStatus::InitiatorError,
            "RFC 7143 13.12",
            error.to_string(),
            "the initiator breaks the protocol: report it to its maker",
        );
        self.report_refusal(token, &refusal, None);
        self.say_goodbye(token);
    }

    /// The transport ended during the login. A connection that sent nothing, such as a port check, is not reported.
    pub(super) fn login_given_up(&mut self, token: Token, why: &str) {
        let begun = |connection: &mut Connection| {
            matches!(connection.state, State::Login(_)) && connection.link.stats().rx_bytes > 0
        };
        if self.connections.get_mut(token).is_some_and(begun) {
            let refusal = Refusal::new(
                LoginStatus::InitiatorError,
                "given up by the initiator",
                format!("the login was given up: {why}"),
                "look into the initiator's log; often the target's own CHAP secret is another one than it expects, or it wants \
                 digests or values that were not agreed on",
            );
            self.report_refusal(token, &refusal, None);
        }
    }

    pub(super) fn login_timed_out(&mut self, token: Token) {
        if self.connections.get_mut(token).is_some_and(|c| matches!(c.state, State::Login(_))) {
            let refusal = Refusal::new(
                LoginStatus::InitiatorError,
                "limits.login_timeout",
                "the login was not completed in time",
                "check the initiator and the network, or raise limits.login_timeout",
            );
            self.report_refusal(token, &refusal, None);
        }
    }

    /// Refuses a login that has waited too long for the end of the session that it replaces. False if the connection is not such
    /// a login.
    pub(super) fn refuse_waiting_login(&mut self, token: Token) -> bool {
        let Some(connection) = self.connections.get_mut(token) else { return false };
        if !matches!(connection.state, State::Reinstating(_)) {
            return false;
        }
        if let State::Reinstating(established) = std::mem::replace(&mut connection.state, State::Closing) {
            let refusal = Refusal::new(
                LoginStatus::TargetError,
                "limits.login_timeout",
                "commands of the session that this login replaces are still with a store",
                "try again; if it lasts, look after the store of the target",
            );
            self.refuse_late(token, &established, &refusal);
        }
        true
    }

    /// Logs a refused login.
    fn report_refusal(&mut self, token: Token, refusal: &Refusal, names: Option<&LoginNames>) {
        let reached = self.driver.local_addr(token);
        let Some(connection) = self.connections.get_mut(token) else { return };
        let (stage, known) = match &connection.state {
            State::Login(login) => (login.stage(), login.names()),
            _ => (LoginStage::FullFeature, None),
        };
        let (peer, portal) = (connection.peer, reached.unwrap_or(connection.portal.address));
        let event =
            LoginEvent::refused(self.shared.platform.date(), peer, portal, names.or(known), stage, refusal);
        self.shared.observe.record_login(event, self.now);
    }

    fn report_acceptance(&mut self, token: Token, established: &Established) {
        let reached = self.driver.local_addr(token);
        if let Some(connection) = self.connections.get_mut(token) {
            let portal = reached.unwrap_or(connection.portal.address);
            let event = LoginEvent::accepted(
                self.shared.platform.date(),
                connection.peer,
                portal,
                Some(&established.names),
            )
            .of_account(established.authenticated_as.as_deref());
            self.shared.observe.record_login(event, self.now);
        }
    }
}

/// InitiatorName in the text of the first PDU of a login, unless the text is cut inside the name.
fn initiator_in(text: &[u8]) -> Option<IscsiName> {
    let mut items = text.split_inclusive(|byte| *byte == 0).filter_map(|item| item.strip_suffix(b"\0"));
    let value = items.find_map(|item| item.strip_prefix(b"InitiatorName="))?;
    IscsiName::parse(std::str::from_utf8(value).ok()?).ok()
}
