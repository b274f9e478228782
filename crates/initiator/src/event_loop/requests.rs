//! The requests of other threads to a session.

use std::time::Duration;

use bytes::Bytes;
use engine::Platform;
use iscsi_core::initiator::command::{Command, Completion, Ending};
use iscsi_core::initiator::session::{ManagementAnswer, TargetRecord};
use iscsi_core::wire::{Cid, Lun, TmfFunction, TmfResponse};
use smallvec::SmallVec;

use super::arrived::Arrived;
use super::pending::{Handle, Pending};
use super::resolving::{Addresses, Question};
use super::{Ended, EventLoop, Running, State};
use crate::cdb::is_idempotent;
use crate::error::IoError;
use crate::reply::Answer;
use crate::session::{Pong, SessionInfo};
use crate::unit::{LostBlocks, is_probe};
use crate::workload::Workload;

/// A request of another thread to the loop.
pub(crate) enum Request {
    Command(Command, Handle, Answer<Result<Ended, IoError>>),
    Ping(Bytes, Answer<Option<Pong>>),
    SendTargets(String, Answer<Result<Vec<TargetRecord>, IoError>>),
    Manage(TmfFunction, Lun, Answer<Option<ManagementAnswer>>),
    ManageTask(TmfFunction, Handle, Answer<Option<ManagementAnswer>>),
    Declare(u32, Answer<bool>),
    /// Watches a unit; answers with its epoch.
    Watch(Lun, Answer<Result<u64, IoError>>),
    /// What a unit has lost since an epoch.
    Losses(Lun, u64, Answer<Option<LostBlocks>>),
    /// Why commands of a unit are refused.
    WhyRefused(Lun, Answer<Option<IoError>>),
    Run(Box<dyn Workload>, Answer<Box<dyn Workload>>),
    Info(Answer<SessionInfo>),
    /// Answers after this time: for futures, which have no clock.
    Pause(Duration, Answer<()>),
    Logout(Answer<()>),
    /// The addresses of hosts whose names the loop itself asked for.
    Resolved(Question, Addresses),
    Quit,
}

impl<P: Platform> EventLoop<P> {
    pub(super) fn on_request(&mut self, request: Request) {
        match request {
            Request::Command(mut command, handle, answer) => {
                let data = Arrived::default();
                let user = self.pending.insert(Pending::Command { answer, handle, data, losses: 0 });
                command.user = user;
                command.idempotent = is_idempotent(&command.cdb);
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
                    let why = "no text exchange is possible now: the session is not up, or another one is under way; try again";
                    answer.give(Err(IoError::Request(why.to_owned())));
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
            Request::ManageTask(function, handle, answer) => self.manage_task(function, handle, answer),
            Request::Declare(bytes, answer) => answer.give(self.declare(bytes)),
            Request::Watch(lun, answer) => match (self.units.watch(lun), &self.state) {
                (_, State::Over(why)) => answer.give(Err(IoError::SessionLost(why.clone()))),
                (question, state) => {
                    // If there is no session, the next one sends the probe.
                    let question = question.filter(|_| matches!(state, State::Up(_)));
                    self.units.when_known(lun, answer);
                    if let Some(question) = question {
                        self.submit(question);
                    }
                }
            },
            Request::Losses(lun, since, answer) => answer.give(self.units.lost_since(lun, since)),
            Request::WhyRefused(lun, answer) => answer.give(self.units.why_refused(lun)),
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
            Request::Pause(time, answer) => self.pauses.push((self.now + time, answer)),
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
            Request::Resolved(question, addresses) => self.on_resolved(question, addresses),
            Request::Quit => {}
        }
    }

    /// Declares another MaxRecvDataSegmentLength on every connection; false when it was not sent on all of them.
    fn declare(&mut self, bytes: u32) -> bool {
        if self.options.engine_caps().is_some_and(|caps| bytes > caps.buffer_bytes) {
            return false;
        }
        let State::Up(up) = &mut self.state else { return false };
        let cids: SmallVec<[Cid; 8]> = up.session.connected().collect();
        let declared = cids.iter().filter(|cid| up.session.declare_max_recv(self.now, **cid, bytes));
        let all = declared.count() == cids.len() && !cids.is_empty();
        if let (true, Some(agent)) = (all, up.agent()) {
            agent.declaring(bytes);
        }
        self.drain_actions();
        all
    }

    /// Requests a management function for one command. While there is no session, the command waits here and is unknown
    /// to the target.
    fn manage_task(
        &mut self,
        function: TmfFunction,
        handle: Handle,
        answer: Answer<Option<ManagementAnswer>>,
    ) {
        let of = self.pending.command(handle);
        let held = of.filter(|_| function == TmfFunction::AbortTask).and_then(|of| self.units.take_held(of));
        if let Some(command) = held {
            self.completed(Completion { command, ending: Ending::Aborted });
            let response = TmfResponse::FunctionComplete;
            return answer.give(Some(ManagementAnswer { response, additional: [0; 3] }));
        }
        if let (State::Up(up), Some(of)) = (&mut self.state, of) {
            let user = self.pending.insert(Pending::Manage(answer));
            up.session.manage_task(self.now, function, of, user);
            return self.drain_actions();
        }
        let aborts = function == TmfFunction::AbortTask;
        let waiting = self.orphans.iter().position(|command| of == Some(command.user));
        if let Some(at) = waiting.filter(|_| aborts) {
            let command = self.orphans.remove(at);
            self.completed(Completion { command, ending: Ending::Aborted });
        }
        let response = match waiting {
            None if aborts => TmfResponse::TaskDoesNotExist,
            _ => TmfResponse::FunctionComplete,
        };
        answer.give(Some(ManagementAnswer { response, additional: [0; 3] }));
    }

    pub(super) fn submit(&mut self, command: Command) {
        match &mut self.state {
            State::Up(up) => {
                let Some(command) = self.units.admit(command) else { return };
                if let Err(command) = up.session.submit(self.now, command) {
                    // The session is ending: the command goes to its successor, which sends its own probes.
                    if !is_probe(command.user) {
                        self.orphans.push(*command);
                    }
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
}
