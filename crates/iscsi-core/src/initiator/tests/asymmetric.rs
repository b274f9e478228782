//! Asymmetric use: commands on the connections with even CIDs, their data and status on the others.

use iscsi_wire::{Cid, Itt, LogoutReason, LogoutResponseCode, Lun, Pdu, TmfFunction, TmfResponse};

use super::super::scheduling::Turns;
use super::{Script, pattern, several, status};
use crate::initiator::command::Ending;
use crate::initiator::session::{CloseReason, Scheduling};
use crate::params::{Asymmetric, Bursts, Params};

// covers: MCS-02
#[test]
fn in_asymmetric_use_commands_and_their_data_take_different_connections() {
    let asymmetric = Params {
        asymmetric: Asymmetric::Pairs,
        max_connections: 2,
        bursts: Bursts { initial_r2t: false, ..several().bursts },
        ..several()
    };
    let mut script = Script::with_connections_and(1, asymmetric.clone());
    script.write(1, 8192);
    script.sent_nothing();
    script.join(1);
    match &script.sent_on()[..] {
        [(Cid(0), Pdu::ScsiCommand(command))] => {
            assert!(command.final_bit, "no data go unasked beside the command");
            let r2t = script.r2t(command.itt, 0, 4096, 4096);
            script.on(Cid(1)).receive(r2t.to_bhs(), &[]);
            assert!(
                script.sent_on().iter().all(|(cid, pdu)| *cid == Cid(1) && matches!(pdu, Pdu::DataOut(_)))
            );
            script.good(command.itt);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(script.ended(), (1, status(0, 0)));
    script.read(2, 512);
    let (cid, itt) = script.commands()[0];
    assert_eq!(cid, Cid(0));
    script.on(Cid(0)).good(itt);
    assert_eq!(script.ended(), (2, status(0, 0)), "what comes with its command is taken too");
}

/// Each half has its direction: data goes where the command went, or to another of that half once that is gone.
// covers: MCS-02, ERL-06
#[test]
fn with_halves_data_goes_out_on_the_half_of_the_commands() {
    let halves = Params {
        asymmetric: Asymmetric::Halves,
        max_connections: 4,
        error_recovery_level: 2,
        bursts: Bursts { initial_r2t: false, immediate_data: false, ..several().bursts },
        ..several()
    };
    let mut script = Script::with_connections_and(4, halves);
    script.session.config.scheduling = Scheduling::RoundRobin;
    script.write(1, 8192);
    script.write(2, 8192);
    let commands = script.commands();
    let [(first, itt), (second, other)] = commands[..] else { panic!("{commands:?}") };
    assert_eq!((first, second), (Cid(0), Cid(2)));
    script.acknowledge_all(1);
    for (itt, asked, home) in [(itt, Cid(3), Cid(0)), (other, Cid(1), Cid(2))] {
        let r2t = script.r2t(itt, 0, 0, 4096);
        script.on(asked).receive(r2t.to_bhs(), &[]);
        let sent = script.sent_on();
        assert!(!sent.is_empty());
        assert!(sent.iter().all(|(cid, pdu)| *cid == home && matches!(pdu, Pdu::DataOut(_))), "{sent:?}");
    }
    script.session.connection_lost(script.now, Cid(0));
    script.sent_on();
    let r2t = script.r2t(itt, 1, 0, 4096);
    script.on(Cid(3)).receive(r2t.to_bhs(), &[]);
    let sent = script.sent_on();
    assert!(!sent.is_empty());
    assert!(sent.iter().all(|(cid, pdu)| *cid == Cid(2) && matches!(pdu, Pdu::DataOut(_))), "{sent:?}");
}

/// A session in asymmetric use at level 2 with `n` connections.
fn asymmetric(n: u16) -> Script {
    let params = Params {
        asymmetric: Asymmetric::Pairs,
        max_connections: n,
        error_recovery_level: 2,
        bursts: Bursts { initial_r2t: false, ..several().bursts },
        ..several()
    };
    Script::with_connections_and(n, params)
}

/// With no connection left for data, all there is to do is wait for one: no timer is due before.
// covers: ERL-06
#[test]
fn in_asymmetric_use_tasks_wait_for_a_data_connection() {
    let mut script = asymmetric(2);
    script.read(1, 512);
    let (_, itt) = script.commands()[0];
    script.acknowledge_all(1);
    script.session.connection_lost(script.now, Cid(1));
    let (via, _, _, logout) = script.logout_of();
    script.on(via).answer_logout(logout, LogoutResponseCode::Success, 0);
    script.sent_nothing();
    assert!(script.session.poll_timeout().is_none_or(|at| at > script.now));
    script.join(1);
    let asked = script.functions();
    assert_eq!(
        asked.iter().map(|f| (f.0, f.1, f.3)).collect::<Vec<_>>(),
        [(Cid(1), TmfFunction::TaskReassign, itt)]
    );
}

// covers: ERL-06
#[test]
fn in_asymmetric_use_a_lost_data_connection_takes_what_may_have_been_on_it() {
    let mut script = asymmetric(4);
    for user in 0..3 {
        script.read(user, 8192);
    }
    let commands = script.commands();
    assert!(commands.iter().all(|(cid, _)| cid.0 % 2 == 0));
    script.acknowledge_all(3);
    // The first is known to be on 1, the second on 3; nothing has arrived for the third.
    for (place, cid) in [(0, Cid(1)), (1, Cid(3))] {
        let data = script.data_in(commands[place].1, 0, 0);
        script.on(cid).receive(data.to_bhs(), &pattern(4096));
    }
    script.sent_nothing();
    script.session.connection_lost(script.now, Cid(1));
    let (via, reason, of, logout) = script.logout_of();
    assert_eq!((reason, of), (LogoutReason::RemoveConnectionForRecovery, Cid(1)));
    script.on(via).answer_logout(logout, LogoutResponseCode::Success, 0);
    let asked = script.functions();
    let of: Vec<Itt> = asked.iter().map(|function| function.3).collect();
    assert_eq!(of, [commands[0].1, commands[2].1], "the second is elsewhere");
    assert!(asked.iter().all(|f| f.0 == Cid(3) && f.1 == TmfFunction::TaskReassign), "{asked:?}");
    assert_eq!((asked[0].4, asked[1].4), (1, 0), "ExpDataSN");
    // The third was never on it: it continues without any further PDU.
    script.on(Cid(3)).answer(asked[1].2, TmfResponse::TaskStillAllegiant);
    script.on(Cid(3)).answer(asked[0].2, TmfResponse::FunctionComplete);
    script.sent_nothing();
    for (user, (_, itt)) in commands.into_iter().enumerate() {
        let first = if user == 2 { 0 } else { 1 };
        for data_sn in first..2 {
            let data = script.data_in(itt, data_sn, data_sn * 4096);
            script.on(Cid(3)).receive(data.to_bhs(), &pattern(4096));
        }
        script.on(Cid(3)).good(itt);
        assert_eq!(script.ended(), (user as u64, status(0, 8192)));
    }
    assert_eq!(script.session.outstanding(), 0);
    assert_eq!(script.session.counters().tasks_reassigned, 1);
}

// covers: ERL-06 NUM-12
#[test]
fn in_asymmetric_use_a_lost_command_connection_takes_what_never_arrived() {
    let mut script = asymmetric(4);
    script.session.config.scheduling = Scheduling::RoundRobin;
    for user in 0..4 {
        script.read(user, 4096);
    }
    let commands = script.commands();
    let lost = commands[0].0;
    let alive = commands[1].0;
    assert_eq!((commands[2].0, commands[3].0), (lost, alive));
    // The first command arrived, and its data travels on 1; the third never arrived.
    script.acknowledge_all(2);
    let mut data = script.data_in(commands[0].1, 0, 0);
    data.final_bit = false;
    script.on(Cid(1)).receive(data.to_bhs(), &pattern(2048));
    script.session.connection_lost(script.now, lost);
    let (via, _, of, logout) = script.logout_of();
    assert_eq!(of, lost);
    script.on(via).answer_logout(logout, LogoutResponseCode::Success, 0);
    let asked = script.functions();
    assert!(asked.iter().all(|f| f.0.0 % 2 == 1 && f.1 == TmfFunction::TaskReassign), "{asked:?}");
    let of: Vec<Itt> = asked.iter().map(|function| function.3).collect();
    // Those sent on the other one, and the one whose data is arriving, have lost nothing.
    assert_eq!(of, [commands[2].1]);
    script.on(asked[0].0).answer(asked[0].2, TmfResponse::TaskDoesNotExist);
    assert_eq!(script.commands(), [(alive, commands[2].1)], "the same, on the other one");
    script.join(lost.0);
    script.sent_nothing();
    for (user, (_, itt)) in commands.iter().enumerate() {
        script.on(Cid(3)).good(*itt);
        let received = if user == 0 { 2048 } else { 0 };
        assert_eq!(script.ended(), (user as u64, status(0, received)));
    }
    // Its connections carry no commands any more.
    assert!(script.session.connections.iter().all(|c| c.commands == 0 && c.outstanding_bytes == 0));
}

/// The status of a command that the target no longer knows may be on its way, on another connection than the answer.
// covers: TMF-01 TMF-04
#[test]
fn in_asymmetric_use_the_answer_to_abort_task_may_overtake_the_status() {
    let mut script = asymmetric(2);
    script.read(1, 512);
    let (cid, itt) = script.commands()[0];
    script.acknowledge_all(1);
    script.session.manage_task(script.now, TmfFunction::AbortTask, 1, 7);
    let asked = script.functions();
    assert_eq!((asked[0].0, asked[0].1, asked[0].3), (cid, TmfFunction::AbortTask, itt));
    script.on(cid).answer(asked[0].2, TmfResponse::TaskDoesNotExist);
    assert_eq!(script.all_ended(), []);
    script.on(Cid(1)).good(itt);
    assert_eq!(script.ended(), (1, status(0, 0)));
}

/// A function travels on a command connection, and its answer may be outstanding when a data connection is lost. TASK REASSIGN
/// does not find the task that the target is about to end, and if the task were started again it would outlive its end.
// covers: TMF-01 TMF-05 ERL-06
#[test]
fn in_asymmetric_use_what_a_function_ends_is_not_begun_anew_before_its_answer() {
    for (function, name) in [(TmfFunction::AbortTask, Some(1)), (TmfFunction::LogicalUnitReset, None)] {
        for asked_first in [true, false] {
            let mut script = asymmetric(4);
            script.read(1, 512);
            let (commands, itt) = script.commands()[0];
            script.acknowledge_all(1);
            let data = script.data_in(itt, 0, 0);
            script.on(Cid(1)).receive(data.to_bhs(), &pattern(256));
            script.sent_nothing();
            let manage = |script: &mut Script| {
                match name {
                    Some(of) => script.session.manage_task(script.now, function, of, 7),
                    None => script.session.manage(script.now, function, Lun::from_index(1), 7),
                }
                script.functions()[0]
            };
            let mut asked = asked_first.then(|| manage(&mut script));
            script.session.connection_lost(script.now, Cid(1));
            let (via, _, _, logout) = script.logout_of();
            script.on(via).answer_logout(logout, LogoutResponseCode::Success, 0);
            if asked.is_none() {
                let reassign = script.functions();
                assert_eq!(reassign[0].1, TmfFunction::TaskReassign);
                if name.is_some() {
                    // It names a task without a connection, and waits until that is settled.
                    script.session.manage_task(script.now, function, 1, 7);
                    script.on(reassign[0].0).answer(reassign[0].2, TmfResponse::FunctionComplete);
                    asked = Some(script.functions()[0]);
                } else {
                    asked = Some(manage(&mut script));
                    script.on(reassign[0].0).answer(reassign[0].2, TmfResponse::TaskDoesNotExist);
                }
            }
            script.wait(1);
            script.sent_nothing();
            let asked = asked.expect("it was asked for");
            script.on(asked.0).answer(asked.2, TmfResponse::FunctionComplete);
            assert_eq!(
                script.all_ended(),
                [(1, Ending::Aborted)],
                "{function:?}, {asked_first}, {commands:?}"
            );
            script.wait(1);
            script.sent_nothing();
            assert_eq!((script.session.outstanding(), script.session.counters().commands_begun_anew), (0, 0));
        }
    }
}

/// If the function fails, the task is settled as it would have been without it.
// covers: ERL-06
#[test]
fn in_asymmetric_use_a_task_is_settled_when_the_function_that_was_to_end_it_did_not() {
    let mut script = asymmetric(4);
    script.read(1, 512);
    let (_, itt) = script.commands()[0];
    script.acknowledge_all(1);
    script.session.manage_task(script.now, TmfFunction::AbortTask, 1, 7);
    let asked = script.functions()[0];
    script.session.connection_lost(script.now, Cid(1));
    let (via, _, _, logout) = script.logout_of();
    script.on(via).answer_logout(logout, LogoutResponseCode::Success, 0);
    script.wait(1);
    script.sent_nothing();
    script.on(asked.0).answer(asked.2, TmfResponse::FunctionRejected);
    script.wait(1);
    let reassign = script.functions();
    assert_eq!((reassign[0].1, reassign[0].3), (TmfFunction::TaskReassign, itt));
}

#[test]
fn in_asymmetric_use_a_connection_is_filled_up_to_its_share_of_the_commands() {
    let mut script = asymmetric(8);
    script.session.config.scheduling = Scheduling::FillFirst;
    script.session.turns = Turns::default();
    for user in 0..3 {
        script.read(user, 250_000);
    }
    // Four of the eight carry commands, each of them half a MiB.
    let cids: Vec<u16> = script.commands().iter().map(|(cid, _)| cid.0).collect();
    assert_eq!(cids, [0, 0, 2]);
}

// covers: ERL-06
#[test]
fn in_asymmetric_use_the_only_data_connection_is_waited_for() {
    let mut script = asymmetric(2);
    script.read(1, 4096);
    let (_, itt) = script.commands()[0];
    script.acknowledge_all(1);
    script.session.connection_lost(script.now, Cid(1));
    let (via, _, _, logout) = script.logout_of();
    assert_eq!(via, Cid(0));
    script.on(via).answer_logout(logout, LogoutResponseCode::Success, 0);
    script.sent_nothing();
    script.read(2, 4096);
    script.sent_nothing();
    script.join(1);
    let sent = script.sent_on();
    match &sent[..] {
        [(Cid(1), Pdu::TaskManagementRequest(request)), (Cid(0), Pdu::ScsiCommand(_))] => {
            assert_eq!((request.function, request.referenced_task_tag), (TmfFunction::TaskReassign, itt));
        }
        other => panic!("{other:?}"),
    }
}

// covers: SES-06
#[test]
fn in_asymmetric_use_below_level_2_a_lost_connection_is_a_lost_session() {
    for level in [0, 1] {
        for lost in [0, 1] {
            let params = Params {
                asymmetric: Asymmetric::Pairs,
                max_connections: 4,
                error_recovery_level: level,
                ..several()
            };
            let mut script = Script::with_connections_and(4, params);
            script.read(1, 512);
            script.commands();
            script.session.connection_lost(script.now, Cid(lost));
            assert_eq!(script.closed().0, CloseReason::Lost);
            assert_eq!(script.session.unfinished().len(), 1);
        }
    }
}

// covers: SNK-01
#[test]
fn in_asymmetric_use_data_are_asked_for_where_they_were_sent() {
    let mut script = asymmetric(4);
    script.read(1, 8192);
    let (_, itt) = script.commands()[0];
    let last = script.data_in(itt, 1, 4096);
    script.on(Cid(3)).receive(last.to_bhs(), &pattern(4096));
    script.now += std::time::Duration::from_millis(10);
    script.session.handle_timeout(script.now);
    match &script.sent_on()[..] {
        [(Cid(3), Pdu::SnackRequest(request))] => assert_eq!((request.itt, request.beg_run), (itt, 0)),
        other => panic!("{other:?}"),
    }
}
