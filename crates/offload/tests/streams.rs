//! The cut of the byte stream changes nothing, and no flipped bit goes unseen.

mod common;

use common::*;
use offload::Engine;
use offload::encoding::{Completion, StopReason, TaskResult, task_flags};
use proptest::prelude::*;

/// A conversation: three reads with losses, bad digests, data for nobody, and a write.
fn conversation(bench: &Bench, corrupt: &[bool]) -> Vec<u8> {
    let mut pdus = Vec::new();
    for itt in 1..=3_u32 {
        let data = pattern(itt, 3000);
        for (sn, part) in (0..3_u32).zip(data.chunks(1000)) {
            let stat_sn = (sn == 2).then_some(99 + itt);
            pdus.push(bench.data_in(itt, sn, sn * 1000, part, stat_sn));
        }
        pdus.push(bench.data_in(90 + itt, 0, 0, &data[..77], None));
        pdus.push(bench.r2t(4, itt, itt - 1, (itt - 1) * 1000, 1000));
    }
    pdus.push(bench.response(4, 103, 3));
    for (pdu, corrupt) in pdus.iter_mut().zip(corrupt) {
        let at = pdu.len() / 2 + 24;
        if let Some(byte) = pdu.get_mut(at).filter(|_| *corrupt && at > 60) {
            *byte ^= 0x20;
        }
    }
    // Replicas of everything: what was lost comes back, the others are duplicates.
    let again = pdus.clone();
    pdus.extend(again);
    pdus.concat()
}

fn ready(level: u8) -> Bench {
    let mut bench = Bench::open(open_conn(BOTH_DIGESTS, level));
    for itt in 1..=3 {
        bench.read(itt, 3000);
    }
    bench.post(4, task_flags::WRITE, 8000);
    bench.tx();
    bench
}

/// What can be observed after a stream that arrives in these cuts.
fn run(level: u8, corrupt: &[bool], cuts: &[usize]) -> (Vec<Completion>, Bench, Vec<u8>) {
    let mut bench = ready(level);
    let bytes = conversation(&bench, corrupt);
    let (mut at, mut cut, mut completions) = (0, 0, Vec::new());
    while at < bytes.len() {
        let end = bytes.len().min(at + cuts[cut % cuts.len()]);
        cut += 1;
        let used = bench.rx(&bytes[at..end]);
        at += used;
        completions.extend(bench.completions());
        if bench.engine.tables().sessions[0].raw_slots_free == 0 {
            bench.engine.release_raw(0, RAW_SLOTS);
        } else if used == 0 {
            break;
        }
    }
    bench.engine.advance(1000);
    let sent = bench.tx();
    completions.extend(bench.completions());
    (completions, bench, sent)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // covers: PDU-09
    #[test]
    fn any_cut_of_the_stream_gives_the_same(
        level in 0..=1_u8,
        corrupt in proptest::collection::vec(proptest::bool::weighted(0.2), 16),
        cuts in proptest::collection::vec(1..3000_usize, 1..20),
    ) {
        let (expected, whole, sent) = run(level, &corrupt, &[usize::MAX / 2]);
        let (completions, bench, sent_in_cuts) = run(level, &corrupt, &cuts);
        prop_assert_eq!(completions, expected);
        prop_assert_eq!(sent_in_cuts, sent);
        prop_assert!(bench.memory == whole.memory);
        prop_assert_eq!(bench.engine.tables(), whole.engine.tables());
    }

    #[test]
    fn no_stream_makes_it_panic_or_write_outside(
        level in 0..=2_u8,
        flips in proptest::collection::vec((0..20_000_usize, any::<u8>()), 0..6),
    ) {
        let mut open = open_conn(0, level);
        open.max_recv_data_segment_length = 8192;
        let mut bench = Bench::open(open);
        bench.read(1, 3000);
        let mut bytes = conversation(&bench, &[]);
        for (at, value) in flips {
            let length = bytes.len();
            bytes[at % length] = value;
        }
        bench.rx(&bytes);
        bench.engine.advance(u64::MAX);
        bench.tx();
        let outside = bench.memory.bytes()[0x40000 + 0x8000 + 3000..].iter().all(|byte| *byte == 0);
        prop_assert!(outside);
    }
}

// covers: DIG-07 DIG-14
#[test]
fn every_flipped_bit_of_a_pdu_is_detected() {
    let length = ready(0).data_in(1, 0, 0, &pattern(1, 45), None).len();
    for bit in 0..length * 8 {
        let mut bench = ready(0);
        let mut bytes = bench.data_in(1, 0, 0, &pattern(1, 45), None);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // A flipped TotalAHSLength takes what follows into the header.
        bytes.extend(bench.data_in(1, 1, 45, &pattern(1, 2000), None));
        bench.rx(&bytes);
        let completions = bench.completions();
        let stopped = need_resync(&completions).map(|need| need.reason);
        let expected = if bit < 52 * 8 { StopReason::HEADER_DIGEST } else { StopReason::DATA_DIGEST };
        assert_eq!(stopped, Some(expected), "bit {bit}");
        assert!(task_done(&completions).iter().all(|done| done.result != TaskResult::GOOD));
        assert!(bench.data_of(1, 3000).iter().all(|byte| *byte == 0), "bit {bit}: nothing was placed");
    }
}
