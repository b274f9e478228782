//! A descriptor and a PDU that are done at about the same time, as in hardware, where nobody waits for one before he gives the other: each
//! has its completion, whichever comes first.
#![forbid(unsafe_code)]

#[path = "../../offload/tests/common/mod.rs"]
mod common;

use common::{BOTH_DIGESTS, Bench, SGL_ADDR, open_conn, task_done};
use offload::HostMem;
use offload::encoding::{PostTask, SglElement, TaskResult, task_flags};
use offload_rtl::{RtlEngine, Width};

/// A read ends while a list of so many elements is walked, which are too few bytes for their task; `early` beats of its Data-In have come
/// before. Returns the completions, by tag and result, and whether they came in cycles that follow each other.
fn completions(width: Width, elements: u32, early: usize) -> (Vec<(u32, TaskResult)>, bool) {
    let mut bench = Bench::with(RtlEngine::new(width, 1), open_conn(BOTH_DIGESTS, 0));
    bench.read(1, 512);
    let data_in = bench.data_in(1, 0, 0, &[5; 512], Some(100));
    let early = early * width.bytes();
    bench.rx(&data_in[..early]);
    let list: Vec<u8> = (0..elements)
        .flat_map(|n| SglElement { addr: bench.data_addr(2) + u64::from(n), length: 1 }.emit())
        .collect();
    bench.memory.write(SGL_ADDR, &list).expect("in host memory");
    let short = PostTask {
        flags: task_flags::READ,
        itt: 2,
        edtl: 1000,
        sgl_elements: elements as u16,
        sgl_addr: SGL_ADDR,
        ..PostTask::default()
    };
    let ports = bench.engine.run_free(&mut bench.memory, Some(&short.emit()), &data_in[early..]);
    let met = ports.windows(2).any(|two| two.iter().all(|ports| ports.completion));
    let mut done: Vec<_> =
        task_done(&bench.completions()).iter().map(|done| (done.itt, done.result)).collect();
    done.sort_by_key(|(itt, _)| *itt);
    (done, met)
}

#[test]
fn a_descriptor_and_a_pdu_that_end_together_have_a_completion_each() {
    for width in [Width::Bits64, Width::Bits512] {
        let mut met = 0;
        // An element takes some cycles and a beat takes one, so some of these end in the same cycle.
        for (elements, early) in (1..=45).flat_map(|elements| (0..8).map(move |early| (elements, early))) {
            let (done, at_once) = completions(width, elements, early);
            let expected = [(1, TaskResult::GOOD), (2, TaskResult::BAD_SGL)];
            assert_eq!(done, expected, "{width:?}, {elements} elements, {early} beats early");
            met += u32::from(at_once);
        }
        assert!(met > 0, "{width:?}: one always waits for the other anyway");
    }
}
