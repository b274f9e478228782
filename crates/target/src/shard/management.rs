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
use scsi::{Asc, Nexus, NexusId, UaScope};

use super::Shard;
use super::gathers::{Gone, Then};
use super::message::{AbortOrder, Message};
use super::sessions::SessionEntry;
use super::slots::SessionKey;
use crate::registry::TargetNode;

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
        let reaches_others = request.function != TmfFunction::AbortTaskSet;
        let shards = if reaches_others { self.shared.shards().len() } else { 0 };
        let then = Then::Manage {
            session: entry.key,
            request,
            target: Arc::clone(&target),
            nexus: entry.nexus.clone(),
        };
        let gather = self.gathers.wait(1 + shards, then);
        let own_token = self.gathers.wait_for_own(entry.key, gather);
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
        let then = Then::Complete { session: entry.key, task, completion: Box::new(completion) };
        let gather = self.gathers.wait(self.shared.shards().len(), then);
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
        let scope = AbortScope {
            lun: order.lun.map(Lun::from_index),
            request: None,
            task_aborted_status: order.task_aborted_status,
        };
        let parts = self.gathers.take_order(from, token, &concerned);
        for (session, part) in concerned.into_iter().zip(parts) {
            self.with_session(session, |_, entry| entry.session.abort_tasks(scope, part));
        }
    }

    /// A session has no task left of those that it was told to abort.
    pub(super) fn tasks_gone(&mut self, token: u64) {
        match self.gathers.tasks_gone(token) {
            // The requesting session is in use right now: its answer goes through the mailbox.
            Some(Gone::Own(token)) => {
                self.shared.shards()[self.number].send(Message::AbortDone { token });
            }
            Some(Gone::Order { from, token }) => {
                self.shared.shards()[from].send(Message::AbortDone { token })
            }
            None => {}
        }
    }

    /// A session has ended, and with it the tasks that it had to abort.
    pub(super) fn forget_orders_of(&mut self, key: SessionKey) {
        for token in self.gathers.tokens_of(key) {
            self.tasks_gone(token);
        }
    }

    /// A shard has answered.
    pub(super) fn abort_done(&mut self, token: u64) {
        match self.gathers.answered(token) {
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
