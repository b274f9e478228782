//! Pings, asynchronous messages, logout and text.

use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{
    AsyncEvent, AsyncMessage, Bhs, DataIn, DataSn, Itt, LogoutReason, LogoutResponse, LogoutResponseCode,
    Lun, NopIn, Pdu, Reject, RejectReason, ResponseNumbers, SnackType, TextResponse, Ttt,
};

use super::{Script, params, pattern};
use crate::initiator::command::Command;
use crate::initiator::session::{Action, CloseReason, Event};
use crate::params::Params;

impl Script {
    pub(super) fn nop_in(&mut self, itt: Itt, ttt: Ttt, lun: Lun) -> NopIn {
        let stat_sn = if itt.is_reserved() { self.stat_sn } else { self.stat() };
        NopIn {
            lun,
            itt,
            ttt,
            numbers: ResponseNumbers { stat_sn, exp_cmd_sn: self.exp_cmd_sn, max_cmd_sn: self.max_cmd_sn },
        }
    }

    pub(super) fn event(&mut self, event: AsyncEvent, parameters: [u16; 3], data: &[u8]) {
        let message = AsyncMessage {
            lun: Lun::from_index(1),
            numbers: self.take_numbers(),
            event,
            vcode: 0,
            parameter1: parameters[0],
            parameter2: parameters[1],
            parameter3: parameters[2],
        };
        self.receive(message.to_bhs(), data);
    }

    fn logout(&mut self) -> Itt {
        match self.sent_one().0 {
            Pdu::LogoutRequest(request) => {
                assert_eq!((request.reason, request.immediate), (LogoutReason::CloseSession, true));
                request.itt
            }
            other => panic!("{other:?}"),
        }
    }

    fn logged_out(&mut self, itt: Itt, response: LogoutResponseCode, time2wait: u16) {
        let pdu = LogoutResponse { response, itt, numbers: self.take_numbers(), time2wait, time2retain: 0 };
        self.receive(pdu.to_bhs(), &[]);
    }

    pub(super) fn text(&mut self, itt: Itt, final_bit: bool, continue_bit: bool, ttt: Ttt, data: &[u8]) {
        let pdu = TextResponse {
            final_bit,
            continue_bit,
            lun: Lun(0x5500),
            itt,
            ttt,
            numbers: self.take_numbers(),
        };
        self.receive(pdu.to_bhs(), data);
    }

    pub(super) fn asked(&mut self) -> (iscsi_wire::TextRequest, Bytes) {
        let (pdu, tx) = self.sent_one();
        match pdu {
            Pdu::TextRequest(request) => (request, tx.data.bytes()),
            other => panic!("{other:?}"),
        }
    }
}

// covers: NOP-02 NOP-04 NOP-05
#[test]
fn nop_03_a_ping_is_answered_with_its_tag_and_lun_and_nothing_else_is() {
    let mut script = Script::new(params());
    let ping = script.nop_in(Itt::RESERVED, Ttt(7), Lun::from_index(3));
    script.receive(ping.to_bhs(), b"not to be echoed");
    let (pdu, tx) = script.sent_one();
    let Pdu::NopOut(answer) = pdu else { panic!("{pdu:?}") };
    assert!(answer.immediate && answer.itt.is_reserved());
    assert_eq!((answer.ttt, answer.lun), (Ttt(7), Lun::from_index(3)));
    assert!(tx.data.is_empty());
    let quiet = script.nop_in(Itt::RESERVED, Ttt::RESERVED, Lun(0));
    script.receive(quiet.to_bhs(), &[]);
    script.sent_nothing();
    let both = script.nop_in(Itt::RESERVED, Ttt(7), Lun(0));
    script.receive(NopIn { itt: Itt(3), ..both }.to_bhs(), &[]);
    assert!(script.violated().contains("both task tags"));
}

/// Whatever takes a StatSN is lost with a wrong digest: without recovery the session ends, with it the status is requested again.
// covers: DIG-12 SNK-02
#[test]
fn a_numbered_pdu_with_a_wrong_digest_ends_the_session_or_is_asked_for_again() {
    type Make = fn(&mut Script) -> Bhs;
    let kinds: [(&str, Make, bool); 5] = [
        (
            "text response",
            |script| {
                let (itt, ttt) = (Itt(1), Ttt::RESERVED);
                let (final_bit, continue_bit, lun) = (true, false, Lun(0));
                let (stat_sn, exp_cmd_sn, max_cmd_sn) = (script.stat(), script.exp_cmd_sn, script.max_cmd_sn);
                TextResponse {
                    final_bit,
                    continue_bit,
                    lun,
                    itt,
                    ttt,
                    numbers: ResponseNumbers { stat_sn, exp_cmd_sn, max_cmd_sn },
                }
                .to_bhs()
            },
            true,
        ),
        (
            "asynchronous message",
            |script| {
                let (stat_sn, exp_cmd_sn, max_cmd_sn) = (script.stat(), script.exp_cmd_sn, script.max_cmd_sn);
                let event = AsyncEvent::Vendor(255);
                let (vcode, parameter1, parameter2, parameter3) = (0, 0, 0, 0);
                AsyncMessage {
                    lun: Lun(0),
                    numbers: ResponseNumbers { stat_sn, exp_cmd_sn, max_cmd_sn },
                    event,
                    vcode,
                    parameter1,
                    parameter2,
                    parameter3,
                }
                .to_bhs()
            },
            true,
        ),
        (
            "reject",
            |script| {
                let (stat_sn, exp_cmd_sn, max_cmd_sn) = (script.stat(), script.exp_cmd_sn, script.max_cmd_sn);
                let reason = RejectReason::InvalidPduField;
                Reject {
                    reason,
                    numbers: ResponseNumbers { stat_sn, exp_cmd_sn, max_cmd_sn },
                    data_sn: DataSn(0),
                }
                .to_bhs()
            },
            true,
        ),
        ("ping", |script| script.nop_in(Itt::RESERVED, Ttt(7), Lun(0)).to_bhs(), false),
        ("news of numbers", |script| script.nop_in(Itt::RESERVED, Ttt::RESERVED, Lun(0)).to_bhs(), false),
    ];
    for (name, make, numbered) in kinds {
        for level in [0, 1] {
            let mut script = Script::new(Params { error_recovery_level: level, ..params() });
            let first = script.stat_sn;
            let bhs = make(&mut script);
            script.receive_with(bhs, &[0; 48], false);
            if level == 0 && numbered {
                assert_eq!(script.closed().0, CloseReason::DataDigest, "{name}");
                continue;
            }
            script.now += Duration::from_millis(2);
            script.session.handle_timeout(script.now);
            let asked = script.sent().into_iter().find_map(|(pdu, _)| match pdu {
                Pdu::SnackRequest(request) => Some((request.snack_type, request.beg_run, request.run_length)),
                _ => None,
            });
            let due = numbered.then_some((SnackType::Status, first.0, 1));
            assert_eq!(asked, due, "{name} at level {level}");
            assert!(script.said.is_empty(), "{name}: {:?}", script.said);
        }
    }
}

/// Callers find the buffer of a Data-In PDU, and an engine its write data, by the tag of the command.
#[test]
fn a_command_is_found_by_its_tag_from_when_it_is_sent_until_it_ends() {
    let mut script = Script::with_window(params(), 1);
    assert_eq!((script.session.user_of(Itt(0)), script.session.outstanding_bytes()), (None, 0));
    script.read(41, 8192);
    script.write(42, 4096);
    let (itt, _) = script.command();
    assert_eq!(script.session.user_of(itt), Some(41));
    assert_eq!(script.session.command_of(itt).map(|command| command.read_length), Some(8192));
    let read_bytes = script.session.outstanding_bytes();
    assert!(read_bytes >= 8192, "{read_bytes}");
    assert_eq!((script.session.outstanding(), script.session.outstanding_write_bytes()), (2, 0));
    for other in [Itt(itt.0.wrapping_add(1)), Itt::RESERVED] {
        assert!(script.session.user_of(other).is_none() && script.session.command_of(other).is_none());
    }
    // The write follows when the window opens.
    (script.exp_cmd_sn, script.max_cmd_sn) = (script.exp_cmd_sn.next(), script.max_cmd_sn.next());
    let data = script.data_in(itt, 0, 0);
    script.receive(DataIn { final_bit: false, ..data }.to_bhs(), &pattern(4096));
    let data = script.data_in(itt, 1, 4096);
    script.receive(data.to_bhs(), &pattern(4096));
    script.good(itt);
    let sent: Vec<_> = script.sent();
    let Some((Pdu::ScsiCommand(write), _)) = sent.first() else { panic!("{sent:?}") };
    assert!(script.session.user_of(itt).is_none_or(|user| itt == write.itt && user == 42));
    assert_eq!(script.session.user_of(write.itt), Some(42));
    assert_eq!(script.session.outstanding_write_bytes(), 4096);
    assert!(script.session.outstanding_bytes() >= 4096);
    let write = write.itt;
    script.good(write);
    assert_eq!(script.take_ended().iter().map(|(user, _)| *user).collect::<Vec<_>>(), [41]);
    assert_eq!(script.ended().0, 42);
    assert_eq!((script.session.outstanding_bytes(), script.session.user_of(write)), (0, None));
}

#[test]
fn a_pong_is_intact_only_when_its_data_and_digest_are() {
    let cases: [(&[u8], bool, bool); 4] =
        [(b"abc", true, true), (b"abd", true, false), (b"ab", true, false), (b"abc", false, false)];
    for (back, digest, expected) in cases {
        let mut script = Script::new(params());
        assert!(script.session.ping(script.now, 4, Bytes::from_static(b"abc")));
        let (_, tx) = script.sent_one();
        assert_eq!(tx.data.bytes(), b"abc"[..]);
        script.now += Duration::from_secs(3);
        let pong = script.nop_in(tx.bhs.itt(), Ttt::RESERVED, Lun(0));
        script.receive_with(pong.to_bhs(), back, digest);
        script.sent_nothing();
        match script.said.pop() {
            Some(Action::Pong { user: 4, intact, round_trip }) => {
                assert_eq!((intact, round_trip), (expected, Duration::from_secs(3)));
            }
            other => panic!("{other:?}"),
        }
        // A second copy of the same answer completes nothing.
        let again = script.nop_in(tx.bhs.itt(), Ttt::RESERVED, Lun(0));
        script.receive(again.to_bhs(), back);
        assert!(script.violated().contains("not there"));
    }
}

#[test]
fn a_ping_that_the_target_rejects_has_no_answer() {
    let mut script = Script::new(params());
    assert!(script.session.ping(script.now, 4, Bytes::from_static(b"abc")));
    let (_, tx) = script.sent_one();
    script.reject(RejectReason::ProtocolError, tx.bhs.as_bytes());
    script.sent_nothing();
    assert!(matches!(script.said.pop(), Some(Action::Pong { user: 4, intact: false, .. })));
    assert!(!script.session.is_closed());
}

// covers: PDU-09
#[test]
fn silence_is_met_with_a_ping_and_then_with_the_end() {
    let mut script = Script::new(params());
    script.wait(99);
    script.sent_nothing();
    script.wait(1);
    let (pdu, tx) = script.sent_one();
    assert!(matches!(pdu, Pdu::NopOut(nop) if nop.ttt.is_reserved() && !nop.itt.is_reserved()));
    script.wait(9);
    let pong = script.nop_in(tx.bhs.itt(), Ttt::RESERVED, Lun(0));
    script.receive(pong.to_bhs(), &[]);
    script.wait(99);
    script.sent_nothing();
    script.wait(1);
    script.sent_one();
    script.wait(10);
    assert_eq!(script.closed(), (CloseReason::Silent, Duration::from_secs(2)));
}

// covers: LGO-03
#[test]
fn asy_01_a_logout_that_is_asked_for_lets_commands_end_and_begins_none() {
    let mut script = Script::with_window(params(), 2);
    for user in 1..=3 {
        script.read(user, 0);
    }
    let sent = script.sent();
    assert_eq!(sent.len(), 2);
    script.event(AsyncEvent::LogoutRequest, [0, 0, 10], &[]);
    assert!(script.session.submit(script.now, Command::new(Lun(0), &[0])).is_err());
    script.max_cmd_sn = script.max_cmd_sn.add(5);
    script.good(sent[0].1.bhs.itt());
    script.sent_nothing();
    script.good(sent[1].1.bhs.itt());
    let itt = script.logout();
    // No new PDU follows it, not even an answer to a ping.
    let ping = script.nop_in(Itt::RESERVED, Ttt(7), Lun(0));
    script.receive(ping.to_bhs(), &[]);
    script.sent_nothing();
    script.logged_out(itt, LogoutResponseCode::Success, 4);
    assert_eq!(script.closed(), (CloseReason::TargetAsked, Duration::from_secs(4)));
    assert_eq!(script.session.unfinished().len(), 1, "what was never sent goes to the next session");
}

// covers: ASY-01
#[test]
fn a_logout_that_is_asked_for_does_not_wait_beyond_its_time() {
    let mut script = Script::new(params());
    script.read(1, 0);
    script.command();
    script.event(AsyncEvent::LogoutRequest, [0, 0, 10], &[]);
    script.sent_nothing();
    script.wait(4);
    script.sent_nothing();
    script.wait(1);
    script.logout();
    script.wait(20);
    assert_eq!(script.closed().0, CloseReason::TargetAsked, "the target does not answer the logout");
}

#[test]
fn asy_02_announced_drops_say_how_long_to_wait() {
    for (event, cid, drops) in [
        (AsyncEvent::ConnectionDrop, 0, true),
        (AsyncEvent::ConnectionDrop, 9, false),
        (AsyncEvent::SessionDrop, 0, true),
    ] {
        let mut script = Script::new(params());
        script.event(event, [cid, 7, 20], &[]);
        script.sent_nothing();
        assert_eq!(script.session.is_closed(), drops, "{event} of CID {cid}");
        if drops {
            assert_eq!(script.closed(), (CloseReason::TargetDropped, Duration::from_secs(7)));
        }
    }
}

// covers: TXT-07
#[test]
fn asy_03_a_negotiation_that_is_asked_for_begins_with_an_empty_text() {
    let mut script = Script::new(params());
    script.event(AsyncEvent::NegotiationRequest, [0, 0, 3], &[]);
    let (request, text) = script.asked();
    assert!(request.final_bit && request.ttt.is_reserved() && text.is_empty());
    script.event(AsyncEvent::NegotiationRequest, [0, 0, 3], &[]);
    script.sent_nothing();
    assert!(!script.session.send_targets(script.now, ""), "one exchange at a time");
    script.text(request.itt, true, false, Ttt::RESERVED, b"MaxRecvDataSegmentLength=2048\0");
    assert_eq!(script.session.params().max_send_data_segment_length, 2048);
    // covers: TXT-14 TXT-18
    script.event(AsyncEvent::NegotiationRequest, [0, 0, 3], &[]);
    let (request, _) = script.asked();
    script.text(
        request.itt,
        true,
        false,
        Ttt::RESERVED,
        b"MaxRecvDataSegmentLength=1024\0MaxBurstLength=512\0",
    );
    assert!(script.violated().contains("MaxBurstLength"));
    assert_eq!(script.session.params().max_send_data_segment_length, 2048, "nothing of it takes effect");
}

#[test]
fn asy_04_scsi_events_are_handed_up_and_unknown_ones_counted() {
    let mut script = Script::new(params());
    script.event(AsyncEvent::ScsiAsyncEvent, [0; 3], &[0, 3, 0x70, 0, 6, 9]);
    script.event(AsyncEvent::Vendor(250), [0; 3], b"anything");
    script.event(AsyncEvent::TaskTermination, [0; 3], &[]);
    script.sent_nothing();
    assert!(!script.session.is_closed());
    match &script.said[0] {
        Action::Event(Event::Scsi { lun, sense }) => {
            assert_eq!((*lun, &sense[..]), (Lun::from_index(1), &[0x70, 0, 6][..]));
        }
        other => panic!("{other:?}"),
    }
    for bad in [&[][..], &[0, 0], &[0, 9, 1]] {
        let mut script = Script::new(params());
        script.event(AsyncEvent::ScsiAsyncEvent, [0; 3], bad);
        assert!(script.violated().contains("sense"));
    }
}

#[test]
fn lgo_01_a_logout_ends_the_session_whatever_its_answer() {
    for code in [LogoutResponseCode::Success, LogoutResponseCode::CleanupFailed] {
        let mut script = Script::new(params());
        script.session.logout(script.now);
        let itt = script.logout();
        script.session.logout(script.now);
        script.sent_nothing();
        script.logged_out(itt, code, 0);
        assert_eq!(script.closed().0, CloseReason::LoggedOut);
    }
    let mut script = Script::new(params());
    script.logged_out(Itt(5), LogoutResponseCode::Success, 0);
    assert!(script.violated().contains("not there"));
}

// covers: TXR-01 DSC-06 NAM-02
#[test]
fn dsc_05_an_answer_in_pieces_is_fetched_to_its_end() {
    let mut script = Script::new(params());
    assert!(script.session.send_targets(script.now, "All"));
    let (first, text) = script.asked();
    assert_eq!(text, b"SendTargets=All\0"[..]);
    let whole = b"TargetName=iqn.2001-04.com.example:a\0TargetAddress=10.0.0.1:3260,1\0TargetAddress=[::1]:3261,2\0TargetName=iqn.2001-04.com.example:b\0";
    // A pair split in the middle, then pieces that end with a pair, with and without C.
    script.text(first.itt, false, true, Ttt(9), &whole[..20]);
    let (second, text) = script.asked();
    assert_eq!((second.itt, second.ttt, second.lun, text.len()), (first.itt, Ttt(9), Lun(0x5500), 0));
    assert_eq!(second.immediate, first.immediate);
    script.text(first.itt, false, false, Ttt(10), &whole[20..90]);
    assert_eq!(script.asked().0.ttt, Ttt(10));
    script.text(first.itt, true, false, Ttt::RESERVED, &whole[90..]);
    script.sent_nothing();
    match script.said.pop() {
        Some(Action::Targets(records)) => {
            assert_eq!(records.len(), 2);
            assert_eq!(records[0].addresses[1].to_string(), "[::1]:3261");
            assert_eq!(records[0].addresses[0].group_tag, Some(1));
            assert!(records[1].addresses.is_empty());
        }
        other => panic!("{other:?}"),
    }
}

/// A target that never finishes its answer is not waited for.
// covers: TXT-16
#[test]
fn an_answer_that_brings_nothing_does_not_last_for_ever() {
    let mut script = Script::new(params());
    assert!(script.session.send_targets(script.now, "All"));
    let (first, _) = script.asked();
    script.wait(15);
    script.text(first.itt, false, false, Ttt(9), b"TargetName=iqn.2001-04.com.example:a\0");
    script.asked();
    for _ in 0..3 {
        script.wait(5);
        script.text(first.itt, false, false, Ttt(9), &[]);
        script.asked();
    }
    script.wait(5);
    assert_eq!(script.closed().0, CloseReason::Unresponsive);
}

// covers: TXT-10
#[test]
fn send_targets_that_is_refused_in_its_answer_ends_nothing() {
    let mut script = Script::new(params());
    assert!(script.session.send_targets(script.now, "All"));
    let itt = script.asked().0.itt;
    script.text(itt, true, false, Ttt::RESERVED, b"SendTargets=Reject\0");
    script.sent_nothing();
    assert!(matches!(script.said.pop(), Some(Action::TextRefused(None))));
    assert!(!script.session.is_closed());
    // Any other value is no refusal but a key that no target may send.
    assert!(script.session.send_targets(script.now, "All"));
    let itt = script.asked().0.itt;
    script.text(itt, true, false, Ttt::RESERVED, b"SendTargets=All\0");
    script.violated();
}

// covers: TXR-02 TXT-06 TXT-04
#[test]
fn answers_that_contradict_themselves_end_the_session() {
    let ask = || {
        let mut script = Script::new(params());
        assert!(script.session.send_targets(script.now, "All"));
        let itt = script.asked().0.itt;
        (script, itt)
    };
    for (final_bit, continue_bit, ttt, data) in [
        (true, true, Ttt::RESERVED, &b"x"[..]),
        (true, false, Ttt(1), b""),
        (false, false, Ttt::RESERVED, b""),
        (false, true, Ttt(1), b""),
        (true, false, Ttt::RESERVED, b"TargetName=iqn.2001-04.com.example:a b\0"),
        (true, false, Ttt::RESERVED, b"TargetAddress=10.0.0.1,1\0"),
        (true, false, Ttt::RESERVED, b"TargetName=iqn.2001-04.com.example:a\0TargetAddress=a b\0"),
        (true, false, Ttt::RESERVED, b"TargetName=iqn.2001-04.com.example:a"),
        (true, false, Ttt::RESERVED, b"AuthMethod=None\0"),
    ] {
        let (mut script, itt) = ask();
        script.text(itt, final_bit, continue_bit, ttt, data);
        script.violated();
    }
    let (mut script, itt) = ask();
    script.text(Itt(itt.0 + 1), true, false, Ttt::RESERVED, b"");
    script.violated();
    // Endless text is not collected for ever.
    let (mut script, itt) = ask();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..4 {
        script.text(itt, false, true, Ttt(1), &piece);
        script.asked();
    }
    script.text(itt, false, true, Ttt(1), &piece);
    assert!(script.violated().contains("bytes of text"));
    let (mut script, _) = ask();
    script.wait(20);
    assert_eq!(script.closed().0, CloseReason::Unresponsive);
}
