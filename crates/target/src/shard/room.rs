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

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{Platform, Token};
use iscsi_core::Time;
use iscsi_core::target::actions::{CloseReason, Command};
use scsi::{Asc, Outcome, SenseData, SenseKey};

use super::Shard;
use super::commands::RETAINED_BYTES_MAX;
use super::message::Message;
use super::sessions::{SessionEntry, SessionKey};
use crate::config::Limits;
use crate::memory::{Grants, Lease, Pool, ShardMessages, command_bytes_max, reserve_bytes, share_bytes};
use crate::observe::metrics::ShardMemory;

/// How long a session may accept none of the data sent to it while others wait for its memory.
const STALL: Duration = Duration::from_secs(5);
/// How long a session may send nothing while others wait for its memory, before its writes that still expect data give way. One
/// check notes the number of bytes received and a later one compares it, so a session has up to twice as long.
const PROMISE: Duration = Duration::from_secs(1);
/// While a session waits, sessions that make no progress are looked for at this interval.
const STALL_SCAN: Duration = Duration::from_millis(500);

/// This shard's room for data.
pub(super) struct Room {
    lease: Lease,
    /// Sessions whose next command waits, in the order in which they will be served.
    queue: VecDeque<SessionKey>,
    /// The session currently served.
    served: Option<SessionKey>,
    /// Maximum number of bytes for one command.
    command_bytes_max: u64,
    /// For unsolicited data of commands that have not started, and half as much for Data-In that is kept, bytes.
    share_bytes: u64,
    /// Each session's own reserve for short commands, bytes.
    reserve_bytes: u64,
    early_bytes: u64,
    retained_bytes: u64,
    /// The used part of the sessions' reserves, bytes.
    short_bytes: u64,
    /// Commands that wait.
    waiting: u64,
    /// The number of parts into which the room for kept Data-In is divided: at least one per session.
    retained_parts: u64,
    shown: Arc<ShardMemory>,
}

/// A session's share of the room.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// For commands that have started and not ended, bytes.
    pub commands: u64,
    /// For commands that have ended, whose data is queued on the connections or on its way there, bytes.
    pub outgoing: u64,
    /// Both, as recorded by the shard.
    booked: u64,
    /// The part of `booked` that comes from the session's own reserve.
    reserved: u64,
    /// Unsolicited data, and kept Data-In, as recorded by the shard.
    early: u64,
    retained: u64,
    /// Waiting commands, as recorded by the shard.
    waiting: u64,
    /// A command with data waits: later ones queue behind it.
    pub is_short: bool,
    /// The session is in the shard's queue.
    queued: bool,
    /// When there was last progress: memory was taken or returned, or data arrived.
    pub moved: Time,
    /// Its command window is reduced.
    pressed: bool,
}

impl Share {
    /// Whether it holds memory for commands.
    pub fn holds_memory(&self) -> bool {
        self.booked > 0
    }
}

impl Room {
    pub fn new(
        pool: Arc<Pool>,
        shard: usize,
        shards: usize,
        limits: &Limits,
        shown: Arc<ShardMemory>,
    ) -> Self {
        let bytes_max = limits.buffer_bytes_max;
        Self {
            lease: Lease::new(pool, shard, shards, Arc::clone(&shown)),
            queue: VecDeque::new(),
            served: None,
            command_bytes_max: command_bytes_max(bytes_max),
            share_bytes: share_bytes(bytes_max, shards),
            reserve_bytes: reserve_bytes(bytes_max, limits.max_sessions),
            early_bytes: 0,
            retained_bytes: 0,
            short_bytes: 0,
            waiting: 0,
            retained_parts: 1,
            shown,
        }
    }

    /// Memory that a command may need, bytes; a longer command gets no more than the maximum.
    pub fn need_of(&self, command: &Command) -> u64 {
        (u64::from(command.read_length) + u64::from(command.write_length)).min(self.command_bytes_max)
    }

    /// Maximum unsolicited data for a session, bytes: what it has, and what is free.
    pub fn early_bytes_max(&self, share: &Share) -> u64 {
        self.share_bytes.saturating_sub(self.early_bytes - share.early)
    }

    /// Whether there are waiting sessions that could be served now.
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty() && !self.lease.waits()
    }

    /// Records a change of a session's unsolicited data, kept Data-In, and waiting commands.
    fn book(&mut self, had: (u64, u64, u64), has: (u64, u64, u64)) {
        self.early_bytes = self.early_bytes + has.0 - had.0;
        self.retained_bytes = self.retained_bytes + has.1 - had.1;
        self.waiting = self.waiting + has.2 - had.2;
        self.shown.early_bytes.store(self.early_bytes, Ordering::Relaxed);
        self.shown.retained_bytes.store(self.retained_bytes, Ordering::Relaxed);
        self.shown.waiting_commands.store(self.waiting, Ordering::Relaxed);
    }

    /// How much Data-In each session may keep, bytes.
    pub fn retained_bytes_of_each(&self) -> u64 {
        (self.share_bytes / 2 / self.retained_parts).min(RETAINED_BYTES_MAX)
    }

    /// Records that sessions use `more` of their reserves and have returned `less`, bytes.
    fn book_short(&mut self, more: u64, less: u64) {
        if more != less {
            self.short_bytes = self.short_bytes + more - less;
            self.shown.short_bytes.store(self.short_bytes, Ordering::Relaxed);
        }
    }

    /// Publishes how much memory is in buffers.
    pub fn show_buffers(&self, bytes: usize) {
        self.shown.buffers_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// How many commands a session may have outstanding once half of the room for unsolicited data is in use: as many first bursts
    /// as fit into the session's part of the other half.
    fn window(&self, sessions: usize, first_burst_length: u32) -> u32 {
        let part = self.share_bytes / 2 / sessions.max(1) as u64;
        u32::try_from(part / u64::from(first_burst_length.max(1))).unwrap_or(u32::MAX)
    }

    /// Maximum memory for a session while it has commands waiting, bytes.
    fn session_bytes_max(&self) -> u64 {
        self.lease.max() / 4
    }
}

/// The outcome of a command that needs more memory than any command may have: as if it exceeded MAXIMUM TRANSFER LENGTH. That limit
/// is chosen such that this happens only after the memory for data was reduced.
//= sbc3 6.5.3 VPD-B0
pub(super) fn too_long() -> Outcome {
    Outcome::check(SenseData::new(SenseKey::IllegalRequest, Asc::INVALID_FIELD_IN_CDB))
}

/// Whether a session's memory has made no progress for `long`.
fn stands_still(entry: &SessionEntry, now: Time, long: Duration) -> bool {
    entry.share.booked > 0 && now.saturating_sub(entry.share.moved) >= long
}

/// Whether the initiator does not accept the data sent to it, and nothing else keeps the session from returning its memory.
fn is_stalled(entry: &SessionEntry, now: Time) -> bool {
    stands_still(entry, now, STALL) && entry.share.outgoing > 0
}

impl<P: Platform> Shard<P> {
    /// Takes room for a command that is about to start. If there is none, the session waits for it.
    pub(super) fn reserve(&mut self, entry: &mut SessionEntry, bytes: u64) -> bool {
        let room = &mut self.room;
        let held = entry.share.booked - entry.share.reserved;
        let in_turn = room.served == Some(entry.key) || room.queue.is_empty();
        let modest = held == 0 || held + bytes <= room.session_bytes_max();
        if bytes == 0 || (in_turn && modest && room.lease.take(bytes)) {
            self.book_command(entry, bytes);
            return true;
        }
        if self.reserve_own(entry, bytes) {
            return true;
        }
        entry.share.is_short = true;
        // Otherwise the completion of its own commands brings it back here.
        if modest && !std::mem::replace(&mut entry.share.queued, true) {
            match in_turn {
                true => self.room.queue.push_front(entry.key),
                false => self.room.queue.push_back(entry.key),
            }
            if in_turn {
                let messages = self.room.lease.wait_for(bytes);
                self.spread(messages);
            }
        }
        false
    }

    /// Takes room for a short command from the session's own reserve.
    pub(super) fn reserve_own(&mut self, entry: &mut SessionEntry, bytes: u64) -> bool {
        if entry.share.reserved + bytes > self.room.reserve_bytes {
            return false;
        }
        entry.share.reserved += bytes;
        self.room.book_short(bytes, 0);
        self.book_command(entry, bytes);
        true
    }

    fn book_command(&self, entry: &mut SessionEntry, bytes: u64) {
        if entry.share.booked == 0 {
            entry.share.moved = self.now;
        }
        entry.share.commands += bytes;
        entry.share.booked += bytes;
    }

    /// Serves waiting sessions, one command each in turn, as long as there is room.
    pub(super) fn serve_waiting(&mut self) {
        while self.room.has_work()
            && let Some(key) = self.room.queue.pop_front()
        {
            // Its remaining commands find other sessions waiting, and the session goes to the end of the queue.
            self.with_session(key, |shard, entry| {
                entry.share.queued = false;
                shard.room.served = Some(key);
                shard.begin_waiting_for_room(entry);
                shard.room.served = None;
            });
        }
        if !self.room.lease.waits() {
            let grants = self.room.lease.give_unused_if_wanted();
            self.grant(grants);
        }
    }

    /// Updates the records to what a session holds now.
    pub(super) fn settle(&mut self, entry: &mut SessionEntry) {
        let share = &mut entry.share;
        // PDUs that wait for a fence are not queued on a connection yet.
        if share.outgoing > 0 && !entry.session.is_holding_back() {
            let backlog = entry.connections.iter().map(|(_, token)| self.connections.backlog_bytes(*token));
            share.outgoing = share.outgoing.min(backlog.sum());
        }
        let room = &mut self.room;
        let (early, retained) = (entry.session.early_bytes(), entry.session.retained_bytes());
        let waiting = entry.tasks.count_for_room() as u64;
        if (early, retained, waiting) != (share.early, share.retained, share.waiting) {
            room.book((share.early, share.retained, share.waiting), (early, retained, waiting));
            (share.early, share.retained, share.waiting) = (early, retained, waiting);
        }
        // When this room becomes scarce, smaller command windows make initiators send less.
        let pressed = room.early_bytes > room.share_bytes / 2;
        if pressed != share.pressed {
            share.pressed = pressed;
            let first_burst = entry.session.params().effective_first_burst();
            let limited = room.window(self.sessions.len(), first_burst);
            entry.session.limit_window(if pressed { limited } else { u32::MAX });
        }
        let held = share.commands + share.outgoing;
        if held < share.booked {
            share.moved = self.now;
            let done = std::mem::replace(&mut share.booked, held) - held;
            let own = share.reserved.min(done);
            share.reserved -= own;
            room.book_short(0, own);
            self.give_room(done - own);
        }
    }

    /// Ends the sessions that make no progress while others wait for their memory: a peer that never reads, or never sends
    /// requested data, must not block everyone else. Returns when to check again.
    pub(super) fn end_stalled(&mut self) -> Option<Time> {
        if !self.room.lease.is_wanted() {
            return None;
        }
        let now = self.now;
        let holding = &self.sessions.holding;
        self.sessions.look_at(holding.len());
        let stand_still =
            |key: &SessionKey| self.sessions.get(*key).is_some_and(|h| stands_still(h, now, PROMISE));
        let still: Vec<SessionKey> = holding.iter().copied().filter(stand_still).collect();
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
                        bytes = entry.share.booked,
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
        let room = &mut self.room;
        room.book((share.early, share.retained, share.waiting), (0, 0, 0));
        if share.queued {
            room.queue.retain(|waiting| *waiting != key);
        }
        room.book_short(0, share.reserved);
        self.give_room(share.booked - share.reserved);
    }

    /// A connection leaves its session with unsent data: from here on the connection holds the room for it.
    pub(super) fn hand_over_room(&mut self, entry: &mut SessionEntry, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let outgoing = entry.share.outgoing.min(connection.link.tx_backlog_bytes() as u64);
        let own = entry.share.reserved.min(outgoing);
        connection.outgoing_bytes += outgoing - own;
        entry.share.outgoing -= outgoing;
        entry.share.booked -= outgoing;
        entry.share.reserved -= own;
        self.room.book_short(0, own);
    }

    /// Returns room to those that wait for it.
    pub(super) fn give_room(&mut self, bytes: u64) {
        let grants = self.room.lease.give(bytes);
        self.grant(grants);
    }

    /// Another shard waits for room.
    pub(super) fn give_unused_room(&mut self) {
        let grants = self.room.lease.give_unused();
        self.grant(grants);
    }

    /// Room for which this shard waited was granted.
    pub(super) fn take_granted_room(&mut self, bytes: u64) {
        self.room.lease.granted(bytes);
        if self.room.queue.is_empty() {
            // No session is waiting any more.
            self.give_unused_room();
        }
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
                self.room.lease.granted(bytes);
            } else {
                self.shared.shards()[shard].send(Message::Room(bytes));
            }
        }
    }

    /// Divides the room for kept Data-In among the sessions again when there are more sessions than parts, or far fewer. The number
    /// of parts is doubled or halved, so few logins change the limits of the other sessions.
    pub(super) fn share_retained(&mut self) {
        let (sessions, parts) = (self.sessions.len() as u64, self.room.retained_parts);
        self.room.retained_parts = match parts {
            _ if sessions > parts => sessions.next_power_of_two(),
            _ if sessions < parts / 4 => parts / 2,
            _ => return,
        };
        let each = self.room.retained_bytes_of_each();
        let room = &mut self.room;
        self.sessions.each_mut(|entry| {
            entry.session.set_retained_bytes_max(each);
            let Share { early, retained, waiting, .. } = entry.share;
            entry.share.retained = entry.session.retained_bytes();
            room.book((early, retained, waiting), (early, entry.share.retained, waiting));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(bytes_max: u64, shards: usize) -> Room {
        let limits = Limits { buffer_bytes_max: bytes_max, ..Limits::default() };
        Room::new(Arc::new(Pool::new(bytes_max)), 0, shards, &limits, Arc::default())
    }

    #[test]
    fn each_session_may_keep_its_part_of_an_eighth_of_the_memory_but_64_mib_at_most() {
        let mut room = room(1 << 30, 2);
        let each = [1, 2, 4].map(|parts| {
            room.retained_parts = parts;
            room.retained_bytes_of_each()
        });
        assert_eq!(each, [64 << 20, 32 << 20, 16 << 20]);
        assert_eq!(self::room(1 << 40, 2).retained_bytes_of_each(), 64 << 20);
    }

    #[test]
    fn a_session_may_have_the_unsolicited_data_that_it_has_and_what_is_free() {
        let mut room = room(64 << 20, 4);
        let share = |early| Share { early, ..Share::default() };
        let all = 4 << 20;
        assert_eq!(room.early_bytes_max(&share(0)), all);
        room.book((0, 0, 0), (all - 100, 7, 2));
        assert_eq!(room.early_bytes_max(&share(0)), 100);
        assert_eq!(room.early_bytes_max(&share(300)), 400);
        room.book((all - 100, 7, 2), (all, 5, 1));
        assert_eq!((room.early_bytes_max(&share(0)), room.retained_bytes, room.waiting), (0, 5, 1));
    }

    #[test]
    fn a_scarce_window_is_as_many_first_bursts_as_fit_into_half_of_the_room_divided_by_the_sessions() {
        let room = room(64 << 20, 4);
        let half = 2 << 20;
        assert_eq!(room.window(1, 64 << 10), half / (64 << 10));
        assert_eq!(room.window(3, 64 << 10), half / 3 / (64 << 10));
        assert_eq!(room.window(0, 64 << 10), room.window(1, 64 << 10));
        assert_eq!(room.window(4096, 64 << 10), 0);
        assert_eq!(room.window(1, 0), half);
    }
}
