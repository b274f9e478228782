//! Things that happen at about the same time, as in hardware, where nobody waits for one before he gives the other.
#![forbid(unsafe_code)]

#[path = "../../offload/tests/common/mod.rs"]
mod common;

use common::{BOTH_DIGESTS, Bench, open_conn, pattern, task_done};
use crc::{CRC_32_ISO_HDLC, Crc};
use offload::Engine;
use offload::encoding::{
    Abort, Completion, OpenConn, SetPoly, SglElement, TaskResult, conn_flags, task_flags,
};
use offload_rtl::{Ports, RtlEngine, Width};

/// A change to the polynomial of `crc::CRC_32_ISO_HDLC`.
const CRC32: SetPoly =
    SetPoly { conn: 0, user: 0, polynomial: 0x04c1_1db7, init: u32::MAX, xor_out: u32::MAX };

const WIDTHS: [Width; 2] = [Width::Bits64, Width::Bits512];

fn completion_cycles(ports: &[Ports]) -> Vec<usize> {
    (0..ports.len()).filter(|cycle| ports[*cycle].completion).collect()
}

/// A read ends while a list of so many elements is walked, which are too few bytes for their task; `early` beats of its Data-In have come
/// before. Returns the completions, by tag and result, and whether they came in cycles that follow each other.
fn completions(width: Width, elements: u32, early: usize) -> (Vec<(u32, TaskResult)>, bool) {
    let mut bench = Bench::with(RtlEngine::new(width, 1), open_conn(BOTH_DIGESTS, 0));
    bench.read(1, 512);
    let data_in = bench.data_in(1, 0, 0, &[5; 512], Some(100));
    let early = early * width.bytes();
    bench.rx(&data_in[..early]);
    let list: Vec<_> =
        (0..elements).map(|n| SglElement { addr: bench.data_addr(2) + u64::from(n), length: 1 }).collect();
    let short = bench.task_with(2, task_flags::READ, 1000, &list);
    let ports = bench.engine.run_free(&mut bench.memory, &[short.emit()], &data_in[early..]);
    let mut done: Vec<_> =
        task_done(&bench.completions()).iter().map(|done| (done.itt, done.result)).collect();
    done.sort_by_key(|(itt, _)| *itt);
    (done, completion_cycles(&ports).windows(2).any(|two| two[0] + 1 == two[1]))
}

#[test]
fn a_descriptor_and_a_pdu_that_end_together_have_a_completion_each() {
    for width in WIDTHS {
        let mut meetings = 0;
        // An element takes some cycles and a beat takes one, so some of these end in the same cycle.
        for (elements, early) in (1..=45).flat_map(|elements| (0..8).map(move |early| (elements, early))) {
            let (done, at_once) = completions(width, elements, early);
            let expected = [(1, TaskResult::GOOD), (2, TaskResult::BAD_SGL)];
            assert_eq!(done, expected, "{width:?}, {elements} elements, {early} beats early");
            meetings += u32::from(at_once);
        }
        assert!(meetings > 0, "{width:?}: one always waits for the other anyway");
    }
}

/// Beats of data in the Data-In below.
const BEATS: usize = 32;

/// A PDU for software while a SNACK is sent: `before` commands go before the SNACK, and `early` beats of the PDU have come already. Returns
/// the cycles of both completions, first the PDU's.
fn pdu_and_snack(width: Width, before: u32, early: usize) -> [usize; 2] {
    let mut bench = Bench::with(RtlEngine::new(width, 1), open_conn(BOTH_DIGESTS, 1));
    bench.read(1, 1024);
    // Its first Data-In is lost.
    let second = bench.data_in(1, 1, 512, &[5; 512], None);
    bench.rx(&second);
    for itt in 2..2 + before {
        bench.post(itt, task_flags::READ, 512);
    }
    bench.engine.advance(1_000_000);
    let pdu = bench.data_in(99, 0, 0, &vec![6; BEATS * width.bytes()], None);
    let early = early * width.bytes();
    bench.rx(&pdu[..early]);
    assert!(bench.completions().is_empty(), "nothing has ended yet");
    let ports = bench.engine.run_free(&mut bench.memory, &[], &pdu[early..]);
    let cycles = completion_cycles(&ports);
    let done = bench.completions();
    let case = format!("{width:?}, {before} commands before, {early} bytes early: {done:?}");
    match (&done[..], &cycles[..]) {
        ([Completion::RawPdu(_), Completion::SnackSent(_)], [first, second]) => [*first, *second],
        ([Completion::SnackSent(_), Completion::RawPdu(_)], [first, second]) => [*second, *first],
        _ => panic!("{case}"),
    }
}

#[test]
fn a_snack_and_a_pdu_that_end_together_have_a_completion_each() {
    for width in WIDTHS {
        // A beat takes a cycle, so the end of the PDU can be put to that of the SNACK.
        let gap = |before| {
            let [pdu, snack] = pdu_and_snack(width, before, 0);
            pdu.checked_sub(snack)
        };
        let near = |before| gap(before).filter(|gap| (3..BEATS - 3).contains(gap)).map(|gap| (before, gap));
        let (before, early) = (1..20).find_map(near).expect("a command more brings the SNACK nearer");
        let meets = |early: &usize| {
            let [pdu, snack] = pdu_and_snack(width, before, *early);
            pdu.abs_diff(snack) == 1
        };
        let meetings = (early.saturating_sub(8)..BEATS.min(early + 8)).filter(meets).count();
        assert!(meetings > 0, "{width:?}: one always waits for the other anyway");
    }
}

/// The PDU at hand is finished before the end of its connection is reported: nothing of it comes behind.
#[test]
fn a_connection_ends_behind_the_pdu_at_hand() {
    const PDUS: usize = 14;
    let abort = Abort { itt: u32::MAX, ..Abort::default() }.emit();
    for width in WIDTHS {
        let open = OpenConn { raw_slots: PDUS as u16, ..open_conn(BOTH_DIGESTS, 0) };
        let run = |descriptors: &[[u8; 64]], pdus: usize| {
            let mut bench = Bench::with(RtlEngine::new(width, 1), open);
            let data = pattern(1, width.buffer_bytes() as usize / 8);
            let pdu = bench.data_in(99, 0, 0, &data, None);
            let ports = bench.engine.run_free(&mut bench.memory, descriptors, &pdu.repeat(pdus));
            (ports, bench.completions(), pdu.len())
        };
        let end = completion_cycles(&run(&[abort], 0).0)[0];
        let (ports, _, length) = run(&[], PDUS);
        let receives: Vec<usize> = (0..ports.len()).filter(|cycle| ports[*cycle].receive).collect();
        let reported = completion_cycles(&ports);
        // All of a PDU has been received when the connection ends, and it is being written to host memory.
        let at_hand = |pdus: &usize| {
            let received = receives[(pdus * length).div_ceil(width.bytes()) - 1];
            received + 4 < end && reported[pdus - 1] > end
        };
        let pdus = (1..=PDUS).find(at_hand).expect("one is at hand");
        let (ports, done, _) = run(&[abort], pdus);
        let (last, before) = done.split_last().expect("the end is reported");
        assert!(matches!(last, Completion::TaskDone(_)), "{width:?}: {done:?}");
        assert!(before.iter().all(|done| matches!(done, Completion::RawPdu(_))), "{done:?}");
        let cycles = completion_cycles(&ports);
        assert!(cycles[pdus] - cycles[pdus - 1] <= 2, "{width:?}: the end has not waited: {cycles:?}");
    }
}

/// A change of the polynomial does not wait until all that is queued has been sent.
#[test]
fn the_polynomial_changes_between_two_of_the_pdus_that_are_queued() {
    let mut bench = Bench::with(RtlEngine::new(Width::Bits64, 1), open_conn(conn_flags::HEADER_DIGEST, 0));
    for itt in 1..=20 {
        bench.post(itt, task_flags::READ, 512);
    }
    bench.engine.run_free(&mut bench.memory, &[CRC32.emit()], &[]);
    let new = Crc::<u32>::new(&CRC_32_ISO_HDLC);
    let sent = bench.tx();
    let is_new = |pdu: &[u8]| {
        let (header, digest) = pdu.split_at(48);
        let of = |crc: &Crc<u32>| crc.checksum(header).to_le_bytes() == *digest;
        assert!(of(&bench.crc) || of(&new), "{pdu:02x?}");
        of(&new)
    };
    let changed: Vec<bool> = sent.chunks(52).map(is_new).collect();
    assert_eq!(changed.len(), 20);
    assert!(changed.is_sorted() && changed[3], "{changed:?}");
}

/// A change that comes while another waits would take its place. It is refused when a PDU may begin between the two, as the lengths of the
/// PDU at hand are not known yet.
#[test]
fn a_change_of_the_polynomial_does_not_replace_one_that_the_next_pdu_has() {
    let mut bench = Bench::with(RtlEngine::new(Width::Bits64, 1), open_conn(conn_flags::HEADER_DIGEST, 0));
    let first = bench.data_in(98, 0, 0, &[], None);
    // Of two words the circuit reads the lengths.
    let (begun, rest) = first.split_at(7);
    assert_eq!(bench.rx(begun), begun.len());
    bench.submit(&CRC32.emit());
    bench.crc = Crc::<u32>::new(&CRC_32_ISO_HDLC);
    let next = bench.data_in(99, 0, 0, &[], None);
    let other = SetPoly { init: 0, ..CRC32 };
    // No descriptor has the first one's kind: the second is executed so much later.
    bench.engine.run_free(&mut bench.memory, &[[0; 64], other.emit()], &[rest, &next].concat());
    let done = bench.completions();
    let results: Vec<_> = task_done(&done).iter().map(|done| done.result).collect();
    assert_eq!(results, [TaskResult::GOOD, TaskResult::INVALID, TaskResult::TABLE_FULL]);
    let raws = done.iter().filter(|done| matches!(done, Completion::RawPdu(_)));
    assert_eq!(raws.count(), 2, "{done:?}");
}
