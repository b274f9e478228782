//! A store that is slow, or that blocks while a test holds its [`Gate`] closed.
//!
//! The gate lets a test force an ordering without waiting for time to pass: close it, start the operations, wait
//! until they block at it, do what should happen meanwhile, open it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::OpSet;
use crate::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Op, Placement,
    RecordRun, Records, StoreError,
};

struct GateState {
    closed_for: OpSet,
    /// Operations that may pass although the gate is closed.
    passes: u64,
    waiting: usize,
}

struct GateShared {
    state: Mutex<GateState>,
    changed: Condvar,
    delay_ns: AtomicU64,
}

/// Opens and closes a [`DelayStore`], from any thread. Operations wait for ever at a closed gate: open it before
/// joining their threads.
#[derive(Clone)]
pub struct Gate(Arc<GateShared>);

impl Gate {
    /// From now on blocks operations of `ops`, and no others.
    pub fn close(&self, ops: OpSet) {
        self.set(ops);
    }

    /// Lets everything pass, including operations that are waiting.
    pub fn open(&self) {
        self.set(OpSet::NONE);
    }

    /// Lets `count` operations pass the closed gate, those already waiting first.
    pub fn let_pass(&self, count: u64) {
        let mut state = self.0.state.lock();
        state.passes = state.passes.saturating_add(count);
        self.0.changed.notify_all();
    }

    /// Operations that wait at the gate now.
    pub fn waiting(&self) -> usize {
        self.0.state.lock().waiting
    }

    /// Blocks the caller until at least `count` operations wait at the gate.
    pub fn wait_for_waiting(&self, count: usize) {
        let mut state = self.0.state.lock();
        while state.waiting < count {
            self.0.changed.wait(&mut state);
        }
    }

    /// Sets the delay of every operation from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.0.delay_ns.store(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn set(&self, ops: OpSet) {
        let mut state = self.0.state.lock();
        state.closed_for = ops;
        state.passes = 0;
        self.0.changed.notify_all();
    }

    /// Waits at the gate while it is closed for `op`.
    fn pass(&self, op: Op) {
        let delay_ns = self.0.delay_ns.load(Ordering::Relaxed);
        if delay_ns > 0 {
            std::thread::sleep(Duration::from_nanos(delay_ns));
        }
        let mut state = self.0.state.lock();
        if !state.closed_for.contains(op) {
            return;
        }
        state.waiting += 1;
        self.0.changed.notify_all();
        while state.closed_for.contains(op) && state.passes == 0 {
            self.0.changed.wait(&mut state);
        }
        if state.closed_for.contains(op) {
            state.passes -= 1;
        }
        state.waiting -= 1;
        self.0.changed.notify_all();
    }
}

/// A store that waits before every operation; see the head of the module. Its placement is always
/// [`Placement::Offload`], because it blocks.
pub struct DelayStore<S> {
    inner: S,
    gate: Gate,
}

impl<S: BlockStore> DelayStore<S> {
    /// Wraps `inner` with a fixed delay per operation and an open gate.
    pub fn new(inner: S, delay: Duration) -> (Self, Gate) {
        let gate = Gate(Arc::new(GateShared {
            state: Mutex::new(GateState { closed_for: OpSet::NONE, passes: 0, waiting: 0 }),
            changed: Condvar::new(),
            delay_ns: AtomicU64::new(0),
        }));
        gate.set_delay(delay);
        (DelayStore { inner, gate: gate.clone() }, gate)
    }
}

impl<S: BlockStore> BlockStore for DelayStore<S> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn placement(&self) -> Placement {
        Placement::Offload
    }

    fn description(&self) -> String {
        format!("delay({})", self.inner.description())
    }

    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.gate.pass(Op::Read);
        self.inner.read(offset, dst)
    }

    fn read_now(&self, _offset: u64, _dst: &mut [u8]) -> Result<bool, StoreError> {
        Ok(false) // a read is delayed, and a delay is a wait
    }

    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        self.gate.pass(Op::Read);
        self.inner.read_crc32c(offset, dst, crc)
    }

    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        self.gate.pass(Op::Write);
        self.inner.write(offset, src, durability)
    }

    fn atomic_write_bytes_max(&self) -> u64 {
        self.inner.atomic_write_bytes_max()
    }

    fn write_atomic(
        &self,
        offset: u64,
        src: &[&[u8]],
        records: Option<&RecordRun>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        self.gate.pass(Op::Write);
        self.inner.write_atomic(offset, src, records, durability)
    }

    fn overwrites_in_place(&self) -> bool {
        self.inner.overwrites_in_place()
    }

    fn in_place(&self) -> Option<&dyn InPlace> {
        None // reads in memory would bypass the delay
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.gate.pass(Op::Flush);
        self.inner.flush()
    }

    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.gate.pass(Op::Unmap);
        self.inner.unmap(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError> {
        self.gate.pass(Op::WriteZeroes);
        self.inner.write_zeroes(offset, len, may_unmap)
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
        self.gate.pass(Op::Extents);
        self.inner.extents(offset, len, max)
    }

    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.gate.pass(Op::Resize);
        self.inner.resize(size_bytes)
    }

    fn medium_bytes(&self) -> Result<u64, StoreError> {
        self.inner.medium_bytes()
    }

    fn make_writable(&self) -> Result<(), StoreError> {
        self.inner.make_writable()
    }

    fn records(&self) -> Option<&Records> {
        self.inner.records()
    }

    fn label(&self) -> Option<&Arc<Label>> {
        self.inner.label()
    }

    fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.gate.pass(Op::Read);
        self.inner.read_medium(offset, dst)
    }

    fn medium_reads(&self) -> MediumReads {
        self.inner.medium_reads()
    }

    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        self.inner.reopen()
    }
}
