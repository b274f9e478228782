//! The memory of a shard for the data of commands: who holds how much of it, and who waits ([`crate::memory`]). Which commands get
//! some is decided in `admission`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iscsi_core::Time;
use iscsi_core::target::actions::Command;

use super::slots::SessionKey;
use crate::config::Limits;
use crate::memory::{Grants, Lease, Pool, ShardMessages, command_bytes_max, reserve_bytes, share_bytes};
use crate::observe::metrics::ShardMemory;

/// Maximum data of a session that is kept for replay until it is acknowledged, bytes.
const RETAINED_BYTES_MAX: u64 = 64 << 20;

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
    pub(crate) fn holds_memory(&self) -> bool {
        self.booked > 0
    }

    /// Memory that it holds for commands, bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.booked
    }

    /// Whether its memory has made no progress for `long`.
    pub(crate) fn stands_still(&self, now: Time, long: Duration) -> bool {
        self.booked > 0 && now.saturating_sub(self.moved) >= long
    }

    fn book_command(&mut self, bytes: u64, now: Time) {
        if self.booked == 0 {
            self.moved = now;
        }
        self.commands += bytes;
        self.booked += bytes;
    }
}

impl Room {
    pub(crate) fn new(
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
    pub(crate) fn need_of(&self, command: &Command) -> u64 {
        (u64::from(command.read_length) + u64::from(command.write_length)).min(self.command_bytes_max)
    }

    /// Maximum unsolicited data for a session, bytes: what it has, and what is free.
    pub(crate) fn early_bytes_max(&self, share: &Share) -> u64 {
        self.share_bytes.saturating_sub(self.early_bytes - share.early)
    }

    /// Whether there are waiting sessions that could be served now.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() && !self.lease.waits()
    }

    /// Takes room for a command of the session `key` that is about to start. If there is none, the session waits for it, unless the
    /// completion of its own commands brings it back anyway; the error says what to send to whom.
    pub(crate) fn reserve(
        &mut self,
        key: SessionKey,
        share: &mut Share,
        bytes: u64,
        now: Time,
    ) -> Result<(), ShardMessages> {
        let held = share.booked - share.reserved;
        let in_turn = self.served == Some(key) || self.queue.is_empty();
        let modest = held == 0 || held + bytes <= self.session_bytes_max();
        if bytes == 0 || (in_turn && modest && self.lease.take(bytes)) {
            share.book_command(bytes, now);
            return Ok(());
        }
        if self.reserve_own(share, bytes, now) {
            return Ok(());
        }
        share.is_short = true;
        if !modest || std::mem::replace(&mut share.queued, true) {
            return Err(ShardMessages::default());
        }
        if !in_turn {
            self.queue.push_back(key);
            return Err(ShardMessages::default());
        }
        self.queue.push_front(key);
        Err(self.lease.wait_for(bytes))
    }

    /// Takes room for a short command from the session's own reserve.
    pub(crate) fn reserve_own(&mut self, share: &mut Share, bytes: u64, now: Time) -> bool {
        if share.reserved + bytes > self.reserve_bytes {
            return false;
        }
        share.reserved += bytes;
        self.book_short(bytes, 0);
        share.book_command(bytes, now);
        true
    }

    /// Takes the session whose turn it is out of the queue, if it could be served now.
    pub(crate) fn next_to_serve(&mut self) -> Option<SessionKey> {
        if self.has_work() { self.queue.pop_front() } else { None }
    }

    /// It is the turn of the session `key`, until [`Room::end_turn`].
    pub(crate) fn begin_turn(&mut self, key: SessionKey, share: &mut Share) {
        share.queued = false;
        self.served = Some(key);
    }

    /// See [`Room::begin_turn`].
    pub(crate) fn end_turn(&mut self) {
        self.served = None;
    }

    /// Records a session's unsolicited data, kept Data-In, and waiting commands.
    pub(crate) fn record(&mut self, share: &mut Share, early: u64, retained: u64, waiting: u64) {
        let (had, has) = ((share.early, share.retained, share.waiting), (early, retained, waiting));
        if has != had {
            self.book(had, has);
            (share.early, share.retained, share.waiting) = has;
        }
    }

    /// Like [`Room::record`], for kept Data-In alone.
    pub(crate) fn record_retained(&mut self, share: &mut Share, retained: u64) {
        self.record(share, share.early, retained, share.waiting);
    }

    /// Whether the command window of a session must be reduced from now on; `None`: as before. When the room for unsolicited data
    /// becomes scarce, smaller windows make initiators send less.
    pub(crate) fn pressure_changed(&self, share: &mut Share) -> Option<bool> {
        let pressed = self.early_bytes > self.share_bytes / 2;
        (std::mem::replace(&mut share.pressed, pressed) != pressed).then_some(pressed)
    }

    /// Records that a session holds less than before, if it does. Returns the room that it no longer needs, bytes.
    pub(crate) fn release(&mut self, share: &mut Share, now: Time) -> Option<u64> {
        let held = share.commands + share.outgoing;
        if held >= share.booked {
            return None;
        }
        share.moved = now;
        let done = std::mem::replace(&mut share.booked, held) - held;
        let own = share.reserved.min(done);
        share.reserved -= own;
        self.book_short(0, own);
        Some(done - own)
    }

    /// A session has ended: it holds nothing and waits for nothing. Returns its room, bytes.
    pub(crate) fn forget(&mut self, key: SessionKey, share: &Share) -> u64 {
        self.book((share.early, share.retained, share.waiting), (0, 0, 0));
        if share.queued {
            self.queue.retain(|waiting| *waiting != key);
        }
        self.book_short(0, share.reserved);
        share.booked - share.reserved
    }

    /// A connection leaves its session with `backlog` bytes of unsent data. Returns the room that the connection now holds for them,
    /// bytes.
    pub(crate) fn hand_over(&mut self, share: &mut Share, backlog: u64) -> u64 {
        let outgoing = share.outgoing.min(backlog);
        let own = share.reserved.min(outgoing);
        share.outgoing -= outgoing;
        share.booked -= outgoing;
        share.reserved -= own;
        self.book_short(0, own);
        outgoing - own
    }

    /// Returns room to those that wait for it.
    pub(crate) fn give(&mut self, bytes: u64) -> Grants {
        self.lease.give(bytes)
    }

    /// Returns the room that nobody here uses to those that wait for it.
    pub(crate) fn give_unused(&mut self) -> Grants {
        self.lease.give_unused()
    }

    /// Like [`Room::give_unused`], if anybody waits for it and nobody here does.
    pub(crate) fn give_unused_if_wanted(&mut self) -> Grants {
        if self.lease.waits() { Grants::default() } else { self.lease.give_unused_if_wanted() }
    }

    /// Room for which this shard waited was granted.
    pub(crate) fn granted(&mut self, bytes: u64) {
        self.lease.granted(bytes);
    }

    /// Whether a session of this shard waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether anybody waits for room, on whichever shard.
    pub(crate) fn is_wanted(&self) -> bool {
        self.lease.is_wanted()
    }

    /// Divides the room for kept Data-In among the sessions again when there are more sessions than parts, or far fewer; true when
    /// the parts have changed. Their number is doubled or halved, so few logins change the limits of the other sessions.
    pub(crate) fn divide_retained(&mut self, sessions: u64) -> bool {
        self.retained_parts = match self.retained_parts {
            parts if sessions > parts => sessions.next_power_of_two(),
            parts if sessions < parts / 4 => parts / 2,
            _ => return false,
        };
        true
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
    pub(crate) fn retained_bytes_of_each(&self) -> u64 {
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
    pub(crate) fn show_buffers(&self, bytes: usize) {
        self.shown.buffers_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// How many commands a session may have outstanding once half of the room for unsolicited data is in use: as many first bursts
    /// as fit into the session's part of the other half.
    pub(crate) fn window(&self, sessions: usize, first_burst_length: u32) -> u32 {
        let part = self.share_bytes / 2 / sessions.max(1) as u64;
        u32::try_from(part / u64::from(first_burst_length.max(1))).unwrap_or(u32::MAX)
    }

    /// Maximum memory for a session while it has commands waiting, bytes.
    fn session_bytes_max(&self) -> u64 {
        self.lease.max() / 4
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
