//! The thread of a session: waits for completions, feeds the protocol, and lets the workload continue in the same pass.
//!
//! ```text
//!   Resolving ──► Connecting ──login──► Up ──lost──► Waiting ──Time2Wait, back-off──► Connecting ...
//!       │                 │                └──────── patience ended ───────┐
//!       └──first failure──┼── logout ──► Leaving ──► (end)                 ▼
//!                         └───────────────────────────────────────────► Over: every command fails
//! ```
//! Commands that had not ended when a session was lost are sent first in the next one, in their order, if executing them twice
//! is the same as once: the target has forgotten them with the session. For connections after the first, and for reconnecting
//! while the session lives, see `connections`.

mod actions;
mod arrived;
mod carried;
mod connecting;
mod connections;
mod messages;
mod offload;
mod pending;
mod portals;
mod requests;
mod resolving;
mod session_loss;
#[cfg(test)]
mod tests;
mod tune;
mod up;

use std::net::SocketAddr;
use std::time::Duration;

use engine::{Completion as Done, Driver, Link, Mailbox, Platform, Sender, SlabRing};
use iscsi_core::Time;
use iscsi_core::initiator::command::{Command, Completion};
use iscsi_core::initiator::session::{CloseReason, InitiatorSession, TargetRecord};
use iscsi_core::wire::{Cid, Isid};

use self::connecting::{Attempt, Established, Outcome, Place};
use self::messages::{Addresses, Question};
pub(crate) use self::messages::{Ended, Handle, Request};
use self::offload::Offload;
use self::pending::PendingTable;
use self::portals::KnownPortals;
use self::resolving::{Resolver, gather};
use self::up::{Connection, MIN_BACKOFF, Up};
use crate::error::{ConnectError, IoError};
use crate::info::{SessionInfo, add};
use crate::options::{Options, Portal};
use crate::reply::Answer;
use crate::tuning::Tuner;
use crate::unit::Units;
use crate::workload::Workload;

/// Losses in a row without a command completed in between: we do not log in for ever to a target that drops every session.
const MAX_LOSSES_WITHOUT_PROGRESS: u32 = 5;
/// How many sessions may be lost while the same command is outstanding.
const MAX_LOSSES_PER_COMMAND: u8 = 5;
/// Most unit attentions that one lost connection or session may cause and that recovery handles; one for each logical unit.
const MAX_ATTENTIONS_PER_LOSS: u32 = 256;
/// How long the target may take to close its end after a logout.
const LEAVING_TIME: Duration = Duration::from_secs(2);
/// Sends of an engine in one turn, as long as the kernel takes each at once. A turn costs twice as much as a send; but what arrives waits
/// meanwhile.
const SENDS_AT_ONCE: u32 = 4;

enum State {
    /// Until the addresses of the portals are known, or until this time.
    Resolving(Question, Time),
    Connecting(Box<Attempt>),
    Up(Box<Up>),
    /// Until the time of the next attempt.
    Waiting(Time),
    /// Logged out: queued data is sent, and the peer closes each connection.
    Leaving(Vec<Link>, Time),
    Over(String),
}

struct Running {
    workload: Box<dyn Workload>,
    answer: Answer<Box<dyn Workload>>,
    /// Its outstanding commands.
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
    portals: KnownPortals,
    /// Addresses of the further portals of the options, in reverse order.
    further: Vec<SocketAddr>,
    /// The target is being asked for its portals.
    finding: bool,
    resolver: Resolver,
    /// The pending question for the addresses of portals that the target listed.
    naming: Option<Question>,
    first: Option<Answer<Result<SessionInfo, ConnectError>>>,
    pending: PendingTable,
    units: Units,
    /// Commands to submit as soon as a session is established.
    orphans: Vec<Command>,
    /// Commands of the workload that ended while it could not be notified: with their session and with unknown outcome, or
    /// while the session was lost.
    unknown: Vec<Completion>,
    /// Management functions of the workload that were outstanding when their session ended, or that ended while it was lost.
    unanswered: Vec<u64>,
    running: Option<Running>,
    targets: Option<Answer<Result<Vec<TargetRecord>, IoError>>>,
    leaving: Vec<Answer<()>>,
    /// Futures that wait before they repeat a command, at most one for each command, and until when.
    pauses: Vec<(Time, Answer<()>)>,
    /// When recovery of a lost session is abandoned.
    patience: Option<Time>,
    backoff: Duration,
    losses_without_progress: u32,
    /// Chooses the number of connections, if the options say so.
    tuner: Option<Tuner>,
    /// How many unit attentions about commands cleared with a connection may still be expected.
    attentions_due: u32,
}

impl<P: Platform> EventLoop<P> {
    /// A loop that will open a session with `options` and report the result to `first`.
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
        let tuner = options.tunes_connections().then(|| Tuner::new(options.connections));
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
            portals: KnownPortals::default(),
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
            losses_without_progress: 0,
            tuner,
            attentions_due: 0,
        };
        Ok((event_loop, sender))
    }

    /// Runs until the session is closed and has no users any more.
    pub(crate) fn run(mut self) {
        self.prepare();
        while self.turn() {}
    }

    /// Does what is due, sends what is queued and starts to receive. To be called before every wait.
    pub(crate) fn prepare(&mut self) {
        self.now = self.platform.now();
        // Dropping an answer wakes its waiter.
        self.pauses.retain(|(at, _)| *at > self.now);
        self.on_time();
        for further_sends in (0..SENDS_AT_ONCE).rev() {
            // Also after what was received below: it may have ended the last command of the workload.
            self.settle_units();
            self.step_workload();
            self.tune();
            self.step_offloaded();
            let State::Up(up) = &mut self.state else { return };
            up.flush(&mut self.driver, self.now);
            if further_sends == 0 || !up.sent_at_once(&mut self.driver) {
                return;
            }
            self.receive_offloaded();
        }
    }

    /// Waits once, and handles the completions; false when the session has no users any more.
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

    /// When there is something to do even if no event occurs.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let state = match &self.state {
            State::Connecting(attempt) => Some(attempt.deadline()),
            State::Up(up) => {
                up.next_deadline().into_iter().chain(self.units.next_deadline()).chain(up.flushes_at).min()
            }
            State::Resolving(_, at) | State::Waiting(at) | State::Leaving(_, at) => Some(*at),
            State::Over(_) => None,
        };
        // Without a session the workload's timer is not called, so waiting for a deadline that has passed would spin.
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
                up.ask_transports(&self.driver, self.now, self.options.session.starved_timeouts);
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
            self.options.paths.portals.iter().rev().chain([&self.options.portal]).cloned().collect();
        match self.resolver.resolve(&self.platform, portals) {
            Ok(addresses) => self.attempt_at(addresses),
            Err(question) => {
                self.state = State::Resolving(question, self.now + self.options.timeouts.connect);
            }
        }
    }

    /// Names have been resolved: the waiting attempt continues. Late answers are ignored.
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

    /// `addresses`: those of the further portals in reverse order, then those of the portal.
    fn attempt_at(&mut self, mut addresses: Addresses) {
        let (mut listed, failure) = gather(addresses.pop());
        (self.further, _) = gather(addresses);
        listed.splice(0..0, self.further.iter().copied());
        let Some(candidates) = Some(self.portals.for_session(&listed)).filter(|all| !all.is_empty()) else {
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

    /// Continues an attempt at the portals to which the target redirects.
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
        let offloaded = match Offload::begin(&self.options, &self.slabs, &login, self.now) {
            Ok(offloaded) => offloaded,
            Err(error) => {
                self.driver.close(link.token());
                return self.failed(error);
            }
        };
        let (offload, seen) = offloaded.unzip();
        let config = self.options.session.clone();
        let session = InitiatorSession::new(seen.as_ref().unwrap_or(&login), config, self.now);
        self.info.update(&login, address, connect_time);
        if self.info.login.logins > 1 {
            tracing::warn!(%address, logins = self.info.login.logins, "the session is back");
        }
        let connection = Connection { cid, link, address, offload: offload.map(Box::new) };
        self.state = State::Up(Box::new(Up::new(session, connection)));
        self.tune_anew();
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

    /// What is currently known about the session.
    pub(crate) fn info(&self) -> SessionInfo {
        let mut info = self.info.clone();
        info.set_tuning(self.tuner.as_ref().map(Tuner::info));
        if let State::Up(up) = &self.state {
            info.link = up.stats();
            info.connections = up.info();
            info.recovery = add(info.recovery, up.session.counters());
        }
        info
    }
}
