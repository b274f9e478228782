//! The receive side of the engine against the engine in software: completions, host memory and tables after the same descriptors
//! and the same bytes, whatever the cut of the stream and the pace of the surroundings.
#![forbid(unsafe_code)]

mod bench;
#[path = "../campaign/mod.rs"]
mod campaign;
#[path = "../../../offload/tests/common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the tests of the whole engine use the rest")]
mod peer;
mod random;

use bench::*;
use campaign::length;
use fastrand::Rng;
use offload::Engine;
use offload::encoding::{
    Completion, CompletionKind, DigestAction, OpenConn, PostTask, RawReason, SglElement, StopReason,
    TaskResult, task_flags,
};
use offload_rtl::Width;
use peer::*;
use random::*;

const WIDTHS: [Width; 2] = [Width::Bits64, Width::Bits512];

/// One connection: descriptors and PDUs as they come. Returns how many PDUs the engine in software was given.
fn connection(bench: &mut Bench, random: &mut Rng) -> usize {
    let open = random_open(bench.rtl.width(), random);
    bench.reopen(open);
    let mut pdus = 0;
    for _ in 0..random.usize(1..30) {
        bench.pace = Pace {
            gaps: [0, 40][random.usize(..2)],
            busy: [0, 0, 40, 80][random.usize(..4)],
            cut: random.bool(),
            latency: [1, 1, 3, 12][random.usize(..4)],
        };
        match random.u8(..12) {
            0 => bench.abort(random.u32(..24)),
            1 => bench.post_and_cancel(random.u32(100..110), random.u32(..5)),
            2..6 => bench.transmit(),
            _ => {}
        }
        for _ in 0..random.usize(..4) {
            let (post, list) = random_task(random);
            bench.post(&post, &list);
        }
        if random.u8(..3) > 0 {
            bench.transmit();
        }
        pdus += stretch(bench, random);
        if random.u8(..3) == 0 {
            bench.compare_tables();
        }
        while bench.session().raw_slots_free == 0 {
            bench.release(random.u16(1..=RAW_SLOTS + 1));
        }
        if bench.session().stop_reason.0 != 0 {
            bench.resync(random.u64(..2) * random.u64(..70));
        }
    }
    bench.compare_tables();
    pdus
}

/// PDUs until one waits for a slot or stops the connection; then the same bytes for the circuit.
fn stretch(bench: &mut Bench, random: &mut Rng) -> usize {
    let (mut bytes, mut pdus) = (Vec::new(), 0);
    let open = *bench.params();
    let mut behind = Vec::new();
    for _ in 0..random.usize(1..60) {
        let tables = bench.twin.tables();
        let mut pdu = next_pdu(&Polynomial::CRC32C, &open, &tables.sessions[0], &tables.commands, random);
        random_flip(&mut pdu, &open, random);
        // Behind a PDU that waits for a slot nothing is taken.
        if bench.lead(&pdu) == 0 {
            bench.seen.insert((WAITED, 0));
            break;
        }
        pdus += 1;
        bytes.extend(pdu);
        let session = bench.session();
        if session.stop_reason.0 != 0 {
            behind = random_bytes(random.usize(..200), random);
            break;
        }
    }
    bench.catch_up(&bytes, &behind);
    pdus
}

fn campaign(width: Width, pdus: usize, seed: u64) -> usize {
    let mut random = Rng::with_seed(seed);
    let mut bench = Bench::new(width, open_conn(BOTH_DIGESTS, max_data(width)), seed);
    let mut done = 0;
    while done < pdus {
        done += connection(&mut bench, &mut random);
    }
    assert_eq!(WANTED.iter().filter(|wanted| !bench.seen.contains(wanted)).collect::<Vec<_>>(), NOTHING);
    done
}

const NOTHING: [&(CompletionKind, u8); 0] = [];
/// What must have happened for a campaign to count, each with its result, action or reason.
const WANTED: [(CompletionKind, u8); 14] = [
    (CompletionKind::TASK_DONE, TaskResult::GOOD.0),
    (CompletionKind::TASK_DONE, TaskResult::MEMORY.0),
    (CompletionKind::RAW_PDU, RawReason::OPCODE.0),
    (CompletionKind::RAW_PDU, RawReason::NO_TASK.0),
    (CompletionKind::RAW_PDU, RawReason::PROTOCOL.0),
    (CompletionKind::RAW_PDU, RawReason::SEQUENCE.0),
    (CompletionKind::DIGEST_ERROR, DigestAction::STOPPED.0),
    (CompletionKind::NEED_RESYNC, StopReason::HEADER_DIGEST.0),
    (CompletionKind::NEED_RESYNC, StopReason::DATA_TOO_LONG.0),
    (CompletionKind::NEED_RESYNC, StopReason::DATA_DIGEST.0),
    (CompletionKind::NEED_RESYNC, StopReason::PROTOCOL.0),
    (CompletionKind::NEED_RESYNC, StopReason::SEQUENCE.0),
    (CompletionKind::NEED_RESYNC, StopReason::MEMORY.0),
    // A PDU has waited for a slot: no completion, so no code.
    (WAITED, 0),
];

#[test]
fn random_conversations_are_as_in_the_software_engine() {
    let counts = WIDTHS.map(|width| campaign(width, length(4000), 11));
    println!("PDUs at 64 and 512 bit: {counts:?}");
}

fn read(itt: u32, edtl: u32) -> (PostTask, Vec<SglElement>) {
    let post = PostTask {
        flags: task_flags::READ,
        itt,
        user: 1000 + u64::from(itt),
        edtl,
        sense_addr: SENSE_ADDR,
        ..PostTask::default()
    };
    (post, vec![SglElement { addr: DATA_ADDR, length: edtl }])
}

/// A bench with a read of `edtl` bytes under way, and its first Data-In.
fn reading(width: Width, edtl: u32, data: &[u8]) -> (Bench, Vec<u8>) {
    let open = open_conn(BOTH_DIGESTS, max_data(width));
    let mut bench = Bench::new(width, open, 5);
    let (post, list) = read(3, edtl);
    assert_eq!(bench.post(&post, &list), TaskResult::GOOD);
    bench.transmit();
    let header = Header { flags: 0, itt: 3, ..Header::of(&bench.session(), DATA_IN) };
    (bench, header.pdu(&open, &[], data))
}

/// Every bit of a Data-In, flipped alone: the connection stops, and no byte of it is in host memory.
#[test]
fn no_flipped_bit_reaches_host_memory() {
    let mut random = Rng::with_seed(6);
    let data = random_bytes(45, &mut random);
    for width in WIDTHS {
        let (_, pdu) = reading(width, 100, &data);
        for bit in 0..8 * pdu.len() {
            let (mut bench, mut bytes) = reading(width, 100, &data);
            bytes[bit / 8] ^= 1 << (bit % 8);
            // What follows is enough for the longest header that a flip can claim.
            bytes.extend(random_bytes(1100, &mut random));
            bench.lead(&bytes);
            let expected = if bit < 8 * 52 { StopReason::HEADER_DIGEST } else { StopReason::DATA_DIGEST };
            assert_eq!(bench.session().stop_reason, expected, "bit {bit}");
            bench.catch_up(&bytes, &[]);
            assert!(bench.data(DATA_ADDR, 100).iter().all(|byte| *byte == 0), "{width:?}, bit {bit}");
        }
    }
}

/// Each Data-In of a read, left out alone: the next one stops the connection, and nothing behind the loss is placed.
#[test]
fn no_lost_data_in_goes_unseen() {
    for width in WIDTHS {
        for lost in 0..7 {
            let (mut bench, _) = reading(width, 800, &[]);
            let session = bench.session();
            let pdus = (0..8_u32).map(|sn| {
                let last = if sn == 7 { FINAL | STATUS } else { 0 };
                let header =
                    Header { flags: last, itt: 3, sn, offset: 100 * sn, ..Header::of(&session, DATA_IN) };
                header.pdu(bench.params(), &[], &[sn as u8 + 1; 100])
            });
            let bytes: Vec<u8> =
                pdus.zip(0..).filter(|(_, sn)| *sn != lost).flat_map(|(pdu, _)| pdu).collect();
            bench.lead(&bytes);
            assert_eq!(bench.session().stop_reason, StopReason::SEQUENCE);
            bench.catch_up(&bytes, &[]);
            let placed = bench.data(DATA_ADDR, 800);
            let expected: Vec<u8> =
                (0..800).map(|at| if at < 100 * lost { (at / 100) as u8 + 1 } else { 0 }).collect();
            assert_eq!(placed, expected);
        }
    }
}

/// All entries and all their lists, several times over: what ends makes room again, and one task too many is refused.
#[test]
fn the_tables_fill_and_empty() {
    let width = Width::Bits512;
    let mut open = open_conn(0, 4096);
    open.max_cmd_sn = open.cmd_sn + 2000;
    let mut bench = Bench::new(width, open, 9);
    for round in 0..3 {
        for itt in 0..256 {
            let list: Vec<_> = (0..256)
                .map(|at| SglElement { addr: DATA_ADDR + 300 * u64::from(itt) + at, length: 1 })
                .collect();
            let (post, _) = read(itt, if itt % 3 == 0 { 256 } else { 16 });
            let list = &list[..post.edtl as usize];
            assert_eq!(bench.post(&post, list), TaskResult::GOOD, "round {round}, task {itt}");
        }
        let (post, list) = read(999, 16);
        assert_eq!(bench.post(&post, &list), TaskResult::TABLE_FULL);
        bench.transmit();
        if round == 0 {
            bench.compare_tables();
        }
        let mut bytes = Vec::new();
        for itt in (0..256).rev() {
            let session = bench.session();
            let header = Header { flags: FINAL | STATUS, itt, ..Header::of(&session, DATA_IN) };
            let pdu = header.pdu(&open, &[], &[itt as u8; 16]);
            bench.lead(&pdu);
            bytes.extend(pdu);
        }
        bench.catch_up(&bytes, &[]);
        assert_eq!(bench.session().commands, 0);
    }
}

/// With fewer elements than 256 whole lists take: the list that does not fit is refused and gives back what it had got, and what ends
/// makes room for it.
#[test]
fn lists_that_exceed_all_elements_together_are_refused() {
    let mut bench = Bench::new(Width::Bits64, open_conn(0, 4096), 9);
    let list = |count: u64| -> Vec<_> { (0..count).map(|at| (DATA_ADDR + at, 1)).collect() };
    for _ in 0..3 {
        for itt in 0..4 {
            assert_eq!(bench.post_to_circuit(itt, &list(255)), TaskResult::GOOD);
        }
        assert_eq!(bench.post_to_circuit(4, &list(5)), TaskResult::TABLE_FULL);
        assert_eq!(bench.post_to_circuit(5, &list(4)), TaskResult::GOOD);
        assert_eq!(bench.post_to_circuit(6, &list(1)), TaskResult::TABLE_FULL);
        bench.end_in_circuit(2);
        assert_eq!(bench.post_to_circuit(6, &list(256)), TaskResult::TABLE_FULL);
        assert_eq!(bench.post_to_circuit(6, &list(255)), TaskResult::GOOD);
        [0, 1, 3, 5, 6].into_iter().for_each(|itt| bench.end_in_circuit(itt));
    }
}

/// Beats of the stream for each cycle, from the first beat to the last byte in host memory, with both digests:
/// `cargo test ... --test rx_engine beats -- --nocapture` prints them. Each read is `pdus` Data-In long; its memory has pages.
#[test]
fn beats_per_cycle_are_above_the_bar() {
    for (width, data_bytes, pdus, bar) in [
        // (width, bytes of a Data-In, Data-In of a read, bar)
        (Width::Bits512, 8192_u32, 16_u32, 0.97),
        (Width::Bits512, 512, 16, 0.85),
        (Width::Bits512, 512, 1, 0.85),
        (Width::Bits64, 4096, 16, 0.97),
        (Width::Bits64, 512, 1, 0.85),
    ] {
        let mut random = Rng::with_seed(7);
        let open = OpenConn { max_cmd_sn: 1000, ..open_conn(BOTH_DIGESTS, max_data(width)) };
        let mut bench = Bench::new(width, open, 7);
        let (mut bytes, reads) = (Vec::new(), 192 / pdus);
        for itt in 0..reads {
            let edtl = data_bytes * pdus;
            let list: Vec<_> = (0..edtl.div_ceil(4096))
                .map(|page| SglElement {
                    addr: DATA_ADDR + 4096 * u64::from(page),
                    length: 4096.min(edtl - 4096 * page),
                })
                .collect();
            assert_eq!(bench.post(&PostTask { edtl, ..read(itt, edtl).0 }, &list), TaskResult::GOOD);
        }
        bench.transmit();
        for (itt, sn) in (0..reads).flat_map(|itt| (0..pdus).map(move |sn| (itt, sn))) {
            let flags = if sn + 1 == pdus { FINAL | STATUS } else { 0 };
            let session = bench.session();
            let header = Header { flags, itt, sn, offset: sn * data_bytes, ..Header::of(&session, DATA_IN) };
            let pdu = header.pdu(&open, &[], &random_bytes(data_bytes as usize, &mut random));
            bench.lead(&pdu);
            bytes.extend(pdu);
        }
        let before = bench.cycles;
        bench.catch_up(&bytes, &[]);
        let cycles = bench.last_write - before;
        let beats = bytes.len() as f64 / width.bytes() as f64;
        let rate = beats / cycles as f64;
        println!(
            "{width:?}: {reads} reads of {pdus} Data-In of {data_bytes} bytes: {beats} beats in {cycles} cycles, {rate:.3}"
        );
        assert!(rate >= bar, "{width:?}, {data_bytes} bytes: {rate:.3} is below {bar}");
        assert_eq!(bench.session().commands, 0);
    }
}

/// Header segments and data lie one behind the other, without padding.
#[test]
fn what_is_for_software_lies_in_the_ring() {
    let mut random = Rng::with_seed(8);
    for width in WIDTHS {
        let (mut bench, _) = reading(width, 100, &[]);
        let open = *bench.params();
        let data = random_bytes(77, &mut random);
        let ahs = random_bytes(12, &mut random);
        let pdu = Header { itt: 9, ..Header::of(&bench.session(), NOP_IN) }.pdu(&open, &ahs, &data);
        bench.lead(&pdu);
        let expected = Completion::parse(&bench.twin.poll().expect("a raw PDU")).expect("a defined kind");
        let Completion::RawPdu(raw) = expected else { panic!("{expected:?}") };
        assert_eq!((raw.addr, raw.header_bytes, raw.data_bytes, raw.position), (RAW_ADDR, 60, 77, 0));
        let record = bench.completions_of(&pdu);
        assert_eq!(record, [expected.emit()]);
        assert_eq!(bench.data(RAW_ADDR, 60)[48..], ahs);
        assert_eq!(bench.data(RAW_ADDR + 60, 77), data);
    }
}
