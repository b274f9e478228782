//! Tasks whose connection is gone: they are orphans until TASK REASSIGN gives them another connection, or until they die
//! (RFC 7143 7.1.4.4, 7.2.2, 7.6, 7.14, 11.5).

use iscsi_wire::{Cid, Itt, Lun, TaskManagementRequest, TmfResponse};
use smallvec::SmallVec;

use super::super::aborts::AbortWait;
use super::super::fence::Answer;
use super::super::sense::{CHECK_CONDITION, Condition};
use super::super::session::{Queued, TargetSession};
use super::super::task::{Task, TaskId};
use super::retained::{Outcome, Report};
use crate::limits::MAX_REMEMBERED_REQUESTS;
use crate::params;

impl TargetSession {
    /// Forgets the requests of a connection that is gone, except SCSI commands, and returns their tags.
    //= rfc7143 7.14 ERL-09
    pub(in super::super) fn forget_requests_of(&mut self, cid: Cid) -> Vec<Itt> {
        let mut tags = Vec::new();
        let mut note = |itt: Itt| {
            if !itt.is_reserved() && tags.len() < MAX_REMEMBERED_REQUESTS {
                tags.push(itt);
            }
        };
        let removed = self.window.remove_held(|queued| match queued {
            Queued::Command(_) => false,
            Queued::Management(c, _)
            | Queued::NopOut(c, _, _)
            | Queued::Text(c, _, _)
            | Queued::Logout(c, _) => *c == cid,
        });
        for queued in removed {
            match queued {
                Queued::Management(_, request) => note(request.itt),
                Queued::Text(_, request, _) => note(request.itt),
                Queued::Logout(_, request) => note(request.itt),
                Queued::Command(_) | Queued::NopOut(..) => {}
            }
        }
        self.aborts.forget_requests_of(cid, &mut note);
        if let Some(text) = self.connection(cid).and_then(|c| c.text.as_ref()) {
            note(text.itt());
        }
        tags
    }

    /// The connection is gone and its tasks stay: their transfers stop, and lost data will be requested again.
    //= rfc7143 7.2.2 ERL-05
    pub(in super::super) fn orphan_tasks(&mut self, cid: Cid) {
        let concerned: SmallVec<[TaskId; 16]> =
            self.tasks.iter().filter(|(_, task)| task.home() == Some(cid)).map(|(id, _)| id).collect();
        // Marks all of them first, so that nothing is sent on the connection for one while another is handled.
        for id in &concerned {
            let Some(task) = self.tasks.get_mut(*id) else { continue };
            task.orphan = true;
            let owed: SmallVec<[(u32, u32); 4]> = task
                .sequences
                .drain(..)
                .filter(|s| s.next_offset < s.end)
                .map(|s| (s.next_offset, s.end))
                .collect();
            if task.ending.is_none() && !owed.is_empty() {
                task.repair().holes.extend(owed);
            }
        }
        self.writes.withdraw(&concerned);
        let mut nobody = AbortWait::nobody();
        for id in concerned {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            let bytes = std::mem::take(&mut task.share.budget);
            //= rfc7143 7.14 ERL-09
            if task.immediate() {
                let lun = task.lun();
                self.note_cleared(lun);
                self.abort(id, &mut nobody);
            } else {
                self.end_if_settled(id);
            }
            self.release_budget(bytes);
        }
        self.fences.retain_commands(|outcome| {
            outcome.orphan |= outcome.cid == cid;
            outcome.cid != cid || !outcome.immediate
        });
        self.drop_drains_of(cid);
        self.ask_again_for_data_on(cid);
        self.look_for_due_data();
    }

    /// With halves the data of a write travels on another connection than the rest of it. The data that was on its way on the
    /// connection `cid`, which is gone, is requested again at once. What an R2T brings on another one meanwhile is discarded.
    fn ask_again_for_data_on(&mut self, cid: Cid) {
        if !self.params.asymmetric.has_halves() || params::carries_data(cid) {
            return;
        }
        let stands = |cid: Cid| self.connections.iter().any(|c| c.cid == cid && !c.closing);
        let waits = |task: &Task| {
            task.expects_data() && !task.orphan && (task.came_on == cid || !stands(task.came_on))
        };
        let ids: SmallVec<[TaskId; 8]> =
            self.tasks.iter().filter(|(_, task)| waits(task)).map(|(id, _)| id).collect();
        for id in ids {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            let (failed, owed) = (task.ending.is_some(), std::mem::take(&mut task.sequences));
            let repair = task.repair();
            repair.stale.extend(owed.iter().map(|s| s.ttt).filter(|ttt| !ttt.is_reserved()));
            if !failed {
                let missing = owed.iter().filter(|s| s.next_offset < s.end);
                repair.holes.extend(missing.map(|s| (s.next_offset, s.end)));
            }
            self.after_data(id);
        }
    }

    /// Whether a command whose connection is gone may be reassigned.
    pub(in super::super) fn may_be_orphaned(&self, outcome: &Outcome) -> bool {
        !outcome.immediate && self.lost.iter().any(|lost| lost.cid == outcome.cid)
    }

    /// Aborts the orphans of a lost connection.
    //= rfc7143 7.6 ERL-08
    //= rfc7143 11.14.5 LGO-04
    pub(in super::super) fn kill_orphans(&mut self, cid: Cid) {
        let of_it = |task: &Task| task.orphan && task.cid == cid;
        let doomed = self.tasks.iter().filter(|(_, task)| of_it(task)).map(|(id, task)| (id, task.lun()));
        let (doomed, mut luns): (SmallVec<[TaskId; 16]>, SmallVec<[Lun; 16]>) = doomed.unzip();
        // Including those whose response waits for a fence.
        self.fences.retain_commands(|outcome| {
            let dies = outcome.orphan && outcome.cid == cid;
            if dies {
                luns.push(outcome.lun);
            }
            !dies
        });
        self.recovery_counts.tasks_expired += luns.len() as u64;
        luns.into_iter().for_each(|lun| self.note_cleared(lun));
        self.abort_each(doomed, &mut AbortWait::nobody());
        self.release_orphans(cid);
    }

    /// The initiator closes a connection that is already lost: its tasks die now. False when no such connection is known.
    pub(in super::super) fn forget_lost(&mut self, cid: Cid) -> bool {
        let Some(position) = self.lost.iter().position(|lost| lost.cid == cid) else { return false };
        self.lost.remove(position);
        self.kill_orphans(cid);
        true
    }

    /// Moves a task to the connection that requests it, if its own is gone and logged out.
    //= rfc7143 7.2.2 ERL-06 ERL-07 ERL-10
    pub(in super::super) fn reassign(&mut self, cid: Cid, request: &TaskManagementRequest) {
        let referenced = request.referenced_task_tag;
        let response = self.judge_reassignment(cid, request);
        // The answer precedes the effect of the reassignment (RFC 7143 7.2.2).
        self.answer_now(&Answer::new(cid, request.itt, response));
        if response != TmfResponse::FunctionComplete {
            return;
        }
        self.recovery_counts.tasks_reassigned += 1;
        if let Some(id) = self.tasks.find(referenced) {
            return self.resume(cid, id, request.exp_data_sn.0);
        }
        let exp_data_sn = request.exp_data_sn.0;
        if let Some(outcome) = self.fences.command_mut(referenced) {
            (outcome.cid, outcome.orphan) = (cid, false);
            return;
        }
        self.send_outcome_again(cid, referenced, exp_data_sn);
    }

    fn judge_reassignment(&self, cid: Cid, request: &TaskManagementRequest) -> TmfResponse {
        let referenced = request.referenced_task_tag;
        if !self.params.level().recovers_connections() {
            return TmfResponse::TaskReassignNotSupported;
        }
        let is_request = referenced == request.itt
            || self.is_management(referenced)
            || self.connections.iter().any(|c| c.text.as_ref().is_some_and(|text| text.itt() == referenced))
            || self.lost.iter().any(|lost| lost.requests.contains(&referenced));
        if is_request || !request.immediate {
            return TmfResponse::FunctionRejected;
        }
        let task = self.tasks.tagged(referenced);
        let held = self.fences.command(referenced).map(|outcome| (outcome.cid, outcome.orphan));
        let ended = self.retained.get(referenced).map(|outcome| (outcome.cid, outcome.orphan));
        let Some((of, orphan)) = task.map(|task| (task.cid, task.orphan)).or(held).or(ended) else {
            return TmfResponse::TaskDoesNotExist;
        };
        let logged_out = self.lost.iter().any(|lost| lost.cid == of && lost.logged_out);
        if !orphan || !logged_out || self.connections.iter().any(|c| c.cid == cid && c.closing) {
            return TmfResponse::TaskStillAllegiant;
        }
        TmfResponse::FunctionComplete
    }

    /// Continues a command that has not completed.
    fn resume(&mut self, cid: Cid, id: TaskId, exp_data_sn: u32) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        (task.cid, task.came_on, task.orphan) = (cid, cid, false);
        // R2Ts that the initiator never received leave no gap in the R2TSNs.
        if (1..=task.next_data_sn).contains(&exp_data_sn) {
            task.next_data_sn = exp_data_sn;
        }
        task.progress = self.now;
        self.collect(id);
    }

    /// Reports again how a command ended, and sends the data that the initiator has not received.
    fn send_outcome_again(&mut self, cid: Cid, itt: Itt, exp_data_sn: u32) {
        let Some(mut outcome) = self.retained.take(itt) else { return };
        let Some(connection) = self.connection(cid) else { return };
        let max_pdu = connection.params.max_send_data_segment_length;
        (outcome.cid, outcome.orphan, outcome.report.snack_tag) = (cid, false, 0);
        if outcome.is_evicted() {
            let Report { status_qualifier, stat_sn, .. } = outcome.report;
            let (status, sense) = (CHECK_CONDITION, Condition::SnackRejected.sense());
            outcome.report = Report { status, sense, status_qualifier, stat_sn, ..Report::default() };
            // No data is left to send.
            outcome.plan.acked_offset = outcome.plan.total;
        } else {
            let plan = &mut outcome.plan;
            // Any other value must be ignored (RFC 7143 11.5.6).
            if exp_data_sn > plan.acked_sn && exp_data_sn <= plan.next_sn {
                plan.acked_offset = plan.offset_of(exp_data_sn);
                plan.acked_sn = exp_data_sn;
            }
            plan.restart(max_pdu);
        }
        self.deliver(&mut outcome);
        self.retained.put_back(outcome);
    }
}
