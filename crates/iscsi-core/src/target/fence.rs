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

use super::recovery::retained::Outcome;
use crate::Time;

/// How long a connection may take to acknowledge what a fence waits for.
pub const FENCE_LIMIT: Duration = Duration::from_secs(10);

/// A fence in effect.
#[derive(Debug)]
struct Fence {
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

/// Most answers without a fence of their own that wait for one; further ones are sent at once.
const MAX_HELD_ANSWERS: usize = 64;

/// What follows from acknowledgements.
#[derive(Debug)]
pub(super) enum Advance {
    /// Nothing yet.
    Waits,
    /// The fenced response may be sent on this connection.
    Send(Cid, Option<HeldBack>),
    /// The fence is to be lifted.
    Over,
}

/// What a connection that is gone had to do with the fence.
#[derive(Debug)]
pub(super) enum Forgotten {
    NoFence,
    /// The fence is that of a response on another connection.
    Other,
    /// The fence is that of a response on this connection: this one, unless it was sent.
    Own(Option<HeldBack>),
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
    pub(crate) fn is_up(&self) -> bool {
        self.current.is_some()
    }

    /// Sets up a fence for `response`, which is sent on `cid` once the statuses in `before` are acknowledged.
    pub(crate) fn raise(
        &mut self,
        cid: Cid,
        response: HeldBack,
        before: SmallVec<[(Cid, StatSn); 4]>,
        now: Time,
    ) {
        debug_assert!(!self.is_up(), "one fence at a time");
        let deadline = now + FENCE_LIMIT;
        self.current = Some(Fence { cid, response: Some(response), before, sent: None, deadline });
    }

    /// As [`Self::raise`], for a response that was sent already: `sent` is the StatSN after it.
    pub(crate) fn raise_behind(&mut self, cid: Cid, sent: StatSn, now: Time) {
        debug_assert!(!self.is_up(), "one fence at a time");
        let deadline = now + FENCE_LIMIT;
        self.current =
            Some(Fence { cid, response: None, before: SmallVec::new(), sent: Some(sent), deadline });
    }

    /// Notes the last response that would have had a fence if there had been a second connection.
    pub(crate) fn set_alone(&mut self, sent: Option<(Cid, StatSn)>) {
        self.alone = sent;
    }

    /// Takes that response, because a second connection joins.
    pub(crate) fn take_alone(&mut self) -> Option<(Cid, StatSn)> {
        self.alone.take()
    }

    /// Whether a response on `cid` is to wait, where later responses wait at all.
    pub(crate) fn holds_back(&self, cid: Cid) -> bool {
        self.current.as_ref().is_some_and(|fence| fence.sent.is_none() || fence.cid != cid)
    }

    /// A response waits for the fence in effect.
    pub(crate) fn hold_back(&mut self, response: HeldBack) {
        debug_assert!(self.is_up(), "there is nothing to wait for");
        self.held_back.push_back(response);
    }

    /// Whether one more answer may wait that has no fence of its own.
    pub(crate) fn has_room_for_answer(&self) -> bool {
        self.held_back.iter().filter(|held| matches!(held, HeldBack::Answer(_))).count() < MAX_HELD_ANSWERS
    }

    /// What follows from acknowledgements; `reached` tells whether a connection has acknowledged up to a StatSN, or is gone.
    pub(crate) fn advance(&mut self, reached: impl Fn(Cid, StatSn) -> bool, now: Time) -> Advance {
        let Some(fence) = &mut self.current else { return Advance::Waits };
        if let Some(sent) = fence.sent {
            return if reached(fence.cid, sent) { Advance::Over } else { Advance::Waits };
        }
        fence.before.retain(|(cid, stat_sn)| !reached(*cid, *stat_sn));
        if !fence.before.is_empty() {
            return Advance::Waits;
        }
        fence.deadline = now + FENCE_LIMIT;
        Advance::Send(fence.cid, fence.response.take())
    }

    /// The fenced response was sent; `sent` is the StatSN after it. False if the fence is gone.
    pub(crate) fn response_sent(&mut self, sent: StatSn) -> bool {
        self.current.as_mut().map(|fence| fence.sent = Some(sent)).is_some()
    }

    /// Removes the fence.
    pub(crate) fn lift(&mut self) {
        self.current = None;
    }

    /// Takes the next of the responses that waited, unless there is a fence.
    pub(crate) fn next_free(&mut self) -> Option<HeldBack> {
        if self.is_up() { None } else { self.held_back.pop_front() }
    }

    /// A connection is gone: nothing waits for it any more, and the answers that were to be sent on it are dropped.
    pub(crate) fn forget(&mut self, cid: Cid) -> Forgotten {
        self.held_back.retain(|held| !matches!(held, HeldBack::Answer(answer) if answer.cid == cid));
        let Some(fence) = &mut self.current else { return Forgotten::NoFence };
        fence.before.retain(|(waits, _)| *waits != cid);
        match fence.cid == cid {
            true => Forgotten::Own(fence.response.take()),
            false => Forgotten::Other,
        }
    }

    /// The connections that have not acknowledged in time.
    pub(crate) fn silent(&self, now: Time) -> SmallVec<[Cid; 4]> {
        let Some(fence) = self.current.as_ref().filter(|fence| fence.deadline <= now) else {
            return SmallVec::new();
        };
        match fence.sent {
            Some(_) => SmallVec::from_slice(&[fence.cid]),
            None => fence.before.iter().map(|(cid, _)| *cid).collect(),
        }
    }

    /// When a connection that has not acknowledged is declared dead.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.current.as_ref().map(|fence| fence.deadline)
    }

    /// Responses that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.held_back.len()
    }

    /// Answers that wait and complete a request that aborts many tasks.
    pub(crate) fn fenced_answers(&self) -> usize {
        self.held_back.iter().filter(|held| matches!(held, HeldBack::Answer(answer) if answer.fenced)).count()
    }

    /// Removes the fence and everything that waits for it.
    pub(crate) fn clear(&mut self) {
        (self.current, self.held_back) = (None, VecDeque::new());
    }

    /// The response of the command `itt`, if it waits.
    pub(crate) fn command(&self, itt: Itt) -> Option<&Outcome> {
        self.held_back.iter().find_map(|held| match held {
            HeldBack::Command(outcome) if outcome.itt == itt => Some(&**outcome),
            _ => None,
        })
    }

    /// As [`Self::command`], to change it.
    pub(crate) fn command_mut(&mut self, itt: Itt) -> Option<&mut Outcome> {
        self.held_back.iter_mut().find_map(|held| match held {
            HeldBack::Command(outcome) if outcome.itt == itt => Some(&mut **outcome),
            _ => None,
        })
    }

    /// Keeps the waiting responses of commands that `keeps` selects, and all answers.
    pub(crate) fn retain_commands(&mut self, mut keeps: impl FnMut(&mut Outcome) -> bool) {
        self.held_back.retain_mut(|held| match held {
            HeldBack::Command(outcome) => keeps(outcome),
            HeldBack::Answer(_) => true,
        });
    }

    /// Checks what holds after every event, where debug assertions are on.
    pub(crate) fn check(&self) {
        debug_assert!(self.is_up() || self.held_back.is_empty(), "a response waits for no fence");
        let Some(fence) = &self.current else { return };
        debug_assert!(fence.response.is_none() || fence.sent.is_none(), "a response waits and was sent");
        debug_assert!(fence.before.is_empty() || fence.sent.is_none(), "a response was sent before its turn");
        debug_assert!(fence.before.iter().all(|(cid, _)| *cid != fence.cid), "a response waits for itself");
    }
}

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
    /// The connection of the response; `None` while it has none.
    pub(crate) fn cid(&self) -> Option<Cid> {
        match self {
            Self::Command(outcome) => outcome.home(),
            Self::Answer(answer) => Some(answer.cid),
        }
    }
}

/// Sense key UNIT ATTENTION, in either format.
pub(super) fn tells_unit_attention(sense: &[u8]) -> bool {
    let key = match sense.first().map(|code| code & 0x7f) {
        Some(0x70) => sense.get(2),
        Some(0x72) => sense.get(1),
        _ => None,
    };
    key.is_some_and(|key| key & 0x0f == 6)
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
