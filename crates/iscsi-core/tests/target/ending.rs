//! Asynchronous messages, logout, pings, rejects.

use crate::pdus::{made, number, parse};
use crate::play::Peer;

#[test]
fn asy_01_a_logout_that_is_asked_for() {
    Peer::logged_in("").play(
        "D> request_logout seconds=10
         T< AsyncMessage event=LogoutRequest parameters=0,0,10
         @ 9s
         I> LogoutRequest I itt=1
         T< LogoutResponse itt=1 response=Success
         D< Close Logout
         D< Ended",
    );
    // And a logout that does not arrive.
    Peer::logged_in("").play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         D> request_logout seconds=10
         T< AsyncMessage event=LogoutRequest
         # Asked once, however often it is wanted.
         D> request_logout seconds=10
         @ 10s
         D< Close Silent
         D< Abandon itt=1
         D> gone itt=1
         D< Ended",
    );
    // A session that waits for its initiator simply ends.
    Peer::logged_in("").play("X\nD> request_logout seconds=10\nD< Ended");
}

// covers: ASY-04, NUM-09
#[test]
fn asy_04_scsi_events_carry_sense_with_its_length() {
    let mut peer = Peer::logged_in("");
    peer.play_open("D> event lun=3 sense=6/3f/0e");
    let message = peer.output.pop_front().expect("a message");
    assert!(message.line.contains("event=ScsiAsyncEvent lun=3"), "{}", message.line);
    assert_eq!(message.data[..3], [0, 18, 0x70]);
    assert_eq!(message.data[2 + 12..2 + 14], [0x3f, 0x0e]);
    assert_eq!(message.data.len(), 20);
    // A discovery session receives no such message.
    let mut peer = Peer::new();
    peer.play("I> LoginRequest T csg=1 nsg=3 | @initiator SessionType=Discovery");
    peer.output.clear();
    peer.play("D> event lun=0 sense=6/3f/0e");
}

// covers: LGO-01, LGO-03
#[test]
fn lgo_01_logout_kills_tasks_and_then_answers() {
    for reason in ["CloseSession", "CloseConnection"] {
        let mut peer = Peer::logged_in("InitialR2T=No DefaultTime2Wait=3 DefaultTime2Retain=4");
        peer.play(&format!(
            "I> ScsiCommand itt=1 F R edtl=8
             D< Start itt=1
             I> ScsiCommand itt=2 W edtl=512
             D< Start itt=2
             I> ScsiCommand itt=4 F R edtl=8 cmd_sn=4
             I> LogoutRequest I itt=9 reason={reason}
             D< Abandon itt=1
             D< Abandon itt=2
             # Whatever still comes is ignored.
             I> DataOut itt=2 F data=512
             I> NopOut I itt=10
             I> LogoutRequest I itt=11
             D> gone itt=1
             D> gone itt=2
             T< LogoutResponse itt=9 response=Success time2wait=3 time2retain=4
             D< Close Logout
             D< Ended"
        ));
        assert_eq!(peer.session().holdings(), Default::default());
    }
    // It is executed in its turn, after the commands before it.
    Peer::logged_in("").play(
        "I> LogoutRequest itt=9 cmd_sn=2
         I> NopOut itt=1 cmd_sn=1
         T< NopIn itt=1
         T< LogoutResponse itt=9 response=Success exp_cmd_sn=3
         D< Close Logout
         D< Ended",
    );
}

/// Also for a task that was aborted before and is not gone yet.
#[test]
fn lgo_01_logout_waits_for_aborted_tasks() {
    Peer::logged_in("").play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         D> abort token=1
         D< Abandon itt=1
         I> LogoutRequest I itt=9
         D> gone itt=1
         D< TasksGone token=1
         T< LogoutResponse itt=9 response=Success
         D< Close Logout
         D< Ended",
    );
}

#[test]
fn lgo_02_other_logouts_leave_the_session_alone() {
    Peer::logged_in("").play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I> LogoutRequest I itt=2 reason=CloseConnection cid=5
         T< LogoutResponse itt=2 response=CidNotFound
         I> LogoutRequest itt=3 reason=RemoveConnectionForRecovery
         T< LogoutResponse itt=3 response=RecoveryNotSupported
         D> complete itt=1
         T< ScsiResponse itt=1",
    );
}

/// Aborted tasks are reported to the device server, which raises the unit attention.
// covers: LGO-04, LGO-01
#[test]
fn lgo_04_killed_tasks_are_told_to_the_device_server() {
    Peer::logged_in("").play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         X
         D< Abandon itt=1",
    );
}

#[test]
fn nop_01_pings_are_answered_with_their_data() {
    let mut peer = Peer::logged_in("MaxRecvDataSegmentLength=4096");
    for len in [0usize, 1, 2, 3, 4, 4095, 4096] {
        for immediate in ["", "I "] {
            let data = if len > 0 { format!("data={len}") } else { "!data".to_owned() };
            peer.play(&format!("I> NopOut {immediate}itt=7 data={len}"));
            let answer = peer.output.pop_front().expect("an answer");
            assert_eq!(answer.data, crate::play::pattern_bytes(0, len));
            assert!(
                answer.line.contains("NopIn itt=7") && !answer.line.contains("ttt="),
                "{} {data}",
                answer.line
            );
        }
    }
    // No more than the initiator accepts.
    peer.play("I> NopOut itt=7 data=9000\nT< NopIn itt=7 data=4096");
}

// covers: NOP-02, NOP-05
#[test]
fn nop_02_no_answer_is_wanted() {
    Peer::logged_in("").play(
        "I> NopOut I
         I> NopOut I data=100
         I> NopOut I ttt=77
         I> NopOut cmd_sn=1
         T< Reject reason=InvalidPduField of_opcode=0x00 exp_cmd_sn=1",
    );
}

// covers: NOP-04, NOP-05
#[test]
fn nop_04_our_own_pings() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "@ 29s
         @ 1s
         T< NopIn ttt=0 !itt !data stat_sn=4294967295
         I> NopOut I ttt=0
         @ 29s
         @ 1s
         T< NopIn ttt=1 stat_sn=4294967295
         # Something else shows as well that the initiator lives: the next silence begins with a ping of its own.
         I> NopOut itt=1
         T< NopIn itt=1 stat_sn=4294967295
         @ 29s
         @ 1s
         T< NopIn ttt=2 stat_sn=0
         @ 29s
         @ 1s
         D< Close Silent",
    );
    // The session now waits for its initiator to return.
    peer.play("@ 21s\n@ 1s\nD< Ended");
    let mut peer = Peer::logged_in_with("", |peer| peer.config.ping_interval = std::time::Duration::ZERO);
    assert_eq!(peer.session().poll_timeout(), None);
    peer.play("@ 100000s");
}

// covers: REJ-01, REJ-03
#[test]
fn rej_01_the_header_comes_back_as_it_was() {
    let mut peer = Peer::logged_in("");
    for line in [
        "TextRequest itt=5 F C | X-a=b X-c=d",
        "TextRequest itt=5 F ttt=9 | X-a=b",
        "ScsiCommand itt=5 F R edtl=8 data=8",
        "NopOut data=4",
    ] {
        let cmd_sn = peer.cmd_sn;
        let (head, text) = line.split_once(" | ").unwrap_or((line, ""));
        let fields = parse(head);
        let (pdu, ahs) = made(&fields, &mut peer);
        let data = match number(&fields, &peer.names, "data") {
            Some(len) => crate::play::pattern_bytes(0, len as usize),
            None => crate::play::text_bytes(text),
        };
        let mut sent = pdu.to_bhs();
        sent.set_data_segment_length(data.len());
        peer.feed(pdu.to_bhs(), ahs, data, None);
        let reject = peer.output.pop_front().expect("a Reject");
        assert!(reject.line.starts_with("T< Reject"), "{line}: {}", reject.line);
        assert_eq!(reject.data[..], sent.as_bytes()[..], "{line}");
        if !line.starts_with("Text") {
            peer.cmd_sn = cmd_sn;
        }
    }
}

#[test]
fn rej_02_a_reject_never_ends_a_task() {
    Peer::logged_in("InitialR2T=Yes ImmediateData=No MaxBurstLength=512 FirstBurstLength=512").play(
        "I> ScsiCommand itt=1 F W edtl=512
         D< Start itt=1
         D> need itt=1 bytes=512
         T< R2t itt=1 ttt=0
         I> SnackRequest itt=1 type=DataOrR2t
         T< Reject reason=ProtocolError of_opcode=0x10
         I> DataOut itt=1 ttt=9 F data=512
         T< Reject reason=InvalidPduField of_opcode=0x05
         D< Abandon itt=1
         D> gone itt=1
         I> DataOut itt=1 ttt=0 F data=512
         T< ScsiResponse itt=1 status=0x02 sense=b/0c/0d",
    );
}
