//! How fast each kernel digests and copies, beside `memcpy`, by length of run.
//!
//! `cargo bench -p integrity --bench crc32c` prints the tables; `-- --cold` adds copies into memory that is in no
//! cache. All contenders of a line take turns and the best turn of each counts, so that a busy machine disturbs all
//! of them alike; still, compare within a line rather than between runs. Every turn's digest is checked. Without
//! `--bench`, as `cargo test --benches` runs it, each contender takes one short turn.

use std::hint::black_box;
use std::time::Instant;

use integrity::kernels::{self, Kernel};
use integrity::{Store, crc32c, crc32c_combine};

const LENGTHS: [usize; 14] =
    [48, 64, 128, 256, 512, 1500, 2048, 4096, 8192, 9000, 65_536, 131_072, 1 << 20, 8 << 20];
/// Chunk and extent of the cold copies: the extent is larger than the last-level cache of most machines.
const COLD_CHUNKS: [usize; 3] = [4096, 65_536, 1 << 20];
const COLD_EXTENT: usize = 512 << 20;

/// What one contender does to one run of bytes; gives the digest, or nothing where there is none.
type Work<'a> = Box<dyn Fn(&mut [u8], &[u8]) -> Option<u32> + 'a>;

struct Contender<'a> {
    name: String,
    work: Work<'a>,
}

fn measured() -> impl Iterator<Item = &'static Kernel> {
    kernels::available().filter(|k| !std::ptr::eq(*k, kernels::reference()))
}

fn memcpy() -> Contender<'static> {
    let work: Work = Box::new(|dst, src| {
        dst.copy_from_slice(src);
        black_box(&mut *dst);
        None
    });
    Contender { name: "memcpy".to_owned(), work }
}

fn digests() -> Vec<Contender<'static>> {
    let kernels = measured()
        .map(|k| Contender { name: k.name().to_owned(), work: Box::new(|_, src| Some(k.append(0, src))) });
    let dispatched = Contender { name: "dispatched".to_owned(), work: Box::new(|_, src| Some(crc32c(src))) };
    kernels.chain([dispatched, memcpy()]).collect()
}

fn copies() -> Vec<Contender<'static>> {
    let copy = |k: &'static Kernel, store, suffix| Contender {
        name: format!("{}{suffix}", k.name()),
        work: Box::new(move |dst: &mut [u8], src: &[u8]| k.copy(0, dst, src, store).ok()),
    };
    measured()
        .flat_map(|k| [copy(k, Store::Temporal, ""), copy(k, Store::NonTemporal, " nt")])
        .filter(|c| c.name != "slicing-8 nt")
        .chain([memcpy()])
        .collect()
}

/// Takes turns among the contenders and gives the best time of each for one pass of `pass`, in nanoseconds.
fn best_times(
    contenders: &[Contender],
    rounds: usize,
    repeats: usize,
    want: u32,
    mut pass: impl FnMut(&Work) -> Option<u32>,
) -> Vec<f64> {
    let mut best = vec![f64::MAX; contenders.len()];
    for _ in 0..rounds {
        for (contender, best) in contenders.iter().zip(&mut best) {
            let start = Instant::now();
            let mut answer = None;
            for _ in 0..repeats {
                answer = pass(black_box(&contender.work));
            }
            *best = best.min(start.elapsed().as_nanos() as f64 / repeats as f64);
            assert!(answer.is_none_or(|crc| crc == want), "{}: wrong digest", contender.name);
        }
    }
    best
}

fn print_header(title: &str, contenders: &[Contender]) {
    print!("\n{title}\n{:>9}", "bytes");
    contenders.iter().for_each(|c| print!(" {:>21}", c.name));
    println!();
}

fn print_line(len: usize, bytes: usize, times_ns: &[f64]) {
    print!("{len:>9}");
    for time_ns in times_ns {
        print!(" {:>21.2}", bytes as f64 / time_ns);
    }
    println!();
}

fn warm(title: &str, contenders: &[Contender], full: bool) {
    // Off by one line and by 16 bytes from each other: neither both page-aligned, nor a worst case.
    let source: Vec<u8> = (0..LENGTHS[LENGTHS.len() - 1] + 64).map(|i| ((i * 167) >> 3) as u8).collect();
    let mut destination = vec![0; source.len() + 4096];
    print_header(title, contenders);
    for len in LENGTHS {
        let (src, dst) = (&source[64..][..len], &mut destination[..len]);
        let want = kernels::reference().append(0, &src[..len.min(9000)]);
        let want = measured().last().map_or(want, |k| k.append(want, &src[len.min(9000)..]));
        let (rounds, repeats) = if full { (25, (1 << 19) / len + 1) } else { (1, 1) };
        let times =
            best_times(contenders, rounds, repeats, want, |work| work(black_box(dst), black_box(src)));
        print_line(len, len, &times);
    }
}

fn cold(contenders: &[Contender]) {
    let source: Vec<u8> = (0..COLD_CHUNKS[COLD_CHUNKS.len() - 1]).map(|i| ((i * 167) >> 3) as u8).collect();
    let mut destination = vec![1; COLD_EXTENT];
    print_header("copy + CRC32C into memory that is in no cache, GB/s", contenders);
    for chunk in COLD_CHUNKS {
        let src = &source[..chunk];
        let want = kernels::reference().append(0, src);
        let times = best_times(contenders, 3, 1, want, |work| {
            destination.chunks_exact_mut(chunk).map(|dst| work(dst, black_box(src))).last().flatten()
        });
        print_line(chunk, COLD_EXTENT, &times);
    }
}

fn combination(full: bool) {
    println!("\ncombination, ns (the length has one bit, eight bits, and sixteen bits set)");
    let (rounds, repeats) = if full { (25, 100_000) } else { (1, 1) };
    for len in [4096_u64, 0xff00, 0xffff] {
        let mut best = f64::MAX;
        for _ in 0..rounds {
            let start = Instant::now();
            let mut crc = 1;
            for _ in 0..repeats {
                crc = crc32c_combine(crc, 7, black_box(len));
            }
            black_box(crc);
            best = best.min(start.elapsed().as_nanos() as f64 / f64::from(repeats));
        }
        println!("{len:>9} {best:>8.1}");
    }
}

fn main() {
    let full = std::env::args().any(|a| a == "--bench");
    println!("kernel in use: {}", integrity::kernel_name());
    warm("CRC32C, GB/s", &digests(), full);
    warm("copy + CRC32C, GB/s", &copies(), full);
    if std::env::args().any(|a| a == "--cold") {
        cold(&copies());
    }
    combination(full);
}
