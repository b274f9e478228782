//! Finds a connection that is open and delivers nothing while others of its session do.
//!
//! A target carries out commands in the order of their CmdSN over all connections (RFC 7143 4.2.2.1): one that delivers nothing soon stops
//! them all, and pings after a silence take many seconds to give it up. So silence calls the roll:
//!
//! ```text
//!   a connection with commands is silent for a timeout ──► all are pinged ──first answer──► as many timeouts as the configuration says,
//!              ▲                                                                             since the pings
//!              └──────────────────────────────────────────────────────────────────── those not heard of meanwhile are given up
//! ```
//! A timeout is what TCP's is at least: 200 ms and a round trip, that of the first answer to a ping in the last roll call. So a slow network
//! has more time; where it is silent as a whole, nobody answers, and nothing is given up. A connection is heard of when a PDU arrives, or when its
//! transport says that it is alive ([`InitiatorSession::transport_lives`]).
//!
//! It needs ErrorRecoveryLevel 2, where giving up a connection costs no command, and symmetric use: in asymmetric use connections that carry
//! commands are silent by their nature.

use iscsi_wire::Cid;
use smallvec::SmallVec;

use super::super::actions::CloseReason;
use super::super::connection::Connection;
use super::super::task::Ping;
use super::InitiatorSession;
use crate::Time;

impl InitiatorSession {
    fn calls_rolls(&self) -> bool {
        self.connections.len() > 1
            && self.config.starved_timeouts > 0
            && self.params.level().recovers_connections()
            && !self.is_asymmetric()
            && self.is_active()
    }

    fn serving(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter().filter(|one| one.state.serves())
    }

    /// When something is due: a roll call, or its end.
    pub(in super::super) fn roll_call_due(&self) -> Option<Time> {
        if !self.calls_rolls() {
            return None;
        }
        let (timeouts, ping) = (self.config.starved_timeouts, self.config.ping_timeout);
        self.roll_call.ends_at(timeouts, ping).or_else(|| {
            let loaded = self.serving().filter(|one| one.commands > 0);
            loaded.map(|one| one.heard.at()).min().map(|at| at + self.roll_call.timeout())
        })
    }

    /// Does what is due.
    //= rfc7143 4.2.2.1 ERL-11
    //= rfc7143 11.14 ERL-05
    pub(in super::super) fn roll_call_on_time(&mut self) {
        let Some(since) = self.roll_call.began() else {
            self.roll_call.begin(self.now);
            let unpinged = self.serving().filter(|one| one.keepalive.is_none());
            let unpinged: SmallVec<[Cid; 8]> = unpinged.map(|one| one.cid).collect();
            return unpinged.into_iter().for_each(|cid| self.send_keepalive(cid));
        };
        let answered = self.roll_call.end();
        let silent: SmallVec<[Cid; 8]> =
            self.serving().filter(|one| one.heard.at() < since).map(|one| one.cid).collect();
        // The one that answered may have failed since: then there is nothing to compare with.
        if answered && silent.len() < self.serving().count() {
            silent.into_iter().for_each(|cid| self.fail_connection(cid, CloseReason::Silent, None));
        }
    }

    /// A ping is answered.
    pub(in super::super) fn roll_call_answered(&mut self, ping: &Ping) {
        self.roll_call.answer(self.now.saturating_sub(ping.sent_at));
    }

    /// Connections that will be given up unless something is heard of them.
    pub fn doubted(&self) -> impl Iterator<Item = Cid> {
        let began = self.roll_call.began();
        let doubted = move |one: &&Connection| began.is_some_and(|began| one.heard.at() < began);
        self.serving().filter(doubted).map(|one| one.cid)
    }

    /// The transport of `cid` was alive at the time `at`, as the acknowledgements of its TCP say; this is how a connection that sends much
    /// and receives nothing for a while is known to work.
    pub fn transport_lives(&mut self, cid: Cid, at: Time) {
        if let Some(connection) = self.connection(cid) {
            connection.heard.transport = connection.heard.transport.max(at);
        }
    }
}
