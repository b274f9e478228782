//! How sessions begin, lose connections and end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::{Platform, Token};
use iscsi_core::Time;
use iscsi_core::target::actions::CloseReason;
use iscsi_core::target::login::Established;
use iscsi_core::target::session::{SessionConfig, TargetSession};
use iscsi_core::wire::{Cid, Tsih};
use scsi::Nexus;

use super::Shard;
use super::message::Message;
use super::sessions::SessionEntry;
use super::slots::SessionKey;
use crate::memory::ANONYMOUS;
use crate::observe::metrics::SessionLabels;
use crate::registry::TargetNode;

impl<P: Platform> Shard<P> {
    /// Creates the session of a completed login.
    pub(super) fn open_session(
        &mut self,
        token: Token,
        established: Established,
        tsih: Tsih,
        target: Option<Arc<TargetNode>>,
    ) -> SessionKey {
        let names = established.names.clone();
        let group_tag = established.portal_group_tag;
        let nexus = Nexus::new(&format!("{},i,{}", names.initiator, names.isid), group_tag, group_tag.max(1))
            .with_account(established.authenticated_as.as_deref())
            .with_protocol_level(established.params.protocol_level);
        let set = self.shared.set.load();
        let target_config = target.as_ref().map(|node| node.config());
        let config = SessionConfig {
            queue_depth: target_config.as_ref().map_or(16, |c| c.queue_depth),
            ping_interval: set.config.limits.ping_interval,
            ping_timeout: set.config.limits.ping_timeout,
            bounds: target_config.map(|c| c.bounds.clone()).unwrap_or_default(),
            retained_bytes_max: self.room.retained_bytes_of_each(),
            ..self.shared.session_config()
        };
        let home = self.shared.home_of(names.isid, Some(names.initiator.clone()));
        let stats = self.shared.observe.metrics.session(SessionLabels {
            // A discovery session may also name a target, even one that does not exist: it is not attached to it.
            target: target.as_ref().map(|node| node.name.to_string()).unwrap_or_default(),
            initiator: names.initiator.to_string(),
            isid: names.isid.to_string(),
            tsih: tsih.0,
        });
        let session = TargetSession::new(established, tsih, config, self.now);
        let since = self.shared.platform.date();
        let entry = SessionEntry::new(session, (names.cid, token), target, nexus, stats, since, home);
        for device in entry.luns.values() {
            device.unit.scsi.attach_nexus(&entry.nexus);
        }
        let key = self.sessions.enter(Box::new(entry));
        self.share_retained();
        if names.discovery {
            self.sessions.end_discovery_at(key, self.now + set.config.limits.login_timeout);
        }
        key
    }

    /// Ends the oldest discovery sessions when their number reaches the limit: an initiator that lists targets needs only a short
    /// time.
    pub(super) fn make_room_for_discovery(&mut self) {
        let most = ANONYMOUS.discovery_sessions_of_each(self.shared.shards().len());
        while let Some(oldest) = self.sessions.surplus_discovery(most) {
            self.end_session(oldest, CloseReason::Ended, "it made room for another discovery session");
        }
    }

    /// Ends the discovery sessions whose time is up; returns the end of the next one.
    fn expire_discovery(&mut self) -> Option<Time> {
        while let Some(key) = self.sessions.late_discovery(self.now) {
            self.end_session(
                key,
                CloseReason::Ended,
                "a discovery session lasts no longer than limits.login_timeout",
            );
        }
        self.sessions.next_discovery_end()
    }

    /// Adds or replaces a connection of a session.
    pub(super) fn add_connection(&mut self, key: SessionKey, token: Token, established: Established) {
        let now = self.now;
        self.with_session(key, |_, entry| {
            let cid = established.names.cid;
            // An old connection with the same CID stays first in the list until the session closes it.
            entry.connections.push((cid, token));
            entry.session.join(established, now);
        });
    }

    /// Works on a session, then executes the actions that it requests.
    pub(super) fn with_session(&mut self, key: SessionKey, f: impl FnOnce(&mut Self, &mut SessionEntry)) {
        let Some(mut entry) = self.sessions.take(key) else { return };
        f(self, &mut entry);
        self.leave(entry);
    }

    /// Executes the actions of a session that was taken out, and puts it back.
    pub(super) fn leave(&mut self, mut entry: Box<SessionEntry>) {
        if self.pump(&mut entry) {
            self.session_ended(*entry);
        } else {
            self.note_loss(&mut entry);
            self.sessions.put_back(entry);
        }
    }

    /// Records whether a session waits for its initiator.
    fn note_loss(&mut self, entry: &mut SessionEntry) {
        let is_lost = entry.connections.is_empty() && !entry.session.is_ending();
        if is_lost == entry.is_lost() {
            return;
        }
        self.sessions.set_lost(entry, is_lost.then_some(self.now));
        match is_lost {
            true => self.shared.lost_sessions.fetch_add(1, Ordering::Relaxed),
            false => self.shared.lost_sessions.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// There are too many sessions: ends the one that has waited longest for its initiator, here or at one of `left` shards.
    //= rfc7143 11.13.5 LGN-20
    pub(super) fn end_a_lost_session(&mut self, left: usize) {
        match self.sessions.longest_lost() {
            Some(key) => {
                let why = "it had lost its connections, and limits.max_sessions is reached";
                self.end_session(key, CloseReason::Ended, why)
            }
            None if left > 1 => {
                let shards = self.shared.shards();
                shards[(self.number + 1) % shards.len()].send(Message::EndLostSession { left: left - 1 });
            }
            None => {}
        }
    }

    /// A connection of a session, to `peer`, has failed; `why` is the reason.
    pub(super) fn session_lost(&mut self, key: SessionKey, cid: Cid, peer: SocketAddr, why: &str) {
        let now = self.now;
        self.with_session(key, |shard, entry| {
            shard.connection_ended(entry, cid, Some(peer), why);
            entry.session.handle_connection_lost(now, cid);
            if let Some(token) = entry.token_of(cid) {
                shard.count_traffic(entry, token);
                shard.hand_over_room(entry, token);
            }
            entry.connections.retain(|(c, _)| *c != cid);
        });
    }

    /// Ends a session; `why` adds to a reason that does not explain enough.
    pub(super) fn end_session(&mut self, key: SessionKey, reason: CloseReason, why: &'static str) {
        let now = self.now;
        self.with_session(key, |_, entry| {
            entry.tally.ask_to_end(why);
            entry.session.terminate(now, reason)
        });
    }

    /// Handles deadlines of sessions; returns the next one.
    pub(super) fn expire_sessions(&mut self) -> Option<Time> {
        let now = self.now;
        self.update_changed();
        for key in self.sessions.late(now) {
            self.with_session(key, |shard, entry| {
                for &(cid, token) in &entry.connections {
                    entry.session.handle_taken(shard.last_taken(token), cid);
                }
                entry.session.handle_timeout(now);
            });
        }
        let (discovery, stalled) = (self.expire_discovery(), self.end_stalled());
        self.update_changed();
        [self.sessions.next_deadline(), discovery, stalled].into_iter().flatten().min()
    }

    /// Updates the records of sessions that have had an event: their deadlines, whether they hold memory for data, and the
    /// published counters. The others have not changed.
    pub(super) fn update_changed(&mut self) {
        for key in self.sessions.take_fresh() {
            let Some(mut entry) = self.sessions.take(key) else { continue };
            self.count(&mut entry);
            self.sessions.update(entry);
        }
    }

    /// The session has ended: its nexus is lost to the logical units, and a login that waited for the end continues.
    //= rfc7143 6.3.5 SES-02 SES-04
    pub(super) fn session_ended(&mut self, mut entry: SessionEntry) {
        self.log_end(&entry);
        for device in entry.luns.values() {
            device.unit.scsi.detach_nexus(&entry.nexus);
        }
        let (key, successor) = (entry.key, entry.successor());
        self.shared.release_tsih(entry.session.tsih());
        if entry.is_lost() {
            self.shared.lost_sessions.fetch_sub(1, Ordering::Relaxed);
        }
        self.shared.release_session(entry.session.names().discovery);
        let share = std::mem::take(&mut entry.share);
        self.sessions.forget(entry);
        self.settle_ended(key, &share);
        self.share_retained();
        self.forget_orders_of(key);
        if let Some(token) = successor {
            self.resume_reinstatement(token);
        }
    }
}
