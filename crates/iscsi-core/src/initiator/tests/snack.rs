//! Error recovery level 1: missing or damaged PDUs are requested again, late, merged, and not for ever.

use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{
    Cid, CmdSn, DataSn, Itt, Lun, NopIn, Pdu, Reject, RejectReason, ResponseNumbers, SnackRequest, SnackType,
    StatSn, TmfResponse, Ttt,
};

use super::{FIRST, Script, params, pattern, status, underflow};
use crate::initiator::command::{Ending, Residual};
use crate::initiator::session::{Action, CloseReason};
use crate::limits::MAX_RESENDS;
use crate::params::{Bursts, Params};

/// Bytes of one Data-In.
const PIECE: u32 = 500;
const PIECES: u32 = 6;

fn level_1() -> Params {
    Params { error_recovery_level: 1, ..params() }
}

/// How the last PDU of a read carries the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusBy {
    LastDataIn,
    Response,
}

/// What happens to a PDU on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost,
    Damaged,
}

impl Script {
    /// A read under way at level 1; the PDUs sent so far have been taken.
    fn reading() -> (Self, Itt) {
        let mut script = Self::new(level_1());
        script.read(1, PIECE * PIECES);
        let (itt, _) = script.command();
        script.exp_cmd_sn = CmdSn(FIRST).add(1);
        (script, itt)
    }

    fn piece(&self, itt: Itt, n: u32, by: StatusBy) -> iscsi_wire::DataIn {
        let mut pdu = self.data_in(itt, n, n * PIECE);
        let last = n + 1 == PIECES;
        pdu.final_bit = last;
        pdu.status_bit = last && by == StatusBy::LastDataIn;
        if pdu.status_bit {
            pdu.numbers.stat_sn = self.stat_sn;
        }
        pdu
    }

    fn send_piece(&mut self, itt: Itt, n: u32, by: StatusBy, intact: bool) {
        let pdu = self.piece(itt, n, by);
        let at = (n * PIECE) as usize;
        let data = pattern((PIECE * PIECES) as usize).slice(at..at + PIECE as usize);
        self.receive_with(pdu.to_bhs(), &data, intact);
    }

    /// The SNACKs sent now.
    fn snacks(&mut self) -> Vec<SnackRequest> {
        let sent = self.sent_on().into_iter();
        sent.map(|(_, pdu)| match pdu {
            Pdu::SnackRequest(request) => request,
            other => panic!("{other:?}"),
        })
        .collect()
    }

    fn wait_ms(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.session.handle_timeout(self.now);
    }

    /// All data passed up: in order and once.
    fn delivered(&mut self) -> Vec<u8> {
        let mut got = Vec::new();
        self.said.retain(|action| match action {
            Action::DataIn { offset, data, .. } => {
                assert_eq!(*offset as usize, got.len());
                got.extend_from_slice(data);
                false
            }
            _ => true,
        });
        got
    }

    fn acknowledged(&mut self) -> StatSn {
        assert!(self.session.ping(self.now, 99, Bytes::new()));
        match self.sent_on().pop() {
            Some((_, Pdu::NopOut(nop))) => nop.exp_stat_sn,
            other => panic!("{other:?}"),
        }
    }
}

// covers: ERL-02 ERL-03 ERL-10 DIG-11 SNK-01 SNK-09
#[test]
fn data_lost_or_damaged_at_any_place_come_again_and_are_delivered_once_in_order() {
    for by in [StatusBy::LastDataIn, StatusBy::Response] {
        for fate in [Fate::Lost, Fate::Damaged] {
            for fated in 1..1u32 << PIECES {
                let (mut script, itt) = Script::reading();
                let hit = |n: u32| fated & 1 << n != 0;
                let last_lost = hit(PIECES - 1) && fate == Fate::Lost;
                for n in 0..PIECES {
                    match (hit(n), fate) {
                        (false, _) => script.send_piece(itt, n, by, true),
                        (true, Fate::Damaged) => script.send_piece(itt, n, by, false),
                        (true, Fate::Lost) => {}
                    }
                }
                let first_stat_sn = script.stat_sn;
                if by == StatusBy::Response {
                    let mut response = script.response(itt);
                    response.exp_data_sn = DataSn(PIECES);
                    script.receive(response.to_bhs(), &[]);
                } else if last_lost {
                    // The status was lost with the data; the next PDU shows that.
                    let nop = NopIn {
                        lun: Lun(0),
                        itt: Itt::RESERVED,
                        ttt: Ttt::RESERVED,
                        numbers: ResponseNumbers { stat_sn: script.stat_sn.next(), ..script.numbers() },
                    };
                    script.receive(nop.to_bhs(), &[]);
                }
                let mut requests = script.snacks();
                script.wait_ms(5);
                requests.extend(script.snacks());
                // Runs, not single PDUs.
                let runs = (0..PIECES).filter(|&n| hit(n) && (n == 0 || !hit(n - 1))).count();
                let data: Vec<_> = requests.iter().filter(|r| r.snack_type == SnackType::DataOrR2t).collect();
                let case = format!("{by:?} {fate:?} {fated:06b}: {requests:?}");
                if by == StatusBy::Response || !last_lost {
                    assert_eq!(data.len(), runs, "{case}");
                }
                assert!(script.take_ended().is_empty(), "{case}");
                assert_eq!(script.acknowledged(), first_stat_sn, "the status is not acknowledged: {case}");
                // The requested PDUs arrive again, as exact copies, twice.
                for request in &requests {
                    let wanted = match request.snack_type {
                        SnackType::DataOrR2t => {
                            assert_eq!((request.itt, request.lun), (itt, Lun::from_index(1)));
                            request.beg_run..request.beg_run + request.run_length
                        }
                        _ => {
                            assert_eq!((request.itt, request.ttt), (Itt::RESERVED, Ttt::RESERVED));
                            assert_eq!((request.beg_run, request.run_length), (first_stat_sn.0, 1));
                            PIECES - 1..PIECES
                        }
                    };
                    for n in wanted.clone().chain(wanted) {
                        if by == StatusBy::LastDataIn {
                            script.stat_sn = first_stat_sn;
                        }
                        script.send_piece(itt, n, by, true);
                    }
                }
                // A status that arrived without its data shows the rest of the hole.
                for _ in 0..2 {
                    script.wait_ms(5);
                    for request in script.snacks() {
                        for n in request.beg_run..request.beg_run + request.run_length {
                            script.stat_sn = first_stat_sn;
                            script.send_piece(itt, n, by, true);
                        }
                    }
                }
                script.stat_sn = first_stat_sn.next();
                let sent = script.sent_on();
                assert!(sent.is_empty(), "{case}: {sent:?}");
                let all = PIECE * PIECES;
                assert_eq!(script.take_ended(), [(1, status(0, all))], "{case}");
                assert_eq!(script.delivered(), pattern(all as usize), "{case}");
                assert_eq!(script.acknowledged(), first_stat_sn.next(), "{case}");
                assert!(!script.session.is_closed());
            }
        }
    }
}

// covers: SNK-03
#[test]
fn data_are_acknowledged_when_asked_and_only_without_holes() {
    let (mut script, itt) = Script::reading();
    let ask = |script: &mut Script, n: u32| {
        let mut pdu = script.data_in(itt, n, n * PIECE);
        (pdu.final_bit, pdu.acknowledge, pdu.ttt, pdu.lun) = (true, true, Ttt(70 + n), Lun::from_index(5));
        script.receive(pdu.to_bhs(), &pattern(PIECE as usize));
    };
    ask(&mut script, 0);
    let acknowledgement = script.snacks();
    assert_eq!(acknowledgement.len(), 1);
    let SnackRequest { snack_type, lun, itt: tag, ttt, beg_run, run_length, .. } = acknowledgement[0];
    assert_eq!((snack_type, lun, tag, ttt), (SnackType::DataAck, Lun::from_index(5), Itt::RESERVED, Ttt(70)));
    assert_eq!((beg_run, run_length), (1, 0));
    ask(&mut script, 2);
    let requests = script.snacks();
    assert!(requests.iter().all(|r| r.snack_type == SnackType::DataOrR2t), "{requests:?}");
    script.send_piece(itt, 1, StatusBy::Response, true);
    let acknowledgement = script.snacks();
    assert_eq!((acknowledgement[0].ttt, acknowledgement[0].beg_run), (Ttt(72), 3));
}

// covers: ERL-02 SNK-01
#[test]
fn requests_are_delayed_and_merged_and_repeated_and_given_up() {
    let (mut script, itt) = Script::reading();
    script.send_piece(itt, 4, StatusBy::Response, true);
    script.sent_nothing();
    script.wait_ms(1);
    script.sent_nothing();
    script.wait_ms(1);
    let requests = script.snacks();
    assert_eq!((requests.len(), requests[0].beg_run, requests[0].run_length), (1, 0, 4), "one for the run");
    script.wait_ms(500);
    script.sent_nothing();
    for _ in 0..4 {
        script.wait_ms(1000);
        let requests = script.snacks();
        assert_eq!((requests.len(), requests[0].beg_run, requests[0].run_length), (1, 0, 4));
    }
    // Then the command is aborted, and its data does not count.
    script.wait_ms(1000);
    match &script.sent_on()[..] {
        [(_, Pdu::TaskManagementRequest(request))] => {
            assert_eq!(request.referenced_task_tag, itt);
            let tag = request.itt;
            script.answer(tag, iscsi_wire::TmfResponse::FunctionComplete);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(script.ended(), (1, Ending::DataDigest));
    assert!(script.delivered().is_empty());
}

// covers: SNK-02
#[test]
fn statuses_that_are_lost_are_asked_for_by_their_numbers() {
    let mut script = Script::new(level_1());
    for user in 0..5 {
        script.read(user, 0);
    }
    let tags: Vec<Itt> = script.commands().into_iter().map(|(_, itt)| itt).collect();
    let responses: Vec<_> = tags.iter().map(|itt| script.response(*itt).to_bhs()).collect();
    // 1 and 2 are lost, 4 arrives damaged (it has sense data).
    script.receive(responses[0], &[]);
    script.receive(responses[3], &[]);
    script.receive_with(responses[4], &[0, 3, 0x70, 0, 5], false);
    assert_eq!(script.take_ended().len(), 0);
    script.wait_ms(2);
    let requests = script.snacks();
    let runs: Vec<_> = requests.iter().map(|r| (r.snack_type, r.beg_run, r.run_length)).collect();
    let at = |n: u32| StatSn(FIRST).add(n).0;
    assert_eq!(runs, [(SnackType::Status, at(1), 2), (SnackType::Status, at(4), 1)]);
    assert!(requests.iter().all(|r| r.exp_stat_sn == StatSn(at(1))));
    assert_eq!(script.take_ended().iter().map(|e| e.0).collect::<Vec<_>>(), [0, 3]);
    for response in &responses {
        script.receive(*response, &[]);
        script.receive(*response, &[]);
    }
    assert_eq!(script.all_ended().iter().map(|e| e.0).collect::<Vec<_>>(), [1, 2, 4]);
    assert_eq!(script.acknowledged(), StatSn(at(5)));
}

// covers: SNK-02
#[test]
fn a_connection_whose_statuses_never_come_is_given_up() {
    let mut script = Script::new(level_1());
    script.read(0, 0);
    script.read(1, 0);
    let tags: Vec<Itt> = script.commands().into_iter().map(|(_, itt)| itt).collect();
    script.stat();
    script.good(tags[1]);
    for _ in 0..6 {
        script.wait_ms(1000);
        script.sent_on();
    }
    assert_eq!(script.closed().0, CloseReason::NotRecovered);
    // So is one that rejects the request.
    let mut script = Script::new(level_1());
    script.read(0, 0);
    script.commands();
    script.stat();
    let response = script.response(Itt(0));
    let _ = response;
    let nop = NopIn { lun: Lun(0), itt: Itt::RESERVED, ttt: Ttt::RESERVED, numbers: script.numbers() };
    script.receive(nop.to_bhs(), &[]);
    script.wait_ms(2);
    let request = script.snacks()[0];
    script.refuse(&request, RejectReason::ProtocolError);
    assert_eq!(script.closed().0, CloseReason::NotRecovered);
}

impl Script {
    fn refuse(&mut self, request: &SnackRequest, reason: RejectReason) {
        let pdu = Reject { reason, numbers: self.take_numbers(), data_sn: DataSn(0) };
        self.receive(pdu.to_bhs(), request.to_bhs().as_bytes());
    }
}

// covers: SNK-06
#[test]
fn a_refused_request_fails_its_command_and_not_the_session() {
    for status_first in [false, true] {
        let (mut script, itt) = Script::reading();
        script.send_piece(itt, 1, StatusBy::Response, true);
        if status_first {
            let mut response = script.response(itt);
            response.exp_data_sn = DataSn(2);
            script.receive(response.to_bhs(), &[]);
        }
        script.wait_ms(2);
        let request = script.snacks()[0];
        script.refuse(&request, RejectReason::SnackReject);
        if !status_first {
            assert!(script.take_ended().is_empty());
            // The target ends it; anything else that arrives for it is ignored.
            script.send_piece(itt, 0, StatusBy::Response, true);
            let mut response = script.response(itt);
            (response.status, response.exp_data_sn) = (2, DataSn(2));
            script.receive(response.to_bhs(), &[0, 14, 0x70, 0, 0xb, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x11, 0x13]);
        }
        let _ = script.sent_on();
        assert_eq!(script.take_ended(), [(1, Ending::DataDigest)]);
        assert!(script.delivered().is_empty() && !script.session.is_closed());
    }
}

// covers: SNK-06
#[test]
fn a_refusal_ends_the_session_while_one_of_the_statuses_is_missing() {
    for arrived in 0..=2 {
        let mut script = Script::new(level_1());
        let tags = [0, 1].map(|user| {
            script.read(user, 0);
            script.command().0
        });
        let responses = tags.map(|itt| script.response(itt));
        let nop = script.nop_in(Itt::RESERVED, Ttt::RESERVED, Lun(0));
        script.receive(nop.to_bhs(), &[]);
        script.wait_ms(2);
        let request = script.snacks()[0];
        assert_eq!((request.snack_type, request.run_length), (SnackType::Status, 2));
        for response in &responses[..arrived] {
            script.receive(response.to_bhs(), &[]);
        }
        script.refuse(&request, RejectReason::SnackReject);
        assert_eq!(script.session.is_closed(), arrived < 2, "{arrived} of 2 have arrived");
    }
}

/// A PDU that overlaps one that waits is asked for again, as if it were lost: the data that waits is never more than that of the
/// command.
// covers: ERL-02
#[test]
fn data_that_overlaps_what_waits_counts_as_missing() {
    // The number, the offset and the length of two PDUs that overlap by one byte; the second one does not fit.
    for pdus in [[(1, 1, 512), (2, 512, 512)], [(2, 512, 512), (1, 1, 512)]] {
        let (mut script, itt) = Script::reading();
        for (n, offset, length) in pdus {
            let pdu = script.data_in(itt, n, offset);
            script.receive(pdu.to_bhs(), &pattern(1024)[offset as usize..][..length]);
        }
        script.wait_ms(2);
        let asked: Vec<_> = script.snacks().iter().map(|snack| (snack.beg_run, snack.run_length)).collect();
        let expected = if pdus[1].0 == 2 { vec![(0, 1), (2, 1)] } else { vec![(0, 2)] };
        assert_eq!(asked, expected);
    }
}

// covers: ERL-03 ERL-04
#[test]
fn r2ts_that_are_lost_repeated_or_ask_again_are_answered_in_order_and_exactly() {
    let mut script = Script::new(Params {
        bursts: Bursts { initial_r2t: true, immediate_data: false, ..level_1().bursts },
        ..level_1()
    });
    script.write(1, 12_000);
    let (itt, _) = script.command();
    let data = |script: &mut Script| -> Vec<(u32, u32, usize)> {
        let sent = script.sent().into_iter();
        sent.map(|(pdu, tx)| match pdu {
            Pdu::DataOut(d) => {
                let at = d.buffer_offset as usize;
                assert_eq!(tx.data.bytes(), pattern(12_000)[at..at + tx.data.len()]);
                (d.ttt.0, d.buffer_offset, tx.data.len())
            }
            other => panic!("{other:?}"),
        })
        .collect()
    };
    // R2T 0 is lost: 1 and 2 wait for it.
    let r2ts: Vec<_> = (0..3).map(|n| script.r2t(itt, n, n * 4000, 4000).to_bhs()).collect();
    script.receive(r2ts[1], &[]);
    script.receive(r2ts[2], &[]);
    script.sent_nothing();
    script.wait_ms(2);
    let request = script.snacks()[0];
    assert_eq!((request.snack_type, request.beg_run, request.run_length), (SnackType::DataOrR2t, 0, 1));
    script.receive(r2ts[0], &[]);
    assert_eq!(data(&mut script), [(77, 0, 4000), (78, 4000, 4000), (79, 8000, 4000)]);
    for r2t in &r2ts {
        script.receive(*r2t, &[]);
        script.sent_nothing();
    }
    // A recovery R2T has the next number and requests the lost data.
    let again = script.r2t(itt, 3, 4000, 2000);
    script.receive(again.to_bhs(), &[]);
    assert_eq!(data(&mut script), [(80, 4000, 2000)]);
    script.good(itt);
    assert_eq!(script.ended(), (1, status(0, 0)));
}

// covers: ERL-03
#[test]
fn a_silent_task_is_asked_for_what_was_lost_without_a_trace() {
    let mut script = Script::new(Params {
        bursts: Bursts { initial_r2t: true, immediate_data: false, ..level_1().bursts },
        ..level_1()
    });
    script.write(1, 4000);
    let (itt, _) = script.command();
    script.exp_cmd_sn = CmdSn(FIRST).add(1);
    let nop = script.nop_in(Itt::RESERVED, Ttt::RESERVED, Lun(0));
    script.receive(nop.to_bhs(), &[]);
    script.wait_ms(5000);
    let request = script.snacks()[0];
    assert_eq!((request.itt, request.beg_run, request.run_length), (itt, 0, 0));
    // A target that had nothing to send says so; that does no harm.
    script.refuse(&request, RejectReason::ProtocolError);
    script.sent_nothing();
    let r2t = script.r2t(itt, 0, 0, 4000);
    script.receive(r2t.to_bhs(), &[]);
    assert_eq!(script.sent().len(), 1);
    script.good(itt);
    assert_eq!(script.ended().0, 1);
}

/// Silence is counted from the last PDU sent to the target for the task.
// covers: ERL-03
#[test]
fn a_task_that_was_sent_again_or_taken_over_is_silent_from_then_on() {
    let mut script = Script::new(level_1());
    script.read(1, 0);
    let (_, first) = script.sent_one();
    let itt = first.bhs.itt();
    script.wait_ms(700);
    script.reject(RejectReason::DataDigestError, first.bhs.as_bytes());
    assert_eq!(script.commands().len(), 1);
    script.exp_cmd_sn = CmdSn(FIRST).add(1);
    let nop = script.nop_in(Itt::RESERVED, Ttt::RESERVED, Lun(0));
    script.receive(nop.to_bhs(), &[]);
    script.wait_ms(4999);
    script.sent_nothing();
    script.wait_ms(1);
    assert_eq!(script.snacks()[0].itt, itt);

    let mut script = Script::with_connections(1, 2);
    script.read(1, 0);
    let (_, itt) = script.commands()[0];
    script.acknowledge_all(1);
    script.session.connection_lost(script.now, Cid(0));
    script.wait(6);
    script.join(0);
    let (_, function_itt, _, _) = script.function();
    script.answer(function_itt, TmfResponse::FunctionComplete);
    script.wait_ms(4999);
    script.sent_nothing();
    script.wait_ms(1);
    assert_eq!(script.snacks()[0].itt, itt);
}

// covers: NUM-12 MCS-07
#[test]
fn a_command_that_nobody_acknowledges_is_sent_again_the_same() {
    let mut script = Script::new(level_1());
    script.read(0, 0);
    script.read(1, 0);
    let tags: Vec<Itt> = script.commands().into_iter().map(|(_, itt)| itt).collect();
    // The first never arrived; the second waits behind it.
    script.wait_ms(999);
    script.sent_nothing();
    script.wait_ms(1);
    match &script.sent_on()[..] {
        [(_, Pdu::ScsiCommand(again))] => assert_eq!((again.itt, again.cmd_sn), (tags[0], CmdSn(FIRST))),
        other => panic!("{other:?}"),
    }
    script.exp_cmd_sn = CmdSn(FIRST).add(2);
    script.good(tags[0]);
    script.good(tags[1]);
    assert_eq!(script.all_ended().len(), 2);
    script.wait_ms(5000);
    script.sent_nothing();
    assert_eq!(script.session.counters().commands_retried, 1);
}

// covers: NUM-12
#[test]
fn each_hole_has_all_of_its_tries() {
    let mut script = Script::new(level_1());
    script.read(0, 0);
    script.read(1, 0);
    let tags: Vec<Itt> = script.commands().into_iter().map(|(_, itt)| itt).collect();
    let tries = |script: &mut Script, missing: Itt| {
        for n in 0..MAX_RESENDS {
            script.wait_ms(1000 * (1 + u64::from(n)));
            let sent = script.sent_on().into_iter();
            let commands = sent.filter_map(|(_, pdu)| match pdu {
                Pdu::ScsiCommand(again) => Some(again.itt),
                // Silent tasks are checked for lost PDUs.
                _ => None,
            });
            assert_eq!(commands.collect::<Vec<_>>(), [missing], "try {n}");
        }
    };
    tries(&mut script, tags[0]);
    // The first arrived at last, and the second is missing.
    script.exp_cmd_sn = CmdSn(FIRST).add(1);
    script.good(tags[0]);
    assert_eq!(script.all_ended().len(), 1);
    tries(&mut script, tags[1]);
}

// covers: SNK-04
#[test]
fn after_a_lowered_segment_length_all_data_are_asked_for_anew_with_a_tag() {
    let (mut script, itt) = Script::reading();
    script.send_piece(itt, 0, StatusBy::Response, true);
    assert!(script.session.declare_max_recv(script.now, script.cid, 512));
    let (request, text) = script.asked();
    assert_eq!(text, b"MaxRecvDataSegmentLength=512\0"[..]);
    script.text(request.itt, true, false, Ttt::RESERVED, b"");
    script.sent_nothing();
    let declared = script.said.pop();
    assert!(
        matches!(declared, Some(Action::Declared { max_recv_data_segment_length: 512, .. })),
        "{declared:?}"
    );
    // 1 is lost, the rest of the old cut arrives, then the response to it.
    for n in 2..PIECES {
        script.send_piece(itt, n, StatusBy::Response, true);
    }
    let mut early = script.response(itt);
    early.exp_data_sn = DataSn(PIECES);
    let early_stat_sn = early.numbers.stat_sn;
    let request = script.snacks()[0];
    assert_eq!((request.snack_type, request.beg_run, request.run_length), (SnackType::RData, 0, 0));
    let tag = request.ttt.0;
    assert!(tag != 0 && tag != u32::MAX);
    script.receive(early.to_bhs(), &[]);
    script.sent_nothing();
    assert!(script.take_ended().is_empty(), "a response without the tag is of the old data");
    // The new cut, from the beginning; one PDU of it damaged.
    let all = pattern((PIECE * PIECES) as usize);
    let send_all = |script: &mut Script, damaged: Option<u32>| {
        for n in 0..10 {
            let pdu = script.data_in(itt, n, n * 300);
            let at = (n * 300) as usize;
            script.receive_with(pdu.to_bhs(), &all[at..at + 300], damaged != Some(n));
        }
    };
    send_all(&mut script, Some(5));
    let mut response = script.response(itt);
    (response.numbers.stat_sn, response.snack_tag) = (early_stat_sn, tag);
    script.stat_sn = early_stat_sn.next();
    script.receive(response.to_bhs(), &[]);
    let request = script.snacks()[0];
    assert_eq!(request.snack_type, SnackType::RData);
    assert_ne!(request.ttt.0, tag, "another tag each time");
    assert!(script.take_ended().is_empty());
    send_all(&mut script, None);
    response.snack_tag = request.ttt.0;
    script.receive(response.to_bhs(), &[]);
    script.sent_nothing();
    assert_eq!(script.take_ended(), [(1, status(0, PIECE * PIECES))]);
    assert_eq!(script.delivered(), all);
    assert_eq!(script.acknowledged(), early_stat_sn.next());
}

// covers: SNK-04
#[test]
fn data_sent_anew_may_be_less_than_what_was_expected() {
    let (mut script, itt) = Script::reading();
    script.send_piece(itt, 0, StatusBy::Response, true);
    assert!(script.session.declare_max_recv(script.now, script.cid, 512));
    let (request, _) = script.asked();
    script.text(request.itt, true, false, Ttt::RESERVED, b"");
    script.sent_nothing();
    script.said.pop();
    // The target has half of it: 1 is lost, and 2 is the last.
    let all = pattern((PIECE * PIECES / 2) as usize);
    let mut last = script.piece(itt, 2, StatusBy::Response);
    last.final_bit = true;
    script.receive(last.to_bhs(), &all[2 * PIECE as usize..]);
    let tag = script.snacks()[0].ttt.0;
    for (n, data) in all.chunks(300).enumerate() {
        let pdu = script.data_in(itt, n as u32, n as u32 * 300);
        script.receive(pdu.to_bhs(), data);
    }
    let mut response = script.response(itt);
    (response.snack_tag, response.residual_count) = (tag, underflow(PIECE * PIECES / 2));
    script.receive(response.to_bhs(), &[]);
    script.sent_nothing();
    let ended = script.take_ended();
    assert!(
        matches!(ended[..], [(1, Ending::Status { status: 0, data_in_bytes, .. })] if data_in_bytes == PIECE * PIECES / 2),
        "{ended:?}"
    );
    assert_eq!(script.delivered(), all);
}

/// The data that waits behind a missing PDU is never more than the command's data: PDUs that overlap are requested again instead.
// covers: ERL-03
#[test]
fn data_that_lie_over_others_are_not_kept() {
    let (mut script, itt) = Script::reading();
    for n in [1, 4] {
        script.send_piece(itt, n, StatusBy::Response, true);
    }
    for (n, offset) in [(2, PIECE), (3, 4 * PIECE - 1)] {
        let mut pdu = script.data_in(itt, n, offset);
        pdu.final_bit = false;
        script.receive(pdu.to_bhs(), &[0xee; PIECE as usize]);
    }
    script.wait_ms(2);
    let runs = |script: &mut Script| -> Vec<(u32, u32)> {
        script.snacks().iter().map(|request| (request.beg_run, request.run_length)).collect()
    };
    assert_eq!(runs(&mut script), [(0, 1), (2, 2)]);
    for n in [0, 2, 3, 5] {
        script.send_piece(itt, n, StatusBy::Response, true);
    }
    script.good(itt);
    assert_eq!(script.ended(), (1, status(0, PIECE * PIECES)));
    assert_eq!(script.delivered(), pattern((PIECE * PIECES) as usize));
}

/// A target may reject a command for which it has sent data: nothing about the missing PDUs is remembered.
// covers: REJ-04
#[test]
fn a_command_that_is_sent_again_has_nothing_missing() {
    let mut script = Script::new(level_1());
    script.read(1, PIECE * PIECES);
    let (_, first) = script.sent_one();
    let Ok(Pdu::ScsiCommand(command)) = Pdu::parse(&first.bhs) else { panic!("a command") };
    script.send_piece(command.itt, 1, StatusBy::Response, true);
    assert!(script.session.missing.iter().eq([command.itt]));
    script.reject(RejectReason::DataDigestError, first.bhs.as_bytes());
    assert_eq!(script.session.missing.iter().count(), 0);
}

// covers: ERL-03
#[test]
fn what_no_target_can_have_sent_ends_the_session() {
    let (mut script, itt) = Script::reading();
    script.stat_sn = StatSn(FIRST).add(5000);
    script.good(itt);
    assert!(script.violated().contains("too far"));
    let (mut script, itt) = Script::reading();
    let pdu = script.data_in(itt, u32::MAX, 0);
    script.receive(pdu.to_bhs(), &[]);
    script.violated();
    let (mut script, itt) = Script::reading();
    let pdu = script.data_in(itt, 3, PIECE * PIECES);
    script.receive(pdu.to_bhs(), &[1]);
    assert!(script.violated().contains("beyond"));
}

// covers: RES-04
#[test]
fn a_residual_tells_how_much_is_missing_of_a_short_read() {
    let (mut script, itt) = Script::reading();
    script.send_piece(itt, 1, StatusBy::Response, true);
    let mut response = script.response(itt);
    response.exp_data_sn = DataSn(2);
    response.residual_count = underflow(PIECE * (PIECES - 2));
    script.receive(response.to_bhs(), &[]);
    let request = script.snacks()[0];
    assert_eq!((request.beg_run, request.run_length), (0, 1));
    script.send_piece(itt, 0, StatusBy::Response, true);
    script.sent_nothing();
    match script.take_ended().pop() {
        Some((1, Ending::Status { data_in_bytes, residual, .. })) => {
            assert_eq!((data_in_bytes, residual), (2 * PIECE, Residual::Underflow(PIECE * 4)));
        }
        other => panic!("{other:?}"),
    }
}

// covers: ERL-10
#[test]
fn erl_10_what_a_lost_connection_was_to_be_asked_for_sets_no_timer_that_never_passes() {
    for statuses in [false, true] {
        let mut script = Script::new(Params { error_recovery_level: 2, ..params() });
        script.read(1, PIECE * PIECES);
        let (itt, _) = script.command();
        script.exp_cmd_sn = CmdSn(FIRST).add(1);
        if statuses {
            script.stat_sn = script.stat_sn.add(1);
            script.send_piece(itt, PIECES - 1, StatusBy::LastDataIn, true);
        } else {
            script.send_piece(itt, 1, StatusBy::LastDataIn, true);
        }
        script.session.connection_lost(script.now, iscsi_wire::Cid(0));
        while script.session.poll_action().is_some() {}
        for _ in 0..100 {
            let Some(at) = script.session.poll_timeout() else { break };
            script.session.handle_timeout(at);
            while script.session.poll_action().is_some() {}
            assert!(
                script.session.poll_timeout().is_none_or(|next| next > at),
                "a timer at {at:?} does not pass"
            );
        }
    }
}
