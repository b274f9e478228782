//! The thread of a session: waits for completions, feeds the protocol, and lets the workload go on in the same breath.
//!
//! ```text
//!   Connecting ──login──► Up ──lost──► Waiting ──Time2Wait, back-off──► Connecting ...
//!       │                 │                └──────── patience ended ───────┐
//!       └──first failure──┼── logout ──► Leaving ──► (end)                 ▼
//!                         └───────────────────────────────────────────► Over: every command fails
//! ```
//! Commands that had not ended when a session was lost go out again first, in their order: at error recovery level 0 the target
//! has forgotten them with the session, and reading or writing a block twice is the same as once.

mod connecting;
mod pending;

use std::time::Duration;

use bytes::Bytes;
use engine::{Completion as Done, Driver, Link, Mailbox, Platform, Sender, SlabRing};
use iscsi_core::Time;
use iscsi_core::initiator::command::{Command, Completion, Ending};
use iscsi_core::initiator::session::{Action, CloseReason, InitiatorSession, TargetRecord};
use iscsi_core::wire::{Isid, Lun, TmfFunction, TmfResponse};
use smallvec::SmallVec;

use self::connecting::{Attempt, Established, Outcome};
use self::pending::{Pending, PendingTable};
use crate::error::{ConnectError, IoError};
use crate::options::Options;
use crate::reply::Answer;
use crate::session::{Pong, SessionInfo};
use crate::workload::{Submitter, WORKLOAD_BIT, Workload};

/// First pause between two attempts to come back; it doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Losses in a row without a command that ended in between: a target that drops every session is not asked for ever.
const MAX_FRUITLESS_LOSSES: u32 = 5;
/// Sessions that one command may take down with it.
const MAX_LOSSES_PER_COMMAND: u8 = 5;
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

/// What other threads ask of the loop.
pub(crate) enum Request {
    Command(Command, Answer<Result<Ended, IoError>>),
    Ping(Bytes, Answer<Option<Pong>>),
    SendTargets(String, Answer<Result<Vec<TargetRecord>, IoError>>),
    Manage(TmfFunction, Lun, Answer<Option<TmfResponse>>),
    Run(Box<dyn Workload>, Answer<Box<dyn Workload>>),
    Info(Answer<SessionInfo>),
    Logout(Answer<()>),
    Quit,
}

struct Up {
    link: Link,
    session: InitiatorSession,
}

enum State {
    Connecting(Box<Attempt>),
    Up(Box<Up>),
    /// Until the next attempt.
    Waiting(Time),
    /// Logged out: what is queued goes out, and the peer closes.
    Leaving(Box<Link>, Time),
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
    first: Option<Answer<Result<SessionInfo, ConnectError>>>,
    pending: PendingTable,
    /// Commands to submit as soon as a session is up.
    orphans: Vec<Command>,
    running: Option<Running>,
    targets: Option<Answer<Result<Vec<TargetRecord>, IoError>>>,
    leaving: Vec<Answer<()>>,
    /// When a lost session is given up.
    patience: Option<Time>,
    backoff: Duration,
    fruitless: u32,
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
            first: Some(first),
            pending: PendingTable::default(),
            orphans: Vec::new(),
            running: None,
            targets: None,
            leaving: Vec::new(),
            patience: None,
            backoff: MIN_BACKOFF,
            fruitless: 0,
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
        self.on_time();
        self.step_workload();
        if let State::Up(up) = &mut self.state {
            let own = usize::try_from(up.session.outstanding_write_bytes()).unwrap_or(usize::MAX);
            up.link.set_tx_high_water(own.saturating_add(TX_SLACK_BYTES));
            up.link.flush(&mut self.driver);
        }
    }

    /// Waits once, and handles what has happened; false when nobody wants the session any more.
    pub(crate) fn turn(&mut self) -> bool {
        let timeout = self.next_deadline().map(|at| at.saturating_sub(self.platform.now()));
        let mut done = std::mem::take(&mut self.done);
        if let Err(error) = self.driver.wait(timeout, &mut done) {
            tracing::error!(%error, "the event loop cannot go on");
            self.give_up(format!("the event loop cannot go on: {error}"));
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
            State::Up(up) => up.session.poll_timeout(),
            State::Waiting(at) | State::Leaving(_, at) => Some(*at),
            State::Over(_) => None,
        };
        let workload = self.running.as_ref().filter(|r| r.started).and_then(|r| r.workload.deadline());
        state.into_iter().chain(workload).min()
    }

    fn on_time(&mut self) {
        match &mut self.state {
            State::Connecting(attempt) if attempt.deadline() <= self.now => {
                let State::Connecting(attempt) = self.take_state() else { return };
                let outcome = attempt.on_time(&mut self.driver, self.now);
                self.on_outcome(outcome);
            }
            State::Up(up) if up.session.poll_timeout().is_some_and(|at| at <= self.now) => {
                up.session.handle_timeout(self.now);
                self.drain_actions();
            }
            State::Waiting(at) if *at <= self.now => self.attempt(),
            State::Leaving(link, at) if *at <= self.now => {
                self.driver.close(link.token());
                self.left();
            }
            _ => {}
        }
    }

    fn take_state(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Waiting(Time::MAX))
    }

    fn attempt(&mut self) {
        match Attempt::begin(&self.options, self.isid, &self.slabs, &mut self.driver, self.now) {
            Ok(attempt) => self.state = State::Connecting(Box::new(attempt)),
            Err(error) => self.failed(error),
        }
    }

    fn on_completion(&mut self, completion: Done<<P::Driver as Driver>::Stream>) {
        match &mut self.state {
            State::Up(up) => match completion {
                Done::Received { conn, buffer, result } if conn == up.link.token() => {
                    up.link.on_received(buffer, result.unwrap_or(0));
                    self.receive();
                }
                Done::Sent { conn, segments, result } if conn == up.link.token() => {
                    up.link.on_sent(segments);
                    if result.is_err() {
                        self.lost(CloseReason::Lost, None);
                    }
                }
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
            State::Leaving(link, _) => {
                match completion {
                    Done::Received { conn, buffer, result } if conn == link.token() => {
                        link.on_received(buffer, result.unwrap_or(0));
                    }
                    Done::Sent { conn, segments, .. } if conn == link.token() => link.on_sent(segments),
                    _ => {}
                }
                if link.peer_closed() {
                    self.driver.close(link.token());
                    self.left();
                } else {
                    link.flush(&mut self.driver);
                }
            }
            State::Waiting(_) | State::Over(_) => {}
        }
    }

    fn on_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Pending(attempt) => self.state = State::Connecting(attempt),
            Outcome::Failed(error) => self.failed(error),
            Outcome::Established(established) => self.established(*established),
        }
    }

    fn established(&mut self, established: Established) {
        let Established { link, login, address, connect_time } = established;
        let session = InitiatorSession::new(&login, self.options.session.clone(), self.now);
        self.info.update(&login, address, connect_time);
        if self.info.logins > 1 {
            tracing::info!(%address, logins = self.info.logins, "the session is back");
        }
        self.state = State::Up(Box::new(Up { link, session }));
        self.patience = None;
        self.backoff = MIN_BACKOFF;
        if let Some(first) = self.first.take() {
            first.give(Ok(self.info.clone()));
        }
        for command in std::mem::take(&mut self.orphans) {
            self.submit(command);
        }
        if let Some(running) = &mut self.running {
            running.started = false;
        }
        // PDUs may have arrived together with the last login response.
        self.receive();
    }

    /// Takes what has arrived.
    fn receive(&mut self) {
        loop {
            let State::Up(up) = &mut self.state else { return };
            match up.link.next_pdu() {
                Ok(Some(pdu)) => {
                    up.session.handle_pdu(self.now, pdu);
                    self.drain_actions();
                }
                Ok(None) => break,
                //= rfc7143 7.8 DIG-07
                Err(error) => {
                    tracing::warn!(%error, "closing the connection");
                    return self.lost(CloseReason::Lost, None);
                }
            }
        }
        if let State::Up(up) = &self.state
            && up.link.peer_closed()
        {
            self.lost(CloseReason::Lost, None);
        }
    }

    fn submit(&mut self, command: Command) {
        match &mut self.state {
            State::Up(up) => {
                if let Err(command) = up.session.submit(self.now, command) {
                    // It is ending: the command goes to its successor.
                    self.orphans.push(*command);
                } else {
                    self.drain_actions();
                }
            }
            State::Over(why) => {
                let why = why.clone();
                self.fail_command(command, &why);
            }
            _ => self.orphans.push(command),
        }
    }

    /// Does what the session asks for.
    fn drain_actions(&mut self) {
        loop {
            let State::Up(up) = &mut self.state else { return };
            let Some(action) = up.session.poll_action() else { return };
            match action {
                Action::Send(pdu) => up.link.push(pdu),
                Action::DataIn { user, offset, data } if user & WORKLOAD_BIT != 0 => {
                    if let Some(running) = &mut self.running {
                        running.workload.data_in(user & !WORKLOAD_BIT, offset, data);
                    }
                }
                Action::DataIn { user, data, .. } => {
                    if let Some(Pending::Command { data: pieces, .. }) = self.pending.get(user) {
                        pieces.push(data);
                    }
                }
                Action::Completed(completion) => self.completed(completion),
                Action::Managed { user, response } => {
                    if let Some(Pending::Manage(answer)) = self.pending.take(user) {
                        answer.give(response);
                    }
                }
                Action::Pong { user, intact, round_trip } => {
                    if let Some(Pending::Ping(answer)) = self.pending.take(user) {
                        answer.give(Some(Pong { intact, round_trip }));
                    }
                }
                Action::Targets(records) => {
                    if let Some(answer) = self.targets.take() {
                        answer.give(Ok(records));
                    }
                }
                Action::TextRefused(reason) => {
                    if let Some(answer) = self.targets.take() {
                        let refused = || IoError::Request("the target refuses SendTargets here".to_owned());
                        answer.give(Err(reason.map_or_else(refused, IoError::Rejected)));
                    }
                }
                Action::Event(event) => self.info.note(&event),
                Action::Close { reason, wait } => return self.closed(reason, wait),
            }
        }
    }

    fn completed(&mut self, mut completion: Completion) {
        self.fruitless = 0;
        if matches!(completion.ending, Ending::DataDigest) {
            self.info.data_digest_errors += 1;
        }
        let user = completion.command.user;
        if user & WORKLOAD_BIT != 0 {
            let State::Up(up) = &mut self.state else { return };
            if let Some(running) = &mut self.running {
                completion.command.user = user & !WORKLOAD_BIT;
                running.outstanding -= 1;
                let mut io = Submitter {
                    session: &mut up.session,
                    now: self.now,
                    submitted: &mut running.outstanding,
                };
                running.workload.completed(completion, &mut io);
            }
        } else if let Some(Pending::Command { answer, data, .. }) = self.pending.take(user) {
            answer.give(Ok(Ended { completion, data }));
        }
    }

    /// Starts a workload, tells it the time, and takes leave of it when it is over.
    fn step_workload(&mut self) {
        let Some(running) = &mut self.running else { return };
        if let State::Up(up) = &mut self.state {
            let begins = !std::mem::replace(&mut running.started, true);
            let mut io =
                Submitter { session: &mut up.session, now: self.now, submitted: &mut running.outstanding };
            if begins {
                running.workload.start(&mut io);
            }
            if running.workload.deadline().is_some_and(|at| at <= self.now) {
                running.workload.tick(&mut io);
            }
        }
        if running.workload.is_done() && running.outstanding == 0 {
            let running = self.running.take().expect("it was here");
            running.answer.give(running.workload);
        }
        self.drain_actions();
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Command(mut command, answer) => {
                let user = self.pending.insert(Pending::Command { answer, data: SmallVec::new(), losses: 0 });
                command.user = user;
                self.submit(command);
            }
            Request::Ping(data, answer) => {
                let user = self.pending.insert(Pending::Ping(answer));
                let sent = match &mut self.state {
                    State::Up(up) => up.session.ping(self.now, user, data),
                    _ => false,
                };
                match sent {
                    true => self.drain_actions(),
                    false => drop(self.pending.take(user)),
                }
            }
            Request::SendTargets(which, answer) => {
                let sent = match &mut self.state {
                    State::Up(up) => up.session.send_targets(self.now, &which),
                    _ => false,
                };
                if sent {
                    self.targets = Some(answer);
                    self.drain_actions();
                } else {
                    answer.give(Err(IoError::SessionLost("no text exchange is possible now".into())));
                }
            }
            Request::Manage(function, lun, answer) => {
                let user = self.pending.insert(Pending::Manage(answer));
                match &mut self.state {
                    State::Up(up) => {
                        up.session.manage(self.now, function, lun, user);
                        self.drain_actions();
                    }
                    _ => drop(self.pending.take(user)),
                }
            }
            Request::Run(mut workload, answer) => {
                if let State::Over(why) = &self.state {
                    workload.lost(why);
                    answer.give(workload);
                } else if self.running.is_none() {
                    self.running = Some(Running { workload, answer, outstanding: 0, started: false });
                } else {
                    workload.lost("another workload is running in this session");
                    answer.give(workload);
                }
            }
            Request::Info(answer) => answer.give(self.info()),
            Request::Logout(answer) => {
                self.leaving.push(answer);
                match &mut self.state {
                    State::Up(up) => {
                        up.session.logout(self.now);
                        self.drain_actions();
                    }
                    State::Leaving(..) => {}
                    _ => {
                        if let State::Connecting(attempt) = &self.state {
                            attempt.close(&mut self.driver);
                        }
                        self.left();
                    }
                }
            }
            Request::Quit => {}
        }
    }

    /// What is known of the session now.
    pub(crate) fn info(&self) -> SessionInfo {
        let mut info = self.info.clone();
        if let State::Up(up) = &self.state {
            info.link = up.link.stats();
        }
        info
    }

    /// The session says that it is over.
    fn closed(&mut self, reason: CloseReason, wait: Duration) {
        if reason == CloseReason::LoggedOut {
            let State::Up(up) = self.take_state() else { return };
            let Up { mut link, mut session } = *up;
            let unfinished = session.unfinished();
            //= rfc7143 11.14 LGO-01 LGO-03
            link.close_after_flush();
            link.flush(&mut self.driver);
            self.state = State::Leaving(Box::new(link), self.now + LEAVING_TIME);
            for command in unfinished {
                self.fail_command(command, "logged out");
            }
            return;
        }
        self.lost(reason, Some(wait));
    }

    fn left(&mut self) {
        self.give_up("logged out".to_owned());
        for answer in self.leaving.drain(..) {
            answer.give(());
        }
    }

    /// The session is lost: its commands wait for the next one.
    //= rfc7143 7.15 SES-06
    fn lost(&mut self, reason: CloseReason, wait: Option<Duration>) {
        let State::Up(up) = self.take_state() else { return };
        let Up { link, mut session } = *up;
        let wait = wait.unwrap_or_else(|| Duration::from_secs(session.params().default_time2wait_s.into()));
        session.lost();
        self.driver.close(link.token());
        self.info.lost(link.stats(), &reason);
        let orphans = std::mem::take(&mut self.orphans);
        for command in session.unfinished() {
            self.orphan(command);
        }
        self.orphans.extend(orphans);
        self.targets = None;
        self.pending.drop_pings();
        tracing::warn!(%reason, wait = ?wait, "the session is lost");
        self.fruitless += 1;
        let hopeless = self.fruitless > MAX_FRUITLESS_LOSSES
            || self.options.reconnect_timeout.is_zero()
            || self.options.target.is_none();
        if hopeless || !self.leaving.is_empty() {
            let why = reason.to_string();
            self.info.ended = Some(reason);
            self.give_up(why);
            for answer in self.leaving.drain(..) {
                answer.give(());
            }
            return;
        }
        self.patience = Some(self.now + wait + self.options.reconnect_timeout);
        self.state = State::Waiting(self.now + wait);
    }

    /// A command has lost its session.
    fn orphan(&mut self, command: Command) {
        if command.user & WORKLOAD_BIT == 0
            && let Some(Pending::Command { data, losses, .. }) = self.pending.get(command.user)
        {
            data.clear();
            *losses += 1;
            if *losses > MAX_LOSSES_PER_COMMAND {
                return self.fail_command(command, "every session that carried this command was lost");
            }
        }
        self.orphans.push(command);
    }

    /// An attempt to open a session failed.
    fn failed(&mut self, error: ConnectError) {
        if let Some(first) = self.first.take() {
            self.state = State::Over(error.to_string());
            first.give(Err(error));
            return;
        }
        if !error.is_passing() || self.patience.is_none_or(|at| self.now + self.backoff > at) {
            tracing::warn!(%error, "giving up");
            return self.give_up(error.to_string());
        }
        tracing::debug!(%error, backoff = ?self.backoff, "trying again");
        self.state = State::Waiting(self.now + self.backoff);
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
    }

    /// Nothing will come any more.
    fn give_up(&mut self, why: String) {
        for command in std::mem::take(&mut self.orphans) {
            self.fail_command(command, &why);
        }
        self.targets = None;
        self.pending.clear();
        if let Some(mut running) = self.running.take() {
            running.workload.lost(&why);
            running.answer.give(running.workload);
        }
        self.state = State::Over(why);
    }

    fn quit(&mut self) {
        match self.take_state() {
            State::Up(up) => self.driver.close(up.link.token()),
            State::Connecting(attempt) => attempt.close(&mut self.driver),
            State::Leaving(link, _) => self.driver.close(link.token()),
            State::Waiting(_) | State::Over(_) => {}
        }
        self.give_up("closed".to_owned());
    }

    fn fail_command(&mut self, command: Command, why: &str) {
        if command.user & WORKLOAD_BIT != 0 {
            if let Some(running) = &mut self.running {
                running.outstanding -= 1;
            }
        } else if let Some(Pending::Command { answer, .. }) = self.pending.take(command.user) {
            answer.give(Err(IoError::SessionLost(why.to_owned())));
        }
    }
}
