//! The performance bars of the crate `integrity`, each next to the best peers and the physical limits, in one run.
//!
//! `cargo bench -p intact-published --bench checksums` runs all rows, `-- copy` those whose name contains `copy`. All
//! contenders of a row take turns, and the best turn of each counts. Compare the ratios within a row: a busy machine
//! disturbs all contenders alike. Every result is checked. Without `--bench`, as in `cargo test --benches`, every
//! contender takes one short turn.
//!
//! To add rows, write a module with a function `rows(&Scale, &mut Tally)` and call it in [`main`].

mod combine;
mod contest;
mod copy;
mod digest;
mod guard;
mod scalar;

use std::time::Duration;

use ::harness::content::random;
use ::harness::machine::Machine;
use contest::Tally;

/// How much time and memory a run may take.
pub struct Scale {
    /// For one row in cache.
    pub row: Duration,
    /// For one row of large or cold copies.
    pub long_row: Duration,
    /// Memory larger than the caches, bytes; there are two such buffers.
    pub cold_bytes: usize,
    /// Divides the calls of a turn.
    calls_divisor: usize,
}

impl Scale {
    fn full() -> Self {
        let (row, long_row) = (Duration::from_millis(400), Duration::from_secs(2));
        Self { row, long_row, cold_bytes: 512 << 20, calls_divisor: 1 }
    }

    fn smoke() -> Self {
        Self { row: Duration::ZERO, long_row: Duration::ZERO, cold_bytes: 4 << 20, calls_divisor: 1 << 20 }
    }

    /// Calls of `bytes` bytes per turn: few enough that some turns are not interrupted.
    pub fn calls(&self, bytes: usize) -> usize {
        ((1 << 20) / bytes.max(256) / self.calls_divisor).max(1)
    }
}

/// Bytes without structure, the same in every run.
pub fn data(len: usize) -> Vec<u8> {
    random(len, &mut 1)
}

/// `len` bytes of `storage` that begin `offset` bytes after a page boundary.
pub fn at_offset(storage: &mut [u8], offset: usize, len: usize) -> &mut [u8] {
    const PAGE_BYTES: usize = 4096;
    let start = storage.as_ptr().addr().wrapping_neg() % PAGE_BYTES + offset;
    &mut storage[start..start + len]
}

fn main() {
    let mut args = std::env::args().skip(1).collect::<Vec<_>>();
    let full = args.iter().any(|a| a == "--bench");
    args.retain(|a| !a.starts_with("--"));
    let scale = if full { Scale::full() } else { Scale::smoke() };
    let mut tally = Tally::default();
    tally.filter = args.pop();
    let choice = integrity::kernel_choice();
    println!("kernel: {}: {choice}", choice.kernel().name());
    Machine::this().facts().iter().for_each(|(name, value)| println!("{name}: {value}"));
    digest::rows(&scale, &mut tally);
    copy::rows(&scale, &mut tally);
    combine::rows(&scale, &mut tally);
    scalar::rows(&scale, &mut tally);
    guard::rows(&scale, &mut tally);
    tally.print();
}
