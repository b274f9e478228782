//! Numbering and the command window.

use bytes::Bytes;
use iscsi_core::Time;
use iscsi_core::pdu_reader::RxPdu;
use iscsi_core::wire::{Cid, CmdSn};

use crate::pdus::build;
use crate::play::Peer;

// covers: NUM-02, NUM-11
#[test]
fn num_02_commands_run_in_order_and_holes_wait() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> ScsiCommand itt=3 F R edtl=8 cmd_sn=3
         I> NopOut itt=4 cmd_sn=4
         I> ScsiCommand itt=2 F R edtl=8 cmd_sn=2
         I> ScsiCommand itt=1 F R edtl=8 cmd_sn=1
         D< Start itt=1
         D< Start itt=2
         D< Start itt=3
         T< NopIn itt=4 exp_cmd_sn=5
         D> complete itt=3
         T< ScsiResponse itt=3 exp_cmd_sn=5",
    );
}

/// The data of pings and text requests may wait with them, up to a bound; a rejected request has not consumed its number.
// covers: NUM-13, NUM-02
#[test]
fn num_13_data_that_wait_for_their_turn_are_bounded() {
    let mut peer = Peer::logged_in("MaxRecvDataSegmentLength=65536");
    for n in 2..6 {
        peer.play(&format!("I> NopOut itt={n} cmd_sn={n} data=65536"));
    }
    peer.play(
        "I> NopOut itt=6 cmd_sn=6 data=1
         T< Reject reason=LongOperationReject
         I> TextRequest F itt=6 cmd_sn=6 | X-a=b
         T< Reject reason=LongOperationReject
         # One that came already is ignored as ever, and one that brings nothing waits.
         I> NopOut itt=5 cmd_sn=5 data=65536
         I> NopOut itt=7 cmd_sn=7
         I> NopOut itt=1 cmd_sn=1
         T< NopIn itt=1
         T< NopIn itt=2 data=65536
         T< NopIn itt=3 data=65536
         T< NopIn itt=4 data=65536
         T< NopIn itt=5 data=65536 exp_cmd_sn=6
         I> TextRequest F itt=6 cmd_sn=6 | X-a=b
         T< TextResponse itt=6
         T< NopIn itt=7 exp_cmd_sn=8",
    );
}

// covers: NUM-03, NUM-04
#[test]
fn num_03_outside_the_window_or_twice_is_ignored_without_a_word() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=8 cmd_sn=1
         D< Start itt=1 read=8
         # Again, while it runs: the same tag, another tag.
         I> ScsiCommand itt=1 F R edtl=8 cmd_sn=1
         I> ScsiCommand itt=2 F R edtl=8 cmd_sn=1
         # Far away on either side.
         I> ScsiCommand itt=2 F R edtl=8 cmd_sn=0
         I> ScsiCommand itt=2 F R edtl=8 cmd_sn=10
         I> ScsiCommand itt=2 F R edtl=8 cmd_sn=0x80000002
         I> ScsiCommand itt=2 F R edtl=8 cmd_sn=0x80000001
         I> ScsiCommand itt=2 F R edtl=8 cmd_sn=0xffffffff
         # Twice while it waits for its turn.
         I> ScsiCommand itt=3 F R edtl=8 cmd_sn=3
         I> ScsiCommand itt=3 F R edtl=8 cmd_sn=3
         I> ScsiCommand itt=4 F R edtl=8 cmd_sn=3
         # Other requests too.
         I> NopOut itt=5 cmd_sn=1
         I> TextRequest itt=6 F cmd_sn=1 | X-a=1
         I> TaskManagementRequest itt=7 function=LogicalUnitReset cmd_sn=1
         I> LogoutRequest itt=8 cmd_sn=1
         I> NopOut itt=9 cmd_sn=2
         T< NopIn itt=9 exp_cmd_sn=3
         D< Start itt=3
         D> complete itt=1
         T< ScsiResponse itt=1",
    );
}

#[test]
fn num_04_numbers_wrap() {
    let mut peer = Peer::logged_in_with("", |peer| peer.cmd_sn = CmdSn(0xffff_fffd));
    for i in 0..6u32 {
        let exp = 0xffff_fffdu32.wrapping_add(i + 1);
        peer.play(&format!("I> NopOut itt={i}\nT< NopIn itt={i} exp_cmd_sn={exp}"));
    }
    peer.play(
        "I> ScsiCommand itt=9 F R edtl=8 cmd_sn=0xffffffff
         I> ScsiCommand itt=9 F R edtl=8 cmd_sn=3
         D< Start itt=9",
    );
}

// covers: NUM-05, NUM-07
#[test]
fn num_05_the_window_closes_and_opens() {
    let mut peer = Peer::logged_in_with("", |peer| peer.config.queue_depth = 2);
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         # Closed: 3 is not taken, immediate commands are.
         I> ScsiCommand itt=3 F R edtl=8 cmd_sn=3
         I> NopOut I itt=4
         T< NopIn itt=4 exp_cmd_sn=3 max_cmd_sn=2
         D> complete itt=1
         T< ScsiResponse itt=1 exp_cmd_sn=3 max_cmd_sn=3
         I> ScsiCommand itt=3 F R edtl=8 cmd_sn=3
         D< Start itt=3",
    );
}

/// Commands that vanish without an answer of their own because another request aborts them.
#[test]
fn num_07_an_opening_window_is_announced() {
    let mut peer = Peer::logged_in_with("", |peer| peer.config.queue_depth = 2);
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         I> NopOut I itt=3
         T< NopIn itt=3 max_cmd_sn=2
         D> abort token=1
         D< Abandon itt=1
         D< Abandon itt=2
         D> gone itt=1
         T< NopIn !itt !ttt exp_cmd_sn=3 max_cmd_sn=3
         D> gone itt=2
         D< TasksGone token=1",
    );
}

/// A full queue with a slow device server: immediate task management is always answered, and so is a ping.
// covers: NUM-08, TMF-09
#[test]
fn num_08_immediate_requests_are_taken() {
    let mut peer = Peer::logged_in("");
    for itt in 0..64 {
        peer.play(&format!("I> NopOut I itt={itt}\nT< NopIn itt={itt}"));
    }
    for itt in 100..116 {
        peer.play(&format!("I> ScsiCommand I F R edtl=8 itt={itt}\nD< Start itt={itt}"));
    }
    peer.play(
        "I> ScsiCommand I F R edtl=8 itt=200
         T< Reject reason=TooManyImmediateCommands of_opcode=0x01 of_itt=200
         I> TaskManagementRequest I itt=201 function=LogicalUnitReset
         D< Manage LogicalUnitReset lun=0
         D> managed FunctionComplete
         T< TaskManagementResponse itt=201 response=FunctionComplete",
    );
    // Sixteen that are not answered yet, and one more.
    for itt in 300..316 {
        peer.play(&format!(
            "I> TaskManagementRequest I itt={itt} function=LogicalUnitReset\nD< Manage LogicalUnitReset"
        ));
    }
    peer.play(
        "I> TaskManagementRequest I itt=400 function=LogicalUnitReset
         T< Reject reason=TooManyImmediateCommands of_opcode=0x02
         I> NopOut I itt=401
         T< NopIn itt=401
         # ABORT TASK is always taken.
         I> TaskManagementRequest I itt=402 function=AbortTask referenced_task_tag=300
         T< TaskManagementResponse itt=402 response=FunctionRejected",
    );
}

/// Sixteen functions wait for a command that never arrives: the ABORT TASK that fills its place is not rejected.
#[test]
fn num_08_what_fills_a_hole_is_taken() {
    let mut peer = Peer::logged_in("");
    for itt in 1..=16 {
        peer.play(&format!("I> TaskManagementRequest I itt={itt} function=LogicalUnitReset cmd_sn=2"));
    }
    peer.play(
        "I> TaskManagementRequest I itt=20 function=LogicalUnitReset cmd_sn=2
         T< Reject reason=TooManyImmediateCommands",
    );
    peer.play(
        "I> TaskManagementRequest I itt=21 function=AbortTask referenced_task_tag=99 ref_cmd_sn=1 cmd_sn=2",
    );
    let lines: Vec<String> = peer.output.drain(..).map(|output| output.line).collect();
    assert!(
        lines[0].contains("TaskManagementResponse itt=21") && lines[0].contains("FunctionComplete"),
        "{}",
        lines[0]
    );
    assert_eq!(lines[1..], ["D< Manage LogicalUnitReset lun=0"; 16]);
}

/// Ordinary task management that is not answered yet does not use up the places of immediate requests.
#[test]
fn num_08_ordinary_requests_have_places_of_their_own() {
    let mut peer = Peer::logged_in_with("", |peer| peer.config.queue_depth = 32);
    for itt in 1..=20 {
        peer.play(&format!(
            "I> TaskManagementRequest itt={itt} function=LogicalUnitReset\nD< Manage LogicalUnitReset"
        ));
    }
    peer.play("I> TaskManagementRequest I itt=30 function=LogicalUnitReset\nD< Manage LogicalUnitReset");
}

/// Aborting immediate commands at once does not get round the limit.
#[test]
fn num_08_abandoned_immediate_commands_count() {
    let mut peer = Peer::logged_in_with("", |peer| peer.config.queue_depth = 2);
    let mut rejected = 0;
    for itt in 0..40 {
        peer.play(&format!("I> ScsiCommand I F R edtl=8 itt={itt}"));
        if peer.output.pop_front().expect("something").line.contains("TooManyImmediateCommands") {
            rejected += 1;
        } else {
            peer.play(&format!(
                "I> TaskManagementRequest I itt=900 function=AbortTask referenced_task_tag={itt}"
            ));
            assert!(peer.output.pop_front().expect("something").line.contains("Abandon"));
        }
    }
    assert!(rejected >= 20, "{rejected}");
    assert!(peer.session().holdings().leaving <= 18);
}

/// Unanswered task management takes up room in the window: an initiator cannot pile it up.
#[test]
fn num_05_unanswered_task_management_closes_the_window() {
    let mut peer = Peer::logged_in("");
    for itt in 0..100u32 {
        let cmd_sn = itt + 1;
        peer.play(&format!("I> TaskManagementRequest itt={itt} cmd_sn={cmd_sn} function=LogicalUnitReset"));
        peer.output.clear();
    }
    assert!(peer.session().holdings().waits <= 8, "{:?}", peer.session().holdings());
}

/// Every PDU with a status or an answer takes a StatSN; an R2T, plain Data-In and our own pings do not. The audit checks each.
#[test]
fn num_09_stat_sn_over_a_mixed_workload() {
    let mut peer =
        Peer::logged_in("MaxRecvDataSegmentLength=512 DataDigest=CRC32C InitialR2T=Yes ImmediateData=No");
    peer.play(
        "I> NopOut itt=1
         T< NopIn itt=1 stat_sn=4294967295
         I> ScsiCommand itt=2 F R edtl=1024
         D< Start itt=2
         D> complete itt=2 data=1024
         T< DataIn itt=2 offset=0 !stat_sn
         T< DataIn itt=2 offset=512 stat_sn=0 F
         I> ScsiCommand itt=3 F W edtl=512
         D< Start itt=3
         D> need itt=3 bytes=512
         T< R2t itt=3 ttt=0 stat_sn=1
         @ 31s
         T< NopIn ttt=1 stat_sn=1
         I> NopOut I ttt=1
         I> DataOut itt=3 ttt=0 F data=512
         D< DataOut itt=3
         D> complete itt=3 transfer=512
         T< ScsiResponse itt=3 stat_sn=1
         I> TaskManagementRequest I itt=4 function=TaskReassign
         T< TaskManagementResponse itt=4 stat_sn=2
         I> TextRequest itt=5 F
         T< TextResponse itt=5 stat_sn=3
         I> NopOut itt=6 data=4 bad_digest
         T< Reject stat_sn=4
         D> event lun=0 sense=6/3f/0e
         T< AsyncMessage stat_sn=5
         I> LogoutRequest I itt=7
         T< LogoutResponse itt=7 stat_sn=6
         D< Close Logout
         D< Ended",
    );
}

/// Rejected commands leave their number open, and the initiator fills the hole: with the command, or by aborting it.
// covers: NUM-13, TMF-02
#[test]
fn num_13_a_rejected_command_takes_no_number() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> ScsiCommand itt=1 R edtl=8 cmd_sn=1
         T< Reject reason=InvalidPduField of_opcode=0x01 exp_cmd_sn=1
         I> ScsiCommand itt=2 F R edtl=8 cmd_sn=2
         I> ScsiCommand itt=1 F R edtl=8 cmd_sn=1
         D< Start itt=1
         D< Start itt=2
         I> ScsiCommand itt=3 R edtl=8 cmd_sn=3
         T< Reject reason=InvalidPduField exp_cmd_sn=3
         I> ScsiCommand itt=4 F R edtl=8 cmd_sn=4
         I> TaskManagementRequest I itt=5 function=AbortTask referenced_task_tag=3 ref_cmd_sn=3 cmd_sn=5
         T< TaskManagementResponse itt=5 response=FunctionComplete exp_cmd_sn=4
         D< Start itt=4",
    );
}

/// The data of a request that may wait is copied: it would pin the whole receive buffer.
// covers: NUM-13
#[test]
fn num_13_no_request_that_waits_keeps_its_receive_buffer() {
    let mut peer = Peer::logged_in("MaxRecvDataSegmentLength=65536");
    for line in
        ["NopOut I itt=1", "NopOut itt=2 cmd_sn=1", "NopOut itt=3 cmd_sn=3", "TextRequest itt=4 F cmd_sn=4"]
    {
        let (pdu, _) = build(line, &mut peer);
        let buffer = Bytes::from(vec![7; 4096]);
        let rx =
            RxPdu { bhs: pdu.to_bhs(), ahs: Bytes::new(), data: buffer.slice(..600), data_digest_ok: true };
        peer.session().handle_pdu(Time::ZERO, Cid(1), &rx);
        drop(rx);
        assert!(buffer.is_unique(), "{line}");
    }
}
