//! FastAbort, and the task management functions of iSCSIProtocolLevel 2.

use iscsi_wire::{AsyncEvent, Cid, Lun, Pdu, TaskManagementResponse, TmfFunction, TmfResponse};

use super::{Script, params};
use crate::initiator::command::Ending;
use crate::initiator::session::{Action, CloseReason, Event, ManagementAnswer};
use crate::params::{Bursts, Params, TaskReporting};

fn fast_abort() -> Params {
    Params {
        task_reporting: TaskReporting::FastAbort,
        bursts: Bursts { initial_r2t: true, immediate_data: false, ..params().bursts },
        ..params()
    }
}

fn level_2() -> Params {
    Params { protocol_level: 2, ..params() }
}

impl Script {
    /// The answers to the caller's functions.
    pub(super) fn managed(&mut self) -> Vec<(u64, Option<ManagementAnswer>)> {
        let mut managed = Vec::new();
        self.said.retain(|action| match action {
            Action::Managed { user, answer } => {
                managed.push((*user, *answer));
                false
            }
            _ => true,
        });
        managed
    }

    /// The acknowledgement of a termination is sent now, and no other PDU.
    fn acknowledges_termination_of(&mut self, lun: Lun) {
        match self.sent_one().0 {
            Pdu::NopOut(nop) => {
                assert!(nop.itt.is_reserved() && nop.ttt.is_reserved() && nop.immediate);
                assert_eq!((nop.lun, nop.exp_stat_sn), (lun, self.stat_sn));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn fab_01_terminated_tasks_send_no_more_data_and_the_target_hears_it() {
    let lun = Lun::from_index(1);
    let mut script = Script::new(fast_abort());
    script.write(1, 8192);
    let (itt, _) = script.command();
    script.session.manage(script.now, TmfFunction::LogicalUnitReset, lun, 5);
    let (_, function, ..) = script.function();
    script.acknowledge_all(1);
    script.event(AsyncEvent::TaskTermination, [0; 3], &[]);
    script.acknowledges_termination_of(lun);
    // An R2T that was on its way is not answered.
    let r2t = script.r2t(itt, 0, 0, 4096);
    script.receive(r2t.to_bhs(), &[]);
    script.sent_nothing();
    assert!(script.take_ended().is_empty(), "the answer to our own function ends it");
    script.answer(function, TmfResponse::FunctionComplete);
    assert_eq!(script.ended(), (1, Ending::Aborted));
    assert_eq!(script.managed().len(), 1);
    // PDUs that arrive late are no violation.
    let r2t = script.r2t(itt, 1, 4096, 4096);
    script.receive(r2t.to_bhs(), &[]);
    script.sent_nothing();
    assert!(!script.session.is_closed());
}

// covers: FAB-01
#[test]
fn tasks_that_somebody_else_aborts_end_when_it_is_told() {
    let mut script = Script::new(fast_abort());
    script.write(1, 8192);
    script.command();
    let mut other = crate::initiator::Command::new(Lun::from_index(2), &[0; 6]);
    other.user = 2;
    script.session.submit(script.now, other).unwrap();
    script.command();
    // Never received, so not one of the tasks that end: its number must arrive, or nothing behind it ever will.
    script.read(3, 512);
    script.command();
    script.acknowledge_all(2);
    script.event(AsyncEvent::TaskTermination, [0; 3], &[]);
    script.acknowledges_termination_of(Lun::from_index(1));
    assert_eq!(script.ended(), (1, Ending::Aborted), "those of the other unit go on");
    assert!(matches!(script.said.pop(), Some(Action::Event(Event::TasksTerminated(_)))));
    assert_eq!(script.session.outstanding(), 2);
}

// covers: FAB-03
#[test]
fn a_termination_that_was_not_agreed_on_means_nothing() {
    let mut script = Script::new(params());
    script.read(1, 512);
    script.command();
    script.event(AsyncEvent::TaskTermination, [0; 3], &[]);
    assert!(script.all_ended().is_empty());
    assert_eq!(script.session.outstanding(), 1);
}

#[test]
fn p2_02_functions_of_level_2_are_asked_only_there() {
    let mut script = Script::new(params());
    for function in [TmfFunction::QueryTaskSet, TmfFunction::QueryAsyncEvent, TmfFunction::ITNexusReset] {
        script.session.manage(script.now, function, Lun(0), 3);
        script.sent_nothing();
        assert_eq!(script.managed(), [(3, None)]);
    }
    let mut script = Script::new(level_2());
    script.session.manage(script.now, TmfFunction::QueryAsyncEvent, Lun::from_index(1), 4);
    let (function, itt, ..) = script.function();
    assert_eq!(function, TmfFunction::QueryAsyncEvent);
    let pdu = TaskManagementResponse {
        response: TmfResponse::FunctionSucceeded,
        itt,
        numbers: script.take_numbers(),
        additional: [6, 0x29, 0],
    };
    script.receive(pdu.to_bhs(), &[]);
    script.sent_nothing();
    let answer = ManagementAnswer { response: TmfResponse::FunctionSucceeded, additional: [6, 0x29, 0] };
    assert_eq!(script.managed(), [(4, Some(answer))]);
}

// covers: TMF-04
#[test]
fn p2_03_a_query_of_a_task_names_it_and_goes_on_its_connection() {
    let mut script = Script::with_connections_and(3, Params { max_connections: 3, ..level_2() });
    for user in 0..3 {
        script.read(user, 512);
    }
    let commands = script.commands();
    for (user, (cid, itt)) in commands.iter().enumerate() {
        script.session.manage_task(script.now, TmfFunction::QueryTask, user as u64, 100);
        match &script.sent_on()[..] {
            [(on, Pdu::TaskManagementRequest(request))] => {
                assert_eq!((*on, request.referenced_task_tag), (*cid, *itt));
                assert_eq!(request.function, TmfFunction::QueryTask);
                let tag = request.itt;
                script.on(*cid).answer(tag, TmfResponse::FunctionSucceeded);
            }
            other => panic!("{other:?}"),
        }
        script.sent_nothing();
        assert_eq!(script.managed().len(), 1);
        assert!(script.take_ended().is_empty(), "asking changes nothing");
    }
    script.session.manage_task(script.now, TmfFunction::QueryTask, 77, 100);
    script.sent_nothing();
    let none = ManagementAnswer { response: TmfResponse::FunctionComplete, additional: [0; 3] };
    assert_eq!(script.managed(), [(100, Some(none))], "there is no such command");
}

#[test]
fn p2_05_a_nexus_reset_ends_everything_with_and_without_its_answer() {
    for answered in [true, false] {
        let mut script = Script::with_connections_and(
            2,
            Params { error_recovery_level: 2, max_connections: 2, ..level_2() },
        );
        for user in 0..4 {
            script.read(user, 512);
        }
        script.commands();
        script.session.manage(script.now, TmfFunction::ITNexusReset, Lun(0), 8);
        let (cid, itt) = match &script.sent_on()[..] {
            [(cid, Pdu::TaskManagementRequest(request))] => (*cid, request.itt),
            other => panic!("{other:?}"),
        };
        if answered {
            script.on(cid).answer(itt, TmfResponse::FunctionComplete);
        } else {
            // The target drops every connection at once; its answer may be lost with them.
            script.session.connection_lost(script.now, Cid(1));
        }
        assert_eq!(script.closed().0, CloseReason::NexusReset);
        let managed = script.managed();
        assert_eq!(managed.len(), 1);
        assert_eq!(managed[0].1.is_some(), answered);
        let ended = script.take_ended();
        assert!(ended.len() == 4 && ended.iter().all(|(_, ending)| *ending == Ending::Aborted));
        assert!(script.session.unfinished().is_empty(), "nothing of it is begun anew");
    }
}

// covers: TMF-01
#[test]
fn an_abort_that_the_caller_wants_ends_its_task() {
    let mut script = Script::new(params());
    script.write(1, 512);
    let (itt, cmd_sn) = script.command();
    script.session.manage_task(script.now, TmfFunction::AbortTask, 1, 6);
    let (function, tag, referenced, ref_cmd_sn) = script.function();
    assert_eq!((function, referenced, ref_cmd_sn), (TmfFunction::AbortTask, itt, cmd_sn));
    script.answer(tag, TmfResponse::FunctionComplete);
    assert_eq!(script.ended(), (1, Ending::Aborted));
}
