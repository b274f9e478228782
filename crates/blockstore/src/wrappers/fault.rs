//! A store that fails on demand: for tests of everything above it.
//!
//! Rules are armed and disarmed through a [`FaultHandle`] while the store is in use. The first armed rule that matches an
//! operation and is due decides it; rules that match count the operation even if they are not due yet. With no rule armed the
//! cost is one atomic load.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::OpSet;
use crate::gather::{Gather, total_bytes};
use crate::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Op, Placement,
    RecordRun, Records, StoreError, read_then_crc32c,
};

/// The error that a rule raises. Offsets are those of the operation, or of its first byte in the rule's range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// [`StoreError::MediumRead`] or [`StoreError::MediumWrite`], depending on the operation.
    Medium,
    /// [`StoreError::NoSpace`].
    NoSpace,
    /// [`StoreError::ReadOnly`].
    ReadOnly,
    /// [`StoreError::Gone`].
    Gone,
    /// [`StoreError::FlushFailed`].
    FlushFailed,
    /// [`StoreError::Io`] of this kind.
    Io(ErrorKind),
}

/// What happens to an operation that a rule decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation is not executed and fails.
    Error(FaultError),
    /// The byte at `offset` of the store is XORed with `mask` in a read or a write that covers it, and no error is reported.
    BitFlip {
        /// Byte of the store.
        offset: u64,
        /// Bits to flip.
        mask: u8,
    },
    /// A write puts its first `keep_bytes` on the medium and fails with [`StoreError::MediumWrite`] there, as in a power
    /// failure. Other operations fail in the same way without being executed.
    Torn {
        /// Bytes that reach the medium.
        keep_bytes: u64,
    },
    /// A write, unmap, zeroing, flush or resize is not executed, yet succeeds. Reads and queries are executed.
    Lost,
}

/// When a fault happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// Operations that the rule applies to.
    pub ops: OpSet,
    /// Bytes of the store; the rule does not apply to operations that touch none of them. `None`: it applies to all
    /// operations, including those without a range (flush, resize).
    pub range: Option<Range<u64>>,
    /// Matching operations that pass before the first fault.
    pub skip: u64,
    /// Faults before the rule is spent; `None`: until disarmed.
    pub times: Option<u64>,
    /// What happens.
    pub fault: Fault,
}

impl FaultRule {
    /// A rule for every matching operation on any byte; narrow it by its fields.
    pub fn new(ops: impl Into<OpSet>, fault: Fault) -> Self {
        FaultRule { ops: ops.into(), range: None, skip: 0, times: None, fault }
    }

    /// The same rule for the `nth` matching operation only, counted from 1.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.skip = nth.saturating_sub(1);
        self.times = Some(1);
        self
    }

    /// The same rule for operations that touch `range`.
    #[must_use]
    pub fn in_range(mut self, range: Range<u64>) -> Self {
        self.range = Some(range);
        self
    }
}

/// Names an armed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

struct Armed {
    id: FaultId,
    rule: FaultRule,
    matched: u64,
    faults: u64,
}

#[derive(Default)]
struct Rules {
    next_id: u64,
    armed: Vec<Armed>,
}

#[derive(Default)]
struct Shared {
    rules: Mutex<Rules>,
    count: AtomicUsize,
}

/// Arms and disarms the rules of a [`FaultStore`], from any thread.
#[derive(Clone)]
pub struct FaultHandle(Arc<Shared>);

impl FaultHandle {
    /// Adds a rule after those that are armed.
    pub fn arm(&self, rule: FaultRule) -> FaultId {
        let mut rules = self.0.rules.lock();
        let id = FaultId(rules.next_id);
        rules.next_id += 1;
        rules.armed.push(Armed { id, rule, matched: 0, faults: 0 });
        self.0.count.store(rules.armed.len(), Ordering::Release);
        id
    }

    /// Removes a rule; an unknown one is no error.
    pub fn disarm(&self, id: FaultId) {
        self.retain(|armed| armed.id != id);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.retain(|_| false);
    }

    /// Faults that an armed rule has caused so far; 0 for an unknown one.
    pub fn faults(&self, id: FaultId) -> u64 {
        self.0.rules.lock().armed.iter().find(|armed| armed.id == id).map_or(0, |armed| armed.faults)
    }

    fn retain(&self, keep: impl Fn(&Armed) -> bool) {
        let mut rules = self.0.rules.lock();
        rules.armed.retain(keep);
        self.0.count.store(rules.armed.len(), Ordering::Release);
    }
}

/// What a rule decided, and the first byte affected.
struct Decision {
    fault: Fault,
    offset: u64,
}

impl Decision {
    fn error(&self, op: Op, error: &FaultError) -> StoreError {
        let offset = self.offset;
        match error {
            FaultError::Medium if matches!(op, Op::Read | Op::Extents) => StoreError::MediumRead { offset },
            FaultError::Medium => StoreError::MediumWrite { offset },
            FaultError::NoSpace => StoreError::NoSpace,
            FaultError::ReadOnly => StoreError::ReadOnly,
            FaultError::Gone => StoreError::Gone("an injected fault".to_owned()),
            FaultError::FlushFailed => StoreError::FlushFailed("an injected fault".to_owned()),
            FaultError::Io(kind) => StoreError::Io { op, offset, source: (*kind).into() },
        }
    }
}

/// A store with faults on demand; see the head of the module.
pub struct FaultStore<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S: BlockStore> FaultStore<S> {
    /// Wraps `inner`, without faults yet.
    pub fn new(inner: S) -> (Self, FaultHandle) {
        let shared = Arc::new(Shared::default());
        (FaultStore { inner, shared: Arc::clone(&shared) }, FaultHandle(shared))
    }

    /// Looks for a rule that decides this operation. `range` is `None` for operations on the whole store.
    fn decide(&self, op: Op, range: Option<(u64, u64)>) -> Option<Decision> {
        if self.shared.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut decision = None;
        for armed in &mut self.shared.rules.lock().armed {
            let rule = &armed.rule;
            let offset = match (&rule.range, range) {
                (None, range) => range.map_or(0, |(offset, _)| offset),
                (Some(wanted), Some((offset, len))) => {
                    let first = wanted.start.max(offset);
                    if first >= wanted.end.min(offset.saturating_add(len)) {
                        continue;
                    }
                    first
                }
                (Some(_), None) => continue,
            };
            if !rule.ops.contains(op) {
                continue;
            }
            armed.matched += 1;
            let due = armed.matched > rule.skip && rule.times.is_none_or(|times| armed.faults < times);
            if due && decision.is_none() {
                armed.faults += 1;
                decision = Some(Decision { fault: rule.fault.clone(), offset });
            }
        }
        decision
    }

    /// Reads with `read`, applying the fault that is due.
    fn read_by(
        &self,
        offset: u64,
        dst: &mut [u8],
        read: impl Fn(&mut [u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(decision) = self.decide(Op::Read, Some((offset, dst.len() as u64))) else {
            return read(dst);
        };
        let error = match &decision.fault {
            Fault::Lost => return read(dst),
            Fault::BitFlip { offset: at, mask } => {
                read(dst)?;
                flip(dst, offset, *at, *mask);
                return Ok(());
            }
            Fault::Error(error) => decision.error(Op::Read, error),
            Fault::Torn { .. } => decision.error(Op::Read, &FaultError::Medium),
        };
        dst.fill(0);
        Err(error)
    }

    /// Runs a change that carries no payload.
    fn change(
        &self,
        op: Op,
        range: Option<(u64, u64)>,
        inner: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(decision) = self.decide(op, range) else { return inner() };
        match &decision.fault {
            Fault::Error(error) => Err(decision.error(op, error)),
            Fault::Torn { .. } => Err(decision.error(op, &FaultError::Medium)),
            Fault::Lost => Ok(()),
            Fault::BitFlip { .. } => inner(),
        }
    }
}

/// Flips the byte if it is in `bytes`, which start at `start` of the store.
fn flip(bytes: &mut [u8], start: u64, offset: u64, mask: u8) {
    let place = offset.checked_sub(start).and_then(|place| usize::try_from(place).ok());
    if let Some(byte) = place.and_then(|place| bytes.get_mut(place)) {
        *byte ^= mask;
    }
}

impl<S: BlockStore> BlockStore for FaultStore<S> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn placement(&self) -> Placement {
        self.inner.placement()
    }

    fn description(&self) -> String {
        format!("fault({})", self.inner.description())
    }

    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.read_by(offset, dst, |dst| self.inner.read(offset, dst))
    }

    fn read_now(&self, _offset: u64, _dst: &mut [u8]) -> Result<bool, StoreError> {
        Ok(false) // faults change the data that is read
    }

    // With rules armed the inner store's fused copy will not do: a flipped bit comes from the medium, so the digest must cover
    // it.
    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        if self.shared.count.load(Ordering::Acquire) == 0 {
            return self.inner.read_crc32c(offset, dst, crc);
        }
        read_then_crc32c(self, offset, dst, crc)
    }

    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        if self.shared.count.load(Ordering::Acquire) == 0 {
            return self.inner.write(offset, src, durability);
        }
        let geometry = self.geometry();
        let len = total_bytes(src, offset, geometry.size_bytes)?;
        geometry.check_range(offset, len)?;
        let Some(decision) = self.decide(Op::Write, Some((offset, len))) else {
            return self.inner.write(offset, src, durability);
        };
        match &decision.fault {
            Fault::Error(error) => Err(decision.error(Op::Write, error)),
            Fault::Lost => Ok(()),
            Fault::BitFlip { offset: at, mask } => {
                let mut bytes = src.concat();
                flip(&mut bytes, offset, *at, *mask);
                self.inner.write(offset, &[&bytes], durability)
            }
            Fault::Torn { keep_bytes } => {
                let keep = len.min(*keep_bytes);
                let mut bytes = vec![0; keep as usize];
                Gather::new(src).copy_to(&mut bytes);
                self.inner.write(offset, &[&bytes], durability)?;
                Err(StoreError::MediumWrite { offset: offset + keep })
            }
        }
    }

    fn atomic_write_bytes_max(&self) -> u64 {
        self.inner.atomic_write_bytes_max()
    }

    // All or nothing: a torn write leaves nothing.
    fn write_atomic(
        &self,
        offset: u64,
        src: &[&[u8]],
        records: Option<&RecordRun>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let geometry = self.geometry();
        let len = total_bytes(src, offset, geometry.size_bytes)?;
        geometry.check_range(offset, len)?;
        match self.decide(Op::Write, Some((offset, len))) {
            Some(Decision { fault: Fault::BitFlip { offset: at, mask }, .. }) => {
                let mut bytes = src.concat();
                flip(&mut bytes, offset, at, mask);
                self.inner.write_atomic(offset, &[&bytes], records, durability)
            }
            Some(Decision { fault: Fault::Lost, .. }) => Ok(()),
            Some(decision) => match &decision.fault {
                Fault::Error(error) => Err(decision.error(Op::Write, error)),
                _ => Err(decision.error(Op::Write, &FaultError::Medium)),
            },
            None => self.inner.write_atomic(offset, src, records, durability),
        }
    }

    fn overwrites_in_place(&self) -> bool {
        self.inner.overwrites_in_place()
    }

    fn in_place(&self) -> Option<&dyn InPlace> {
        None // faults apply to data that is copied
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.change(Op::Flush, None, || self.inner.flush())
    }

    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.change(Op::Unmap, Some((offset, len)), || self.inner.unmap(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError> {
        self.change(Op::WriteZeroes, Some((offset, len)), || self.inner.write_zeroes(offset, len, may_unmap))
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
        if let Some(decision) = self.decide(Op::Extents, Some((offset, len))) {
            match &decision.fault {
                Fault::Error(error) => return Err(decision.error(Op::Extents, error)),
                Fault::Torn { .. } => return Err(decision.error(Op::Extents, &FaultError::Medium)),
                Fault::Lost | Fault::BitFlip { .. } => {}
            }
        }
        self.inner.extents(offset, len, max)
    }

    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.change(Op::Resize, None, || self.inner.resize(size_bytes))
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
        self.read_by(offset, dst, |dst| self.inner.read_medium(offset, dst))
    }

    fn medium_reads(&self) -> MediumReads {
        self.inner.medium_reads()
    }

    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        self.inner.reopen()
    }
}
