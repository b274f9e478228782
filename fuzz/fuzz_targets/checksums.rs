//! Any bytes, at any alignment and in any pieces, through every CRC32C kernel that this machine supports: all agree with
//! the bit-wise reference, copies are exact, and the address sanitizer detects any access beyond a run.

#![no_main]

use std::num::NonZeroUsize;

use integrity::kernels;
use integrity::{CombineBy, Segment, SegmentMut, Store};
use integrity::{copy_crc32c_blocks, copy_crc32c_gather, copy_crc32c_scatter, crc32c_blocks, crc32c_combine};
use libfuzzer_sys::fuzz_target;
use published::Family;

/// Longer runs only repeat what shorter ones do, and the reference is slow.
const MAX_RUN_BYTES: usize = 16 << 10;

/// The start of an input: six bytes that determine how the rest is used.
struct Plan {
    crc: u32,
    /// Unused bytes before the source and the destination.
    src_skip: usize,
    dst_skip: usize,
    /// Where the run is cut in two, in 255ths of its length.
    cut: usize,
}

fn plan(input: &[u8]) -> Option<(Plan, &[u8])> {
    let ([a, b, c, d, skips, cut], data) = input.split_first_chunk()?;
    let data = &data[..data.len().min(MAX_RUN_BYTES)];
    let plan = Plan {
        crc: u32::from_le_bytes([*a, *b, *c, *d]),
        src_skip: usize::from(skips & 15),
        dst_skip: usize::from(skips >> 4),
        cut: data.len() * usize::from(*cut) / 255,
    };
    Some((plan, data))
}

fuzz_target!(|input: &[u8]| {
    let Some((plan, data)) = plan(input) else { return };
    // The run ends at the end of its allocation.
    let mut source = vec![0; plan.src_skip];
    source.extend_from_slice(data);
    let source = source.into_boxed_slice();
    let run = &source[plan.src_skip..];
    let (first, second) = run.split_at(plan.cut);

    let reference = kernels::reference();
    let want = reference.append(plan.crc, run);
    let of_second = reference.append(0, second);
    for kernel in kernels::available() {
        let name = kernel.name();
        assert_eq!(kernel.append(plan.crc, run), want, "{name}");
        assert_eq!(kernel.append(kernel.append(plan.crc, first), second), want, "{name}: in two pieces");
        let combined = kernel.combine(reference.append(plan.crc, first), of_second, second.len() as u64);
        assert_eq!(combined, want, "{name}: combined");
        for store in [Store::Temporal, Store::NonTemporal] {
            let mut copy = vec![0xa5; plan.dst_skip + run.len()].into_boxed_slice();
            let dst = &mut copy[plan.dst_skip..];
            assert_eq!(
                kernel.copy(plan.crc, dst, run, store),
                Ok(want),
                "{name} {store:?}: digest of the copy"
            );
            assert!(dst == run, "{name} {store:?}: copy");
            assert!(copy[..plan.dst_skip].iter().all(|b| *b == 0xa5), "{name} {store:?}: before the copy");
        }
    }
    assert_eq!(crc32c_combine(reference.append(plan.crc, first), of_second, second.len() as u64), want);

    blocks(&plan, run, want);
    lists(&plan, run);

    for family in [Family::Crc32c, Family::OnesComplement, Family::T10] {
        let mut values = published::all()
            .iter()
            .filter(|algorithm| algorithm.family == family && algorithm.available())
            .map(|algorithm| (algorithm.name, algorithm.checksum(run)));
        let (_, want) = values.next().expect("one runs everywhere");
        for (name, value) in values {
            assert_eq!(value, want, "{name}");
        }
    }
});

/// The digests of blocks, with and without a copy, and the run's digest combined from them.
fn blocks(plan: &Plan, run: &[u8], want: u32) {
    let block_bytes = NonZeroUsize::new(plan.cut.max(1)).expect("at least one");
    let each: Vec<u32> =
        run.chunks(block_bytes.get()).map(|block| kernels::reference().append(0, block)).collect();
    let mut found = vec![0; each.len()];
    assert_eq!(crc32c_blocks(plan.crc, run, block_bytes, &mut found), Ok(want));
    assert_eq!(found, each);

    let mut copy = vec![0; run.len()];
    found.fill(0);
    let running = copy_crc32c_blocks(plan.crc, &mut copy, run, Store::Temporal, block_bytes, &mut found);
    assert_eq!((running, &found[..], &copy[..]), (Ok(want), &each[..], run));

    let whole = run.len() / block_bytes * block_bytes.get();
    let by = CombineBy::new(block_bytes.get() as u64);
    let folded = integrity::crc32c_combine_blocks(plan.crc, &each[..whole / block_bytes], &by);
    assert_eq!(folded, kernels::reference().append(plan.crc, &run[..whole]));
}

/// The run as a list of pieces, every second one not counted, gathered and scattered again.
fn lists(plan: &Plan, run: &[u8]) {
    let piece = plan.cut.max(run.len() / 64 + 1);
    let list: Vec<Segment> =
        run.chunks(piece).enumerate().map(|(i, bytes)| Segment { bytes, counts: i % 2 == 0 }).collect();
    let counted = list.iter().filter(|segment| segment.counts);
    let want = counted.fold(plan.crc, |crc, segment| kernels::reference().append(crc, segment.bytes));
    for store in [Store::Temporal, Store::NonTemporal] {
        let mut gathered = vec![0; run.len()];
        assert_eq!(copy_crc32c_gather(plan.crc, &mut gathered, &list, store), Ok(want), "{store:?}");
        assert!(gathered == run);
        let mut scattered = vec![0; run.len()];
        let mut to: Vec<SegmentMut> = scattered
            .chunks_mut(piece)
            .enumerate()
            .map(|(i, bytes)| SegmentMut { bytes, counts: i % 2 == 0 })
            .collect();
        assert_eq!(copy_crc32c_scatter(plan.crc, &mut to, run, store), Ok(want), "{store:?}");
        assert!(scattered == run);
    }
}
