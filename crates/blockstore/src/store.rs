//! The trait that every store and wrapper implements, and its plain types.

use std::sync::Arc;

use integrity::Prefetch;

use crate::error::Op;
use crate::{FailedFlush, Label, RecordRun, Records, StoreError};

/// Extents queried at a time by [`allocate`].
const EXTENTS: usize = 16;

/// Distinguishes a store from others that have, or had, its place.
pub(crate) type Identity = [u8; 16];

/// Shape of a store. Cheap to copy; query it whenever it matters, because a resize changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size in bytes, a multiple of `logical_block_bytes`.
    pub size_bytes: u64,
    /// Bytes of a logical block: a power of two, 512 to 65536.
    pub logical_block_bytes: u32,
    /// Bytes of a physical block: a power of two and not less than `logical_block_bytes`. Smaller writes may
    /// cost a read.
    pub physical_block_bytes: u32,
    /// Whether seeks cost time.
    pub rotational: bool,
    /// Bytes of the smallest unit that `unmap` releases; 0 when the store cannot release space.
    pub discard_granularity_bytes: u32,
    /// Whether every changing operation fails with [`StoreError::ReadOnly`].
    pub read_only: bool,
}

impl Geometry {
    /// Number of whole logical blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.size_bytes / u64::from(self.logical_block_bytes.max(1))
    }

    /// Checks that `offset..offset + len` is inside the store; a sum that wraps is outside.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`].
    pub fn check_range(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        check_range(self.size_bytes, offset, len)
    }
}

/// See [`Geometry::check_range`].
pub(crate) fn check_range(size_bytes: u64, offset: u64, len: u64) -> Result<(), StoreError> {
    match offset.checked_add(len) {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(StoreError::OutOfRange { offset, len, size_bytes }),
    }
}

/// Checks that a logical block size is one that [`Geometry`] allows.
pub(crate) fn check_block_bytes(logical_block_bytes: u32) -> Result<(), StoreError> {
    if logical_block_bytes.is_power_of_two() && (512..=65536).contains(&logical_block_bytes) {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "a logical block of {logical_block_bytes} bytes is not possible; use a power of two from 512 to 65536"
    )))
}

/// Checks that a size is a whole number of blocks, at least one.
pub(crate) fn check_size(size_bytes: u64, logical_block_bytes: u32) -> Result<(), StoreError> {
    let block = u64::from(logical_block_bytes);
    if size_bytes == 0 {
        return Err(StoreError::Unusable(format!(
            "the store would be empty; give a size of at least {block} bytes (size=1G)"
        )));
    }
    if !size_bytes.is_multiple_of(block) {
        let below = size_bytes - size_bytes % block;
        return Err(StoreError::Unusable(format!(
            "a size of {size_bytes} bytes is not whole blocks of {block}; use {} bytes (or {below}), or smaller blocks",
            below.saturating_add(block)
        )));
    }
    Ok(())
}

/// Where the calls of a store may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Never waits for a device: call it on the shard itself.
    Inline,
    /// May wait: call it on a worker thread.
    Offload,
}

/// How a store reads its medium, bypassing what is cached of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumReads {
    /// The store is in memory and has no other medium.
    Memory,
    /// Past the page cache (`O_DIRECT`).
    Direct,
    /// The file system refuses `O_DIRECT`: the page cache of the range is dropped before the read.
    CacheDropped,
}

impl MediumReads {
    /// A word for it, as shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            MediumReads::Memory => "memory",
            MediumReads::Direct => "direct",
            MediumReads::CacheDropped => "cache-dropped",
        }
    }
}

/// When a write must be on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After the next successful flush.
    Cached,
    /// When the call returns (SBC: FUA, or a write cache that is switched off).
    Durable,
}

/// A run of bytes that are all mapped or all deallocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes, never 0.
    pub len: u64,
    /// Whether the medium holds data here; a deallocated run reads as zeros.
    pub mapped: bool,
}

/// The blocks of a store that holds them in memory ([`BlockStore::in_place`]). Pieces are cut only between logical blocks (if the range
/// has whole ones). The store is locked while a piece is shown, so the closure must not call the store.
pub trait InPlace {
    /// Shows a range to `look`, piece by piece in order. A piece does not change while it is shown.
    ///
    /// # Errors
    /// Those of [`BlockStore::read`]; `look` may have seen a part of the range by then.
    fn read_in_place(&self, offset: u64, len: u64, look: &mut dyn FnMut(&[u8])) -> Result<(), StoreError>;

    /// The memory of the first `len` bytes of a range, for a caller who is about to read or write them to have it fetched into the cache.
    /// Leaves out bytes that are not allocated or that are being changed. Never waits.
    fn prefetch(&self, offset: u64, len: usize) -> Prefetch;

    /// Lets `fill` write a range, piece by piece in order. `fill` must overwrite all of each piece: it is handed the old contents. No
    /// reader sees a piece before `fill` is done with it.
    ///
    /// # Errors
    /// Those of [`BlockStore::write`]; a part may have been written by then.
    fn write_in_place(
        &self,
        offset: u64,
        len: u64,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), StoreError>;
}

/// An array of bytes that can be read and written from many threads at once. The head of the crate says what holds for all stores.
///
/// No method has a default body: a wrapper that forgot a method would silently hide what the inner store can do. This way the compiler
/// catches it. Simple stores can call [`read_then_crc32c`], [`not_atomic`] and [`fixed_size`].
pub trait BlockStore: Send + Sync {
    /// Shape of the store now. Never blocks.
    fn geometry(&self) -> Geometry;

    /// Whether calls may run on a shard. Constant for the life of the store.
    fn placement(&self) -> Placement;

    /// What this is, for people and logs, for example `file:/srv/disk0`. Not an identity.
    fn description(&self) -> String;

    /// Fills `dst` from `offset`.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`] (`dst` is untouched); [`StoreError::MediumRead`], [`StoreError::Gone`],
    /// [`StoreError::Io`] (`dst` holds bytes of this store or zeros, nothing of an earlier use).
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError>;

    /// Fills `dst` from `offset` if that does not wait for the medium or for a lock. It lets a shard try to read a store that is
    /// otherwise called on worker threads. False: it would have to wait, or the store cannot tell. Then the content of `dst` is
    /// arbitrary, and the read still has to be done.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    fn read_now(&self, offset: u64, dst: &mut [u8]) -> Result<bool, StoreError>;

    /// Fills `dst` from `offset` with what is on the medium, however much of it is cached. Earlier writes to the range are written to
    /// the medium first, though not durably.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and [`StoreError::FlushFailed`].
    fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError>;

    /// How [`read_medium`](Self::read_medium) reaches the medium, as far as is known.
    fn medium_reads(&self) -> MediumReads;

    /// Fills `dst` from `offset` and extends `crc`, a finished CRC32C (0 for an empty prefix), over its bytes, in
    /// the same pass where the store can.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError>;

    /// Writes the slices of `src` one after another, starting at `offset`.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`], [`StoreError::ReadOnly`], [`StoreError::NoSpace`], [`StoreError::MediumWrite`],
    /// [`StoreError::FlushFailed`] (also if an earlier flush failed), [`StoreError::Gone`], [`StoreError::Io`].
    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError>;

    /// Most bytes that one [`write_atomic`](Self::write_atomic) takes, a multiple of the logical block; 0 when the store has no such
    /// writes. Constant for the life of the store.
    fn atomic_write_bytes_max(&self) -> u64;

    /// Writes like [`write`](Self::write), but all or nothing: neither an error nor a loss of power leaves a part of it behind.
    /// Concurrent calls may see it block by block. `records` are the records of the blocks, stored in the same step. With records the
    /// write may have any length: one that is longer than the limit is split into steps of whole blocks, each all or nothing with its
    /// records.
    ///
    /// # Errors
    /// Those of `write`, and nothing was written then; [`StoreError::Unusable`] for more than
    /// [`atomic_write_bytes_max`](Self::atomic_write_bytes_max), and for records that the store has no room for.
    fn write_atomic(
        &self,
        offset: u64,
        src: &[&[u8]],
        records: Option<&RecordRun>,
        durability: Durability,
    ) -> Result<(), StoreError>;

    /// Whether overwritten bytes are gone: no snapshot, journal or spare area keeps them. Constant.
    fn overwrites_in_place(&self) -> bool;

    /// Access to the blocks in memory, for callers that copy and check in one pass; `None` if the store does not hold them there.
    /// Constant.
    fn in_place(&self) -> Option<&dyn InPlace>;

    /// Reopens a store that failed, so that it accepts writes again: an operator has checked what is below it. Nothing but flushes may
    /// be under way meanwhile. Later reads return what the medium has. Returns the flush that had failed, if one had.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when it still fails; then nothing has changed.
    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError>;

    /// Returns when every write, unmap and zeroing that was acknowledged before the call is on the medium.
    ///
    /// # Errors
    /// [`StoreError::FlushFailed`], [`StoreError::Gone`]. A read-only store has nothing to flush and succeeds.
    fn flush(&self) -> Result<(), StoreError>;

    /// Releases the space of a range. If `discard_granularity_bytes` is not 0, the whole range reads as zeros afterwards, including
    /// edges that cannot be released. A store without space to release may do nothing.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError>;

    /// Makes a range read as zeros; with `may_unmap` its space may be released on the way.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError>;

    /// Says which parts of a range are mapped: at least one and at most `max.max(1)` extents, without gaps from `offset` on. Neighbours
    /// differ where the store can tell. The extents may end before the range does (the caller asks again from there), but never beyond
    /// it.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`] (also for `len` 0), [`StoreError::Gone`], [`StoreError::Io`].
    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError>;

    /// Grows the store to `size_bytes`; the new part reads as zeros. Shrinking is refused: it would destroy data under commands in
    /// flight.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when the store cannot have that size, [`StoreError::ReadOnly`],
    /// [`StoreError::NoSpace`], [`StoreError::Io`].
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError>;

    /// Bytes of the medium behind the store now: the largest size that [`resize`](Self::resize) can reach without growing the medium.
    /// More than the geometry says if the file or the device was made larger, less if it shrank.
    ///
    /// # Errors
    /// [`StoreError::Gone`], [`StoreError::Io`].
    fn medium_bytes(&self) -> Result<u64, StoreError>;

    /// Makes a store that was opened read-only accept changes from now on; does nothing to a store that already does. There is no way
    /// back: what a unit may do is decided in the layers above.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] with the reason and the remedy; then it stays read-only.
    fn make_writable(&self) -> Result<(), StoreError>;

    /// The protection information kept alongside the blocks, if the store has room for it.
    fn records(&self) -> Option<&Records>;

    /// The label of the volume; `None` for a memory store, which is a new volume at each start.
    fn label(&self) -> Option<&Arc<Label>>;
}

/// [`BlockStore::read_crc32c`] for a store that reads first and then computes.
///
/// # Errors
/// Those of the read.
pub fn read_then_crc32c<S: BlockStore + ?Sized>(
    store: &S,
    offset: u64,
    dst: &mut [u8],
    crc: u32,
) -> Result<u32, StoreError> {
    store.read(offset, dst)?;
    Ok(integrity::crc32c_append(crc, dst))
}

/// The error of [`BlockStore::resize`] for a store that cannot be resized.
pub fn fixed_size<S: BlockStore + ?Sized>(store: &S) -> StoreError {
    StoreError::Unusable(format!("{} has a fixed size; make a larger one and copy", store.description()))
}

/// The error of [`BlockStore::write_atomic`] for more than the store takes at once, and for any write if it has no such writes.
pub fn not_atomic<S: BlockStore + ?Sized>(store: &S) -> StoreError {
    let max = store.atomic_write_bytes_max();
    StoreError::Unusable(format!(
        "{} writes at most {max} bytes all or nothing; write less at a time",
        store.description()
    ))
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<T: BlockStore + ?Sized> BlockStore for $pointer {
            fn geometry(&self) -> Geometry {
                (**self).geometry()
            }
            fn placement(&self) -> Placement {
                (**self).placement()
            }
            fn description(&self) -> String {
                (**self).description()
            }
            fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
                (**self).read(offset, dst)
            }
            fn read_now(&self, offset: u64, dst: &mut [u8]) -> Result<bool, StoreError> {
                (**self).read_now(offset, dst)
            }
            fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
                (**self).read_crc32c(offset, dst, crc)
            }
            fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
                (**self).write(offset, src, durability)
            }
            fn atomic_write_bytes_max(&self) -> u64 {
                (**self).atomic_write_bytes_max()
            }
            fn write_atomic(
                &self,
                offset: u64,
                src: &[&[u8]],
                records: Option<&RecordRun>,
                durability: Durability,
            ) -> Result<(), StoreError> {
                (**self).write_atomic(offset, src, records, durability)
            }
            fn overwrites_in_place(&self) -> bool {
                (**self).overwrites_in_place()
            }
            fn in_place(&self) -> Option<&dyn InPlace> {
                (**self).in_place()
            }
            fn flush(&self) -> Result<(), StoreError> {
                (**self).flush()
            }
            fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
                (**self).unmap(offset, len)
            }
            fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError> {
                (**self).write_zeroes(offset, len, may_unmap)
            }
            fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
                (**self).extents(offset, len, max)
            }
            fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
                (**self).resize(size_bytes)
            }
            fn medium_bytes(&self) -> Result<u64, StoreError> {
                (**self).medium_bytes()
            }
            fn make_writable(&self) -> Result<(), StoreError> {
                (**self).make_writable()
            }
            fn records(&self) -> Option<&Records> {
                (**self).records()
            }
            fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
                (**self).read_medium(offset, dst)
            }
            fn medium_reads(&self) -> MediumReads {
                (**self).medium_reads()
            }
            fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
                (**self).reopen()
            }
            fn label(&self) -> Option<&Arc<Label>> {
                (**self).label()
            }
        }
    )*};
}

forward!(&T, Box<T>, Arc<T>);

/// Collects extents, merging neighbours of one kind and stopping at the caller's limit.
pub(crate) struct ExtentList {
    list: Vec<Extent>,
    max: usize,
}

impl ExtentList {
    pub(crate) fn new(max: usize) -> Self {
        ExtentList { list: Vec::new(), max: max.max(1) }
    }

    /// Appends a run; false when the list is full and the run was not taken.
    pub(crate) fn push(&mut self, offset: u64, len: u64, mapped: bool) -> bool {
        if let Some(last) = self.list.last_mut()
            && last.mapped == mapped
        {
            last.len += len;
            return true;
        }
        if self.list.len() == self.max {
            return false;
        }
        self.list.push(Extent { offset, len, mapped });
        true
    }

    pub(crate) fn into_vec(self) -> Vec<Extent> {
        self.list
    }
}

/// Allocates the space of a range without changing its content.
pub(crate) fn allocate(store: &dyn BlockStore, offset: u64, len: u64) -> Result<(), StoreError> {
    let end = offset + len;
    let mut at = offset;
    while at < end {
        for extent in store.extents(at, end - at, EXTENTS)? {
            if !extent.mapped {
                store.write_zeroes(extent.offset, extent.len, false)?;
            }
            at = extent.offset + extent.len;
        }
    }
    Ok(())
}

/// The check at the start of every `extents`: an empty range has no first extent.
pub(crate) fn check_extent_range(size_bytes: u64, offset: u64, len: u64) -> Result<(), StoreError> {
    if len == 0 {
        return Err(StoreError::OutOfRange { offset, len, size_bytes });
    }
    check_range(size_bytes, offset, len)
}

/// The check at the start of every `resize`.
pub(crate) fn check_resize(geometry: &Geometry, size_bytes: u64) -> Result<(), StoreError> {
    if geometry.read_only {
        return Err(StoreError::ReadOnly);
    }
    check_size(size_bytes, geometry.logical_block_bytes)?;
    if size_bytes < geometry.size_bytes {
        return Err(StoreError::Unusable(format!(
            "cannot {} from {} to {size_bytes} bytes: it would destroy data in use; make a smaller store and copy",
            Op::Resize,
            geometry.size_bytes
        )));
    }
    Ok(())
}
