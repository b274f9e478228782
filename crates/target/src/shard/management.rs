//! Aborting tasks across sessions and shards (SAM-5 clause 7, RFC 7143 4.2.3, 11.5).
//!
//! The shard that must abort tasks sends an [`AbortOrder`] to every shard, including itself, and continues when all have
//! answered. A shard that executes an order answers when the device servers have released the last of its tasks.

use std::sync::Arc;

use engine::Platform;
use iscsi_core::target::actions::{CloseReason, Completion, ManagementId, ManagementRequest};
use iscsi_core::target::task::TaskId;
use iscsi_core::target::task_management::AbortScope;
use iscsi_core::wire::{Lun, TmfFunction, TmfResponse};
use rustc_hash::FxHashMap;
use scsi::{Asc, Nexus, NexusId, UaScope};

use super::Shard;
use super::message::{AbortOrder, Message};
use super::sessions::{SessionEntry, SessionKey};
use crate::registry::TargetNode;

/// Token of aborts for which nothing waits.
pub(super) const NO_WAITER: u64 = 0;

/// What to do when all shards have answered.
enum Then {
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
    /// A new token; never [`NO_WAITER`].
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl<P: Platform> Shard<P> {
    /// Executes a task management function.
    //= rfc7143 11.6.1 TMF-07 TMF-08
    pub(super) fn manage(&mut self, entry: &mut SessionEntry, request: ManagementRequest) {
        let Some(target) = entry.target.clone() else { return };
        let whole_target =
            matches!(request.function, TmfFunction::TargetWarmReset | TmfFunction::TargetColdReset);
        let lun = request.lun.to_index();
        if !whole_target && lun.is_none_or(|number| !target.luns().contains_key(&number)) {
            return entry.session.management_done(request.id, TmfResponse::LunDoesNotExist);
        }
        match request.function {
            //= rfc7144 6 P2-02
            TmfFunction::QueryTaskSet => {
                let response = match entry.session.has_tasks(request.lun) {
                    true => TmfResponse::FunctionSucceeded,
                    false => TmfResponse::FunctionComplete,
                };
                return entry.session.management_done(request.id, response);
            }
            //= rfc7144 6.4 P2-04
            TmfFunction::QueryAsyncEvent => {
                let device = lun.and_then(|number| entry.luns.get(&number));
                let pending =
                    device.and_then(|device| device.unit.scsi.pending_unit_attention(entry.nexus.id));
                let response = match pending {
                    Some(_) => TmfResponse::FunctionSucceeded,
                    None => TmfResponse::FunctionComplete,
                };
                let additional = pending.unwrap_or_default();
                return entry.session.management_done_with(request.id, response, additional);
            }
            _ => {}
        }
        let gather = self.gathers.next();
        let own_token = self.gathers.next();
        let reaches_others = request.function != TmfFunction::AbortTaskSet;
        let shards = if reaches_others { self.shared.shards().len() } else { 0 };
        let then = Then::Manage {
            session: entry.key,
            request,
            target: Arc::clone(&target),
            nexus: entry.nexus.clone(),
        };
        self.gathers.gathers.insert(gather, Gather { missing: 1 + shards, then });
        self.gathers.own.insert(own_token, (entry.key, gather));
        let scope = AbortScope {
            lun: (!whole_target).then_some(request.lun),
            request: Some(request.id),
            task_aborted_status: false,
        };
        if reaches_others {
            let tas = lun
                .filter(|_| !whole_target)
                .and_then(|n| target.luns().get(&n).map(|device| device.unit.scsi.task_aborted_status()));
            self.order_abort(
                gather,
                AbortOrder {
                    target: target.name.clone(),
                    lun: lun.filter(|_| !whole_target),
                    only: None,
                    except: entry.nexus.id,
                    task_aborted_status: tas.unwrap_or(false),
                },
            );
        }
        entry.session.abort_tasks(scope, own_token);
    }

    /// Aborts the tasks of `victims` on the unit of `task` before `task` completes.
    //= spc4 5.12.11.2.6 PR-09
    pub(super) fn preempt(
        &mut self,
        entry: &mut SessionEntry,
        task: TaskId,
        completion: Completion,
        victims: Vec<NexusId>,
    ) {
        let completion = Completion { fenced: true, ..completion };
        let Some(target) = &entry.target else { return };
        let gather = self.gathers.next();
        let then = Then::Complete { session: entry.key, task, completion: Box::new(completion) };
        self.gathers.gathers.insert(gather, Gather { missing: self.shared.shards().len(), then });
        let lun = entry.session.lun_of(task).and_then(Lun::to_index);
        let unit = lun.and_then(|number| entry.luns.get(&number)).map(|device| &device.unit.scsi);
        let order = AbortOrder {
            target: target.name.clone(),
            lun,
            only: Some(victims),
            except: entry.nexus.id,
            task_aborted_status: unit.is_some_and(scsi::LogicalUnit::task_aborted_status),
        };
        self.order_abort(gather, order);
    }

    fn order_abort(&mut self, token: u64, order: AbortOrder) {
        // This shard also gets the order through its mailbox: the current session is in use right now.
        for shard in self.shared.shards() {
            shard.send(Message::Abort { from: self.number, token, order: order.clone() });
        }
    }

    /// Executes an order of another shard, or our own.
    pub(super) fn abort_for(&mut self, from: usize, token: u64, order: &AbortOrder) {
        let concerned: Vec<SessionKey> = self
            .sessions
            .iter()
            .filter(|h| {
                h.target.as_ref().is_some_and(|t| t.name == order.target) && h.nexus.id != order.except
            })
            .filter(|h| order.only.as_ref().is_none_or(|only| only.contains(&h.nexus.id)))
            .map(|h| h.key)
            .collect();
        if concerned.is_empty() {
            return self.shared.shards()[from].send(Message::AbortDone { token });
        }
        let id = self.gathers.next();
        self.gathers.orders.insert(id, Order { from, token, missing: concerned.len() });
        let scope = AbortScope {
            lun: order.lun.map(Lun::from_index),
            request: None,
            task_aborted_status: order.task_aborted_status,
        };
        for session in concerned {
            let part = self.gathers.next();
            self.gathers.pending.insert(part, Pending { session, order: id });
            self.with_session(session, |_, entry| entry.session.abort_tasks(scope, part));
        }
    }

    /// A session has no task left of those that it was told to abort.
    pub(super) fn tasks_gone(&mut self, token: u64) {
        if let Some((_, gather)) = self.gathers.own.remove(&token) {
            // The requesting session is in use right now: its answer goes through the mailbox.
            return self.shared.shards()[self.number].send(Message::AbortDone { token: gather });
        }
        let Some(Pending { order, .. }) = self.gathers.pending.remove(&token) else { return };
        let Some(entry) = self.gathers.orders.get_mut(&order) else { return };
        entry.missing -= 1;
        if entry.missing == 0
            && let Some(Order { from, token, .. }) = self.gathers.orders.remove(&order)
        {
            self.shared.shards()[from].send(Message::AbortDone { token });
        }
    }

    /// A session has ended, and with it the tasks that it had to abort.
    pub(super) fn forget_orders_of(&mut self, key: SessionKey) {
        let tokens: Vec<u64> =
            self.gathers.pending.iter().filter(|(_, p)| p.session == key).map(|(token, _)| *token).collect();
        for token in tokens {
            self.tasks_gone(token);
        }
        let own: Vec<u64> = self
            .gathers
            .own
            .iter()
            .filter(|(_, (session, _))| *session == key)
            .map(|(token, _)| *token)
            .collect();
        for token in own {
            self.tasks_gone(token);
        }
    }

    /// A shard has answered.
    pub(super) fn abort_done(&mut self, token: u64) {
        let Some(gather) = self.gathers.gathers.get_mut(&token) else { return };
        gather.missing -= 1;
        if gather.missing > 0 {
            return;
        }
        match self.gathers.gathers.remove(&token).map(|gather| gather.then) {
            Some(Then::Manage { session, request, target, nexus }) => {
                self.finish_management(session, request, &target, &nexus);
            }
            Some(Then::Complete { session, task, completion }) => {
                self.with_session(session, |_, entry| entry.session.complete(task, *completion));
            }
            None => {}
        }
    }

    /// All tasks are gone: now the logical units change, and the initiator gets its answer.
    ///
    /// This also happens if the requesting session is gone: the commands of others have been aborted, and they must be
    /// notified.
    //= sam5 7 TSK-04 TMF-06
    fn finish_management(
        &mut self,
        session: SessionKey,
        request: ManagementRequest,
        target: &TargetNode,
        nexus: &Nexus,
    ) {
        let ManagementRequest { id, function, lun } = request;
        let luns = target.luns();
        let unit = lun.to_index().and_then(|number| luns.get(&number)).map(|device| &device.unit.scsi);
        match (function, unit) {
            (TmfFunction::ClearTaskSet, Some(unit)) if !unit.task_aborted_status() => {
                unit.unit_attention(UaScope::AllExcept(nexus.id), Asc::COMMANDS_CLEARED);
            }
            (TmfFunction::LogicalUnitReset, Some(unit)) => unit.logical_unit_reset(),
            (TmfFunction::TargetWarmReset, _) => {
                luns.values().for_each(|device| device.unit.scsi.reset(UaScope::All, Asc::BUS_RESET));
            }
            (TmfFunction::TargetColdReset, _) => {
                luns.values().for_each(|device| device.unit.scsi.reset(UaScope::All, Asc::POWER_ON_OR_RESET));
            }
            _ => {}
        }
        drop(luns);
        self.with_session(session, |_, entry| answer(entry, id));
        if function == TmfFunction::TargetColdReset {
            for shard in self.shared.shards() {
                shard.send(Message::CloseTarget(target.name.clone()));
            }
        }
    }

    /// Closes every session of a target.
    pub(super) fn close_target(&mut self, name: &iscsi_core::names::IscsiName) {
        let concerned: Vec<SessionKey> = self
            .sessions
            .iter()
            .filter(|h| h.target.as_ref().is_some_and(|t| t.name == *name))
            .map(|h| h.key)
            .collect();
        for key in concerned {
            self.end_session(key, CloseReason::Ended, "a host reset the target");
        }
    }
}

fn answer(entry: &mut SessionEntry, id: ManagementId) {
    entry.session.management_done(id, TmfResponse::FunctionComplete);
}
