//! The requests of other threads to a session.

use bytes::Bytes;
use engine::Platform;
use iscsi_core::initiator::command::{Command, Completion, Ending};
use iscsi_core::initiator::session::{ManagementAnswer, TargetRecord};
use iscsi_core::wire::{Cid, Lun, TmfFunction, TmfResponse};
use smallvec::SmallVec;

use super::arrived::Arrived;
use super::messages::{Ended, Handle, Request};
use super::pending::Pending;
use super::{EventLoop, Running, State};
use crate::cdb::is_idempotent;
use crate::error::IoError;
use crate::info::Pong;
use crate::owner::is_probe;
use crate::reply::Answer;
use crate::workload::Workload;

impl<P: Platform> EventLoop<P> {
    pub(super) fn on_request(&mut self, request: Request) {
        match request {
            Request::Command(command, handle, answer) => self.command(command, handle, answer),
            Request::Ping(data, answer) => self.ping(data, answer),
            Request::SendTargets(which, answer) => self.send_targets(&which, answer),
            Request::Manage(function, lun, answer) => self.manage(function, lun, answer),
            Request::ManageTask(function, handle, answer) => self.manage_task(function, handle, answer),
            Request::Declare(bytes, answer) => answer.give(self.declare(bytes)),
            Request::Watch(lun, answer) => self.watch(lun, answer),
            Request::Losses(lun, since, answer) => answer.give(self.units.lost_since(lun, since)),
            Request::WhyRefused(lun, answer) => answer.give(self.units.why_refused(lun)),
            Request::Run(workload, answer) => self.run_workload(workload, answer),
            Request::Pause(time, answer) => self.pauses.push((self.now + time, answer)),
            Request::Info(answer) => answer.give(self.info()),
            Request::Logout(answer) => self.log_out(answer),
            Request::Resolved(question, addresses) => self.on_resolved(question, addresses),
            Request::Quit => {}
        }
    }

    fn command(&mut self, mut command: Command, handle: Handle, answer: Answer<Result<Ended, IoError>>) {
        let data = Arrived::default();
        let user = self.pending.insert(Pending::Command { answer, handle, data, losses: 0 });
        command.user = user;
        command.idempotent = is_idempotent(&command.cdb);
        self.submit(command);
    }

    fn ping(&mut self, data: Bytes, answer: Answer<Option<Pong>>) {
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

    fn send_targets(&mut self, which: &str, answer: Answer<Result<Vec<TargetRecord>, IoError>>) {
        let sent = match &mut self.state {
            State::Up(up) => up.session.send_targets(self.now, which),
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

    fn manage(&mut self, function: TmfFunction, lun: Lun, answer: Answer<Option<ManagementAnswer>>) {
        // Without a session, dropping the answer tells that there will be none.
        let State::Up(up) = &mut self.state else { return };
        let user = self.pending.insert(Pending::Manage(answer));
        up.session.manage(self.now, function, lun, user);
        self.drain_actions();
    }

    fn watch(&mut self, lun: Lun, answer: Answer<Result<u64, IoError>>) {
        let question = self.units.watch(lun);
        if let State::Over(why) = &self.state {
            return answer.give(Err(IoError::SessionLost(why.clone())));
        }
        self.units.when_known(lun, answer);
        // If there is no session, the next one sends the probe.
        if let Some(question) = question.filter(|_| matches!(self.state, State::Up(_))) {
            self.submit(question);
        }
    }

    fn run_workload(&mut self, mut workload: Box<dyn Workload>, answer: Answer<Box<dyn Workload>>) {
        let refused = match (&self.state, &self.running) {
            (State::Over(why), _) => why,
            (_, Some(_)) => "another workload is running in this session",
            (_, None) => {
                self.running = Some(Running { workload, answer, outstanding: 0, started: false });
                return;
            }
        };
        workload.lost(refused);
        answer.give(workload);
    }

    fn log_out(&mut self, answer: Answer<()>) {
        self.leaving.push(answer);
        match &mut self.state {
            State::Up(up) => {
                up.session.logout(self.now);
                self.drain_actions();
            }
            State::Leaving(..) => {}
            state => {
                if let State::Connecting(attempt) = state {
                    attempt.close(&mut self.driver);
                }
                self.left();
            }
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
