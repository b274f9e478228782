//! Aborts that several sessions must complete, here and on other shards, and what follows when they have.
//!
//! A *gather* waits for all shards, and perhaps for a session's own tasks. An *order* is what another shard, or our own, told us to
//! abort: each session that it concerns has a *part* of it.

use std::sync::Arc;

use iscsi_core::target::actions::{Completion, ManagementRequest};
use iscsi_core::target::task::TaskId;
use rustc_hash::FxHashMap;
use scsi::Nexus;

use super::slots::SessionKey;
use crate::registry::TargetNode;

/// Token of aborts for which nothing waits.
pub(super) const NO_WAITER: u64 = 0;

/// What to do when all shards have answered.
pub(super) enum Then {
    /// Act on the logical units and answer a task management request.
    Manage { session: SessionKey, request: ManagementRequest, target: Arc<TargetNode>, nexus: Nexus },
    /// Complete a PREEMPT AND ABORT.
    Complete { session: SessionKey, task: TaskId, completion: Box<Completion> },
}

struct Gather {
    missing: usize,
    then: Then,
}

/// A shard's order that one of our sessions is executing.
struct Pending {
    session: SessionKey,
    order: u64,
}

/// A shard's order that our sessions are executing.
struct Order {
    from: usize,
    token: u64,
    missing: usize,
}

/// All tasks of a part, or of an order, are gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// Those of a session of our own gather, with its token.
    Own(u64),
    /// Those of the order `token` of the shard `from`.
    Order { from: usize, token: u64 },
}

/// The answers for which this shard waits, and those that it owes to others.
#[derive(Default)]
pub(super) struct Gathers {
    next: u64,
    gathers: FxHashMap<u64, Gather>,
    orders: FxHashMap<u64, Order>,
    pending: FxHashMap<u64, Pending>,
    /// The gather that waits for a session's own tasks, by token.
    own: FxHashMap<u64, (SessionKey, u64)>,
}

impl Gathers {
    /// Waits for `missing` answers; returns the token that they carry.
    pub(crate) fn wait(&mut self, missing: usize, then: Then) -> u64 {
        let token = self.next();
        self.gathers.insert(token, Gather { missing, then });
        token
    }

    /// The tasks of `session` itself are one of the answers to `gather`; returns the token by which it names them.
    pub(crate) fn wait_for_own(&mut self, session: SessionKey, gather: u64) -> u64 {
        let token = self.next();
        self.own.insert(token, (session, gather));
        token
    }

    /// An order of the shard `from` that concerns these sessions; returns the token by which each of them names its tasks.
    pub(crate) fn take_order(&mut self, from: usize, token: u64, sessions: &[SessionKey]) -> Vec<u64> {
        let order = self.next();
        self.orders.insert(order, Order { from, token, missing: sessions.len() });
        let part = |&session: &SessionKey| {
            let part = self.next();
            self.pending.insert(part, Pending { session, order });
            part
        };
        sessions.iter().map(part).collect()
    }

    /// The tasks that a session names by `token` are gone. Returns what is complete with them.
    pub(crate) fn tasks_gone(&mut self, token: u64) -> Option<Gone> {
        if let Some((_, gather)) = self.own.remove(&token) {
            return Some(Gone::Own(gather));
        }
        let Pending { order: id, .. } = self.pending.remove(&token)?;
        let order = self.orders.get_mut(&id)?;
        order.missing -= 1;
        if order.missing > 0 {
            return None;
        }
        self.orders.remove(&id).map(|Order { from, token, .. }| Gone::Order { from, token })
    }

    /// The tokens by which `session` names tasks that it must abort.
    pub(crate) fn tokens_of(&self, session: SessionKey) -> Vec<u64> {
        let parts = self.pending.iter().filter(|(_, part)| part.session == session).map(|(token, _)| *token);
        let own = self.own.iter().filter(|(_, (of, _))| *of == session).map(|(token, _)| *token);
        parts.chain(own).collect()
    }

    /// One answer for a gather has arrived. Returns what follows if it was the last.
    pub(crate) fn answered(&mut self, token: u64) -> Option<Then> {
        let gather = self.gathers.get_mut(&token)?;
        gather.missing -= 1;
        if gather.missing > 0 {
            return None;
        }
        self.gathers.remove(&token).map(|gather| gather.then)
    }

    /// A new token; never [`NO_WAITER`].
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::slots::Slots;

    fn then() -> Then {
        let completion = Box::new(Completion::default());
        Then::Complete { session: SessionKey::default(), task: TaskId::new(0, 0), completion }
    }

    fn two_sessions() -> [SessionKey; 2] {
        let mut slots = Slots::<()>::default();
        [slots.reserve(), slots.reserve()]
    }

    #[test]
    fn what_waits_for_several_answers_follows_the_last() {
        let mut gathers = Gathers::default();
        let [session, other] = two_sessions();
        let gather = gathers.wait(2, then());
        let own = gathers.wait_for_own(session, gather);
        assert!(gathers.answered(gather).is_none());
        assert_eq!((gathers.tokens_of(session), gathers.tokens_of(other)), (vec![own], vec![]));
        assert_eq!(gathers.tasks_gone(own), Some(Gone::Own(gather)));
        assert_eq!(gathers.tasks_gone(own), None, "it is gone once");
        assert!(gathers.answered(gather).is_some() && gathers.answered(gather).is_none());
        assert_eq!(gathers.tasks_gone(NO_WAITER), None);
    }

    #[test]
    fn an_order_is_complete_when_each_of_its_sessions_is() {
        let mut gathers = Gathers::default();
        let [a, b] = two_sessions();
        let parts = gathers.take_order(3, 77, &[a, b]);
        assert_eq!([a, b].map(|session| gathers.tokens_of(session)), [vec![parts[0]], vec![parts[1]]]);
        assert_eq!(gathers.tasks_gone(parts[1]), None);
        assert_eq!(gathers.tasks_gone(parts[0]), Some(Gone::Order { from: 3, token: 77 }));
        assert!(gathers.tokens_of(a).is_empty() && gathers.tokens_of(b).is_empty());
    }
}
