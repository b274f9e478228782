//! Exchanges of an initiator, PDU by PDU.

use crate::common::*;
use iscsi_wire::{
    CmdSn, DataOut, Itt, Lun, NopIn, NopOut, Opcode, ResidualCount, ResponseNumbers, ScsiCommand,
    SnackRequest, SnackType, StatSn, Ttt,
};
use offload::Engine;
use offload::HostMem;
use offload::encoding::{
    Abort, Completion, DescriptorKind, OpenConn, RawReason, Resync, SendRaw, SetPoly, StopReason, TaskResult,
    conn_flags, raw_flags, task_flags,
};

// covers: DAT-07 DIG-03
pub fn a_read_is_placed_and_ends_with_the_status_of_its_last_data_in<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, 0));
    let data = pattern(1, 10_001);
    bench.post(7, task_flags::READ, 10_001);
    let sent = bench.sent();
    let command = ScsiCommand::parse(&sent[0].0).expect("a command");
    assert_eq!((command.cmd_sn, command.exp_stat_sn, command.lun), (CmdSn(10), StatSn(100), LUN));
    assert!(command.read && !command.write && command.final_bit && sent.len() == 1);

    for (sn, from) in [(0, 0), (1, 4096)] {
        let bytes = bench.data_in(7, sn, from as u32, &data[from..from + 4096], None);
        bench.rx(&bytes);
        assert!(bench.completions().is_empty());
    }
    let last = bench.data_in(7, 2, 8192, &data[8192..], Some(100));
    assert_eq!(bench.rx(&last), last.len());
    let done = task_done(&bench.completions());
    assert_eq!(done.len(), 1);
    assert_eq!((done[0].result, done[0].user, done[0].bytes_received), (TaskResult::GOOD, 1007, 10_001));
    assert_eq!((done[0].status, done[0].stat_sn), (0, 100));
    assert_eq!(bench.data_of(7, 10_001), data);
    let tables = bench.engine.tables();
    assert!(tables.commands.is_empty() && tables.data_addresses.is_empty());
    assert_eq!((tables.sessions[0].exp_stat_sn, tables.sessions[0].max_cmd_sn), (101, 40));
}

pub fn a_response_brings_sense_data_and_residuals<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, 0));
    bench.read(2, 4096);
    let mut pdu = response(2, 100, 0);
    pdu.status = 2;
    pdu.residual_count = ResidualCount::of(4096, 0);
    let sense = [&[0, 18, 0x70, 0, 5][..], &[0; 15]].concat();
    let bytes = bench.pdu(pdu.to_bhs(), &sense);
    bench.rx(&bytes);
    let done = task_done(&bench.completions());
    assert_eq!((done[0].status, done[0].residual_count, done[0].sense_bytes), (2, 4096, 20));
    assert_eq!(done[0].residual_flags, offload::encoding::residual_flags::UNDERFLOW);
    let mut placed = [0; 20];
    bench.memory.read(SENSE_ADDR + 512, &mut placed).expect("in host memory");
    assert_eq!(placed[..], sense);
}

// covers: UNS-01 UNS-03 UNS-04 UNS-05 DAT-01 DAT-02 R2T-02
pub fn a_write_sends_immediate_unsolicited_and_solicited_data<E: Engine>(new: fn() -> E) {
    for (flags, immediate, unsolicited) in [
        (conn_flags::IMMEDIATE_DATA, 4096, 4096),
        (conn_flags::IMMEDIATE_DATA | conn_flags::INITIAL_R2T, 4096, 0),
        (0, 0, 8192),
        (conn_flags::INITIAL_R2T, 0, 0),
    ] {
        let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS | flags, 0));
        let data = pattern(3, 20_000);
        let addr = bench.data_addr(1);
        bench.memory.write(addr, &data).expect("in host memory");
        bench.post(1, task_flags::WRITE, 20_000);
        let mut pdus = bench.sent();
        let (command, with_command) = pdus.remove(0);
        let command = ScsiCommand::parse(&command).expect("a command");
        assert_eq!((with_command.len(), command.final_bit), (immediate, unsolicited == 0));
        let solicited_from = immediate + unsolicited;
        let rest = (20_000 - solicited_from) as u32;
        let first = rest.min(9_000);
        for (sn, offset, length) in [(0, 0, first), (1, first, rest - first)] {
            let r2t = bench.r2t(1, 50 + sn, sn, solicited_from as u32 + offset, length);
            bench.rx(&r2t);
        }
        pdus.extend(bench.sent());
        let mut written = with_command;
        let mut data_sn = 0;
        for (bhs, data) in &pdus {
            let pdu = DataOut::parse(bhs).expect("a Data-Out");
            assert_eq!((pdu.buffer_offset as usize, pdu.data_sn.0), (written.len(), data_sn));
            assert!(data.len() <= 4096);
            assert_eq!(pdu.ttt.is_reserved(), written.len() < solicited_from);
            data_sn = if pdu.final_bit { 0 } else { data_sn + 1 };
            written.extend_from_slice(data);
        }
        assert_eq!(written, data);
        let response = bench.response(1, 100, 2);
        bench.rx(&response);
        let done = task_done(&bench.completions());
        assert_eq!((done[0].result, done[0].bytes_sent), (TaskResult::GOOD, 20_000));
    }
}

// covers: NUM-01 NUM-05 NUM-06
pub fn commands_wait_for_the_window_and_immediate_ones_do_not<E: Engine>(new: fn() -> E) {
    let mut open = open_conn(0, 0);
    open.max_cmd_sn = 10;
    let mut bench = Bench::with(new(), open);
    bench.post(1, task_flags::READ, 512);
    bench.post(2, task_flags::READ, 512);
    bench.post(3, task_flags::READ | task_flags::IMMEDIATE, 512);
    let numbers = |bench: &mut Bench<E>| -> Vec<(u32, u32)> {
        let sent = bench.sent();
        sent.iter().map(|(bhs, _)| (bhs.itt().0, bhs.cmd_sn().0)).collect()
    };
    assert_eq!(numbers(&mut bench), [(1, 10), (3, 11)]);
    let mut older = response(1, 100, 0);
    (older.numbers.exp_cmd_sn, older.numbers.max_cmd_sn) = (CmdSn(11), CmdSn(9));
    let bytes = bench.pdu(older.to_bhs(), &[]);
    bench.rx(&bytes);
    assert_eq!(numbers(&mut bench), []);
    let mut opens = response(3, 101, 0);
    (opens.numbers.exp_cmd_sn, opens.numbers.max_cmd_sn) = (CmdSn(11), CmdSn(11));
    let bytes = bench.pdu(opens.to_bhs(), &[]);
    bench.rx(&bytes);
    assert_eq!(numbers(&mut bench), [(2, 11)]);
}

// covers: NUM-09
pub fn what_is_not_offloaded_goes_to_software_and_its_status_counts<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, 0));
    let nop = NopIn {
        lun: Lun(0),
        itt: Itt(9),
        ttt: Ttt::RESERVED,
        numbers: ResponseNumbers { stat_sn: StatSn(100), exp_cmd_sn: CmdSn(10), max_cmd_sn: CmdSn(33) },
    };
    let bytes = bench.pdu(nop.to_bhs(), b"hello");
    bench.rx(&bytes);
    let completions = bench.completions();
    let [Completion::RawPdu(raw)] = completions[..] else { panic!("{completions:?}") };
    assert_eq!((raw.reason, raw.itt, raw.header_bytes, raw.data_bytes), (RawReason::OPCODE, 9, 48, 5));
    let mut placed = [0; 53];
    bench.memory.read(raw.addr, &mut placed).expect("in host memory");
    assert_eq!(&placed[48..], b"hello");
    assert_eq!(placed[0] & 0x3f, Opcode::NopIn.code());
    let session = bench.engine.tables().sessions[0];
    assert_eq!((session.exp_stat_sn, session.max_cmd_sn, session.raw_slots_free), (101, 33, RAW_SLOTS - 1));

    let nop = NopOut {
        immediate: true,
        lun: Lun(0),
        itt: Itt::RESERVED,
        ttt: Ttt(4),
        cmd_sn: CmdSn(0),
        exp_stat_sn: StatSn(0),
    };
    let mut bhs = nop.to_bhs();
    bhs.set_data_segment_length(3);
    let addr = DATA_ADDR;
    bench.memory.write(addr, &[&bhs.as_bytes()[..], b"abc"].concat()).expect("in host memory");
    let send = SendRaw { flags: raw_flags::CMD_SN, conn: 0, user: 5, addr, length: 51 };
    bench.submit(&send.emit());
    let done = task_done(&bench.completions());
    assert_eq!((done[0].descriptor, done[0].result), (DescriptorKind::SEND_RAW, TaskResult::GOOD));
    let sent = bench.sent();
    let nop = NopOut::parse(&sent[0].0).expect("a NOP-Out");
    assert_eq!((nop.cmd_sn, nop.exp_stat_sn, &sent[0].1[..]), (CmdSn(10), StatSn(101), &b"abc"[..]));
}

pub fn a_full_ring_of_raw_pdus_stops_the_stream_until_slots_are_released<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(0, 0));
    let stray = bench.data_in(77, 0, 0, &[1; 64], None);
    let all: Vec<u8> = stray.repeat(usize::from(RAW_SLOTS) + 2);
    let mut at = bench.rx(&all);
    assert_eq!(bench.completions().len(), usize::from(RAW_SLOTS));
    assert_eq!(at, stray.len() * (usize::from(RAW_SLOTS) + 1), "one waits in the receive buffer");
    bench.engine.release_raw(0, 1);
    at += bench.rx(&all[at..]);
    assert_eq!((bench.completions().len(), at), (1, all.len()));
    bench.engine.release_raw(0, RAW_SLOTS);
    bench.rx(&[]);
    let completions = bench.completions();
    assert!(matches!(completions[..], [Completion::RawPdu(raw)] if raw.reason == RawReason::NO_TASK));
}

// covers: DAT-03 R2T-03 PDU-08 DAT-08
pub fn what_breaks_a_rule_stops_the_stream_and_places_nothing<E: Engine>(new: fn() -> E) {
    let mut beyond = data_in(1, 0, 4000, None);
    let overlay = data_in(1, 1, 100, None);
    beyond.final_bit = true;
    let mut half_status = data_in(1, 0, 0, Some(100));
    half_status.final_bit = false;
    for (pdus, placed) in [
        (vec![beyond.to_bhs()], 0),
        (vec![data_in(1, 0, 0, None).to_bhs(), overlay.to_bhs()], 512),
        (vec![data_in(1, 0, 512, None).to_bhs()], 0),
        (vec![half_status.to_bhs()], 0),
        (vec![data_in(2, 0, 0, None).to_bhs()], 0),
    ] {
        let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, 1));
        bench.read(1, 4096);
        bench.post(2, task_flags::WRITE, 4096);
        bench.tx();
        for bhs in pdus {
            let bytes = bench.pdu(bhs, &[9; 512]);
            bench.rx(&bytes);
        }
        let completions = bench.completions();
        let [Completion::RawPdu(raw), Completion::NeedResync(need)] = completions[..] else {
            panic!("{completions:?}")
        };
        assert_eq!((raw.reason, need.reason), (RawReason::PROTOCOL, StopReason::PROTOCOL));
        let data = bench.data_of(1, 4096);
        assert!(data[placed..].iter().all(|byte| *byte == 0));
        assert_eq!(bench.rx(&[0; 100]), 0, "nothing more is taken");
    }
    for (offset, length) in [(4000, 200), (0, 0), (u32::MAX, 8), (0, 16_385)] {
        let mut bench = Bench::with(new(), open_conn(0, 0));
        bench.post(1, task_flags::WRITE, 4096);
        bench.tx();
        let r2t = bench.r2t(1, 5, 0, offset, length);
        bench.rx(&r2t);
        assert_eq!(need_resync(&bench.completions()).map(|need| need.reason), Some(StopReason::PROTOCOL));
        assert!(bench.tx().is_empty());
    }
}

// covers: DIG-11 ERL-03
pub fn level_0_stops_at_a_bad_data_digest_and_goes_on_where_software_says<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, 0));
    bench.read(1, 1024);
    let mut bad = bench.data_in(1, 0, 0, &[5; 512], None);
    bad[60] ^= 1;
    assert_eq!(bench.rx(&bad), bad.len());
    let completions = bench.completions();
    let [Completion::DigestError(error), Completion::NeedResync(need)] = completions[..] else {
        panic!("{completions:?}")
    };
    assert_eq!((error.user, need.reason), (1001, StopReason::DATA_DIGEST));
    assert_eq!(need.boundary, bad.len() as u64);
    assert!(bench.data_of(1, 1024).iter().all(|byte| *byte == 0));

    bench.submit(&Abort { conn: 0, itt: 1, user: 0 }.emit());
    bench.submit(&Resync { conn: 0, user: 0, position: need.boundary + 3 }.emit());
    let results: Vec<_> = task_done(&bench.completions()).iter().map(|done| done.result).collect();
    assert_eq!(results, [TaskResult::ABORTED, TaskResult::GOOD, TaskResult::GOOD]);
    bench.read(2, 512);
    let good = [&[1, 2, 3][..], &bench.data_in(2, 0, 0, &[6; 512], Some(100))].concat();
    assert_eq!(bench.rx(&good), good.len());
    assert_eq!(task_done(&bench.completions())[0].result, TaskResult::GOOD);

    bench.read(3, 1024);
    let gap = bench.data_in(3, 1, 512, &[5; 512], None);
    bench.rx(&gap);
    assert_eq!(need_resync(&bench.completions()).map(|need| need.reason), Some(StopReason::SEQUENCE));
}

// covers: PDU-07
pub fn a_data_segment_above_the_declared_length_is_refused_at_its_header<E: Engine>(new: fn() -> E) {
    for level in [0, 1] {
        let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, level));
        let mut bytes = bench.data_in(1, 0, 0, &[0; 8196], None);
        bytes.truncate(52);
        bench.rx(&bytes);
        assert_eq!(
            need_resync(&bench.completions()).map(|need| need.reason),
            Some(StopReason::DATA_TOO_LONG)
        );
    }
}

pub fn closing_a_connection_ends_its_tasks<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(0, 0));
    bench.read(1, 512);
    bench.post(2, task_flags::READ, 512);
    bench.submit(&Abort { conn: 0, itt: u32::MAX, user: 8 }.emit());
    let done: Vec<_> = task_done(&bench.completions()).iter().map(|done| (done.itt, done.result)).collect();
    let aborted = TaskResult::ABORTED;
    assert_eq!(done, [(1, aborted), (2, aborted), (u32::MAX, TaskResult::GOOD)]);
    assert!(bench.engine.tables().sessions.is_empty() && bench.tx().is_empty());
    let again = OpenConn { max_recv_data_segment_length: 4096, ..open_conn(0, 0) };
    bench.submit(&again.emit());
    assert_eq!(task_done(&bench.completions())[0].result, TaskResult::GOOD);
}

pub fn a_polynomial_is_exchanged_between_two_pdus<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, 0));
    bench.read(1, 1024);
    let before = bench.data_in(1, 0, 0, &[5; 512], None);
    bench.rx(&before[..100]);
    let (init, xor_out) = (u32::MAX, u32::MAX);
    bench.submit(&SetPoly { conn: 0, user: 0, polynomial: 0x04c1_1db7, init, xor_out }.emit());
    bench.rx(&before[100..]);
    bench.crc = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);
    let after = bench.data_in(1, 1, 512, &[6; 512], Some(100));
    bench.rx(&after);
    let done = task_done(&bench.completions());
    assert_eq!(done[0].result, TaskResult::GOOD, "the polynomial is exchanged");
    assert_eq!((done[0].descriptor, done[1].bytes_received), (DescriptorKind::SET_POLY, 1024));
    bench.post(2, task_flags::READ, 512);
    assert_eq!(bench.sent().len(), 1, "its digests are those of the new polynomial");
    assert_eq!(bench.engine.tables().sessions[0].polynomial, 0x04c1_1db7);
    bench.submit(&SetPoly { conn: 0, user: 0, polynomial: 0x04c1_1db6, init, xor_out }.emit());
    assert_eq!(task_done(&bench.completions())[0].result, TaskResult::INVALID);
}

pub fn descriptors_that_cannot_be_executed_are_answered_with_the_reason<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(0, 0));
    let refused = |bench: &mut Bench<E>| task_done(&bench.completions())[0].result;
    bench.post(1, task_flags::READ | task_flags::WRITE, 512);
    assert_eq!(refused(&mut bench), TaskResult::INVALID);
    bench.read(1, 512);
    bench.post(1, task_flags::READ, 512);
    assert_eq!(refused(&mut bench), TaskResult::ITT_IN_USE);
    bench.submit(&Abort { conn: 0, itt: 2, user: 0 }.emit());
    assert_eq!(refused(&mut bench), TaskResult::NO_TASK);
    bench.submit(&Abort { conn: 3, itt: 2, user: 0 }.emit());
    assert_eq!(refused(&mut bench), TaskResult::NO_CONNECTION);
    bench.submit(&Resync { conn: 0, user: 0, position: 0 }.emit());
    assert_eq!(refused(&mut bench), TaskResult::INVALID);
    let short =
        offload::encoding::PostTask { flags: task_flags::READ, itt: 5, edtl: 1, ..Default::default() };
    bench.submit(&short.emit());
    assert_eq!(refused(&mut bench), TaskResult::BAD_SGL);
    bench.submit(&[0xff; 64]);
    assert_eq!(refused(&mut bench), TaskResult::INVALID);
}

pub fn a_connection_of_a_target_is_refused<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(0, 0));
    bench.submit(&OpenConn { conn: 1, ..open_conn(conn_flags::TARGET, 0) }.emit());
    assert_eq!(task_done(&bench.completions())[0].result, TaskResult::NOT_SUPPORTED, "of another role");
}

// covers: SNK-03 SNK-08
pub fn the_a_bit_is_answered_with_a_dataack<E: Engine>(new: fn() -> E) {
    for level in [0, 1] {
        let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, level));
        bench.read(1, 1024);
        let mut pdu = data_in(1, 0, 0, None);
        (pdu.acknowledge, pdu.ttt, pdu.lun) = (true, Ttt(66), LUN);
        let bytes = bench.pdu(pdu.to_bhs(), &[5; 512]);
        bench.rx(&bytes);
        let sent = bench.sent();
        if level == 0 {
            assert!(sent.is_empty());
            continue;
        }
        let ack = SnackRequest::parse(&sent[0].0).expect("a SNACK");
        assert_eq!((ack.snack_type, ack.itt, ack.ttt), (SnackType::DataAck, Itt::RESERVED, Ttt(66)));
        assert_eq!((ack.lun, ack.beg_run, ack.run_length), (LUN, 1, 0));
        let completions = bench.completions();
        assert!(
            matches!(completions[..], [Completion::DataackSent(sent)] if (sent.itt, sent.beg_run) == (1, 1))
        );
    }
}
