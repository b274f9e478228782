//! Room for the data of commands: who gets memory, when, and who waits ([`crate::memory`]).
//!
//! A session whose next command finds no room stands in the shard's queue once, and when there is room one of its commands begins
//! and the session goes to the end: round robin, whatever each of them wants. A command with data never passes another one of its
//! session that waits, so the largest one is not passed for ever.
//!
//! Short commands need not wait: what finds no room has the session's own reserve, which nobody else can use up, and passes those
//! that wait. It takes nothing from them.
//!
//! A write whose data have been asked for and do not come for [`PROMISE`] gives way while others wait: its memory is only promised,
//! and the command ends with BUSY. A session that has memory for which others wait, and takes nothing of what it is sent for
//! [`STALL`], is ended: it would keep it for ever (`end_stalled`).
//!
//! What a session holds follows from what its commands and connections hold ([`Shard::settle`]): however a command ends, nothing
//! has to be remembered to be given back.

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
use super::sessions::{Hosted, SessionKey};
use crate::config::Limits;
use crate::memory::{Grants, Lease, Pool, Tidings, command_bytes_max, reserve_bytes, share_bytes};
use crate::observe::metrics::ShardMemory;

/// How long a session that others wait for may take nothing of what it is sent.
const STALL: Duration = Duration::from_secs(5);
/// How long a session that others wait for may send nothing at all, before its writes whose data are due give way. It is looked at
/// twice, so that it has twice as long.
const PROMISE: Duration = Duration::from_secs(1);
/// While somebody waits, who lets nothing move is looked for this often.
const STALL_SCAN: Duration = Duration::from_millis(500);

/// This shard's room for data.
pub(super) struct Room {
    lease: Lease,
    /// Sessions whose next command waits, in the order in which they will be served.
    queue: VecDeque<SessionKey>,
    /// The session that is being served.
    served: Option<SessionKey>,
    /// Most bytes that a command gets.
    command_bytes_max: u64,
    /// For data that came unasked with commands that have not begun, and half as much for Data-In that is kept, bytes.
    share_bytes: u64,
    /// What each session has of its own for short commands, bytes.
    reserve_bytes: u64,
    early_bytes: u64,
    retained_bytes: u64,
    /// What sessions have of their reserves, bytes.
    short_bytes: u64,
    /// Commands that wait.
    waiting: u64,
    /// Into how many parts the room for Data-In that is kept is divided: no fewer than there are sessions.
    retained_parts: u64,
    shown: Arc<ShardMemory>,
}

/// What a session has of the room.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Of commands that have begun and not ended, bytes.
    pub commands: u64,
    /// Of commands that have ended, on its way to the connections or with them, bytes.
    pub outgoing: u64,
    /// Both, as the shard has it in its books.
    booked: u64,
    /// Of that, what is of the session's own reserve.
    reserved: u64,
    /// Data that came unasked, and Data-In that is kept, as the shard has them in its books.
    early: u64,
    retained: u64,
    /// Commands that wait, as the shard has them in its books.
    waiting: u64,
    /// A command with data waits: later ones wait behind it.
    pub is_short: bool,
    /// The session stands in the shard's queue.
    queued: bool,
    /// When something moved last: memory came or went, or data came.
    pub moved: Time,
    /// Its window is smaller than it might be.
    pressed: bool,
}

impl Share {
    /// Whether it has memory of commands.
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

    /// What a command may need, bytes: of a longer one no more is done than this.
    pub fn need_of(&self, command: &Command) -> u64 {
        (u64::from(command.read_length) + u64::from(command.write_length)).min(self.command_bytes_max)
    }

    /// What a session may have for data that comes unasked, bytes: its own, and what is free.
    pub fn early_bytes_max(&self, share: &Share) -> u64 {
        self.share_bytes.saturating_sub(self.early_bytes - share.early)
    }

    /// Whether sessions wait that could be served now.
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty() && !self.lease.waits()
    }

    /// What a session had is now something else: data that came unasked, Data-In that is kept, commands that wait.
    fn book(&mut self, had: (u64, u64, u64), has: (u64, u64, u64)) {
        self.early_bytes = self.early_bytes + has.0 - had.0;
        self.retained_bytes = self.retained_bytes + has.1 - had.1;
        self.waiting = self.waiting + has.2 - had.2;
        self.shown.early_bytes.store(self.early_bytes, Ordering::Relaxed);
        self.shown.retained_bytes.store(self.retained_bytes, Ordering::Relaxed);
        self.shown.waiting_commands.store(self.waiting, Ordering::Relaxed);
    }

    /// What each session may keep of Data-In, bytes.
    pub fn retained_bytes_of_each(&self) -> u64 {
        (self.share_bytes / 2 / self.retained_parts).min(RETAINED_BYTES_MAX)
    }

    /// Sessions have `more` of their reserves, and `less` no more, bytes.
    fn book_short(&mut self, more: u64, less: u64) {
        if more != less {
            self.short_bytes = self.short_bytes + more - less;
            self.shown.short_bytes.store(self.short_bytes, Ordering::Relaxed);
        }
    }

    /// Shows how much memory there is in buffers.
    pub fn show_buffers(&self, bytes: usize) {
        self.shown.buffers_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// How many commands a session may have outstanding: as many as its part of the room for unasked data is enough for, once
    /// half of that is in use.
    fn window(&self, sessions: usize, first_burst_length: u32) -> u32 {
        let part = self.share_bytes / 2 / sessions.max(1) as u64;
        u32::try_from(part / u64::from(first_burst_length.max(1))).unwrap_or(u32::MAX)
    }

    /// No session is to hold more than this while it has something to wait for, bytes.
    fn session_bytes_max(&self) -> u64 {
        self.lease.max() / 4
    }
}

/// What a command ends with that wants more memory than any may have: as if it were longer than MAXIMUM TRANSFER LENGTH, which is
/// such that this happens only when the memory for data has been made smaller.
//= sbc3 6.5.3 VPD-B0
pub(super) fn too_long() -> Outcome {
    Outcome::check(SenseData::new(SenseKey::IllegalRequest, Asc::INVALID_FIELD_IN_CDB))
}

/// Whether nothing of a session's memory has moved for `long`.
fn stands_still(hosted: &Hosted, now: Time, long: Duration) -> bool {
    hosted.share.booked > 0 && now.saturating_sub(hosted.share.moved) >= long
}

/// Whether the initiator does not take what it is sent, and nothing else keeps the memory of a session from coming back.
fn is_stalled(hosted: &Hosted, now: Time) -> bool {
    stands_still(hosted, now, STALL) && hosted.share.outgoing > 0
}

impl<P: Platform> Shard<P> {
    /// Takes room for a command that is about to begin. Where there is none, the session waits for it.
    pub(super) fn reserve(&mut self, hosted: &mut Hosted, bytes: u64) -> bool {
        let room = &mut self.room;
        let held = hosted.share.booked - hosted.share.reserved;
        let in_turn = room.served == Some(hosted.key) || room.queue.is_empty();
        let modest = held == 0 || held + bytes <= room.session_bytes_max();
        if bytes == 0 || (in_turn && modest && room.lease.take(bytes)) {
            self.book_command(hosted, bytes);
            return true;
        }
        if self.reserve_own(hosted, bytes) {
            return true;
        }
        hosted.share.is_short = true;
        // Otherwise the end of what it has brings it back here.
        if modest && !std::mem::replace(&mut hosted.share.queued, true) {
            match in_turn {
                true => self.room.queue.push_front(hosted.key),
                false => self.room.queue.push_back(hosted.key),
            }
            if in_turn {
                let tidings = self.room.lease.wait_for(bytes);
                self.spread(tidings);
            }
        }
        false
    }

    /// Takes room for a short command of what the session has of its own.
    pub(super) fn reserve_own(&mut self, hosted: &mut Hosted, bytes: u64) -> bool {
        if hosted.share.reserved + bytes > self.room.reserve_bytes {
            return false;
        }
        hosted.share.reserved += bytes;
        self.room.book_short(bytes, 0);
        self.book_command(hosted, bytes);
        true
    }

    fn book_command(&self, hosted: &mut Hosted, bytes: u64) {
        if hosted.share.booked == 0 {
            hosted.share.moved = self.now;
        }
        hosted.share.commands += bytes;
        hosted.share.booked += bytes;
    }

    /// Serves sessions that wait, one command of each at a time, as long as there is room.
    pub(super) fn serve_waiting(&mut self) {
        while self.room.has_work()
            && let Some(key) = self.room.queue.pop_front()
        {
            // What it has left finds the others waiting, and goes to the end.
            self.with_session(key, |shard, hosted| {
                hosted.share.queued = false;
                shard.room.served = Some(key);
                shard.begin_deferred(hosted);
                shard.room.served = None;
            });
        }
        if !self.room.lease.waits() {
            let grants = self.room.lease.give_unused_if_wanted();
            self.grant(grants);
        }
    }

    /// Brings the books to what a session holds now.
    pub(super) fn settle(&mut self, hosted: &mut Hosted) {
        let share = &mut hosted.share;
        // What waits for a fence is with no connection yet.
        if share.outgoing > 0 && !hosted.session.is_holding_back() {
            let backlog = hosted.connections.iter().map(|(_, token)| self.connections.backlog_bytes(*token));
            share.outgoing = share.outgoing.min(backlog.sum());
        }
        let room = &mut self.room;
        let (early, retained) = (hosted.session.early_bytes(), hosted.session.retained_bytes());
        let waiting = hosted.deferred.len() as u64;
        if (early, retained, waiting) != (share.early, share.retained, share.waiting) {
            room.book((share.early, share.retained, share.waiting), (early, retained, waiting));
            (share.early, share.retained, share.waiting) = (early, retained, waiting);
        }
        // Where that becomes scarce, who is told less sends less.
        let pressed = room.early_bytes > room.share_bytes / 2;
        if pressed != share.pressed {
            share.pressed = pressed;
            let first_burst = hosted.session.params().effective_first_burst();
            let limited = room.window(self.sessions.len(), first_burst);
            hosted.session.limit_window(if pressed { limited } else { u32::MAX });
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

    /// Ends the sessions that let nothing move while others wait for the memory that they have: a peer that never reads, or that
    /// never sends what it is asked for, is not to keep everybody from working. When to look again.
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
            self.with_session(key, |shard, hosted| {
                // A slow peer sends and takes parts of what is counted as a whole.
                let (mut sent, mut taken) = (Time::ZERO, Time::ZERO);
                for (_, token) in &hosted.connections {
                    sent = sent.max(shard.last_received(*token));
                    taken = taken.max(shard.last_taken(*token));
                }
                if now.saturating_sub(sent) >= PROMISE {
                    hosted.session.give_way();
                }
                if is_stalled(hosted, now) && now.saturating_sub(taken) >= STALL {
                    tracing::warn!(
                        initiator = %hosted.session.names().initiator,
                        bytes = hosted.share.booked,
                        "the session is ended: others wait for its memory (limits.buffer_bytes_max), and for {} s it has taken \
                         nothing of what it is sent",
                        STALL.as_secs()
                    );
                    hosted.session.terminate(now, CloseReason::Silent);
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

    /// A connection leaves its session with data that is still to be sent: from here on it holds the room for it.
    pub(super) fn hand_over_room(&mut self, hosted: &mut Hosted, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let outgoing = hosted.share.outgoing.min(connection.link.tx_backlog_bytes() as u64);
        let own = hosted.share.reserved.min(outgoing);
        connection.outgoing_bytes += outgoing - own;
        hosted.share.outgoing -= outgoing;
        hosted.share.booked -= outgoing;
        hosted.share.reserved -= own;
        self.room.book_short(0, own);
    }

    /// Gives room back to those that wait for it.
    pub(super) fn give_room(&mut self, bytes: u64) {
        let grants = self.room.lease.give(bytes);
        self.grant(grants);
    }

    /// Another shard waits.
    pub(super) fn give_unused_room(&mut self) {
        let grants = self.room.lease.give_unused();
        self.grant(grants);
    }

    /// What this shard waited for.
    pub(super) fn take_granted_room(&mut self, bytes: u64) {
        self.room.lease.granted(bytes);
        if self.room.queue.is_empty() {
            // Whoever waited is gone.
            self.give_unused_room();
        }
    }

    fn spread(&mut self, tidings: Tidings) {
        let Tidings { grants, call_back } = tidings;
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

    /// Divides what there is for Data-In that is kept among the sessions, when there are more than parts, or far fewer. Parts
    /// double or are halved, so that of all logins few change what each of the other sessions has.
    pub(super) fn share_retained(&mut self) {
        let (sessions, parts) = (self.sessions.len() as u64, self.room.retained_parts);
        self.room.retained_parts = match parts {
            _ if sessions > parts => sessions.next_power_of_two(),
            _ if sessions < parts / 4 => parts / 2,
            _ => return,
        };
        let each = self.room.retained_bytes_of_each();
        let room = &mut self.room;
        self.sessions.each_mut(|hosted| {
            hosted.session.set_retained_bytes_max(each);
            let Share { early, retained, waiting, .. } = hosted.share;
            hosted.share.retained = hosted.session.retained_bytes();
            room.book((early, retained, waiting), (early, hosted.share.retained, waiting));
        });
    }
}
