//! Numbers, data in both directions, statuses and residuals.

use bytes::{Bytes, BytesMut};
use iscsi_wire::{Ahs, CmdSn, Lun, Pdu, ResidualCount, StatSn, TaskAttribute, Ttt, parse_ahs};
use smallvec::SmallVec;

use super::{FIRST, Script, params, pattern, status, underflow};
use crate::initiator::command::{Command, Ending, Residual, WriteData};
use crate::initiator::session::{Action, CloseReason};
use crate::params::{Bursts, Params};

#[test]
fn num_01_cmd_sn_counts_commands_and_immediates_carry_the_current_value() {
    let mut script = Script::new(params());
    for n in 0..4u32 {
        script.read(n.into(), 512);
        assert_eq!(script.command().1, CmdSn(FIRST).add(n), "it wraps");
        assert!(script.session.ping(script.now, 1, Bytes::new()));
        match script.sent_one().0 {
            Pdu::NopOut(nop) => {
                assert!(nop.immediate && nop.ttt.is_reserved());
                assert_eq!(nop.cmd_sn, CmdSn(FIRST).add(n + 1));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn num_06_a_closed_window_queues_commands_while_immediates_flow() {
    let mut script = Script::with_window(params(), 1);
    script.read(1, 512);
    let (itt, _) = script.command();
    script.read(2, 512);
    script.read(3, 512);
    script.sent_nothing();
    assert!(script.session.ping(script.now, 9, Bytes::new()));
    assert!(matches!(script.sent_one().0, Pdu::NopOut(_)));
    (script.exp_cmd_sn, script.max_cmd_sn) = (CmdSn(FIRST).add(1), CmdSn(FIRST).add(1));
    script.good(itt);
    assert_eq!(script.command().1, CmdSn(FIRST).add(1), "one place, one command");
    assert_eq!(script.session.outstanding(), 2);
    // NUM-07 seen from the other side: a NOP-In that requests no answer opens the window.
    script.max_cmd_sn = CmdSn(FIRST).add(2);
    let nop = iscsi_wire::NopIn {
        lun: Lun(0),
        itt: iscsi_wire::Itt::RESERVED,
        ttt: Ttt::RESERVED,
        numbers: script.numbers(),
    };
    script.receive(nop.to_bhs(), &[]);
    assert_eq!(script.command().1, CmdSn(FIRST).add(2));
}

// covers: NUM-04 NUM-10
#[test]
fn a_missing_status_closes_and_many_are_acknowledged_without_being_asked() {
    let mut script = Script::new(params());
    script.read(1, 0);
    let (itt, _) = script.command();
    script.stat_sn = StatSn(FIRST).add(1);
    script.good(itt);
    assert!(script.violated().contains("StatSN"));

    let mut script = Script::new(params());
    // One status at a time, with nothing to send in between: this happens with asynchronous messages.
    let mut acknowledged = 0;
    for _ in 0..3000 {
        let message = iscsi_wire::AsyncMessage {
            lun: Lun(0),
            numbers: script.take_numbers(),
            event: iscsi_wire::AsyncEvent::Vendor(255),
            vcode: 0,
            parameter1: 0,
            parameter2: 0,
            parameter3: 0,
        };
        script.receive(message.to_bhs(), &[]);
        for (pdu, _) in script.sent() {
            match pdu {
                Pdu::NopOut(nop) => {
                    assert!(nop.itt.is_reserved() && nop.ttt.is_reserved() && nop.immediate);
                    assert_eq!(nop.exp_stat_sn, script.stat_sn);
                    acknowledged += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(acknowledged, 2);
}

/// What is sent for a write of `length` bytes: F bit and data of the command; offset, length and F of each Data-Out.
fn unasked(params: Params, length: usize) -> (bool, usize, Vec<(u32, usize, bool)>) {
    let mut script = Script::new(params);
    script.write(1, length);
    let mut sent = script.sent().into_iter();
    let (first, tx) = sent.next().unwrap();
    let Pdu::ScsiCommand(command) = first else { panic!("{first:?}") };
    assert!(command.write && !command.read && command.attr == TaskAttribute::Simple);
    assert_eq!(command.expected_data_transfer_length as usize, length);
    assert_eq!(tx.data.bytes(), pattern(length)[..tx.data.len()]);
    let data = sent.map(|(pdu, out)| {
        let Pdu::DataOut(header) = pdu else { panic!("{pdu:?}") };
        assert!(header.ttt.is_reserved() && header.itt == command.itt && header.lun == command.lun);
        let at = header.buffer_offset as usize;
        assert_eq!(out.data.bytes(), pattern(length)[at..at + out.data.len()]);
        (header.buffer_offset, out.data.len(), header.final_bit)
    });
    (command.final_bit, tx.data.len(), data.collect())
}

// covers: UNS-03 UNS-04 UNS-05 KEY-09 KEY-10
#[test]
fn uns_01_the_four_cases() {
    let case = |initial_r2t, immediate_data| Params {
        bursts: Bursts { initial_r2t, immediate_data, ..params().bursts },
        ..params()
    };
    // MaxRecvDataSegmentLength 4096, FirstBurstLength 8192.
    assert_eq!(unasked(case(false, true), 20_000), (false, 4096, vec![(4096, 4096, true)]));
    assert_eq!(unasked(case(true, true), 20_000), (true, 4096, vec![]));
    assert_eq!(unasked(case(false, false), 20_000), (false, 0, vec![(0, 4096, false), (4096, 4096, true)]));
    assert_eq!(unasked(case(true, false), 20_000), (true, 0, vec![]));
    assert_eq!(unasked(case(false, true), 512), (true, 512, vec![]), "all of it fits the command");
    assert_eq!(
        unasked(case(false, true), 5000),
        (false, 4096, vec![(4096, 904, true)]),
        "min(FirstBurst, EDTL)"
    );
    let small = Params { bursts: Bursts { first_burst_length: 1024, ..params().bursts }, ..params() };
    assert_eq!(unasked(small, 20_000), (true, 1024, vec![]), "FirstBurstLength bounds immediate data too");
    let odd = Params {
        bursts: Bursts { first_burst_length: 65536, max_burst_length: 6000, ..params().bursts },
        ..params()
    };
    assert_eq!(
        unasked(odd, 20_000),
        (false, 4096, vec![(4096, 1904, true)]),
        "and never exceeds MaxBurstLength"
    );
}

#[test]
fn r2t_02_answers_come_at_once_and_in_order() {
    let mut script = Script::new(Params {
        bursts: Bursts { initial_r2t: true, immediate_data: false, ..params().bursts },
        ..params()
    });
    script.write(1, 20_000);
    let (itt, _) = script.command();
    // covers: DAT-01 DAT-02 DAT-03 KEY-16
    for (n, offset, length) in [(0, 0, 10_000), (1, 10_000, 10_000)] {
        let r2t = script.r2t(itt, n, offset, length);
        script.receive(r2t.to_bhs(), &[]);
    }
    let sent: Vec<_> = script
        .sent()
        .into_iter()
        .map(|(pdu, tx)| match pdu {
            Pdu::DataOut(d) => {
                let at = d.buffer_offset as usize;
                assert_eq!(tx.data.bytes(), pattern(20_000)[at..at + tx.data.len()]);
                assert_eq!((d.itt, d.lun), (itt, Lun::from_index(1)));
                (d.ttt.0, d.data_sn.0, d.buffer_offset, tx.data.len(), d.final_bit)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (77, 0, 0, 4096, false),
        (77, 1, 4096, 4096, false),
        (77, 2, 8192, 1808, true),
        (78, 0, 10_000, 4096, false),
        (78, 1, 14_096, 4096, false),
        (78, 2, 18_192, 1808, true),
    ];
    assert_eq!(sent, expected);
    script.good(itt);
    assert_eq!(script.ended(), (1, status(0, 0)));
    assert_eq!(script.session.outstanding_write_bytes(), 0);
}

#[test]
fn r2t_03_what_no_r2t_may_ask_ends_the_session() {
    let cases: [(u32, u32, u32, u32, &str); 7] = [
        (0, 0, 0, 77, "0 bytes"),
        (0, 0, 16_385, 77, "MaxBurstLength"),
        (0, 16_000, 8192, 77, "beyond"),
        (0, 0, 4096, u32::MAX, "without a target transfer tag"),
        (1, 0, 4096, 77, "R2TSN"),
        (0, u32::MAX - 100, 4096, 77, "beyond"),
        (0, 4096, 4096, 77, "due"),
    ];
    for (r2t_sn, offset, length, ttt, words) in cases {
        let mut script = Script::new(Params {
            bursts: Bursts { initial_r2t: true, immediate_data: false, ..params().bursts },
            ..params()
        });
        script.write(1, 20_000);
        let (itt, _) = script.command();
        let mut r2t = script.r2t(itt, r2t_sn, offset, length);
        r2t.ttt = Ttt(ttt);
        script.receive(r2t.to_bhs(), &[]);
        let said = script.violated();
        assert!(said.contains(words), "{said}");
    }
    let mut script = Script::new(params());
    script.read(1, 4096);
    let (itt, _) = script.command();
    let r2t = script.r2t(itt, 0, 0, 512);
    script.receive(r2t.to_bhs(), &[]);
    assert!(script.violated().contains("beyond"), "a read has no data to ask for");
    let mut script = Script::new(params());
    let r2t = script.r2t(iscsi_wire::Itt(12345), 0, 0, 512);
    script.receive(r2t.to_bhs(), &[]);
    assert!(script.violated().contains("not there"));
}

// covers: DAT-06 DAT-07
#[test]
fn dat_03_data_in_arrives_in_its_place_or_ends_the_session() {
    let mut script = Script::new(params());
    script.read(5, 6000);
    let (itt, _) = script.command();
    let all = pattern(6000);
    for (data_sn, range) in [(0, 0..4096), (1, 4096..4096), (2, 4096..6000)] {
        let mut pdu = script.data_in(itt, data_sn, range.start as u32);
        if data_sn == 2 {
            (pdu.status_bit, pdu.numbers.stat_sn) = (true, script.stat());
        }
        script.receive(pdu.to_bhs(), &all[range]);
    }
    script.sent_nothing();
    let mut got = Vec::new();
    script.said.retain(|action| match action {
        Action::DataIn { user: 5, offset, data } => {
            assert_eq!(*offset as usize, got.len());
            got.extend_from_slice(data);
            false
        }
        _ => true,
    });
    assert_eq!(got, all);
    assert_eq!(script.ended(), (5, status(0, 6000)));

    let wrong: [(u32, u32, usize, &str); 4] = [
        (1, 0, 512, "DataSN"),
        (0, 512, 512, "offset"),
        (0, 0, 6001, "beyond"),
        (0, u32::MAX, 512, "offset"),
    ];
    for (data_sn, offset, length, words) in wrong {
        let mut script = Script::new(params());
        script.read(5, 6000);
        let (itt, _) = script.command();
        let pdu = script.data_in(itt, data_sn, offset);
        script.receive(pdu.to_bhs(), &pattern(length));
        let said = script.violated();
        assert!(said.contains(words), "{said}");
    }
    let mut script = Script::new(params());
    script.read(5, 6000);
    let (itt, _) = script.command();
    let mut pdu = script.data_in(itt, 0, 0);
    (pdu.final_bit, pdu.status_bit, pdu.numbers.stat_sn) = (false, true, script.stat());
    script.receive(pdu.to_bhs(), &[]);
    assert!(script.violated().contains("S without F"));
}

#[test]
fn res_04_a_residual_bounds_what_counts() {
    let mut script = Script::new(params());
    script.read(1, 4096);
    let (itt, _) = script.command();
    let pdu = script.data_in(itt, 0, 0);
    script.receive(pdu.to_bhs(), &pattern(4096));
    let mut response = script.response(itt);
    response.residual_count = underflow(512);
    script.receive(response.to_bhs(), &[]);
    match script.ended().1 {
        Ending::Status { data_in_bytes, residual, .. } => {
            assert_eq!((data_in_bytes, residual), (3584, Residual::Underflow(512)));
        }
        other => panic!("{other:?}"),
    }
    // More than was expected in total: none of it counts, and nothing wraps.
    script.read(2, 4096);
    let (itt, _) = script.command();
    let mut response = script.response(itt);
    response.residual_count = underflow(u32::MAX);
    script.receive(response.to_bhs(), &[]);
    assert!(matches!(script.ended().1, Ending::Status { data_in_bytes: 0, .. }));
    script.read(3, 4096);
    let (itt, _) = script.command();
    let mut response = script.response(itt);
    response.residual_count = ResidualCount { overflow: true, ..underflow(0) };
    script.receive(response.to_bhs(), &[]);
    assert!(script.violated().contains("both overflow and underflow"));
}

// covers: RSP-01 PDU-08
#[test]
fn check_condition_comes_with_sense_and_sense_within_its_segment() {
    let respond = |data: &[u8]| {
        let mut script = Script::new(params());
        script.read(1, 512);
        let (itt, _) = script.command();
        let mut response = script.response(itt);
        response.status = 2;
        script.receive(response.to_bhs(), data);
        script
    };
    let mut good = respond(&[0, 3, 0x70, 0, 5, 9, 9]);
    match good.ended().1 {
        Ending::Status { status: 2, sense, .. } => assert_eq!(sense[..], [0x70, 0, 5]),
        other => panic!("{other:?}"),
    }
    for bad in [&[][..], &[0], &[0, 0], &[0, 4, 1, 2, 3], &[0xff, 0xff, 1]] {
        let said = respond(bad).violated();
        assert!(said.contains("sense"), "{said}");
    }
}

#[test]
fn rsp_03_another_response_code_makes_status_and_flags_meaningless() {
    let mut script = Script::new(params());
    script.read(1, 512);
    let (itt, _) = script.command();
    let mut response = script.response(itt);
    (response.response, response.status) = (1, 2);
    response.residual_count = ResidualCount { overflow: true, ..underflow(0) };
    script.receive(response.to_bhs(), &[]);
    assert_eq!(script.ended(), (1, Ending::TargetFailure { response: 1 }));
}

// covers: DIG-11
#[test]
fn dig_12_data_with_a_wrong_digest_fails_its_task_and_a_response_its_session() {
    let mut script = Script::new(params());
    script.read(1, 8192);
    let (itt, _) = script.command();
    let first = script.data_in(itt, 0, 0);
    script.receive_with(first.to_bhs(), &pattern(4096), false);
    let second = script.data_in(itt, 1, 4096);
    script.receive(second.to_bhs(), &pattern(4096));
    script.good(itt);
    assert_eq!(script.ended(), (1, Ending::DataDigest));
    assert!(script.said.is_empty(), "no byte of it was handed up after the damage: {:?}", script.said);

    script.read(2, 8192);
    let (itt, _) = script.command();
    let response = script.response(itt);
    script.receive_with(response.to_bhs(), &[0, 1, 2], false);
    assert_eq!(script.closed().0, CloseReason::DataDigest);
    assert_eq!(script.session.unfinished().len(), 1);
}

#[test]
fn ahs_01_ahs_02_long_cdbs_and_bidirectional_commands() {
    let mut script = Script::new(params());
    let cdb: Vec<u8> = (0..32).collect();
    let mut command = Command::new(Lun::from_index(1), &cdb);
    command.read_length = 1000;
    command.write = pattern(512).into();
    script.session.submit(script.now, command).unwrap();
    let (pdu, tx) = script.sent_one();
    let Pdu::ScsiCommand(header) = pdu else { panic!("{pdu:?}") };
    assert!(header.read && header.write);
    assert_eq!((header.expected_data_transfer_length, &header.cdb[..]), (512, &cdb[..16]));
    let ahs: Vec<_> = parse_ahs(&tx.ahs).collect::<Result<_, _>>().unwrap();
    assert_eq!(ahs, [Ahs::ExtendedCdb(&cdb[16..]), Ahs::BidiReadLength(1000)]);
    // covers: RES-03
    let mut response = script.response(header.itt);
    response.bidi_residual_count = underflow(1000);
    response.residual_count = underflow(7);
    script.receive(response.to_bhs(), &[]);
    match script.ended().1 {
        Ending::Status { residual, .. } => assert_eq!(residual, Residual::Underflow(1000)),
        other => panic!("{other:?}"),
    }
    // 16 bytes fit the header: no AHS.
    script.session.submit(script.now, Command::new(Lun(0), &cdb[..16])).unwrap();
    assert!(script.sent_one().1.ahs.is_empty());
    for bad in [0, 4000] {
        let mut command = Command::new(Lun(0), &[0]);
        command.cdb = SmallVec::from_elem(0, bad);
        script.session.submit(script.now, command).unwrap();
        assert!(matches!(script.ended().1, Ending::Unsendable(_)));
    }
}

// covers: PDU-05 PDU-06
#[test]
fn pdus_that_a_target_may_not_send_end_the_session() {
    let mut script = Script::new(params());
    script.read(1, 512);
    let (_, tx) = script.sent_one();
    script.receive(tx.bhs, &[]);
    assert!(script.violated().contains("from a target"));
    let mut script = Script::new(params());
    let r2t = script.r2t(iscsi_wire::Itt(0), 0, 0, 512);
    script.receive(r2t.to_bhs(), &[1]);
    assert!(script.violated().contains("segment"));
    let mut script = Script::new(params());
    let mut bytes = *script.r2t(iscsi_wire::Itt(0), 0, 0, 512).to_bhs().as_bytes();
    bytes[0] = 0x2f;
    script.receive(iscsi_wire::Bhs::from_bytes(bytes), &[]);
    script.violated();
}

#[test]
fn dig_15_a_copy_keeps_its_digest_in_whatever_pieces_it_goes_out() {
    for length in [1, 511, 16_384, 16_385, 40_000, 200_000] {
        let source = pattern(length);
        let copied = WriteData::copy_from(&source, BytesMut::zeroed(length), Some(16_384));
        for piece in [512, 4096, 8192, 16_384, 65_536, 262_144] {
            for start in (0..length).step_by(piece) {
                let range = start..(start + piece).min(length);
                let part = copied.part(range.clone()).make();
                assert_eq!(part.bytes, source[range.clone()]);
                if let Some(crc) = part.crc32c {
                    assert_eq!(crc, integrity::crc32c(&source[range]));
                }
            }
        }
        assert!(copied.part(0..length).make().crc32c.is_some(), "the whole is made of whole runs");
        assert_eq!(
            WriteData::copy_from(&source, BytesMut::zeroed(length), None).part(0..length).make().crc32c,
            None
        );
    }
}

// covers: DIG-15
#[test]
fn what_the_caller_does_with_its_memory_later_changes_nothing() {
    let mut source = vec![1; 30_000];
    let copied = WriteData::copy_from(&source, BytesMut::zeroed(30_000), Some(8192));
    source.fill(2);
    let part = copied.part(0..30_000).make();
    assert!(part.bytes.iter().all(|&byte| byte == 1));
    assert_eq!(part.crc32c, Some(integrity::crc32c(&part.bytes)));
}
