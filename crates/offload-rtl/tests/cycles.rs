//! The cycles of `rtl/cycles.json`, which `intact bench offload` shows beside the 2013 paper's: measured again and compared. The circuits
//! are deterministic, so they must be equal. `make rtl-cycles` writes the file.
#![forbid(unsafe_code)]

#[path = "../../offload/tests/common/mod.rs"]
mod common;

use std::path::Path;

use common::{BOTH_DIGESTS, Bench, open_conn};
use offload::encoding::{OpenConn, SglElement, conn_flags, task_flags};
use offload_rtl::{
    Beat64, BeatWide, Crc64, CrcWide, Polynomial, Ports, RtlEngine, RxPacket, RxSettings, TableBits, Verdict,
    WideBuild, Width,
};
use serde_json::{Value, json};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rtl/cycles.json");
/// The data of one PDU in a frame of 1500 bytes, by the paper's 1.162 us at 8 bytes in each cycle of 156.25 MHz.
const FRAME_DATA: usize = 1452;
/// PDUs of a rate.
const PDUS: usize = 200;
/// Longest element of the list of a write, bytes.
const ELEMENT_BYTES: u32 = 256 << 10;
const ONES: u32 = !0;

/// A Data-In with both digests.
fn pdu(data_bytes: usize) -> Vec<u8> {
    let mut header = [0x25; 48];
    header[4] = 0;
    header[5..8].copy_from_slice(&(data_bytes as u32).to_be_bytes()[1..]);
    let data: Vec<u8> = (0..data_bytes.next_multiple_of(4)).map(|at| at as u8).collect();
    let digest = |bytes: &[u8]| integrity::crc32c(bytes).to_le_bytes();
    [&header[..], &digest(&header), &data, &digest(&data)].concat()
}

/// When, in cycles after the first beat of the stream, the last header segment, the last beat and the last verdict came.
struct Times {
    first_header: usize,
    last_beat: usize,
    last_verdict: usize,
}

/// Sends whole beats without pauses to a taker that always takes, until the verdict about the last of `pdus` PDUs.
fn send(mut rx: RxPacket, stream: &[u8], pdus: usize, expected: Verdict) -> Times {
    let bytes = rx.width().bytes();
    let max_data = rx.width().buffer_bytes();
    rx.restart(RxSettings { header_digest: true, data_digest: true, max_data }, 0);
    // The narrow unit fills its tables first.
    (0..200).for_each(|_| assert_eq!(rx.cycle(None, 0, true).failed, 0));
    let mut beats = stream.chunks(bytes).peekable();
    let (mut first_header, mut last_beat, mut verdicts) = (None, 0, 0);
    for cycle in 1..=2 * stream.len() + 200 {
        let said = rx.cycle(beats.peek().copied(), 0, true);
        assert_eq!(said.failed, 0, "an assert of the circuit has failed");
        if said.accepted {
            beats.next();
        }
        if let Some(segment) = said.segment {
            last_beat = cycle;
            if !segment.is_data && segment.last {
                first_header.get_or_insert(cycle);
            }
        }
        if let Some((verdict, _)) = said.verdict {
            assert_eq!(verdict, expected);
            verdicts += 1;
            if verdicts == pdus {
                return Times { first_header: first_header.unwrap_or(0), last_beat, last_verdict: cycle };
            }
        }
    }
    panic!("{verdicts} of {pdus} verdicts");
}

/// The receive stages of one Data-In with the data of a frame.
fn stages(width: Width) -> Value {
    let good = pdu(FRAME_DATA);
    let mut bad_header = good.clone();
    bad_header[48] ^= 1;
    let parsed = send(RxPacket::new(width, 1), &good, 1, Verdict::Good);
    let compared = send(RxPacket::new(width, 1), &bad_header, 1, Verdict::HeaderDigest);
    let stored = send(RxPacket::with_buffer(width, 1), &good, 1, Verdict::Good);
    json!({
        "bits": 8 * width.bytes(),
        "data_bytes": FRAME_DATA,
        "pdu_bytes": good.len(),
        "header_parsed": parsed.first_header,
        "header_digest_compared": compared.last_verdict,
        "data_parsed": parsed.last_beat,
        "data_digest_compared": parsed.last_verdict,
        "left_buffer": stored.last_verdict,
    })
}

/// The transmit stages of one command with the data of a frame as immediate data, in the whole engine: when, in cycles after the
/// descriptor was offered.
fn tx_stages(width: Width) -> Value {
    let open = open_conn(BOTH_DIGESTS | conn_flags::IMMEDIATE_DATA, 0);
    let mut bench = Bench::with(RtlEngine::new(width, 1), open);
    let post = bench.task(1, task_flags::WRITE, FRAME_DATA as u32);
    let cycles = bench.engine.run_free(&mut bench.memory, &[post.emit()], &[]);
    let pdu_bytes = bench.tx().len();
    assert_eq!(pdu_bytes, 48 + 4 + FRAME_DATA + 4);
    let when = |is: fn(&Ports) -> bool| -> Vec<usize> {
        (1..).zip(&cycles).filter(|(_, ports)| is(ports)).map(|(cycle, _)| cycle).collect()
    };
    let (reads, sent) = (when(|ports| ports.read), when(|ports| ports.send));
    // The first read is that of the list.
    let requested = reads[1];
    let arrived = when(|ports| ports.read_data).into_iter().find(|cycle| *cycle > requested);
    json!({
        "bits": 8 * width.bytes(),
        "data_bytes": FRAME_DATA,
        "pdu_bytes": pdu_bytes,
        "descriptor_taken": when(|ports| ports.descriptor)[0],
        "data_requested": requested,
        "data_arrives": arrived,
        "first_beat": sent[0],
        "left": sent[sent.len() - 1],
    })
}

/// A stream of [`PDUS`] PDUs, and its cycles.
fn rate(width: Width, data_bytes: usize, stream_bytes: usize, cycles: usize) -> Value {
    json!({
        "bits": 8 * width.bytes(),
        "data_bytes": data_bytes,
        "pdus": PDUS,
        "stream_bytes": stream_bytes,
        "cycles": cycles,
    })
}

/// Beats of a long stream, and the cycles from its first to the last beat out of the Rx buffer.
fn rx_rate(width: Width, data_bytes: usize) -> Value {
    let stream = pdu(data_bytes).repeat(PDUS);
    let times = send(RxPacket::with_buffer(width, 1), &stream, PDUS, Verdict::Good);
    rate(width, data_bytes, stream.len(), times.last_verdict)
}

/// Data-Out PDUs that one R2T asks for, out of the whole engine: cycles from the first beat to the last.
fn tx_rate(width: Width, data_bytes: usize) -> Value {
    let total = (PDUS * data_bytes) as u32;
    let open = OpenConn {
        max_send_data_segment_length: data_bytes as u32,
        max_burst_length: total,
        ..open_conn(BOTH_DIGESTS | conn_flags::INITIAL_R2T, 0)
    };
    let mut bench = Bench::with(RtlEngine::new(width, 1), open);
    // All elements are the same memory: what is in it makes no difference.
    let addr = bench.data_addr(1);
    let list: Vec<SglElement> = (0..total)
        .step_by(ELEMENT_BYTES as usize)
        .map(|at| SglElement { addr, length: ELEMENT_BYTES.min(total - at) })
        .collect();
    let post = bench.task_with(1, task_flags::WRITE, total, &list);
    bench.submit(&post.emit());
    assert_eq!(bench.tx().len(), 48 + 4, "the command has left");
    let r2t = bench.r2t(1, 9, 0, 0, total);
    let cycles = bench.engine.run_free(&mut bench.memory, &[], &r2t);
    let stream_bytes = bench.tx().len();
    assert_eq!(stream_bytes, PDUS * (48 + 4 + data_bytes + 4));
    let first = cycles.iter().position(|ports| ports.send).expect("beats leave");
    let last = cycles.iter().rposition(|ports| ports.send).expect("beats leave");
    rate(width, data_bytes, stream_bytes, last - first + 1)
}

/// Cycles from the last beat of a message of whole beats to its digest.
fn latency(mut cycle: impl FnMut(bool) -> Option<u32>) -> usize {
    assert_eq!(cycle(true), None);
    (1..100).find(|_| cycle(false).is_some()).expect("a digest comes")
}

fn measure() -> Value {
    let mut narrow = Crc64::new(TableBits::Four, 1);
    let set_poly = narrow.set_polynomial(Polynomial::Crc32c.value(), ONES, ONES);
    let mut wide = CrcWide::new(WideBuild::Engine(Polynomial::Crc32c), ONES, ONES, 1);
    let beat = Beat64 { data: [0; 8], keep: 0xff, last: true };
    let wide_beat = BeatWide { data: &[0; 64], keep: !0, last: true };
    let rates = |rate: fn(Width, usize) -> Value, least: usize| -> Vec<Value> {
        let of_width = |width: Width| {
            let within = least..=width.buffer_bytes() as usize;
            let sizes = (7..=16).map(|power| 1 << power).filter(move |bytes| within.contains(bytes));
            sizes.map(move |bytes| rate(width, bytes))
        };
        [Width::Bits64, Width::Bits512].into_iter().flat_map(of_width).collect()
    };
    json!({
        "set_poly": set_poly,
        "crc64_digest_after": latency(|sent| narrow.cycle(sent.then_some(beat)).digest),
        "crc_wide_digest_after": latency(|sent| wide.cycle(sent.then_some(wide_beat)).digest),
        "rx_stages": [stages(Width::Bits64), stages(Width::Bits512)],
        "rx_rates": rates(rx_rate, 128),
        "tx_stages": [tx_stages(Width::Bits64), tx_stages(Width::Bits512)],
        // The least MaxRecvDataSegmentLength (RFC 7143 13.12) has 512 bytes.
        "tx_rates": rates(tx_rate, 512),
    })
}

#[test]
fn the_file_has_the_cycles_of_the_circuits() {
    let measured = measure();
    if std::env::var_os("WRITE_CYCLES").is_some() {
        let text = serde_json::to_string_pretty(&measured).expect("values are JSON");
        std::fs::write(Path::new(FILE), text + "\n").expect("rtl/cycles.json is writable");
    }
    let kept = std::fs::read_to_string(Path::new(FILE)).expect("rtl/cycles.json is readable");
    let kept: Value = serde_json::from_str(&kept).expect("rtl/cycles.json is JSON");
    assert_eq!(measured, kept, "the circuits have changed: make rtl-cycles writes the new file");
}
