//! Response fence: the answer to a request that aborts many tasks keeps its place among the responses of all connections of
//! the session (RFC 7143 4.2.2.3, 4.2.3.3).
//!
//! ```text
//!   (none) ──answer ready──► Before ──other connections have acknowledged what was sent before──► After ──acknowledged──► (none)
//!                               └── TaskReporting=RFC3720: the answer is sent, and nothing waits for it ──► (none)
//! ```
//! In between, later responses wait in `held_back`: of all connections before the answer is sent, of the other connections
//! after it. A session with one connection never has a fence. Who does not acknowledge within [`FENCE_LIMIT`], although
//! pinged, is taken for dead.

use std::time::Duration;

use iscsi_wire::{Cid, Itt, StatSn, TmfResponse};
use smallvec::SmallVec;

use super::actions::{CloseReason, Completion};
use super::session::TargetSession;
use super::task::Task;
use crate::Time;
use crate::params::TaskReporting;

/// How long a connection may take to acknowledge what a fence waits for.
pub const FENCE_LIMIT: Duration = Duration::from_secs(10);

/// A fence that stands.
#[derive(Debug)]
pub(super) struct Fence {
    answer: Answer,
    /// Statuses that have to be acknowledged before the answer may go.
    before: SmallVec<[(Cid, StatSn); 4]>,
    /// StatSN of the answer, once sent.
    sent: Option<StatSn>,
    /// When who has not acknowledged is given up.
    pub deadline: Time,
}

/// The answer to a task management request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub cid: Cid,
    pub itt: Itt,
    pub response: TmfResponse,
}

/// A response that waits for a fence.
#[derive(Debug)]
pub(super) enum HeldBack {
    Command(Box<(Task, Completion)>),
    Answer(Answer),
}

impl TargetSession {
    /// Answers a request that aborted many tasks.
    //= rfc7143 4.2.2.3 MCS-06 FAB-04
    pub(super) fn answer_behind_fence(&mut self, answer: Answer) {
        if self.fence.is_some() {
            return self.held_back.push_back(HeldBack::Answer(answer));
        }
        let before: SmallVec<[(Cid, StatSn); 4]> = self
            .connections
            .iter()
            .filter(|c| c.cid != answer.cid && !c.closing && c.acknowledged.lt(c.stat_sn))
            .map(|c| (c.cid, c.stat_sn))
            .collect();
        if self.connections.len() < 2 || (before.is_empty() && !self.is_fencing()) {
            return self.send_management_response(answer.cid, answer.itt, answer.response);
        }
        for (cid, _) in &before {
            self.ping(*cid);
        }
        self.fence = Some(Fence { answer, before, sent: None, deadline: self.now + FENCE_LIMIT });
        self.advance_fence();
    }

    /// Whether responses that follow wait as well.
    fn is_fencing(&self) -> bool {
        self.params.task_reporting >= TaskReporting::ResponseFence
    }

    /// Whether a response on `cid` has to wait.
    pub(super) fn is_held_back(&self, cid: Cid) -> bool {
        match &self.fence {
            None => false,
            Some(fence) => self.is_fencing() && (fence.sent.is_none() || fence.answer.cid != cid),
        }
    }

    /// Something was acknowledged, or a connection is gone.
    pub(super) fn advance_fence(&mut self) {
        let Some(fence) = &mut self.fence else { return };
        let connections = &self.connections;
        let reached = |cid: Cid, stat_sn: StatSn| {
            connections.iter().find(|c| c.cid == cid).is_none_or(|c| c.closing || c.acknowledged.ge(stat_sn))
        };
        if let Some(sent) = fence.sent {
            if reached(fence.answer.cid, sent.next()) {
                self.lift_fence();
            }
            return;
        }
        fence.before.retain(|(cid, stat_sn)| !reached(*cid, *stat_sn));
        if !fence.before.is_empty() {
            return;
        }
        let Answer { cid, itt, response } = fence.answer;
        let stat_sn = connections.iter().find(|c| c.cid == cid).map(|c| c.stat_sn);
        fence.sent = stat_sn;
        fence.deadline = self.now + FENCE_LIMIT;
        self.send_management_response(cid, itt, response);
        match stat_sn.filter(|_| self.is_fencing() && self.connections.len() > 1) {
            // Who has nothing to say acknowledges nothing: a ping asks for it.
            Some(_) => self.ping(cid),
            None => self.lift_fence(),
        }
    }

    /// The fence is down: what waited goes on, up to the next fence.
    fn lift_fence(&mut self) {
        self.fence = None;
        while self.fence.is_none() {
            match self.held_back.pop_front() {
                Some(HeldBack::Command(command)) => {
                    let (task, completion) = *command;
                    self.respond(task, completion);
                }
                Some(HeldBack::Answer(answer)) => self.answer_behind_fence(answer),
                None => return,
            }
        }
    }

    /// A connection is gone: nothing of it is waited for, and what waited to be sent on it has nowhere to go.
    pub(super) fn lift_fences_of(&mut self, cid: Cid) {
        self.held_back.retain(|held| !matches!(held, HeldBack::Answer(answer) if answer.cid == cid));
        let Some(fence) = &mut self.fence else { return };
        fence.before.retain(|(waits, _)| *waits != cid);
        if fence.answer.cid == cid {
            return self.lift_fence();
        }
        self.advance_fence();
    }

    /// Gives up connections that keep a fence standing.
    pub(super) fn expire_fence(&mut self) {
        let Some(fence) = self.fence.as_ref().filter(|fence| fence.deadline <= self.now) else { return };
        let silent: SmallVec<[Cid; 4]> = match fence.sent {
            Some(_) => SmallVec::from_slice(&[fence.answer.cid]),
            None => fence.before.iter().map(|(cid, _)| *cid).collect(),
        };
        for cid in silent {
            if self.connection(cid).is_some() {
                self.lose_connection(cid, CloseReason::Silent);
            }
        }
    }
}
