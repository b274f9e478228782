//! Cost of one call of the volume in memory, compared with a plain copy of the same size. Every round is verified.
//!
//! `cargo bench -p intact-blockstore --bench ram`

use std::hint::black_box;
use std::time::Instant;

use blockstore::{BlockStore, Durability, RamStore};

const VOLUME_BYTES: u64 = 256 << 20;
const ROUND_BYTES: usize = 1 << 30;

/// Nanoseconds per call of `step`, best of several rounds that each move `ROUND_BYTES`.
fn time(call_bytes: usize, mut step: impl FnMut(u64)) -> f64 {
    let calls = ROUND_BYTES / call_bytes;
    let places = VOLUME_BYTES / call_bytes as u64;
    (0..5)
        .map(|_| {
            let start = Instant::now();
            for i in 0..calls as u64 {
                // A large odd stride: neighbouring calls are far apart, every place is visited.
                step(i.wrapping_mul(7919) % places * call_bytes as u64);
            }
            start.elapsed().as_nanos() as f64 / calls as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn main() {
    let store = RamStore::new(VOLUME_BYTES, 512).expect("a valid size");
    let data: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8).collect();
    let mut plain = vec![0u8; VOLUME_BYTES as usize];
    println!("ns per call     plain copy        write         read  read_crc32c");
    for call_bytes in [512, 4 << 10, 16 << 10, 128 << 10, 1 << 20] {
        let src = &data[..call_bytes];
        let copy = time(call_bytes, |at| {
            black_box(&mut plain[at as usize..at as usize + call_bytes]).copy_from_slice(black_box(src));
        });
        let write = time(call_bytes, |at| store.write(at, &[src], Durability::Cached).expect("in range"));
        let mut dst = vec![0; call_bytes];
        let read = time(call_bytes, |at| store.read(at, black_box(&mut dst)).expect("in range"));
        assert!(dst == src, "read {call_bytes}");
        let expected = integrity::crc32c_append(0, src);
        let fused = time(call_bytes, |at| {
            let crc = store.read_crc32c(at, black_box(&mut dst), 0).expect("in range");
            assert_eq!(crc, expected, "digest {call_bytes}");
        });
        println!("{call_bytes:>8} B   {copy:>12.0} {write:>12.0} {read:>12.0} {fused:>12.0}");
    }
}
