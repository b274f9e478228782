//! How a session's responses keep their order over its connections (RFC 7143 4.2.2.3, 4.2.3.3); the fence itself is in `fence`.

use iscsi_wire::{Cid, StatSn};
use smallvec::SmallVec;

use super::actions::CloseReason;
use super::fence::{Advance, Answer, Forgotten, HeldBack, tells_unit_attention};
use super::recovery::retained::Outcome;
use super::session::TargetSession;
use crate::params::TaskReporting;

impl TargetSession {
    /// Answers a request that aborted many tasks.
    //= rfc7143 4.2.2.3 MCS-06 FAB-04
    pub(super) fn answer_behind_fence(&mut self, answer: Answer) {
        self.send_behind_fence(HeldBack::Answer(Answer { fenced: true, ..answer }));
    }

    /// Sends an answer without a fence of its own, in its order among the responses.
    //= rfc7143 4.2.2.3 FAB-04
    pub(super) fn answer(&mut self, answer: Answer) {
        if self.is_held_back(answer.cid) && self.fences.has_room_for_answer() {
            return self.fences.hold_back(HeldBack::Answer(answer));
        }
        self.answer_now(&answer);
    }

    /// Whether the status of a command needs a fence of its own.
    //= rfc7143 4.2.2.3 FAB-04
    pub(super) fn needs_fence(&self, outcome: &Outcome) -> bool {
        self.connections.len() > 1
            && self.is_fencing()
            && (outcome.fenced || tells_unit_attention(&outcome.report.sense))
    }

    /// Sets up a fence for `response`, after the one in effect.
    pub(super) fn send_behind_fence(&mut self, response: HeldBack) {
        if self.fences.is_up() {
            return self.fences.hold_back(response);
        }
        let Some(cid) = response.cid() else { return self.send_fenced(response) };
        let fences = self.is_fencing() && self.params.max_connections > 1;
        let before: SmallVec<[(Cid, StatSn); 4]> = self
            .connections
            .iter()
            .filter(|c| c.cid != cid && !c.closing && c.acknowledged.lt(c.responded))
            .map(|c| (c.cid, c.responded))
            .collect();
        if self.connections.len() < 2 || (before.is_empty() && !self.is_fencing()) {
            self.send_fenced(response);
            let alone = self.connection(cid).filter(|_| fences).map(|c| (cid, c.stat_sn));
            self.fences.set_alone(alone);
            return;
        }
        for (cid, _) in &before {
            self.ping(*cid);
        }
        self.fences.raise(cid, response, before, self.now);
        self.advance_fence();
    }

    /// Another connection has joined: no response is sent on it until the one that would have had a fence is acknowledged.
    pub(super) fn fence_off_newcomer(&mut self) {
        let Some((cid, sent)) = self.fences.take_alone() else { return };
        let acknowledged = self.connection(cid).is_none_or(|c| c.closing || c.acknowledged.ge(sent));
        if acknowledged || self.fences.is_up() {
            return;
        }
        self.fences.raise_behind(cid, sent, self.now);
        self.ping(cid);
    }

    fn send_fenced(&mut self, response: HeldBack) {
        match response {
            HeldBack::Command(outcome) => self.respond_now(*outcome),
            HeldBack::Answer(answer) => self.answer_now(&answer),
        }
    }

    /// Whether later responses wait as well.
    fn is_fencing(&self) -> bool {
        self.params.task_reporting >= TaskReporting::ResponseFence
    }

    /// Whether a response on `cid` must wait.
    pub(super) fn is_held_back(&self, cid: Cid) -> bool {
        self.is_fencing() && self.fences.holds_back(cid)
    }

    /// A status was acknowledged, or a connection is gone.
    pub(super) fn advance_fence(&mut self) {
        let connections = &self.connections;
        let reached = |cid: Cid, stat_sn: StatSn| {
            connections.iter().find(|c| c.cid == cid).is_none_or(|c| c.closing || c.acknowledged.ge(stat_sn))
        };
        let (cid, response) = match self.fences.advance(reached, self.now) {
            Advance::Waits => return,
            Advance::Over => return self.lift_fence(),
            Advance::Send(cid, response) => (cid, response),
        };
        if let Some(response) = response {
            self.send_fenced(response);
        }
        // An initiator that has nothing to send acknowledges nothing: a ping makes it do so.
        let fencing = self.is_fencing();
        let sent = self.connection(cid).map(|c| c.stat_sn).filter(|_| fencing);
        match sent.is_some_and(|sent| self.fences.response_sent(sent)) {
            true => self.ping(cid),
            false => self.lift_fence(),
        }
    }

    /// Removes the fence. The responses that waited follow, up to the next fence.
    fn lift_fence(&mut self) {
        self.fences.lift();
        while let Some(held) = self.fences.next_free() {
            match held {
                HeldBack::Command(outcome) => self.respond(*outcome),
                HeldBack::Answer(answer) if !answer.fenced => self.answer(answer),
                answer => self.send_behind_fence(answer),
            }
        }
    }

    /// A connection is gone: stops waiting for it, and drops the answers that were to be sent on it.
    pub(super) fn lift_fences_of(&mut self, cid: Cid) {
        match self.fences.forget(cid) {
            Forgotten::NoFence => {}
            Forgotten::Other => self.advance_fence(),
            Forgotten::Own(response) => {
                // A command that may be reassigned is not lost with its connection.
                if let Some(HeldBack::Command(mut outcome)) = response
                    && self.may_be_orphaned(&outcome)
                {
                    outcome.orphan = true;
                    self.respond_now(*outcome);
                }
                self.lift_fence();
            }
        }
    }

    /// Declares connections dead that have not acknowledged in time.
    pub(super) fn expire_fence(&mut self) {
        for cid in self.fences.silent(self.now) {
            if self.connection(cid).is_some() {
                self.lose_connection(cid, CloseReason::Silent);
            }
        }
    }
}
