//! Task management functions that the caller requests: which commands they end, on which connection they travel, and what happens
//! to them when it is lost.

use iscsi_wire::{AsyncEvent, CmdSn, Itt, LogoutResponseCode, Lun, Pdu, TmfFunction, TmfResponse};

use super::{FIRST, Script, params, status};
use crate::initiator::command::Ending;
use crate::initiator::session::Action;
use crate::limits::MAX_INITIATOR_TASKS;
use crate::params::{Params, TaskReporting};

const UNIT: Lun = Lun::from_index(1);

impl Script {
    /// The responses that the caller received for its functions.
    fn responses(&mut self) -> Vec<(u64, Option<TmfResponse>)> {
        self.managed().into_iter().map(|(user, answer)| (user, answer.map(|told| told.response))).collect()
    }

    /// Requests ABORT TASK for the command `of`, as the function `user`.
    fn abort(&mut self, of: u64, user: u64) {
        self.session.manage_task(self.now, TmfFunction::AbortTask, of, user);
    }
}

// covers: TMF-05
#[test]
fn a_function_ends_what_was_sent_before_it_and_leaves_what_was_sent_after() {
    let functions = [
        TmfFunction::AbortTaskSet,
        TmfFunction::ClearTaskSet,
        TmfFunction::LogicalUnitReset,
        TmfFunction::TargetWarmReset,
        TmfFunction::TargetColdReset,
    ];
    for function in functions {
        for n in [1, 3] {
            let mut script = Script::with_connections(n, 0);
            for user in 0..3 {
                script.read(user, 512);
            }
            let before = script.commands();
            script.session.manage(script.now, function, UNIT, 9);
            let asked = script.functions();
            assert_eq!((asked.len(), asked[0].1, asked[0].3), (1, function, Itt::RESERVED));
            script.read(3, 512);
            let (cid, later) = script.commands()[0];
            script.on(asked[0].0).answer(asked[0].2, TmfResponse::FunctionComplete);
            let ended = script.all_ended();
            assert_eq!(ended.len(), before.len(), "{function:?} on {n}: {ended:?}");
            assert!(ended.iter().all(|(user, ending)| *user < 3 && *ending == Ending::Aborted));
            script.on(cid).good(later);
            assert_eq!(script.ended(), (3, status(0, 0)), "{function:?} on {n}");
            assert_eq!(script.responses(), [(9, Some(TmfResponse::FunctionComplete))]);
        }
    }
}

#[test]
fn the_commands_that_a_function_has_ended_are_told_before_its_answer_and_that_before_the_end_of_the_session()
{
    for function in [TmfFunction::AbortTask, TmfFunction::LogicalUnitReset, TmfFunction::ITNexusReset] {
        let mut script = Script::new(Params { protocol_level: 2, ..params() });
        script.read(1, 512);
        script.command();
        match function {
            TmfFunction::AbortTask => script.abort(1, 9),
            _ => script.session.manage(script.now, function, UNIT, 9),
        }
        let (_, tag, ..) = script.function();
        script.answer(tag, TmfResponse::FunctionComplete);
        script.sent_nothing();
        let what = script.said.iter().filter_map(|action| match action {
            Action::Completed(_) => Some("command"),
            Action::Managed { .. } => Some("function"),
            Action::Close { .. } => Some("session"),
            _ => None,
        });
        let ends = if function == TmfFunction::ITNexusReset { 3 } else { 2 };
        assert_eq!(what.collect::<Vec<_>>(), ["command", "function", "session"][..ends], "{function:?}");
    }
}

// The caller receives one answer and requests the next function before it can know that the session is over.
#[test]
fn what_is_asked_for_while_a_session_ends_is_answered_before_its_end() {
    let mut script = Script::new(Params { protocol_level: 2, ..params() });
    script.session.manage(script.now, TmfFunction::ITNexusReset, UNIT, 9);
    let (_, tag, ..) = script.function();
    script.answer(tag, TmfResponse::FunctionComplete);
    // A command that does not exist, and one that was never sent.
    script.session.manage_task(script.now, TmfFunction::QueryTask, 7, 10);
    script.abort(8, 11);
    script.closed();
    let answers = [
        (9, TmfResponse::FunctionComplete),
        (10, TmfResponse::FunctionComplete),
        (11, TmfResponse::TaskDoesNotExist),
    ];
    assert_eq!(script.responses(), answers.map(|(user, response)| (user, Some(response))));
    assert!(script.session.poll_action().is_none(), "nothing follows the end");
}

#[test]
fn a_function_that_fails_ends_nothing() {
    for response in [
        TmfResponse::LunDoesNotExist,
        TmfResponse::FunctionNotSupported,
        TmfResponse::FunctionAuthorizationFailed,
        TmfResponse::FunctionRejected,
    ] {
        let mut script = Script::new(params());
        script.read(1, 512);
        let (itt, _) = script.command();
        script.session.manage(script.now, TmfFunction::ClearTaskSet, UNIT, 9);
        let (_, tag, ..) = script.function();
        script.answer(tag, response);
        assert!(script.all_ended().is_empty());
        assert_eq!(script.responses(), [(9, Some(response))]);
        script.good(itt);
        assert_eq!(script.ended(), (1, status(0, 0)));
    }
}

// covers: FAB-01
#[test]
fn what_is_sent_after_a_function_goes_on_when_the_target_stops_the_rest() {
    for received in [false, true] {
        let mut script = Script::new(Params { task_reporting: TaskReporting::FastAbort, ..params() });
        script.read(1, 512);
        script.command();
        script.session.manage(script.now, TmfFunction::LogicalUnitReset, UNIT, 9);
        let (_, tag, ..) = script.function();
        script.write(2, 16384);
        let sent = script.sent();
        let Pdu::ScsiCommand(later) = &sent[0].0 else { panic!("{:?}", sent[0].0) };
        if received {
            script.acknowledge_all(2);
        }
        script.event(AsyncEvent::TaskTermination, [0; 3], &[]);
        assert_eq!(script.sent().len(), 1, "the acknowledgement");
        let r2t = script.r2t(later.itt, 0, 8192, 8192);
        script.receive(r2t.to_bhs(), &[]);
        assert!(!script.sent().is_empty(), "its data are wanted");
        script.answer(tag, TmfResponse::FunctionComplete);
        assert_eq!(script.ended(), (1, Ending::Aborted));
        script.good(later.itt);
        assert_eq!(script.ended(), (2, status(0, 0)));
    }
}

// covers: TMF-04 MCS-02
#[test]
fn an_abort_travels_with_its_command_whichever_connection_that_is() {
    let mut script = Script::with_connections(3, 0);
    let commands = script.reads_on_all(3, 1);
    for (user, (cid, itt)) in commands.into_iter().enumerate() {
        let user = user as u64;
        script.abort(user, 10 + user);
        match &script.sent_on()[..] {
            [(on, Pdu::TaskManagementRequest(request))] => {
                assert_eq!((*on, request.referenced_task_tag), (cid, itt));
                assert_eq!(request.ref_cmd_sn, CmdSn(FIRST).add(user as u32));
                let tag = request.itt;
                script.on(cid).answer(tag, TmfResponse::FunctionComplete);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(script.ended(), (user, Ending::Aborted));
        assert_eq!(script.responses(), [(10 + user, Some(TmfResponse::FunctionComplete))]);
    }
}

#[test]
fn a_command_that_was_never_sent_or_has_ended_is_not_asked_for() {
    let mut script = Script::with_window(params(), 1);
    script.read(1, 512);
    let (itt, _) = script.command();
    script.read(2, 512);
    script.read(3, 512);
    script.abort(2, 10);
    assert_eq!(script.ended(), (2, Ending::Aborted));
    script.good(itt);
    assert_eq!(script.ended(), (1, status(0, 0)));
    script.abort(1, 11);
    script.session.manage_task(script.now, TmfFunction::QueryTask, 1, 12);
    script.sent_nothing();
    let told = [
        (10, Some(TmfResponse::FunctionComplete)),
        (11, Some(TmfResponse::TaskDoesNotExist)),
        (12, Some(TmfResponse::FunctionComplete)),
    ];
    assert_eq!(script.responses(), told);
    script.max_cmd_sn = CmdSn(FIRST).add(1);
    let ping = script.nop_in(Itt::RESERVED, iscsi_wire::Ttt::RESERVED, Lun(0));
    script.receive(ping.to_bhs(), &[]);
    script.command();
    assert_eq!(script.session.outstanding(), 1, "the third one is under way");
}

#[test]
fn functions_and_their_callers_must_fit() {
    let mut script = Script::new(params());
    script.read(1, 512);
    script.command();
    script.session.manage(script.now, TmfFunction::AbortTask, UNIT, 10);
    script.session.manage_task(script.now, TmfFunction::TaskReassign, 1, 11);
    script.session.manage_task(script.now, TmfFunction::LogicalUnitReset, 1, 12);
    script.sent_nothing();
    assert_eq!(script.responses(), [(10, None), (11, None), (12, None)]);
}

// covers: TMF-03
#[test]
fn a_task_that_does_not_exist_has_ended_unless_its_status_is_on_its_way() {
    let mut script = Script::new(params());
    script.read(1, 512);
    script.command();
    script.abort(1, 10);
    let (_, tag, ..) = script.function();
    script.answer(tag, TmfResponse::TaskDoesNotExist);
    assert_eq!(script.ended(), (1, Ending::Aborted));

    let mut script = Script::with_connections(1, 1);
    script.read(1, 512);
    let (itt, _) = script.command();
    script.abort(1, 10);
    let (_, tag, ..) = script.function();
    let lost = script.response(itt);
    script.answer(tag, TmfResponse::TaskDoesNotExist);
    assert!(script.all_ended().is_empty());
    assert_eq!(script.responses(), [(10, Some(TmfResponse::TaskDoesNotExist))]);
    script.receive(lost.to_bhs(), &[]);
    assert_eq!(script.ended(), (1, status(0, 0)), "what the target said of it counts");
}

// covers: ERL-09
#[test]
fn an_abort_of_a_command_whose_connection_is_lost_is_asked_for_where_it_goes_on() {
    // Requested before or after the connection is lost.
    for early in [true, false] {
        let mut script = Script::with_connections(2, 2);
        let commands = script.reads_on_all(2, 1);
        script.acknowledge_all(2);
        let (lost, itt) = commands[0];
        let alive = commands[1].0;
        if early {
            script.abort(0, 10);
            assert_eq!(script.functions().len(), 1);
        }
        script.session.connection_lost(script.now, lost);
        let (via, _, _, logout) = script.logout_of();
        if !early {
            script.abort(0, 10);
            script.sent_nothing();
        }
        script.on(via).answer_logout(logout, LogoutResponseCode::Success, 0);
        let asked = script.functions();
        assert_eq!((asked.len(), asked[0].1, asked[0].3), (1, TmfFunction::TaskReassign, itt));
        assert!(script.responses().is_empty(), "the abort waits");
        script.on(alive).answer(asked[0].2, TmfResponse::FunctionComplete);
        let asked = script.functions();
        assert_eq!((asked.len(), asked[0].0, asked[0].1), (1, alive, TmfFunction::AbortTask));
        assert_eq!(asked[0].3, itt);
        script.answer(asked[0].2, TmfResponse::FunctionComplete);
        assert_eq!(script.ended(), (0, Ending::Aborted), "early: {early}");
        assert_eq!(script.responses(), [(10, Some(TmfResponse::FunctionComplete))]);
    }
}

// covers: TMF-01 ERL-09
#[test]
fn an_abort_of_a_command_that_dies_with_its_connection_keeps_it_from_being_begun_anew() {
    let mut script = Script::with_connections(2, 0);
    let commands = script.reads_on_all(2, 1);
    script.acknowledge_all(2);
    script.session.connection_lost(script.now, commands[0].0);
    let (via, _, _, logout) = script.logout_of();
    script.abort(0, 10);
    script.on(via).answer_logout(logout, LogoutResponseCode::Success, 0);
    assert_eq!(script.ended(), (0, Ending::Aborted));
    assert_eq!(script.responses(), [(10, Some(TmfResponse::FunctionComplete))]);
    assert_eq!(script.session.outstanding(), 1);
}

// covers: ERL-09
#[test]
fn functions_that_are_lost_when_no_more_may_wait_get_no_answer() {
    let mut script = Script::with_connections(3, 2);
    let commands = script.reads_on_all(3, 1);
    script.acknowledge_all(3);
    script.session.connection_lost(script.now, commands[0].0);
    script.logout_of();
    let waiting = MAX_INITIATOR_TASKS as u64;
    for user in 0..waiting {
        script.abort(0, user);
    }
    script.abort(0, waiting);
    script.sent_nothing();
    assert_eq!(script.responses(), [(waiting, Some(TmfResponse::FunctionRejected))]);
    script.abort(1, waiting + 1);
    assert_eq!(script.functions().len(), 1);
    script.session.connection_lost(script.now, commands[1].0);
    script.sent_on();
    assert_eq!(script.responses(), [(waiting + 1, None)]);
    assert_eq!(script.session.unanswered().len() as u64, waiting);
}

#[test]
fn a_session_that_is_over_names_the_functions_without_an_answer() {
    let mut script = Script::with_connections(2, 2);
    let commands = script.reads_on_all(2, 1);
    script.session.connection_lost(script.now, commands[0].0);
    script.logout_of();
    script.abort(0, 10);
    script.session.manage(script.now, TmfFunction::LogicalUnitReset, UNIT, 11);
    script.functions();
    script.session.lost();
    let mut unanswered = script.session.unanswered();
    unanswered.sort_unstable();
    assert_eq!(unanswered, [10, 11]);
    assert_eq!(script.session.unfinished().len(), 2);
}

// covers: TMF-05 NUM-01
#[test]
fn a_refused_function_is_sent_again_and_then_concerns_what_was_sent_meanwhile() {
    let mut script = Script::new(params());
    script.session.manage(script.now, TmfFunction::LogicalUnitReset, UNIT, 9);
    let refused = script.sent_one().1.bhs;
    script.read(1, 512);
    script.command();
    script.reject(iscsi_wire::RejectReason::TooManyImmediateCommands, refused.as_bytes());
    match script.sent_one().0 {
        Pdu::TaskManagementRequest(again) => {
            assert_eq!(again.cmd_sn, CmdSn(FIRST).add(1));
            script.answer(again.itt, TmfResponse::FunctionComplete);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(script.ended(), (1, Ending::Aborted));
}
