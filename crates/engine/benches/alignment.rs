//! Where should memory for payloads begin? The time of a read from the page cache, by the place of its memory in a page: each as a
//! multiple of the time at a cache line, medians of the ratios within a round. What was read is compared.
//!
//! `cargo bench -p intact-engine --bench alignment [-- DIRECTORY]` (on a file system that has a page cache; by default a temporary
//! directory)

use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Instant;

use harness::statistics::median;
use rustix::io::pread;

const PAGE_BYTES: usize = 4096;
const FILE_BYTES: usize = 16 << 20;
const ROUNDS: usize = 15;
/// Places in a page; the first is what the others are compared with.
const PLACES: [usize; 12] = [64, 0, 8, 16, 24, 32, 40, 48, 512, 2048, 4072, 4080];

/// The bytes of the file at `at`.
fn pattern(at: usize) -> u8 {
    (at / 8 + at / PAGE_BYTES * 31) as u8
}

/// Nanoseconds of one read of `memory`, on average over the file.
fn read_all(file: impl AsFd, memory: &mut [u8]) -> f64 {
    let reads = FILE_BYTES / memory.len();
    let start = Instant::now();
    for n in 0..reads {
        let (at, wanted) = ((n * memory.len()) as u64, memory.len());
        assert_eq!(pread(&file, &mut *memory, at), Ok(wanted));
    }
    let took = start.elapsed().as_nanos() as f64 / reads as f64;
    let first = (reads - 1) * memory.len();
    assert!(
        memory.iter().enumerate().all(|(n, byte)| *byte == pattern(first + n)),
        "what was written is there"
    );
    took
}

fn main() {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let mut file =
        tempfile::tempfile_in(given.map_or_else(std::env::temp_dir, PathBuf::from)).expect("a file");
    let bytes: Vec<u8> = (0..FILE_BYTES).map(pattern).collect();
    file.write_all(&bytes).expect("written");
    let lengths = [4 << 10, 64 << 10, 128 << 10];
    let mut memory = vec![0; lengths[2] + 2 * PAGE_BYTES];
    let page = memory.as_ptr().align_offset(PAGE_BYTES);
    println!("bytes   at {}", PLACES.map(|place| format!("{place:>7}")).concat());
    for length in lengths {
        let mut times = vec![Vec::new(); PLACES.len()];
        for _ in 0..ROUNDS {
            for (place, times) in PLACES.iter().zip(&mut times) {
                let from = page + place;
                times.push(read_all(&file, &mut memory[from..from + length]));
            }
        }
        let base = times[0].clone();
        let ratio =
            |times: &Vec<f64>| median(&times.iter().zip(&base).map(|(a, b)| a / b).collect::<Vec<_>>());
        let ratios: String = times.iter().map(|times| format!("{:>7.2}", ratio(times))).collect();
        println!("{length:<8} {ratios}   of {:.0} ns", median(&base));
    }
}
