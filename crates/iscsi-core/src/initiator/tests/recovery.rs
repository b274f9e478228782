//! Commands that take too long, rejected PDUs, lost sessions.

use iscsi_wire::{
    CmdSn, DataSn, Itt, Lun, Pdu, Reject, RejectReason, TaskManagementResponse, TmfFunction, TmfResponse,
};

use super::{FIRST, Script, params, pattern, status};
use crate::initiator::command::Ending;
use crate::initiator::session::{Action, CloseReason, ManagementAnswer};
use crate::params::{Bursts, Params};

impl Script {
    pub(super) fn answer(&mut self, itt: Itt, response: TmfResponse) {
        let pdu = TaskManagementResponse { response, itt, numbers: self.take_numbers(), additional: [0; 3] };
        self.receive(pdu.to_bhs(), &[]);
    }

    /// The task management function sent now: its function, tag, referenced tag and RefCmdSN.
    pub(super) fn function(&mut self) -> (TmfFunction, Itt, Itt, CmdSn) {
        match self.sent_one().0 {
            Pdu::TaskManagementRequest(request) => {
                assert!(request.immediate);
                assert_eq!(request.lun, Lun::from_index(1));
                (request.function, request.itt, request.referenced_task_tag, request.ref_cmd_sn)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn reject(&mut self, reason: RejectReason, refused: &[u8; 48]) {
        let pdu = Reject { reason, numbers: self.take_numbers(), data_sn: DataSn(0) };
        self.receive(pdu.to_bhs(), refused);
    }
}

// covers: TMF-04
#[test]
fn tmf_10_abort_then_reset_then_the_end_and_tags_are_kept_until_the_outcome_is_known() {
    let mut script = Script::new(params());
    script.read(1, 512);
    let (itt, cmd_sn) = script.command();
    assert_eq!(script.session.poll_timeout(), Some(script.now + std::time::Duration::from_secs(30)));
    script.wait(29);
    script.sent_nothing();
    script.wait(1);
    let (function, _, referenced, ref_cmd_sn) = script.function();
    assert_eq!((function, referenced, ref_cmd_sn), (TmfFunction::AbortTask, itt, cmd_sn));
    // The tag stays in use as long as the outcome of the task is unknown.
    for user in 10..16 {
        script.read(user, 512);
        assert_ne!(script.command().0, itt);
    }
    script.wait(10);
    let (function, _, referenced, _) = script.function();
    assert_eq!((function, referenced), (TmfFunction::LogicalUnitReset, Itt::RESERVED));
    script.wait(10);
    assert_eq!(script.closed().0, CloseReason::Unresponsive);
    let users: Vec<u64> =
        script.session.unfinished().iter().map(|unfinished| unfinished.command.user).collect();
    assert_eq!(users, [1, 10, 11, 12, 13, 14, 15], "in the order of their CmdSN, which wraps");
}

// covers: TMF-10
#[test]
fn an_aborted_command_ends_with_the_answer_and_not_before() {
    for response in [TmfResponse::FunctionComplete, TmfResponse::TaskDoesNotExist] {
        let mut script = Script::new(Params {
            bursts: Bursts { initial_r2t: true, immediate_data: false, ..params().bursts },
            ..params()
        });
        script.write(1, 4096);
        let (itt, _) = script.command();
        script.wait(30);
        let (_, function_itt, ..) = script.function();
        // R2Ts are still answered: the target may wait for their end (RFC 7143 4.2.3.3).
        let r2t = script.r2t(itt, 0, 0, 4096);
        script.receive(r2t.to_bhs(), &[]);
        assert!(matches!(script.sent_one().0, Pdu::DataOut(d) if d.final_bit));
        assert!(script.take_ended().is_empty());
        script.answer(function_itt, response);
        assert_eq!(script.ended(), (1, Ending::TimedOut));
        script.good(itt);
        assert!(script.violated().contains("not there"), "nothing may come for it any more");
    }
}

// covers: TMF-10
#[test]
fn a_command_that_ends_while_it_is_aborted_ended_well() {
    let mut script = Script::new(params());
    script.read(1, 0);
    let (itt, _) = script.command();
    script.wait(30);
    let (_, function_itt, ..) = script.function();
    script.good(itt);
    assert_eq!(script.ended(), (1, status(0, 0)));
    script.answer(function_itt, TmfResponse::TaskDoesNotExist);
    assert!(script.all_ended().is_empty());
    assert!(!script.session.is_closed());
}

// covers: NUM-08
#[test]
fn one_function_at_a_time_and_a_reset_ends_all_commands_of_the_unit() {
    let mut script = Script::new(params());
    script.read(1, 0);
    let (first, _) = script.command();
    script.read(2, 0);
    script.command();
    script.wait(30);
    let (function, itt, referenced, _) = script.function();
    assert_eq!((function, referenced), (TmfFunction::AbortTask, first));
    script.answer(itt, TmfResponse::FunctionNotSupported);
    let (function, itt, ..) = script.function();
    assert_eq!(function, TmfFunction::LogicalUnitReset);
    script.answer(itt, TmfResponse::FunctionComplete);
    assert_eq!(script.all_ended(), [(1, Ending::TimedOut), (2, Ending::Aborted)]);
    // Two that are overdue at once are aborted one after the other.
    for user in [3, 4] {
        script.read(user, 0);
        script.command();
    }
    script.wait(30);
    let (_, itt, ..) = script.function();
    script.answer(itt, TmfResponse::FunctionComplete);
    let (function, itt, ..) = script.function();
    assert_eq!(function, TmfFunction::AbortTask);
    script.answer(itt, TmfResponse::FunctionComplete);
    assert_eq!(script.all_ended(), [(3, Ending::TimedOut), (4, Ending::TimedOut)]);
}

#[test]
fn a_command_that_was_never_sent_just_ends() {
    let mut script = Script::with_window(params(), 0);
    script.read(1, 0);
    script.sent_nothing();
    script.wait(30);
    assert_eq!(script.ended(), (1, Ending::TimedOut));
    assert_eq!(script.session.outstanding(), 0);
}

// covers: NUM-12
#[test]
fn rej_04_a_command_is_sent_again_the_same_for_reasons_that_pass() {
    for reason in [RejectReason::DataDigestError, RejectReason::TooManyImmediateCommands] {
        let mut script = Script::new(params());
        script.write(1, 512);
        let (_, first) = script.sent_one();
        for _ in 0..3 {
            script.reject(reason, first.bhs.as_bytes());
            let (_, again) = script.sent_one();
            let (Ok(Pdu::ScsiCommand(a)), Ok(Pdu::ScsiCommand(mut b))) =
                (Pdu::parse(&first.bhs), Pdu::parse(&again.bhs))
            else {
                panic!("a command")
            };
            b.exp_stat_sn = a.exp_stat_sn;
            assert_eq!(a, b, "the same ITT, CDB and CmdSN");
            assert_eq!(again.data.bytes(), pattern(512));
        }
        // But not for ever: then ABORT TASK fills its hole.
        script.reject(reason, first.bhs.as_bytes());
        let (function, itt, _, ref_cmd_sn) = script.function();
        assert_eq!((function, ref_cmd_sn), (TmfFunction::AbortTask, CmdSn(FIRST)));
        script.answer(itt, TmfResponse::FunctionComplete);
        assert_eq!(script.ended(), (1, Ending::Rejected(reason)));
    }
}

#[test]
fn num_13_a_refused_command_leaves_no_hole() {
    let mut script = Script::new(params());
    script.read(1, 512);
    let (_, tx) = script.sent_one();
    script.reject(RejectReason::InvalidPduField, tx.bhs.as_bytes());
    let (function, itt, referenced, ref_cmd_sn) = script.function();
    assert_eq!((function, referenced, ref_cmd_sn), (TmfFunction::AbortTask, tx.bhs.itt(), CmdSn(FIRST)));
    assert!(script.take_ended().is_empty());
    script.answer(itt, TmfResponse::FunctionComplete);
    assert_eq!(script.ended(), (1, Ending::Rejected(RejectReason::InvalidPduField)));
}

// covers: REJ-02
#[test]
fn a_refused_data_out_leaves_the_end_to_the_target() {
    let mut script = Script::new(params());
    script.write(1, 8192);
    let sent = script.sent();
    let (itt, data_out) = (sent[0].1.bhs.itt(), sent[1].1.bhs);
    script.reject(RejectReason::DataDigestError, data_out.as_bytes());
    script.sent_nothing();
    let mut response = script.response(itt);
    response.status = 2;
    script.receive(response.to_bhs(), &[0, 3, 0x70, 0, 0xb]);
    assert!(matches!(script.ended().1, Ending::Status { status: 2, .. }));
}

#[test]
fn rej_03_reason_0b_and_a_reject_without_header_end_the_session() {
    for (reason, header) in [(RejectReason::NegotiationReset, 48), (RejectReason::ProtocolError, 47)] {
        let mut script = Script::new(params());
        let pdu = Reject { reason, numbers: script.take_numbers(), data_sn: DataSn(0) };
        script.receive(pdu.to_bhs(), &vec![0; header]);
        script.violated();
    }
}

#[test]
fn ses_06_what_had_not_ended_comes_back_in_order() {
    let mut script = Script::with_window(params(), 3);
    for user in 0..6 {
        script.read(user, 512);
    }
    let sent = script.sent();
    assert_eq!(sent.len(), 3);
    script.good(sent[1].1.bhs.itt());
    assert_eq!(script.ended().0, 1);
    script.session.lost();
    let users: Vec<u64> =
        script.session.unfinished().iter().map(|unfinished| unfinished.command.user).collect();
    assert_eq!(users, [0, 2, 3, 4, 5]);
    assert!(script.session.submit(script.now, crate::initiator::Command::new(Lun(0), &[0])).is_err());
    assert_eq!(script.session.poll_timeout(), None);
}

// covers: TMF-05
#[test]
fn a_caller_may_reset_a_unit() {
    let mut script = Script::new(params());
    script.read(1, 0);
    script.command();
    script.session.manage(script.now, TmfFunction::LogicalUnitReset, Lun::from_index(1), 42);
    let (_, itt, ..) = script.function();
    script.answer(itt, TmfResponse::FunctionComplete);
    assert_eq!(script.ended(), (1, Ending::Aborted));
    assert!(matches!(
        script.said.pop(),
        Some(Action::Managed {
            user: 42,
            answer: Some(ManagementAnswer { response: TmfResponse::FunctionComplete, .. })
        })
    ));
}

// covers: TXT-14
#[test]
fn a_refused_text_request_ends_its_exchange_and_not_the_session() {
    let mut script = Script::new(params());
    for _ in 0..2 {
        assert!(script.session.send_targets(script.now, "All"));
        let (_, tx) = script.sent_one();
        script.reject(RejectReason::ProtocolError, tx.bhs.as_bytes());
        script.sent_nothing();
        assert!(matches!(script.said.pop(), Some(Action::TextRefused(Some(RejectReason::ProtocolError)))));
        assert!(!script.session.is_closed());
    }
}
