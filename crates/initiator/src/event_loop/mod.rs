//! The thread of a session: waits for completions, feeds the protocol, and lets the workload go on in the same breath.
//!
//! ```text
//!   Resolving ──► Connecting ──login──► Up ──lost──► Waiting ──Time2Wait, back-off──► Connecting ...
//!       │                 │                └──────── patience ended ───────┐
//!       └──first failure──┼── logout ──► Leaving ──► (end)                 ▼
//!                         └───────────────────────────────────────────► Over: every command fails
//! ```
//! Commands that had not ended when a session was lost go out again first, in their order, if carrying them out twice is the
//! same as once: the target has forgotten them with the session. Connections beside the first, and how one comes back while the
//! session lives: `connections`.

mod actions;
mod connecting;
mod connections;
mod losing;
mod pending;
mod requests;
mod resolving;
#[cfg(test)]
mod tests;
mod ways;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use engine::{Completion as Done, Driver, Link, Mailbox, Platform, Sender, SlabRing};
use iscsi_core::Time;
use iscsi_core::initiator::command::{Command, Completion};
use iscsi_core::initiator::session::{CloseReason, InitiatorSession, TargetRecord};
use iscsi_core::wire::{Cid, Isid};
use smallvec::SmallVec;

use self::connecting::{Attempt, Established, Outcome, Place};
use self::connections::{Connection, Up};
pub(crate) use self::pending::Handle;
use self::pending::PendingTable;
pub(crate) use self::requests::Request;
use self::resolving::{Addresses, Question, Resolver, gather};
use self::ways::Ways;
use crate::error::{ConnectError, IoError};
use crate::options::{Options, Portal};
use crate::reply::Answer;
use crate::session::{SessionInfo, add};
use crate::unit::Units;
use crate::workload::Workload;

/// First pause between two attempts to come back; it doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Losses in a row without a command that ended in between: a target that drops every session is not asked for ever.
const MAX_FRUITLESS_LOSSES: u32 = 5;
/// Sessions that one command may take down with it.
const MAX_LOSSES_PER_COMMAND: u8 = 5;
/// Unit attentions that one lost connection or session may bring and that its recovery answers, one for each logical unit.
const MAX_ATTENTIONS_PER_LOSS: u32 = 256;
/// How long the target may take to close its end after a logout.
const LEAVING_TIME: Duration = Duration::from_secs(2);
/// What may wait to be sent beyond our own data before receiving stops, bytes.
const TX_SLACK_BYTES: usize = 4 * 1024 * 1024;

/// A command that ended, with the data that came for it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub completion: Completion,
    pub data: SmallVec<[Bytes; 4]>,
}

enum State {
    /// Until the addresses of the portals are known, or for so long.
    Resolving(Question, Time),
    Connecting(Box<Attempt>),
    Up(Box<Up>),
    /// Until the next attempt.
    Waiting(Time),
    /// Logged out: what is queued goes out, and the peer closes each connection.
    Leaving(Vec<Link>, Time),
    Over(String),
}

struct Running {
    workload: Box<dyn Workload>,
    answer: Answer<Box<dyn Workload>>,
    /// Its commands under way.
    outstanding: usize,
    started: bool,
}

pub(crate) struct EventLoop<P: Platform> {
    platform: P,
    options: Options,
    isid: Isid,
    driver: P::Driver,
    now: Time,
    slabs: SlabRing,
    mailbox: Mailbox<Request>,
    done: Vec<Done<<P::Driver as Driver>::Stream>>,
    requests: Vec<Request>,
    state: State,
    info: SessionInfo,
    /// The portals of the session.
    ways: Ways,
    /// Addresses of the further portals of the options, the last one first.
    further: Vec<SocketAddr>,
    /// The target is being asked for them.
    finding: bool,
    resolver: Resolver,
    /// The question for the addresses of portals that the target has named.
    naming: Option<Question>,
    first: Option<Answer<Result<SessionInfo, ConnectError>>>,
    pending: PendingTable,
    units: Units,
    /// Commands to submit as soon as a session is up.
    orphans: Vec<Command>,
    /// Commands of the workload that ended when it could not be told: with their session, unknown how, or while it was lost.
    unknown: Vec<Completion>,
    /// Functions of the workload that were under way when their session ended, or ended while it was lost.
    unanswered: Vec<u64>,
    running: Option<Running>,
    targets: Option<Answer<Result<Vec<TargetRecord>, IoError>>>,
    leaving: Vec<Answer<()>>,
    /// Futures that wait before they repeat a command, one for each command at most, and until when.
    pauses: Vec<(Time, Answer<()>)>,
    /// When a lost session is given up.
    patience: Option<Time>,
    backoff: Duration,
    fruitless: u32,
    /// Unit attentions about commands cleared with a connection that are still to be expected at most.
    attentions_due: u32,
}

impl<P: Platform> EventLoop<P> {
    /// A loop that will open a session by `options` and tell `first` how that went.
    pub(crate) fn new(
        platform: P,
        options: Options,
        isid: Isid,
        slabs: SlabRing,
        first: Answer<Result<SessionInfo, ConnectError>>,
    ) -> std::io::Result<(Self, Sender<Request>)> {
        let driver = platform.driver()?;
        let mailbox = Mailbox::new(driver.waker());
        let sender = mailbox.sender();
        let resolver = Resolver::new(mailbox.sender());
        let info = SessionInfo::new(isid);
        let event_loop = Self {
            now: platform.now(),
            platform,
            options,
            isid,
            driver,
            slabs,
            mailbox,
            state: State::Waiting(Time::ZERO),
            done: Vec::new(),
            requests: Vec::new(),
            info,
            ways: Ways::default(),
            further: Vec::new(),
            finding: false,
            resolver,
            naming: None,
            first: Some(first),
            pending: PendingTable::default(),
            units: Units::default(),
            orphans: Vec::new(),
            unknown: Vec::new(),
            unanswered: Vec::new(),
            running: None,
            targets: None,
            leaving: Vec::new(),
            pauses: Vec::new(),
            patience: None,
            backoff: MIN_BACKOFF,
            fruitless: 0,
            attentions_due: 0,
        };
        Ok((event_loop, sender))
    }

    /// Runs until the session is closed and nobody wants it any more.
    pub(crate) fn run(mut self) {
        self.prepare();
        while self.turn() {}
    }

    /// Does what is due by the time, and hands on what there is to send and to receive; before every wait.
    pub(crate) fn prepare(&mut self) {
        self.now = self.platform.now();
        // An answer that is dropped is one.
        self.pauses.retain(|(at, _)| *at > self.now);
        self.on_time();
        self.settle_units();
        self.step_workload();
        if let State::Up(up) = &mut self.state {
            up.flush(&mut self.driver);
        }
    }

    /// Waits once, and handles what has happened; false when nobody wants the session any more.
    pub(crate) fn turn(&mut self) -> bool {
        let timeout = self.next_deadline().map(|at| at.saturating_sub(self.platform.now()));
        let mut done = std::mem::take(&mut self.done);
        if let Err(error) = self.driver.wait(timeout, &mut done) {
            tracing::error!(%error, "the event loop cannot go on");
            self.give_up(CloseReason::Lost, format!("the event loop cannot go on: {error}"));
            return false;
        }
        self.now = self.platform.now();
        for completion in done.drain(..) {
            if matches!(completion, Done::Woken) {
                self.mailbox.drain(&mut self.requests);
            } else {
                self.on_completion(completion);
            }
        }
        self.done = done;
        let mut requests = std::mem::take(&mut self.requests);
        for request in requests.drain(..) {
            if matches!(request, Request::Quit) {
                self.quit();
                return false;
            }
            self.on_request(request);
        }
        self.requests = requests;
        self.prepare();
        true
    }

    /// When there is something to do even if nothing happens.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let state = match &self.state {
            State::Connecting(attempt) => Some(attempt.deadline()),
            State::Up(up) => up.next_deadline().into_iter().chain(self.units.next_deadline()).min(),
            State::Resolving(_, at) | State::Waiting(at) | State::Leaving(_, at) => Some(*at),
            State::Over(_) => None,
        };
        // Without a session the workload is not told the time: waiting for a moment that has passed would be spinning.
        let told = |running: &&Running| running.started && matches!(self.state, State::Up(_));
        let workload = self.running.as_ref().filter(told).and_then(|r| r.workload.deadline());
        let pause = self.pauses.iter().map(|(at, _)| *at).min();
        state.into_iter().chain(workload).chain(pause).min()
    }

    fn on_time(&mut self) {
        match &mut self.state {
            State::Connecting(attempt) if attempt.deadline() <= self.now => {
                let State::Connecting(attempt) = self.take_state() else { return };
                let outcome = attempt.on_time(&mut self.driver, self.now);
                self.on_outcome(outcome);
            }
            State::Up(up) if up.next_deadline().is_some_and(|at| at <= self.now) => {
                up.session.handle_timeout(self.now);
                self.drain_actions();
                self.join_on_time();
            }
            State::Waiting(at) if *at <= self.now => self.attempt(),
            State::Resolving(_, at) if *at <= self.now => {
                let (host, error) = (self.options.portal.host.clone(), std::io::ErrorKind::TimedOut.into());
                self.failed(ConnectError::Resolve { host, error });
            }
            State::Leaving(links, at) if *at <= self.now => {
                links.iter().for_each(|link| self.driver.close(link.token()));
                self.left();
            }
            _ => {}
        }
    }

    fn take_state(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Waiting(Time::MAX))
    }

    fn attempt(&mut self) {
        let portals: Vec<_> =
            self.options.portals.iter().rev().chain([&self.options.portal]).cloned().collect();
        match self.resolver.resolve(&self.platform, portals) {
            Ok(addresses) => self.attempt_at(addresses),
            Err(question) => {
                self.state = State::Resolving(question, self.now + self.options.connect_timeout);
            }
        }
    }

    /// Names have become addresses: whoever asked goes on. Answers that came too late are of no use.
    fn on_resolved(&mut self, question: Question, addresses: Addresses) {
        self.resolver.answered();
        if self.naming == Some(question) {
            self.naming = None;
            return self.portals_found(addresses);
        }
        match &self.state {
            State::Resolving(awaited, _) if *awaited == question => self.attempt_at(addresses),
            State::Connecting(attempt) if attempt.awaits(question) => {
                let State::Connecting(attempt) = self.take_state() else { return };
                let outcome = attempt.on_resolved(&mut self.driver, self.now, addresses);
                self.on_outcome(outcome);
            }
            State::Up(_) => self.resolved_absent(question, addresses),
            _ => {}
        }
    }

    /// `addresses`: of the further portals, the last one first, and of the portal.
    fn attempt_at(&mut self, mut addresses: Addresses) {
        let (mut listed, failure) = gather(addresses.pop());
        (self.further, _) = gather(addresses);
        listed.splice(0..0, self.further.iter().copied());
        let Some(candidates) = Some(self.ways.for_session(&listed)).filter(|all| !all.is_empty()) else {
            return self.failed(failure.unwrap_or(ConnectError::Local(std::io::ErrorKind::NotFound.into())));
        };
        let (slabs, driver) = (&self.slabs, &mut self.driver);
        let place = Place { cid: Cid(0), join: None, tries: 0, candidates };
        match Attempt::begin(&self.options, self.isid, slabs, driver, self.now, place) {
            Ok(attempt) => self.state = State::Connecting(Box::new(attempt)),
            Err(error) => self.failed(error),
        }
    }

    fn on_completion(&mut self, mut completion: Done<<P::Driver as Driver>::Stream>) {
        match &mut self.state {
            State::Up(_) => match completion {
                Done::Received { conn, buffer, result } => self.on_received(conn, buffer, result),
                Done::Sent { conn, segments, result } => self.on_sent(conn, segments, result),
                Done::Connected { conn, result } => self.on_connected(conn, result),
                _ => {}
            },
            State::Connecting(_) => {
                let State::Connecting(attempt) = self.take_state() else { return };
                let (platform, driver, now) = (&self.platform, &mut self.driver, self.now);
                let outcome = match completion {
                    Done::Connected { conn, result } => {
                        attempt.on_connected(platform, driver, now, conn, result)
                    }
                    Done::Received { conn, buffer, result } => {
                        attempt.on_received(platform, driver, now, conn, buffer, result)
                    }
                    Done::Sent { conn, segments, result } => {
                        attempt.on_sent(driver, now, conn, segments, result)
                    }
                    _ => Outcome::Pending(attempt),
                };
                self.on_outcome(outcome);
            }
            State::Leaving(links, _) => {
                let driver = &mut self.driver;
                links.retain_mut(|link| {
                    match &mut completion {
                        Done::Received { conn, buffer, result } if *conn == link.token() => {
                            let n = result.as_ref().map_or(0, |n| *n);
                            link.on_received(std::mem::take(buffer), n);
                        }
                        Done::Sent { conn, segments, .. } if *conn == link.token() => {
                            link.on_sent(std::mem::take(segments));
                        }
                        _ => {}
                    }
                    if link.peer_closed() {
                        driver.close(link.token());
                        return false;
                    }
                    link.flush(driver);
                    true
                });
                if links.is_empty() {
                    self.left();
                }
            }
            State::Resolving(..) | State::Waiting(_) | State::Over(_) => {}
        }
    }

    fn on_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Pending(attempt) => self.state = State::Connecting(attempt),
            Outcome::Redirected(attempt, portals) => {
                let outcome = self.follow(attempt, portals);
                self.on_outcome(outcome);
            }
            Outcome::Failed(error) => self.failed(error),
            Outcome::Established(established) => self.established(*established),
        }
    }

    /// Goes on with an attempt where the target says that it is.
    fn follow(&mut self, attempt: Box<Attempt>, portals: Vec<Portal>) -> Outcome {
        let portals = portals.into_iter().rev().collect();
        match self.resolver.resolve(&self.platform, portals) {
            Ok(addresses) => attempt.on_resolved(&mut self.driver, self.now, addresses),
            Err(question) => Outcome::Pending(attempt.until_resolved(question, self.now)),
        }
    }

    fn established(&mut self, established: Established) {
        let Established { link, login, address, connect_time, failed } = established;
        let cid = login.cid;
        let session = InitiatorSession::new(&login, self.options.session.clone(), self.now);
        self.info.update(&login, address, connect_time);
        if self.info.logins > 1 {
            tracing::warn!(%address, logins = self.info.logins, "the session is back");
        }
        self.state = State::Up(Box::new(Up::new(session, Connection { cid, link, address })));
        self.know_portals(address, &failed);
        self.patience = None;
        self.backoff = MIN_BACKOFF;
        for question in self.units.session_begins() {
            self.submit(question);
        }
        for completion in std::mem::take(&mut self.unknown) {
            self.completed(completion);
        }
        for user in std::mem::take(&mut self.unanswered) {
            self.managed(user, None);
        }
        for command in std::mem::take(&mut self.orphans) {
            self.submit(command);
        }
        if let Some(running) = &mut self.running {
            running.started = false;
        }
        // PDUs may have arrived together with the last login response.
        self.receive(cid);
    }

    /// What is known of the session now.
    pub(crate) fn info(&self) -> SessionInfo {
        let mut info = self.info.clone();
        if let State::Up(up) = &self.state {
            info.link = up.stats();
            info.connections = up.info();
            info.recovery = add(info.recovery, up.session.counters());
        }
        info
    }
}
