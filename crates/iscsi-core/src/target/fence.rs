//! Response fence: some responses keep their order relative to the responses on all connections of the session. These are the
//! answer to a request that aborts many tasks, a status with a unit attention (by which others learn of such a request), and any
//! status for which the surroundings request it (RFC 7143 4.2.2.3, 4.2.3.3).
//!
//! ```text
//!   (none) ──response ready──► Before ──other connections have acknowledged what was sent before──► After ──acknowledged──► (none)
//!                               └── TaskReporting=RFC3720: it is sent, and nothing waits for it ──► (none)
//! ```
//! With RFC3720 only the answer to a request has a fence, and no response waits behind it. With the other values later responses
//! are held back: those of all connections until the fenced response is sent, then those of the other connections. This applies to
//! statuses of commands, and to answers to task management requests except TASK REASSIGN, which does not concern the device
//! server. A session with one connection has no fence until a second one joins. A connection that does not acknowledge within
//! [`FENCE_LIMIT`], although pinged, is declared dead.

use std::collections::VecDeque;
use std::time::Duration;

use iscsi_wire::{Cid, Itt, StatSn, TmfResponse};
use smallvec::SmallVec;

use super::actions::CloseReason;
use super::recovery::retained::Outcome;
use super::session::TargetSession;
use crate::Time;
use crate::params::TaskReporting;

/// How long a connection may take to acknowledge what a fence waits for.
pub const FENCE_LIMIT: Duration = Duration::from_secs(10);

/// A fence in effect.
#[derive(Debug)]
pub(super) struct Fence {
    /// Connection of the fenced response.
    cid: Cid,
    /// The fenced response, until it is sent.
    response: Option<HeldBack>,
    /// Statuses that must be acknowledged before the response may be sent.
    before: SmallVec<[(Cid, StatSn); 4]>,
    /// StatSN after that of the response, once sent.
    sent: Option<StatSn>,
    /// When a connection that has not acknowledged is declared dead.
    deadline: Time,
}

/// The fence in effect, if there is one, and the responses that wait for it.
///
/// A response waits only while there is a fence.
#[derive(Debug, Default)]
pub(super) struct Fences {
    current: Option<Fence>,
    /// The last response that would have had a fence if there had been a second connection: its connection, and the StatSN after
    /// it.
    alone: Option<(Cid, StatSn)>,
    held_back: VecDeque<HeldBack>,
}

impl Fences {
    /// Whether a fence is in effect.
    pub fn is_up(&self) -> bool {
        self.current.is_some()
    }

    /// When a connection that has not acknowledged is declared dead.
    pub fn deadline(&self) -> Option<Time> {
        self.current.as_ref().map(|fence| fence.deadline)
    }

    /// Responses that wait.
    pub fn waiting(&self) -> usize {
        self.held_back.len()
    }

    /// Answers that wait and complete a request that aborts many tasks.
    pub fn fenced_answers(&self) -> usize {
        self.held_back.iter().filter(|held| matches!(held, HeldBack::Answer(answer) if answer.fenced)).count()
    }

    /// Removes the fence and everything that waits for it.
    pub fn clear(&mut self) {
        (self.current, self.held_back) = (None, VecDeque::new());
    }

    /// The response of the command `itt`, if it waits.
    pub fn command(&self, itt: Itt) -> Option<&Outcome> {
        self.held_back.iter().find_map(|held| match held {
            HeldBack::Command(outcome) if outcome.itt == itt => Some(&**outcome),
            _ => None,
        })
    }

    /// As [`Self::command`], to change it.
    pub fn command_mut(&mut self, itt: Itt) -> Option<&mut Outcome> {
        self.held_back.iter_mut().find_map(|held| match held {
            HeldBack::Command(outcome) if outcome.itt == itt => Some(&mut **outcome),
            _ => None,
        })
    }

    /// Keeps the waiting responses of commands that `keeps` selects, and all answers.
    pub fn retain_commands(&mut self, mut keeps: impl FnMut(&mut Outcome) -> bool) {
        self.held_back.retain_mut(|held| match held {
            HeldBack::Command(outcome) => keeps(outcome),
            HeldBack::Answer(_) => true,
        });
    }

    /// Checks what holds after every event, where debug assertions are on.
    pub fn check(&self) {
        debug_assert!(self.is_up() || self.held_back.is_empty(), "a response waits for no fence");
        let Some(fence) = &self.current else { return };
        debug_assert!(fence.response.is_none() || fence.sent.is_none(), "a response waits and was sent");
        debug_assert!(fence.before.is_empty() || fence.sent.is_none(), "a response was sent before its turn");
        debug_assert!(fence.before.iter().all(|(cid, _)| *cid != fence.cid), "a response waits for itself");
    }
}

/// Most answers without a fence of their own that wait for one; further ones are sent at once.
const MAX_HELD_ANSWERS: usize = 64;

/// The answer to a task management request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub cid: Cid,
    pub itt: Itt,
    pub response: TmfResponse,
    /// Additional Response Information (RFC 7144 6.2).
    pub additional: [u8; 3],
    /// It has a fence: it completes a request that aborts many tasks.
    pub fenced: bool,
}

impl Answer {
    /// An answer without a fence.
    pub(super) const fn new(cid: Cid, itt: Itt, response: TmfResponse) -> Self {
        Self { cid, itt, response, additional: [0; 3], fenced: false }
    }
}

/// A response that waits for a fence.
#[derive(Debug)]
pub(super) enum HeldBack {
    Command(Box<Outcome>),
    Answer(Answer),
}

impl HeldBack {
    fn cid(&self) -> Option<Cid> {
        match self {
            Self::Command(outcome) => outcome.home(),
            Self::Answer(answer) => Some(answer.cid),
        }
    }
}

/// Sense key UNIT ATTENTION, in either format.
fn tells_unit_attention(sense: &[u8]) -> bool {
    let key = match sense.first().map(|code| code & 0x7f) {
        Some(0x70) => sense.get(2),
        Some(0x72) => sense.get(1),
        _ => None,
    };
    key.is_some_and(|key| key & 0x0f == 6)
}

impl TargetSession {
    /// Answers a request that aborted many tasks.
    //= rfc7143 4.2.2.3 MCS-06 FAB-04
    pub(super) fn answer_behind_fence(&mut self, answer: Answer) {
        self.send_behind_fence(HeldBack::Answer(Answer { fenced: true, ..answer }));
    }

    /// Sends an answer without a fence of its own, in its order among the responses.
    //= rfc7143 4.2.2.3 FAB-04
    pub(super) fn answer(&mut self, answer: Answer) {
        let waiting =
            || self.fences.held_back.iter().filter(|held| matches!(held, HeldBack::Answer(_))).count();
        if self.is_held_back(answer.cid) && waiting() < MAX_HELD_ANSWERS {
            return self.fences.held_back.push_back(HeldBack::Answer(answer));
        }
        self.answer_now(&answer);
    }

    /// Whether the status of a command needs a fence of its own.
    //= rfc7143 4.2.2.3 FAB-04
    pub(super) fn needs_fence(&self, outcome: &Outcome) -> bool {
        self.connections.len() > 1
            && self.is_fencing()
            && (outcome.fenced || tells_unit_attention(&outcome.sense))
    }

    /// Sets up a fence for `response`, after the one in effect.
    pub(super) fn send_behind_fence(&mut self, response: HeldBack) {
        if self.fences.is_up() {
            return self.fences.held_back.push_back(response);
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
            self.fences.alone = self.connection(cid).filter(|_| fences).map(|c| (cid, c.stat_sn));
            return;
        }
        for (cid, _) in &before {
            self.ping(*cid);
        }
        let deadline = self.now + FENCE_LIMIT;
        self.fences.current = Some(Fence { cid, response: Some(response), before, sent: None, deadline });
        self.advance_fence();
    }

    /// Another connection has joined: no response is sent on it until the one that would have had a fence is acknowledged.
    pub(super) fn fence_off_newcomer(&mut self) {
        let Some((cid, sent)) = self.fences.alone.take() else { return };
        let acknowledged = self.connection(cid).is_none_or(|c| c.closing || c.acknowledged.ge(sent));
        if acknowledged || self.fences.is_up() {
            return;
        }
        let deadline = self.now + FENCE_LIMIT;
        self.fences.current =
            Some(Fence { cid, response: None, before: SmallVec::new(), sent: Some(sent), deadline });
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

    /// Has the response of a command wait for the fence in effect.
    pub(super) fn hold_back(&mut self, outcome: Outcome) {
        self.fences.held_back.push_back(HeldBack::Command(Box::new(outcome)));
    }

    /// Whether a response on `cid` must wait.
    pub(super) fn is_held_back(&self, cid: Cid) -> bool {
        match &self.fences.current {
            None => false,
            Some(fence) => self.is_fencing() && (fence.sent.is_none() || fence.cid != cid),
        }
    }

    /// A status was acknowledged, or a connection is gone.
    pub(super) fn advance_fence(&mut self) {
        let Some(fence) = &mut self.fences.current else { return };
        let connections = &self.connections;
        let reached = |cid: Cid, stat_sn: StatSn| {
            connections.iter().find(|c| c.cid == cid).is_none_or(|c| c.closing || c.acknowledged.ge(stat_sn))
        };
        if let Some(sent) = fence.sent {
            if reached(fence.cid, sent) {
                self.lift_fence();
            }
            return;
        }
        fence.before.retain(|(cid, stat_sn)| !reached(*cid, *stat_sn));
        if !fence.before.is_empty() {
            return;
        }
        let cid = fence.cid;
        fence.deadline = self.now + FENCE_LIMIT;
        if let Some(response) = fence.response.take() {
            self.send_fenced(response);
        }
        // An initiator that has nothing to send acknowledges nothing: a ping makes it do so.
        let sent = self.connection(cid).map(|c| c.stat_sn);
        match (&mut self.fences.current, sent) {
            (Some(fence), Some(sent)) if self.params.task_reporting >= TaskReporting::ResponseFence => {
                fence.sent = Some(sent);
                self.ping(cid);
            }
            _ => self.lift_fence(),
        }
    }

    /// Removes the fence. The responses that waited follow, up to the next fence.
    fn lift_fence(&mut self) {
        self.fences.current = None;
        while !self.fences.is_up() {
            match self.fences.held_back.pop_front() {
                Some(HeldBack::Command(outcome)) => self.respond(*outcome),
                Some(HeldBack::Answer(answer)) if !answer.fenced => self.answer(answer),
                Some(answer) => self.send_behind_fence(answer),
                None => return,
            }
        }
    }

    /// A connection is gone: stops waiting for it, and drops the answers that were to be sent on it.
    pub(super) fn lift_fences_of(&mut self, cid: Cid) {
        self.fences.held_back.retain(|held| !matches!(held, HeldBack::Answer(answer) if answer.cid == cid));
        let Some(fence) = &mut self.fences.current else { return };
        fence.before.retain(|(waits, _)| *waits != cid);
        if fence.cid == cid {
            // A command that may be reassigned is not lost with its connection.
            let response = fence.response.take();
            if let Some(HeldBack::Command(mut outcome)) = response
                && self.may_be_orphaned(&outcome)
            {
                outcome.orphan = true;
                self.respond_now(*outcome);
            }
            return self.lift_fence();
        }
        self.advance_fence();
    }

    /// Declares connections dead that have not acknowledged in time.
    pub(super) fn expire_fence(&mut self) {
        let Some(fence) = self.fences.current.as_ref().filter(|fence| fence.deadline <= self.now) else {
            return;
        };
        let silent: SmallVec<[Cid; 4]> = match fence.sent {
            Some(_) => SmallVec::from_slice(&[fence.cid]),
            None => fence.before.iter().map(|(cid, _)| *cid).collect(),
        };
        for cid in silent {
            if self.connection(cid).is_some() {
                self.lose_connection(cid, CloseReason::Silent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: FAB-04
    #[test]
    fn a_unit_attention_is_known_in_either_format() {
        const UNIT_ATTENTION: u8 = 6;
        for information_is_valid in [0, 0x80] {
            for (key, expected) in [(UNIT_ATTENTION, true), (2, false)] {
                let fixed = [0x70 | information_is_valid, UNIT_ATTENTION ^ 1, 0xe0 | key, 0];
                let descriptor = [0x72, key, UNIT_ATTENTION, 0];
                assert_eq!(tells_unit_attention(&fixed), expected);
                assert_eq!(tells_unit_attention(&descriptor), expected);
            }
        }
        // Deferred errors belong to another command, and truncated sense data or other formats say nothing.
        for other in [&[][..], &[0x72], &[0x70, 0], &[0x71, 0, UNIT_ATTENTION], &[0x73, UNIT_ATTENTION]] {
            assert!(!tells_unit_attention(other));
        }
    }
}
