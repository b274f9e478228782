//! A descriptor and a PDU that are done at about the same time, as in hardware, where nobody waits for one before he gives the other: each
//! has its completion, whichever comes first.
#![forbid(unsafe_code)]

#[path = "../../offload/tests/common/mod.rs"]
mod common;

use common::{BOTH_DIGESTS, Bench, SGL_ADDR, open_conn, task_done};
use offload::HostMem;
use offload::encoding::{PostTask, SglElement, TaskResult, task_flags};
use offload_rtl::{RtlEngine, Width};

/// The read ends while a list of so many elements is walked, which are too few bytes for their task. Returns the completions, by tag
/// and result.
fn completions(width: Width, elements: u32) -> Vec<(u32, TaskResult)> {
    let mut bench = Bench::with(RtlEngine::new(width, 1), open_conn(BOTH_DIGESTS, 0));
    bench.read(1, 512);
    let data_in = bench.data_in(1, 0, 0, &[5; 512], Some(100));
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
    bench.engine.run_free(&mut bench.memory, Some(&short.emit()), &data_in);
    let mut done: Vec<_> =
        task_done(&bench.completions()).iter().map(|done| (done.itt, done.result)).collect();
    done.sort_by_key(|(itt, _)| *itt);
    done
}

#[test]
fn a_descriptor_and_a_pdu_that_end_together_have_a_completion_each() {
    for width in [Width::Bits64, Width::Bits512] {
        // A list is walked in a cycle or more for each element, so some length ends in each cycle in which the read may.
        for elements in 1..=150 {
            let expected = [(1, TaskResult::GOOD), (2, TaskResult::BAD_SGL)];
            assert_eq!(completions(width, elements), expected, "{width:?}, {elements} elements");
        }
    }
}
