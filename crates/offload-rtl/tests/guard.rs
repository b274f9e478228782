//! The guard unit against `integrity`, at both widths.
#![forbid(unsafe_code)]

use offload_rtl::{Guard, Width};

/// Guards of blocks whose beats follow each other with pauses in `pauses` of a hundred cycles, and how many cycles it took.
fn guards(width: Width, blocks: &[Vec<u8>], pauses: u8, random: &mut fastrand::Rng) -> (Vec<u16>, usize) {
    let mut unit = Guard::new(width, 1);
    let mut beats = blocks.iter().flat_map(|block| {
        let count = block.len() / width.bytes();
        block.chunks(width.bytes()).enumerate().map(move |(at, beat)| (beat, at + 1 == count))
    });
    let mut guards = Vec::new();
    for cycle in 0..1_000_000 {
        let beat = (random.u8(..100) >= pauses).then(|| beats.next()).flatten();
        guards.extend(unit.cycle(beat));
        if guards.len() == blocks.len() {
            return (guards, cycle);
        }
    }
    panic!("{} of {} guards", guards.len(), blocks.len());
}

#[test]
fn guards_are_those_of_integrity() {
    let mut random = fastrand::Rng::with_seed(1);
    for width in [Width::Bits64, Width::Bits512] {
        for pauses in [0, 40] {
            let mut block = || -> Vec<u8> {
                let beats = if random.bool() { random.usize(1..=9) } else { 512 / width.bytes() };
                (0..beats * width.bytes()).map(|_| random.u8(..)).collect()
            };
            let blocks: Vec<Vec<u8>> = (0..1000).map(|_| block()).collect();
            let expected: Vec<u16> = blocks.iter().map(|block| integrity::crc16_t10dif(block)).collect();
            assert_eq!(guards(width, &blocks, pauses, &mut random).0, expected, "{width:?}");
        }
    }
}

/// Every bit of a block alone: a lane that is dropped, or a bit that is not where it belongs, changes one of them.
#[test]
fn each_bit_counts() {
    let mut random = fastrand::Rng::with_seed(2);
    for width in [Width::Bits64, Width::Bits512] {
        let bytes = 2 * width.bytes();
        let block = |bit: usize| (0..bytes).map(|at| u8::from(at == bit / 8) << (bit % 8)).collect();
        let blocks: Vec<Vec<u8>> = (0..8 * bytes).map(block).collect();
        let expected: Vec<u16> = blocks.iter().map(|block| integrity::crc16_t10dif(block)).collect();
        assert_eq!(guards(width, &blocks, 0, &mut random).0, expected, "{width:?}");
    }
}

#[test]
fn a_beat_in_each_cycle_and_a_guard_five_cycles_after_the_last() {
    let mut random = fastrand::Rng::with_seed(3);
    for width in [Width::Bits64, Width::Bits512] {
        let blocks = vec![vec![1; 512]; 100];
        assert_eq!(guards(width, &blocks, 0, &mut random).1, 100 * 512 / width.bytes() - 1 + 5);
    }
}
