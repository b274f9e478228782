//! Task management that reaches other sessions, on other shards, with commands on worker threads (rows TMF, PR-09).

use blockstore::Op;
use conform::{Command, Frame, Session};
use iscsi_core::wire::{Lun, Opcode, TaskManagementResponse, TmfFunction, TmfResponse};

use crate::support::*;

const TASK_ABORTED: u8 = 0x40;

/// Two sessions on two shards; the unit's gate is closed, and a write of the second session waits at it.
fn pair(tas: bool) -> (Lab, Barrier, Session, Session, conform::Sent) {
    let (lab, gate) = Lab::gated(config());
    let (mut a, mut b) = (lab.session("a"), lab.session("b"));
    if tas {
        set_tas(&mut a, true);
        // 2A/01: mode parameters changed.
        assert!(test_unit_ready(&mut b).is_unit_attention());
    }
    gate.close(&[Op::Write]);
    let sent = b.start(&write(10, 1)).unwrap();
    gate.wait_for_waiting(1);
    (lab, gate, a, b, sent)
}

/// The answer to a task management request that has been sent already.
fn answer(session: &mut Session, itt: iscsi_core::wire::Itt) -> TmfResponse {
    let rx = session.next_for(itt).unwrap();
    assert_eq!(rx.bhs.opcode(), Opcode::TaskManagementResponse.code());
    TaskManagementResponse::parse(&rx.bhs).unwrap().response
}

// covers: TMF-06
#[test]
fn tmf_06_with_tas_0_the_commands_of_others_vanish_and_a_unit_attention_says_so() {
    for (function, asc) in
        [(TmfFunction::ClearTaskSet, (6, 0x2f, 0x00)), (TmfFunction::LogicalUnitReset, (6, 0x29, 0x03))]
    {
        let (_lab, gate, mut a, mut b, sent) = pair(false);
        // Another command of the victim, waiting for its data.
        let waiting = b.start(&Command::write_16(20, vec![2; 512], BLOCK)).unwrap();
        b.expect_r2t(&waiting).unwrap();
        let request = a.tmf(function, true);
        a.peer.send(&Frame::of(request)).unwrap();
        // No answer while the store may still write.
        a.ping().unwrap();
        assert_eq!(a.stashed(request.itt), None, "{function:?} was answered before the write was gone");
        gate.open();
        assert_eq!(answer(&mut a, request.itt), TmfResponse::FunctionComplete);
        assert_eq!(sense(&test_unit_ready(&mut b)), Some(asc));
        b.ping().unwrap();
        for victim in [&sent, &waiting] {
            assert_eq!(b.stashed(victim.itt), None, "{function:?}: an aborted command got an answer");
        }
        assert!(test_unit_ready(&mut b).is_good());
        assert_eq!(byte_at(&mut b, 20), 0);
    }
}

// covers: TMF-06
#[test]
fn tmf_06_with_tas_1_the_commands_of_others_end_with_task_aborted() {
    for function in [TmfFunction::ClearTaskSet, TmfFunction::LogicalUnitReset] {
        let (_lab, gate, mut a, mut b, sent) = pair(true);
        let request = a.tmf(function, true);
        a.peer.send(&Frame::of(request)).unwrap();
        a.ping().unwrap();
        b.ping().unwrap();
        assert_eq!(b.stashed(sent.itt), None, "no status before the store has let go");
        gate.open();
        assert_eq!(b.finish(&sent).unwrap().status, TASK_ABORTED);
        assert_eq!(answer(&mut a, request.itt), TmfResponse::FunctionComplete);
        b.clear_unit_attentions().unwrap();
    }
}

// The requesting session is gone: the others are still notified about their commands.
#[test]
fn tmf_06_a_reset_whose_initiator_leaves_is_carried_out() {
    let (lab, gate, mut a, mut b, sent) = pair(false);
    let request = a.tmf(TmfFunction::LogicalUnitReset, true);
    a.peer.send(&Frame::of(request)).unwrap();
    a.ping().unwrap();
    drop(a);
    lab.wait_for_sessions(1);
    gate.open();
    until(|| sense(&test_unit_ready(&mut b)) == Some((6, 0x29, 0x03)));
    assert_eq!(b.stashed(sent.itt), None);
}

// If the victim has no commands, an abort has nothing to wait for.
#[test]
fn tmf_06_resets_of_each_other_at_the_same_time_end() {
    let lab = Lab::start(config());
    let mut sessions: Vec<Session> = (0..8).map(|_| lab.session("a")).collect();
    for _ in 0..20 {
        let requests: Vec<_> = sessions
            .iter_mut()
            .map(|session| {
                let request = session.tmf(TmfFunction::LogicalUnitReset, true);
                session.peer.send(&Frame::of(request)).unwrap();
                request.itt
            })
            .collect();
        for (session, itt) in sessions.iter_mut().zip(requests) {
            assert_eq!(answer(session, itt), TmfResponse::FunctionComplete);
        }
    }
    for session in &mut sessions {
        session.clear_unit_attentions().unwrap();
        session.run_good(&write(1, 1)).unwrap();
    }
}

// covers: TMF-07
#[test]
fn tmf_07_units_that_do_not_exist_functions_that_are_not_supported_and_the_lun_of_target_resets() {
    let lab = Lab::start(config());
    let mut session = lab.session("a");
    let mut ask = |function, lun| {
        let request = iscsi_core::wire::TaskManagementRequest { lun, ..session.tmf(function, true) };
        session.manage(request).unwrap()
    };
    let absent = Lun::from_index(9);
    for function in [TmfFunction::AbortTaskSet, TmfFunction::ClearTaskSet, TmfFunction::LogicalUnitReset] {
        assert_eq!(ask(function, absent), TmfResponse::LunDoesNotExist, "{function:?}");
        assert_eq!(ask(function, Lun(u64::MAX)), TmfResponse::LunDoesNotExist, "{function:?}");
        assert_eq!(ask(function, Lun(0)), TmfResponse::FunctionComplete, "{function:?}");
    }
    assert_eq!(ask(TmfFunction::ClearAca, Lun(0)), TmfResponse::FunctionNotSupported);
    assert_eq!(ask(TmfFunction::TaskReassign, Lun(0)), TmfResponse::TaskReassignNotSupported);
    assert_eq!(ask(TmfFunction::TargetWarmReset, absent), TmfResponse::FunctionComplete);
}

// covers: TMF-08
#[test]
fn tmf_08_a_cold_reset_answers_and_then_closes_every_session_of_the_target() {
    let mut config = config();
    config.targets.push(target("iqn.2026-01.org.example:other"));
    let lab = Lab::start(config);
    let (mut a, mut b) = (lab.session("a"), lab.session("b"));
    let elsewhere =
        conform::LoginScript { target_name: Some("iqn.2026-01.org.example:other".into()), ..lab.script("c") };
    let mut elsewhere = lab.login(&elsewhere);
    assert_eq!(manage(&mut a, TmfFunction::TargetWarmReset), TmfResponse::FunctionComplete);
    assert_eq!(sense(&test_unit_ready(&mut b)), Some((6, 0x29, 0x02)));
    assert_eq!(manage(&mut a, TmfFunction::TargetColdReset), TmfResponse::FunctionComplete);
    a.peer.until_closed().unwrap();
    b.peer.until_closed().unwrap();
    elsewhere.ping().unwrap();
    assert_eq!(lab.sessions().len(), 1);
}

// covers: PR-09 TMF-06
#[test]
fn pr_09_preempt_and_abort_waits_until_no_write_of_a_victim_can_land() {
    for tas in [false, true] {
        let (_lab, gate, mut a, mut b, sent) = pair(tas);
        // PERSISTENT RESERVE OUT does not access the medium, so the gate does not stop it.
        assert!(pr_out(&mut a, 0, 0, 0, 0xa).is_good());
        assert!(pr_out(&mut b, 0, 0, 0, 0xb).is_good());
        assert!(pr_out(&mut b, 1, 3, 0xb, 0).is_good());
        let preempt = pr_out_start(&mut a, 5, 3, 0xa, 0xb);
        a.ping().unwrap();
        assert_eq!(a.stashed(preempt.itt), None, "it ended while a write of the victim was at the store");
        gate.open();
        assert!(a.finish(&preempt).unwrap().is_good());
        if tas {
            assert_eq!(b.finish(&sent).unwrap().status, TASK_ABORTED);
        }
        assert_eq!(sense(&test_unit_ready(&mut b)), Some((6, 0x2a, 0x05)), "registrations preempted");
        b.ping().unwrap();
        assert_eq!(b.stashed(sent.itt), None);
        assert_eq!(b.run(&write(10, 7)).unwrap().status, 0x18, "the victim writes no more");
        assert_eq!(pr_keys(&mut a), [0xa]);
    }
}

/// Commands that arrive together with a function after them have started when the function is processed, although they are
/// received as a batch.
#[test]
fn a_function_finds_the_commands_before_it_begun() {
    let lab = Lab::start(config());
    let mut session = lab.session("a");
    let (sent, mut frames): (Vec<_>, Vec<_>) =
        (0..4).map(|lba| session.command_frame(&Command::read_16(lba, 1, BLOCK))).unzip();
    let mut abort = session.tmf(TmfFunction::AbortTask, true);
    (abort.referenced_task_tag, abort.ref_cmd_sn) = (sent[3].itt, sent[3].cmd_sn);
    frames.push(Frame::of(abort));
    session.peer.send_together(&frames).unwrap();
    for sent in &sent {
        assert!(session.finish(sent).unwrap().is_good());
    }
    assert_eq!(answer(&mut session, abort.itt), TmfResponse::TaskDoesNotExist);
}

// covers: P2-04
#[test]
fn p2_04_a_pending_unit_attention_is_shown_until_it_was_reported() {
    let mut config = config();
    config.targets[0].bounds.protocol_level = 2;
    let lab = Lab::start(config);
    let mut a = lab.session("a");
    let mut b = lab.login(&lab.script("b").key("iSCSIProtocolLevel", "2"));
    b.clear_unit_attentions().unwrap();
    let mut query = || {
        let request = b.tmf(TmfFunction::QueryAsyncEvent, true);
        b.peer.send(&Frame::of(request)).unwrap();
        let rx = b.next_for(request.itt).unwrap();
        let response = TaskManagementResponse::parse(&rx.bhs).unwrap();
        let shown = (response.response, response.additional);
        (shown, test_unit_ready(&mut b).is_good())
    };
    assert_eq!(query(), ((TmfResponse::FunctionComplete, [0; 3]), true));
    set_tas(&mut a, true);
    // One is pending: 2A/01, mode parameters changed.
    let ((response, additional), good) = query();
    assert_eq!(
        (response, additional[1..].to_vec(), good),
        (TmfResponse::FunctionSucceeded, vec![0x2a, 0x01], false)
    );
    assert_eq!(query(), ((TmfResponse::FunctionComplete, [0; 3]), true));
}

// The other way round: the session whose commands are aborted ends before they are gone, before or after the request.
// covers: TMF-06
#[test]
fn tmf_06_a_reset_is_answered_when_the_session_of_the_commands_ends_first() {
    for ends_before in [false, true] {
        let (lab, gate, mut a, b, _sent) = pair(false);
        let ends = |b: Session| {
            drop(b);
            until(|| lab.sessions().iter().any(|session| session.connections.is_empty()));
        };
        let mut b = Some(b);
        b.take_if(|_| ends_before).map(ends);
        let request = a.tmf(TmfFunction::LogicalUnitReset, true);
        a.peer.send(&Frame::of(request)).unwrap();
        a.ping().unwrap();
        b.map(ends);
        assert_eq!(a.stashed(request.itt), None, "it was answered before the write was gone");
        gate.open();
        assert_eq!(answer(&mut a, request.itt), TmfResponse::FunctionComplete);
    }
}
