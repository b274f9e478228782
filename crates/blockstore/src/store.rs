//! The trait that every store and wrapper implements, and its plain types.

use std::sync::Arc;

use crate::error::Op;
use crate::{FailedFlush, Label, RecordRun, Records, StoreError};

/// Shape of a store. Cheap to copy; asked again whenever it matters, because a resize changes it.
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
    /// Bytes of the smallest unit that `unmap` gives back; 0 when the store cannot give back space.
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

/// Checks a logical block size against what [`Geometry`] promises.
pub(crate) fn check_block_bytes(logical_block_bytes: u32) -> Result<(), StoreError> {
    if logical_block_bytes.is_power_of_two() && (512..=65536).contains(&logical_block_bytes) {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "a logical block of {logical_block_bytes} bytes is not possible; use a power of two from 512 to 65536"
    )))
}

/// Checks a size: whole blocks, at least one.
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

/// How a store reads its medium, past what is cached of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumReads {
    /// It is kept in memory and has no other medium.
    Memory,
    /// Past the page cache (`O_DIRECT`).
    Direct,
    /// The file system refuses that: the page cache of the range is dropped before.
    CacheDropped,
}

impl MediumReads {
    /// A word for it.
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

/// The blocks of a store that holds them in memory ([`BlockStore::in_place`]). Pieces are cut between logical blocks only (where the
/// range has whole ones); the store is locked meanwhile, so whoever is shown one calls none.
pub trait InPlace {
    /// Shows a range to `look`, piece by piece in order. None changes while it is shown.
    ///
    /// # Errors
    /// As [`BlockStore::read`]; `look` may have seen a part then.
    fn read_in_place(&self, offset: u64, len: u64, look: &mut dyn FnMut(&[u8])) -> Result<(), StoreError>;

    /// Lets the processor fetch the first `len` bytes of a range, as far as they are there and nobody changes them just now: they
    /// are about to be read or written. Never waits.
    fn prefetch(&self, offset: u64, len: usize);

    /// Lets `fill` write a range, piece by piece in order. It overwrites all of each piece: what it is given holds what was there
    /// before. Nobody sees a piece before `fill` is done with it.
    ///
    /// # Errors
    /// As [`BlockStore::write`]; a part may have been written then.
    fn write_in_place(
        &self,
        offset: u64,
        len: u64,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), StoreError>;
}

/// An array of bytes that can be read and written from many threads at once. The crate's head says what holds for
/// all stores.
///
/// No method has a body here: a store around another one that leaves one out would hide what the inner store can, and nobody
/// would notice. So the compiler does. Stores without more have [`read_then_crc32c`], [`not_atomic`]
/// and [`fixed_size`] to call.
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

    /// Fills `dst` from `offset` if that takes no waiting, for the medium or for anybody: for a look from a shard at a store that is
    /// otherwise called on worker threads. False: it would take some, or the store cannot tell; `dst` holds anything then, and the
    /// read is still to be done.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_now(&self, offset: u64, dst: &mut [u8]) -> Result<bool, StoreError>;

    /// Fills `dst` from `offset` with what is on the medium, however much of it is in a cache. What was written to the range before
    /// the call is written to the medium first, though not durably.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`StoreError::FlushFailed`].
    fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError>;

    /// How [`read_medium`](Self::read_medium) comes to the medium, as far as is known.
    fn medium_reads(&self) -> MediumReads;

    /// Fills `dst` from `offset` and extends `crc`, a finished CRC32C (0 for an empty prefix), over its bytes, in
    /// the same pass where the store can.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError>;

    /// Writes the slices of `src` one after the other, starting at `offset`.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`], [`StoreError::ReadOnly`], [`StoreError::NoSpace`], [`StoreError::MediumWrite`],
    /// [`StoreError::FlushFailed`] (also of a flush before), [`StoreError::Gone`], [`StoreError::Io`].
    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError>;

    /// Most bytes that one [`write_atomic`](Self::write_atomic) takes, whole logical blocks; 0 when the store has no such writes.
    /// Constant for the life of the store.
    fn atomic_write_bytes_max(&self) -> u64;

    /// Writes as [`write`](Self::write), but all or nothing: neither an error nor a loss of power leaves a part of it behind. Other
    /// calls that are under way may see it block by block. `records` are those of the blocks, and become theirs in the same step. With
    /// them it may be of any length: what is longer than that is written in steps of whole blocks, each all or nothing with its record.
    ///
    /// # Errors
    /// As `write`, and nothing was written then; [`StoreError::Unusable`] for more than
    /// [`atomic_write_bytes_max`](Self::atomic_write_bytes_max), and for records that the store has no room for.
    fn write_atomic(
        &self,
        offset: u64,
        src: &[&[u8]],
        records: Option<&RecordRun>,
        durability: Durability,
    ) -> Result<(), StoreError>;

    /// Whether bytes that are overwritten are gone: no snapshot, journal or spare area keeps them. Constant.
    fn overwrites_in_place(&self) -> bool;

    /// Its blocks where they lie in memory, for whoever copies and checks in one pass; `None` from a store that does not hold them
    /// there. Constant.
    fn in_place(&self) -> Option<&dyn InPlace>;

    /// Opens a store again that failed, so that it takes writes: an operator has looked at what is below it. Nothing may be under way
    /// meanwhile but flushes. What is read from here on is what the medium has. The flush that had failed, if one had.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when it still fails; then nothing has changed.
    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError>;

    /// Returns when every write, unmap and zeroing that was acknowledged before the call is on the medium.
    ///
    /// # Errors
    /// [`StoreError::FlushFailed`], [`StoreError::Gone`]. A read-only store has nothing to flush and succeeds.
    fn flush(&self) -> Result<(), StoreError>;

    /// Gives back the space of a range. Where `discard_granularity_bytes` is not 0 the whole range reads as zeros
    /// afterwards, also the edges that cannot be given back. A store without space to give back may do nothing.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError>;

    /// Makes a range read as zeros; with `may_unmap` its space may be given back on the way.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError>;

    /// Says which parts of a range are mapped: at least one and at most `max.max(1)` extents, without gaps from
    /// `offset` on, neighbours different where the store can tell. They may end before the range does (the caller
    /// asks again from there) and never beyond it.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`] (also for `len` 0), [`StoreError::Gone`], [`StoreError::Io`].
    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError>;

    /// Grows the store to `size_bytes`; the new part reads as zeros. Shrinking is refused: it would destroy data
    /// under commands in flight.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when the store cannot have that size, [`StoreError::ReadOnly`],
    /// [`StoreError::NoSpace`], [`StoreError::Io`].
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError>;

    /// Bytes of the medium behind the store now: what [`resize`](Self::resize) can make of it without the medium's growing. More
    /// than the geometry says when somebody made the file or the device larger, less when it shrank.
    ///
    /// # Errors
    /// [`StoreError::Gone`], [`StoreError::Io`].
    fn medium_bytes(&self) -> Result<u64, StoreError>;

    /// Makes a store that was opened read-only take changes from now on; one that takes them already stays as it is. What a unit
    /// may do is decided above: there is no way back.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] with the reason and the remedy; then it stays read-only.
    fn make_writable(&self) -> Result<(), StoreError>;

    /// The protection information beside the blocks, where the store has room for it.
    fn records(&self) -> Option<&Records>;

    /// The label of the volume; `None` from memory, which is another volume with each start.
    fn label(&self) -> Option<&Arc<Label>>;
}

/// [`BlockStore::read_crc32c`] of a store that reads first and computes then.
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

/// What [`BlockStore::resize`] says of a store that cannot.
pub fn fixed_size<S: BlockStore + ?Sized>(store: &S) -> StoreError {
    StoreError::Unusable(format!("{} has a fixed size; make a larger one and copy", store.description()))
}

/// What [`BlockStore::write_atomic`] says of more than the store takes at once, and of any where it has no such writes.
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

/// The check that opens every `extents`: an empty range has no first extent.
pub(crate) fn check_extent_range(size_bytes: u64, offset: u64, len: u64) -> Result<(), StoreError> {
    if len == 0 {
        return Err(StoreError::OutOfRange { offset, len, size_bytes });
    }
    check_range(size_bytes, offset, len)
}

/// The check that opens every `resize`.
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
