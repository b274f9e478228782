//! The measured loads, the project's own floors, and the fastest known target.

/// One load.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub rw: &'static str,
    pub pattern: &'static str,
    pub block_bytes: u64,
    /// Commands outstanding in each session.
    pub depth: u32,
    pub sessions: usize,
    /// The required ratio to tgt, digests off and on; 0 where none was set.
    pub floor: [f64; 2],
    /// The ratio to the same tgt that SPDK reaches while polling a whole core; 0 where unknown.
    pub spdk: [f64; 2],
}

/// A load of one session, without floors.
pub const fn row(
    name: &'static str,
    rw: &'static str,
    pattern: &'static str,
    block_bytes: u64,
    depth: u32,
) -> Row {
    Row { name, rw, pattern, block_bytes, depth, sessions: 1, floor: [0.0; 2], spdk: [0.0; 2] }
}

impl Row {
    const fn against(self, floor: [f64; 2], spdk: [f64; 2]) -> Self {
        Self { floor, spdk, ..self }
    }

    /// Whether commands per second are more meaningful than bytes per second.
    pub const fn counts_commands(&self) -> bool {
        self.block_bytes < 65536
    }
}

/// The table.
pub const ROWS: [Row; 8] = [
    row("4 KiB random read, depth 1", "read", "random", 4096, 1),
    row("4 KiB random read, depth 32", "read", "random", 4096, 32).against([2.5, 4.5], [4.3, 6.3]),
    row("4 KiB random write, depth 1", "write", "random", 4096, 1),
    row("4 KiB random write, depth 32", "write", "random", 4096, 32).against([1.5, 2.5], [1.6, 3.2]),
    row("128 KiB sequential read, depth 8", "read", "sequential", 128 << 10, 8)
        .against([1.4, 8.0], [1.8, 10.2]),
    row("128 KiB sequential write, depth 8", "write", "sequential", 128 << 10, 8)
        .against([1.2, 8.0], [1.4, 10.7]),
    row("1 MiB sequential write, depth 8", "write", "sequential", 1 << 20, 8)
        .against([0.0, 8.0], [0.0, 12.0]),
    row("1 MiB sequential read, depth 8", "read", "sequential", 1 << 20, 8).against([0.0, 8.0], [0.0, 10.5]),
];

/// Fills the volumes: reads and overwrites must find memory that has been written.
pub const PREFILL: Row = ROWS[6];

/// The loads for measuring protection information.
pub const PROTECTED_ROWS: [Row; 6] = [
    row("64 KiB read", "read", "sequential", 64 << 10, 8),
    row("64 KiB write", "write", "sequential", 64 << 10, 8),
    row("128 KiB read", "read", "sequential", 128 << 10, 8),
    row("128 KiB write", "write", "sequential", 128 << 10, 8),
    row("1 MiB read", "read", "sequential", 1 << 20, 8),
    row("1 MiB write", "write", "sequential", 1 << 20, 8),
];
