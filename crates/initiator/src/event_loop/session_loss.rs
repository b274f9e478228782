//! The end of a session and the fate of its commands: they wait for the next session, or fail.

use std::time::Duration;

use engine::{Driver, Link, Platform};
use iscsi_core::initiator::command::{Command, Completion, Ending};
use iscsi_core::initiator::session::{CloseReason, Unfinished};

use super::pending::Pending;
use super::up::MAX_BACKOFF;
use super::{
    EventLoop, LEAVING_TIME, MAX_ATTENTIONS_PER_LOSS, MAX_LOSSES_PER_COMMAND, MAX_LOSSES_WITHOUT_PROGRESS,
    State,
};
use crate::error::{ConnectError, IoError};
use crate::owner::{WORKLOAD_BIT, is_probe};

impl<P: Platform> EventLoop<P> {
    /// The protocol reports that the session has ended.
    pub(super) fn closed(&mut self, reason: CloseReason, wait: Duration) {
        if reason == CloseReason::LoggedOut {
            let State::Up(up) = self.take_state() else { return };
            let mut up = *up;
            up.stop_joining(&mut self.driver);
            self.info.add_counts(up.stats(), up.session.counters());
            let unfinished = up.session.unfinished();
            //= rfc7143 11.14 LGO-01 LGO-03
            let mut links: Vec<Link> = up.connections.into_iter().map(|connection| connection.link).collect();
            for link in &mut links {
                link.close_after_flush();
                link.flush(&mut self.driver);
            }
            self.state = State::Leaving(links, self.now + LEAVING_TIME);
            for Unfinished { command, .. } in unfinished {
                self.fail_command(command, "logged out");
            }
            for command in self.units.session_ends() {
                self.fail_command(command, "logged out");
            }
            return;
        }
        self.lost(reason, Some(wait));
    }

    pub(super) fn left(&mut self) {
        self.give_up(CloseReason::LoggedOut, "logged out".to_owned());
        for answer in self.leaving.drain(..) {
            answer.give(());
        }
    }

    /// The session is lost: its commands wait for the next one.
    //= rfc7143 7.15 SES-06
    pub(super) fn lost(&mut self, reason: CloseReason, wait: Option<Duration>) {
        let State::Up(up) = self.take_state() else { return };
        let mut up = *up;
        if let (Some(address), CloseReason::Lost | CloseReason::Silent) = (self.info.login.address, &reason) {
            self.portals.failed(address);
        }
        let wait = wait.unwrap_or_else(|| up.session.time2wait());
        up.session.lost();
        self.attentions_due = MAX_ATTENTIONS_PER_LOSS;
        let stats = up.close_all(&mut self.driver);
        self.info.lost(stats, up.session.counters(), &reason);
        let unanswered = up.session.unanswered();
        self.unanswered.extend(unanswered.iter().filter(|user| *user & WORKLOAD_BIT != 0));
        let orphans = std::mem::take(&mut self.orphans);
        for unfinished in up.session.unfinished() {
            self.orphan(unfinished);
        }
        self.orphans.extend(self.units.session_ends());
        self.orphans.extend(orphans);
        (self.targets, self.finding) = (None, false);
        self.pending.drop_all_but_commands();
        self.losses_without_progress += 1;
        let hopeless = self.losses_without_progress > MAX_LOSSES_WITHOUT_PROGRESS
            || self.options.timeouts.reconnect.is_zero()
            || self.options.target.is_none();
        if hopeless || !self.leaving.is_empty() {
            let why = reason.to_string();
            tracing::warn!(%reason, "the session is lost");
            self.give_up(reason, why);
            for answer in self.leaving.drain(..) {
                answer.give(());
            }
            return;
        }
        let patience = wait + self.options.timeouts.reconnect;
        tracing::warn!(%reason, ?wait, ?patience, "the session is lost: logging in again");
        self.patience = Some(self.now + patience);
        self.state = State::Waiting(self.now + wait);
    }

    /// A command has lost its session. A command that may have been executed and must not be executed twice
    /// ends here.
    //= rfc7143 7.15 ERL-10
    fn orphan(&mut self, Unfinished { command, sent }: Unfinished) {
        // The next session sends its own probes.
        if is_probe(command.user) {
            return;
        }
        if sent && !command.idempotent {
            let completion = Completion { command, ending: Ending::OutcomeUnknown };
            match completion.command.user & WORKLOAD_BIT == 0 {
                true => self.completed(completion),
                // The workload is notified when it can submit again.
                false => self.unknown.push(completion),
            }
            return;
        }
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
    pub(super) fn failed(&mut self, error: ConnectError) {
        if let Some(first) = self.first.take() {
            self.state = State::Over(error.to_string());
            first.give(Err(error));
            return;
        }
        if !error.is_passing() || self.patience.is_none_or(|at| self.now + self.backoff > at) {
            tracing::warn!(%error, "giving up");
            let reason = self.info.last_loss.clone().unwrap_or(CloseReason::Lost);
            return self.give_up(reason, error.to_string());
        }
        tracing::debug!(%error, backoff = ?self.backoff, "trying again");
        self.state = State::Waiting(self.now + self.backoff);
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
    }

    /// The session has ended for good because of `reason`; pending commands fail with `why`.
    pub(super) fn give_up(&mut self, reason: CloseReason, why: String) {
        // The session ended before it was fully set up.
        if let Some(first) = self.first.take() {
            first.give(Err(ConnectError::Ended(reason.clone())));
        }
        self.info.ended.get_or_insert(reason);
        for command in std::mem::take(&mut self.orphans) {
            self.fail_command(command, &why);
        }
        for completion in std::mem::take(&mut self.unknown) {
            self.fail_command(completion.command, &why);
        }
        for command in self.units.session_ends() {
            self.fail_command(command, &why);
        }
        for command in self.units.give_up(&why) {
            self.fail_command(command, &why);
        }
        self.targets = None;
        self.unanswered.clear();
        self.pending.clear();
        if let Some(mut running) = self.running.take() {
            running.workload.lost(&why);
            running.answer.give(running.workload);
        }
        self.state = State::Over(why);
    }

    pub(super) fn quit(&mut self) {
        match self.take_state() {
            State::Up(mut up) => drop(up.close_all(&mut self.driver)),
            State::Connecting(attempt) => attempt.close(&mut self.driver),
            State::Leaving(links, _) => links.iter().for_each(|link| self.driver.close(link.token())),
            State::Resolving(..) | State::Waiting(_) | State::Over(_) => {}
        }
        self.give_up(CloseReason::LoggedOut, "closed".to_owned());
    }

    pub(super) fn fail_command(&mut self, command: Command, why: &str) {
        if command.user & WORKLOAD_BIT != 0 {
            if let Some(running) = &mut self.running {
                running.outstanding -= 1;
            }
        } else if let Some(Pending::Command { answer, .. }) = self.pending.take(command.user) {
            answer.give(Err(IoError::SessionLost(why.to_owned())));
        }
    }
}
