//! A shard: one thread, its driver, the connections on it and the sessions of those connections.
//!
//! Everything in a session happens inline on its shard: bytes arrive, PDUs are framed, the session decides, the device server
//! and a store in memory answer, and the answers leave in one send, without a queue or a lock in between. Only operations that
//! may block go to a worker thread, and only work that concerns sessions of other shards goes through a mailbox.
//!
//! Its state is in machines that know nothing of the shard:
//!
//! | module | its part |
//! |---|---|
//! | `connections` | sockets, and what is kept of each |
//! | `sessions` | sessions, and what is kept of each; `slots`, by keys that are never used again |
//! | `task_set` | the commands of a session, each in one state, and the order in which they start |
//! | `running`, `workers` | a command in progress; its work on a thread that may block |
//! | `room` | memory for the data of commands |
//! | `ahead` | data of commands that have not started, on its way into the cache |
//! | `gathers` | aborts that several sessions and shards must complete |
//! | `tally`, `due`, `message` | the last words about a session; deadlines in order; what shards tell each other |
//!
//! What happens between them:
//!
//! | module | its part |
//! |---|---|
//! | `traffic` | accepting, receiving, sending, closing |
//! | `login` | connections that have no session yet |
//! | `lifecycle` | how sessions begin and end |
//! | `actions` | PDUs to a session, and the actions that it requests |
//! | `commands` | from a SCSI command to its outcome |
//! | `admission` | which command gets memory, and when |
//! | `management` | aborting tasks, here and on other shards |
//! | `control` | configuration, shutdown, queries from outside |
//! | `ends` | log messages about ends, aborts and digests |

mod actions;
mod admission;
mod ahead;
mod commands;
mod connections;
mod control;
mod due;
mod ends;
mod gathers;
mod lifecycle;
mod login;
mod management;
pub(crate) mod message;
mod room;
mod running;
mod sessions;
mod slots;
mod tally;
mod task_set;
mod traffic;
mod workers;

pub use self::actions::SessionHoldings;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use engine::{Completion, Driver, Mailbox, Platform, Sender, SlabRing, Token};
use iscsi_core::Time;
use rustc_hash::FxHashMap;

use self::ahead::Ahead;
use self::connections::Connections;
use self::gathers::Gathers;
use self::message::Message;
use self::room::Room;
use self::sessions::Sessions;
use self::workers::Workers;
use crate::config::PortalConfig;
use crate::observe::EventKind;
use crate::observe::metrics::ShardPolls;
use crate::shared::Shared;

/// After an event, deadlines are checked again within this time: no deadline is shorter.
const TIMER_SCAN: Duration = Duration::from_millis(500);
/// During shutdown, the shards check at this interval whether all of them are done.
const ENDING_SCAN: Duration = Duration::from_millis(50);
/// While events are withheld from the log, the shards check at this interval whether their number can be logged.
const SUMMARY_SCAN: Duration = Duration::from_secs(1);
/// How long shutdown waits for commands that are still in their stores when everything else has ended.
const STORE_PATIENCE: Duration = Duration::from_secs(5);
/// Size of the slabs that small payloads share, bytes.
const SLAB_BYTES: usize = 128 << 10;

/// See the module.
pub(crate) struct Shard<P: Platform> {
    number: usize,
    shared: Arc<Shared<P>>,
    now: Time,
    driver: P::Driver,
    mailbox: Mailbox<Message<P::Driver>>,
    /// This shard's part of `limits.buffer_bytes_max`.
    budget_bytes: u64,
    slabs: SlabRing,
    room: Room,
    shown_polls: Arc<ShardPolls>,
    listeners: FxHashMap<Token, Arc<PortalConfig>>,
    connections: Connections,
    sessions: Sessions,
    ahead: Ahead,
    gathers: Gathers,
    /// When deadlines are checked next; `None`: there are none.
    next_scan: Option<Time>,
    completions: Vec<Completion<<P::Driver as Driver>::Stream>>,
    messages: Vec<Message<P::Driver>>,
    workers: Workers,
    ending: Option<Time>,
    /// Whether this shard accepts no more connections.
    door_closed: bool,
}

/// A shard, and the sender of its mailbox.
pub(crate) type Made<P> = (Shard<P>, Sender<Message<<P as Platform>::Driver>>);

impl<P: Platform> Shard<P> {
    /// A shard with its mailbox.
    ///
    /// # Errors
    /// The driver cannot be created.
    pub(crate) fn new(number: usize, shards: usize, shared: Arc<Shared<P>>) -> io::Result<Made<P>> {
        let driver = shared.platform.driver()?;
        let mailbox = Mailbox::new(driver.waker());
        let sender = mailbox.sender();
        let limits = shared.set.load().config.limits.clone();
        let budget = limits.buffer_bytes_max / shards.max(1) as u64;
        let shown = shared.observe.metrics.shard_memory();
        let shown_polls = shared.observe.metrics.shard_polls();
        let room = Room::new(Arc::clone(&shared.pool), number, shards, &limits, shown);
        let shard = Self {
            number,
            now: shared.platform.now(),
            shared,
            driver,
            mailbox,
            budget_bytes: budget,
            slabs: SlabRing::new(SLAB_BYTES, (budget as usize / SLAB_BYTES).max(16)),
            room,
            shown_polls,
            listeners: FxHashMap::default(),
            connections: Connections::default(),
            sessions: Sessions::default(),
            ahead: Ahead::default(),
            gathers: Gathers::default(),
            next_scan: None,
            completions: Vec::new(),
            messages: Vec::new(),
            workers: Workers::default(),
            ending: None,
            door_closed: false,
        };
        Ok((shard, sender))
    }

    /// Works until told to shut down.
    ///
    /// # Errors
    /// The driver fails permanently.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while self.turn()? {}
        Ok(())
    }

    /// When deadlines must be checked, if there are any: [`Shard::turn`] has work then even if no event occurs.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        [self.next_scan, self.connections.next_flush()].into_iter().flatten().min()
    }

    /// Waits once, and handles the events; false when the shard has ended.
    ///
    /// # Errors
    /// The driver fails permanently.
    pub(crate) fn turn(&mut self) -> io::Result<bool> {
        let timeout = self.next_deadline().map(|at| at.saturating_sub(self.shared.platform.now()));
        let mut completions = std::mem::take(&mut self.completions);
        self.driver.may_poll(!self.workers.are_busy(self.now));
        self.driver.wait(timeout, &mut completions)?;
        self.now = self.shared.platform.now();
        let busy = !completions.is_empty();
        for completion in completions.drain(..) {
            match completion {
                Completion::Accepted { listener, stream, peer } => self.accepted(listener, stream, peer),
                Completion::AcceptFailed { error, .. } => {
                    if self.admits(EventKind::ConnectionRefused) {
                        tracing::warn!(%error, "cannot accept connections; trying again")
                    }
                }
                Completion::Received { conn, buffer, result } => self.received(conn, buffer, result),
                Completion::Sent { conn, segments, result } => self.sent(conn, segments, result),
                Completion::Connected { .. } => {}
                Completion::Woken => self.mailbox.drain(&mut self.messages),
            }
            self.workers.hand_over(&self.shared.platform);
        }
        self.completions = completions;
        let mut messages = std::mem::take(&mut self.messages);
        for message in messages.drain(..) {
            self.take_message(message);
        }
        self.messages = messages;
        self.connections.touch_holding(self.now);
        self.pass_on();
        if busy {
            let soon = self.now + TIMER_SCAN;
            self.next_scan = Some(self.next_scan.map_or(soon, |at| at.min(soon)));
        }
        if self.next_scan.is_some_and(|at| at <= self.now) {
            self.scan_timers();
            self.pass_on();
        }
        debug_assert!(self.workers.have_all());
        Ok(!(self.ending.is_some() && self.has_ended()))
    }

    /// Completed work may have returned memory for which sessions wait, and queued PDUs on connections.
    fn pass_on(&mut self) {
        if self.room.has_work() {
            self.serve_waiting();
        }
        self.workers.hand_over(&self.shared.platform);
        self.flush_touched();
    }

    /// Handles every deadline that has passed and determines the next one.
    fn scan_timers(&mut self) {
        let connections = self.expire_connections();
        let sessions = self.expire_sessions();
        self.room.show_buffers(self.slabs.stats().held_bytes);
        self.shown_polls.show(self.driver.poll_counts());
        if self.ending.is_some_and(|at| at <= self.now) {
            self.end_everything();
        }
        let ending = self.ending.map(|_| self.now + ENDING_SCAN);
        let held_back = self.shared.observe.events.log_held_back(self.now);
        let summary = held_back.then(|| self.now + SUMMARY_SCAN);
        self.next_scan = [connections, sessions, ending, summary].into_iter().flatten().min();
    }

    /// Whether an event of this kind is logged.
    fn admits(&self, kind: EventKind) -> bool {
        self.shared.observe.events.admits(kind, self.now)
    }

    fn take_message(&mut self, message: Message<P::Driver>) {
        match message {
            Message::Listen(listener, portal) => self.listen(listener, portal),
            Message::KeepPortals(portals) => self.keep_portals(&portals),
            Message::Migrate(migrant) => self.arrive(*migrant),
            Message::StoreDone(done) => self.store_done(*done),
            Message::Abort { from, token, order } => self.abort_for(from, token, &order),
            Message::AbortDone { token } => self.abort_done(token),
            Message::Reconfigured { changed_luns, events } => {
                self.reconfigured(&changed_luns);
                self.report_events(&events);
            }
            Message::EndLostSession { left } => self.end_a_lost_session(left),
            Message::Room(bytes) => self.take_granted_room(bytes),
            Message::GiveRoom => self.give_unused_room(),
            Message::CloseTarget(name) => self.close_target(&name),
            Message::Sessions(reply) => drop(reply.send(self.session_infos())),
            Message::Turn(reply) => drop(reply.send(self.number)),
            Message::Shutdown { grace } => self.shut_down(grace),
        }
    }
}
