//! Room for the data of commands: which command gets memory, and when, and which waits ([`crate::memory`]).
//!
//! A session whose next command finds no room has one place in the shard's queue. When there is room, one of its commands starts
//! and the session goes to the end of the queue: round robin, whatever each of them needs. A command with data never overtakes a
//! waiting one of its own session, so the largest one is not overtaken for ever.
//!
//! Short commands need not wait: if there is no room, they use the session's own reserve, which no other session can use up, and
//! overtake the waiting commands. They take nothing from these.
//!
//! A write whose data was requested and does not arrive for [`PROMISE`] gives way while others wait: its memory is only promised,
//! and the command ends with BUSY. A session that holds memory for which others wait, and accepts none of the data sent to it for
//! [`STALL`], is ended, because it would keep the memory for ever (`end_stalled`).
//!
//! The memory that a session holds is derived from what its commands and connections hold ([`Shard::settle`]): however a command
//! ends, no code needs to return its memory explicitly.

use std::time::Duration;

use engine::{Platform, Token};
use iscsi_core::Time;
use iscsi_core::target::actions::CloseReason;

use super::Shard;
use super::message::Message;
use super::room::Share;
use super::sessions::SessionEntry;
use super::slots::SessionKey;
use crate::memory::{Grants, ShardMessages};

/// How long a session may accept none of the data sent to it while others wait for its memory.
const STALL: Duration = Duration::from_secs(5);
/// How long a session may send nothing while others wait for its memory, before its writes that still expect data give way. One
/// check notes the number of bytes received and a later one compares it, so a session has up to twice as long.
const PROMISE: Duration = Duration::from_secs(1);
/// While a session waits, sessions that make no progress are looked for at this interval.
const STALL_SCAN: Duration = Duration::from_millis(500);

/// Whether the initiator does not accept the data sent to it, and nothing else keeps the session from returning its memory.
fn is_stalled(entry: &SessionEntry, now: Time) -> bool {
    entry.share.stands_still(now, STALL) && entry.share.outgoing > 0
}

impl<P: Platform> Shard<P> {
    /// Takes room for a command that is about to start. If there is none, the session waits for it.
    pub(super) fn reserve(&mut self, entry: &mut SessionEntry, bytes: u64) -> bool {
        match self.room.reserve(entry.key, &mut entry.share, bytes, self.now) {
            Ok(()) => true,
            Err(messages) => {
                self.spread(messages);
                false
            }
        }
    }

    /// Takes room for a short command from the session's own reserve.
    pub(super) fn reserve_own(&mut self, entry: &mut SessionEntry, bytes: u64) -> bool {
        self.room.reserve_own(&mut entry.share, bytes, self.now)
    }

    /// Serves waiting sessions, one command each in turn, as long as there is room.
    pub(super) fn serve_waiting(&mut self) {
        while let Some(key) = self.room.next_to_serve() {
            // Its remaining commands find other sessions waiting, and the session goes to the end of the queue.
            self.with_session(key, |shard, entry| {
                shard.room.begin_turn(key, &mut entry.share);
                shard.begin_waiting_for_room(entry);
                shard.room.end_turn();
            });
        }
        let grants = self.room.give_unused_if_wanted();
        self.grant(grants);
    }

    /// Updates the records to what a session holds now.
    pub(super) fn settle(&mut self, entry: &mut SessionEntry) {
        let share = &mut entry.share;
        // PDUs that wait for a fence are not queued on a connection yet.
        if share.outgoing > 0 && !entry.session.is_holding_back() {
            let backlog = entry.connections.iter().map(|(_, token)| self.connections.backlog_bytes(*token));
            share.outgoing = share.outgoing.min(backlog.sum());
        }
        let waiting = entry.tasks.count_for_room() as u64;
        self.room.record(share, entry.session.early_bytes(), entry.session.retained_bytes(), waiting);
        if let Some(pressed) = self.room.pressure_changed(share) {
            let first_burst = entry.session.params().effective_first_burst();
            let limited = self.room.window(self.sessions.len(), first_burst);
            entry.session.limit_window(if pressed { limited } else { u32::MAX });
        }
        if let Some(bytes) = self.room.release(share, self.now) {
            self.give_room(bytes);
        }
    }

    /// Ends the sessions that make no progress while others wait for their memory: a peer that never reads, or never sends
    /// requested data, must not block everyone else. Returns when to check again.
    pub(super) fn end_stalled(&mut self) -> Option<Time> {
        if !self.room.is_wanted() {
            return None;
        }
        let now = self.now;
        let still = self.sessions.holding().filter(|entry| entry.share.stands_still(now, PROMISE));
        let still: Vec<SessionKey> = still.map(|entry| entry.key).collect();
        for key in still {
            self.with_session(key, |shard, entry| {
                // A slow peer sends and accepts small parts of data that is counted as a whole.
                let (mut sent, mut taken) = (Time::ZERO, Time::ZERO);
                for (_, token) in &entry.connections {
                    sent = sent.max(shard.last_received(*token));
                    taken = taken.max(shard.last_taken(*token));
                }
                if now.saturating_sub(sent) >= PROMISE {
                    entry.session.give_way();
                }
                if is_stalled(entry, now) && now.saturating_sub(taken) >= STALL {
                    tracing::warn!(
                        initiator = %entry.session.names().initiator,
                        bytes = entry.share.held_bytes(),
                        "the session is ended: others wait for its memory (limits.buffer_bytes_max), and for {} s it has taken \
                         nothing of what it is sent",
                        STALL.as_secs()
                    );
                    entry.session.terminate(now, CloseReason::Silent);
                }
            });
        }
        Some(now + STALL_SCAN)
    }

    /// A session has ended: it holds nothing and waits for nothing.
    pub(super) fn settle_ended(&mut self, key: SessionKey, share: &Share) {
        let bytes = self.room.forget(key, share);
        self.give_room(bytes);
    }

    /// A connection leaves its session with unsent data: from here on the connection holds the room for it.
    pub(super) fn hand_over_room(&mut self, entry: &mut SessionEntry, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let backlog = connection.link.tx_backlog_bytes() as u64;
        connection.outgoing_bytes += self.room.hand_over(&mut entry.share, backlog);
    }

    /// Returns room to those that wait for it.
    pub(super) fn give_room(&mut self, bytes: u64) {
        let grants = self.room.give(bytes);
        self.grant(grants);
    }

    /// Another shard waits for room.
    pub(super) fn give_unused_room(&mut self) {
        let grants = self.room.give_unused();
        self.grant(grants);
    }

    /// Room for which this shard waited was granted.
    pub(super) fn take_granted_room(&mut self, bytes: u64) {
        self.room.granted(bytes);
        if !self.room.has_waiting() {
            self.give_unused_room();
        }
    }

    /// Sets how much Data-In each session may keep, if their number requires another limit.
    pub(super) fn share_retained(&mut self) {
        if !self.room.divide_retained(self.sessions.len() as u64) {
            return;
        }
        let each = self.room.retained_bytes_of_each();
        let room = &mut self.room;
        self.sessions.each_mut(|entry| {
            entry.session.set_retained_bytes_max(each);
            room.record_retained(&mut entry.share, entry.session.retained_bytes());
        });
    }

    fn spread(&mut self, messages: ShardMessages) {
        let ShardMessages { grants, call_back } = messages;
        if call_back {
            let others = self.shared.shards().iter().enumerate().filter(|(n, _)| *n != self.number);
            others.for_each(|(_, shard)| shard.send(Message::GiveRoom));
        }
        self.grant(grants);
    }

    fn grant(&mut self, grants: Grants) {
        for (shard, bytes) in grants {
            if shard == self.number {
                self.room.granted(bytes);
            } else {
                self.shared.shards()[shard].send(Message::Room(bytes));
            }
        }
    }
}
