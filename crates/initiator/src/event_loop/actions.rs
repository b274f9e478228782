//! Executes the actions of the protocol and lets the workload continue in the same pass.

use engine::Platform;
use iscsi_core::Time;
use iscsi_core::initiator::command::{Completion, Ending};
use iscsi_core::initiator::session::{Action, CloseReason, ManagementAnswer};
use iscsi_core::wire::{Cid, Lun, TmfResponse};

use super::pending::Pending;
use super::up::Up;
use super::{Ended, EventLoop, MAX_ATTENTIONS_PER_LOSS, State};
use crate::error::IoError;
use crate::info::Pong;
use crate::owner::WORKLOAD_BIT;
use crate::owner::is_probe;
use crate::sense::Sense;
use crate::unit::{Answered, Units, Unsent};
use crate::workload::Submitter;

impl<P: Platform> EventLoop<P> {
    /// Executes the actions that the session requests.
    pub(super) fn drain_actions(&mut self) {
        loop {
            let State::Up(up) = &mut self.state else { return };
            let Some(action) = up.session.poll_action() else { return };
            match action {
                Action::Send { cid, pdu } => up.send(cid, pdu),
                Action::DataIn { user, offset, data } if user & WORKLOAD_BIT != 0 => {
                    if let Some(running) = &mut self.running {
                        running.workload.data_in(user & !WORKLOAD_BIT, offset, data);
                    }
                }
                Action::DataIn { user, offset, data } if is_probe(user) => {
                    self.units.data_in(user, offset, &data)
                }
                Action::DataIn { user, offset, data } => {
                    if let Some(Pending::Command { data: arrived, .. }) = self.pending.get(user) {
                        arrived.put(offset, data);
                    }
                }
                Action::Completed(completion) => self.completed(completion),
                Action::Managed { user, answer } if user & WORKLOAD_BIT != 0 => self.managed(user, answer),
                Action::Managed { user, answer: told } => {
                    if let Some(Pending::Manage(answer)) = self.pending.take(user) {
                        answer.give(told);
                    }
                }
                Action::Pong { user, intact, round_trip } => {
                    if let Some(Pending::Ping(answer)) = self.pending.take(user) {
                        answer.give(Some(Pong { intact, round_trip }));
                    }
                }
                Action::Targets(records) if self.finding => self.portals_known(&records),
                Action::TextRefused(_) if self.finding => self.portals_known(&[]),
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
                Action::Declared { cid, max_recv_data_segment_length } => {
                    if let Some(link) = up.link(cid) {
                        link.set_max_data_bytes(max_recv_data_segment_length as usize);
                    }
                    if let Some(agent) = up.agent() {
                        agent.declared(max_recv_data_segment_length);
                    }
                }
                Action::CloseConnection { cid, reason } => self.close_connection(cid, &reason),
                Action::Connect { cid, wait } => self.connect_again(cid, wait),
                Action::Close { reason, wait } => return self.closed(reason, wait),
            }
        }
    }

    /// The protocol ends one connection.
    fn close_connection(&mut self, cid: Cid, reason: &CloseReason) {
        let State::Up(up) = &mut self.state else { return };
        match reason {
            CloseReason::LoggedOut => tracing::debug!(cid = cid.0, "a connection has left the session"),
            _ => tracing::warn!(cid = cid.0, %reason, "a connection of the session is closed"),
        }
        self.attentions_due = MAX_ATTENTIONS_PER_LOSS;
        if let (CloseReason::Silent, Some(address)) = (reason, up.address(cid)) {
            self.portals.failed(address);
        }
        up.close(cid, &mut self.driver);
    }

    pub(super) fn completed(&mut self, mut completion: Completion) {
        if is_probe(completion.command.user) {
            return self.probed(&completion);
        }
        if let Some(lun) = self.units.note(&completion) {
            self.report_loss(lun);
        }
        // A command ended by the loss itself is no sign of progress.
        if completion.ending != Ending::OutcomeUnknown {
            self.losses_without_progress = 0;
        }
        if self.attentions_due > 0 && tells_of_recovery(&completion.ending) {
            self.attentions_due -= 1;
            return self.submit(completion.command);
        }
        if matches!(completion.ending, Ending::DataDigest) {
            self.info.data_digest_errors += 1;
        }
        let user = completion.command.user;
        if user & WORKLOAD_BIT != 0 {
            let State::Up(up) = &mut self.state else {
                // Work for another owner has ended the session: the workload is notified when it can submit again.
                return self.unknown.push(completion);
            };
            if let Some(running) = &mut self.running {
                completion.command.user = user & !WORKLOAD_BIT;
                running.outstanding -= 1;
                let mut io = submitter(up, &mut self.units, self.now, &mut running.outstanding);
                running.workload.completed(completion, &mut io);
            }
        } else if let Some(Pending::Command { answer, data, .. }) = self.pending.take(user) {
            answer.give(Ok(Ended { completion, data: data.whole() }));
        }
    }

    /// A unit has answered a probe; its commands may go out only after that.
    fn probed(&mut self, completion: &Completion) {
        let Answered { next, released, lost, silent } = self.units.answered(self.now, completion);
        if let Some(lun) = lost {
            self.report_loss(lun);
        }
        for command in next.into_iter().chain(released) {
            self.submit(command);
        }
        for command in silent {
            self.completed(Completion { command, ending: Ending::TimedOut });
        }
    }

    /// Sends the probes that are due, and completes the commands that will reach no unit.
    pub(super) fn settle_units(&mut self) {
        // A workload is not called while there is no session. The session may even end here, because of a probe that cannot
        // be sent.
        if !matches!(self.state, State::Up(_)) {
            return;
        }
        for question in self.units.due(self.now) {
            self.submit(question);
        }
        // One pass only: commands that their owners submit in return may end in the same way.
        for unsent in self.units.take_unsent() {
            match unsent {
                Unsent::Ended(completion) => self.completed(completion),
                Unsent::Managed(user) => {
                    let complete = TmfResponse::FunctionComplete;
                    self.managed(user, Some(ManagementAnswer { response: complete, additional: [0; 3] }));
                }
            }
        }
    }

    /// Reports a loss to the workload; other owners learn of it when they flush.
    fn report_loss(&mut self, lun: Lun) {
        if let State::Up(up) = &mut self.state
            && let Some(running) = &mut self.running
            && let Some(lost) = self.units.last_loss(lun)
        {
            let mut io = submitter(up, &mut self.units, self.now, &mut running.outstanding);
            running.workload.lost_writes(lun, &lost, &mut io);
        }
    }

    /// A management function of the workload has ended.
    pub(super) fn managed(&mut self, user: u64, answer: Option<ManagementAnswer>) {
        let State::Up(up) = &mut self.state else { return self.unanswered.push(user) };
        if let Some(running) = &mut self.running {
            running.outstanding -= 1;
            let mut io = submitter(up, &mut self.units, self.now, &mut running.outstanding);
            running.workload.managed(user & !WORKLOAD_BIT, answer, &mut io);
        }
    }

    /// Starts a workload, calls its timer, and returns it when it is done.
    pub(super) fn step_workload(&mut self) {
        let Some(running) = &mut self.running else { return };
        if let State::Up(up) = &mut self.state {
            let begins = !std::mem::replace(&mut running.started, true);
            let mut io = submitter(up, &mut self.units, self.now, &mut running.outstanding);
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
}

fn submitter<'a>(up: &'a mut Up, units: &'a mut Units, now: Time, submitted: &'a mut usize) -> Submitter<'a> {
    Submitter { session: &mut up.session, units, now, submitted }
}

/// Whether a command was turned away only to report that commands were cleared with a connection or session. We know that,
/// and have restarted them. SOME COMMANDS CLEARED BY ISCSI PROTOCOL EVENT and I_T NEXUS LOSS OCCURRED.
//= rfc7143 11.14.5 MCS-07
fn tells_of_recovery(ending: &Ending) -> bool {
    let Ending::Status { status: 0x02, sense, .. } = ending else { return false };
    let sense = Sense::parse(sense);
    sense.is_unit_attention() && matches!((sense.asc, sense.ascq), (0x47, 0x7f) | (0x29, 0x07))
}
