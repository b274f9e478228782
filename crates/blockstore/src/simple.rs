//! A small trait for stores: the few things that a custom store must provide. The rest of [`BlockStore`] is built on them.

use std::sync::Arc;

use crate::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Placement, RecordRun,
    Records, StoreError, fixed_size, not_atomic, read_then_crc32c,
};

/// Zeros are written in pieces of this many bytes.
const ZEROS_BYTES: usize = 64 * 1024;

/// A custom store of a fixed size. Wrap it in [`Simple`] to serve it.
///
/// Calls come from many threads at once. The target orders those that overlap. Every range is inside the store, and consists of
/// whole logical blocks when it comes from a host.
pub trait SimpleStore: Send + Sync {
    /// Size in bytes, a multiple of [`logical_block_bytes`](Self::logical_block_bytes). Constant.
    fn size_bytes(&self) -> u64;

    /// Bytes of a logical block: a power of two, 512 to 65536. Constant.
    fn logical_block_bytes(&self) -> u32 {
        512
    }

    /// What this is, for people and logs.
    fn description(&self) -> String;

    /// Whether a call may wait, for a disk or for another machine. If so, it runs on a thread that may wait; a store in memory
    /// returns false.
    fn may_block(&self) -> bool {
        true
    }

    /// Whether writes are refused. Default: no.
    fn read_only(&self) -> bool {
        false
    }

    /// Fills `dst` from `offset`.
    ///
    /// # Errors
    /// Any; [`StoreError::MediumRead`] says which bytes are lost.
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError>;

    /// Writes `src` at `offset`. The data may stay in a cache until [`flush`](Self::flush).
    ///
    /// # Errors
    /// Any; a part may have been written by then.
    fn write(&self, offset: u64, src: &[u8]) -> Result<(), StoreError>;

    /// Returns when everything written before the call is on the medium.
    ///
    /// # Errors
    /// Any: earlier writes may be lost then.
    fn flush(&self) -> Result<(), StoreError>;
}

/// A [`SimpleStore`] as a [`BlockStore`]: it has no atomic writes, releases no space, has no protection information and cannot be
/// resized.
#[derive(Clone, Debug)]
pub struct Simple<S>(S);

impl<S: SimpleStore> Simple<S> {
    /// Wraps `inner`.
    pub fn new(inner: S) -> Self {
        Self(inner)
    }

    /// The wrapped store.
    pub fn inner(&self) -> &S {
        &self.0
    }

    /// Checks that a change of this range is possible.
    fn check_change(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.geometry().check_range(offset, len)?;
        if self.0.read_only() { Err(StoreError::ReadOnly) } else { Ok(()) }
    }
}

impl<S: SimpleStore> BlockStore for Simple<S> {
    fn geometry(&self) -> Geometry {
        let logical_block_bytes = self.0.logical_block_bytes();
        Geometry {
            size_bytes: self.0.size_bytes(),
            logical_block_bytes,
            physical_block_bytes: logical_block_bytes,
            rotational: false,
            discard_granularity_bytes: 0,
            read_only: self.0.read_only(),
        }
    }

    fn placement(&self) -> Placement {
        if self.0.may_block() { Placement::Offload } else { Placement::Inline }
    }

    fn description(&self) -> String {
        self.0.description()
    }

    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.geometry().check_range(offset, dst.len() as u64)?;
        self.0.read(offset, dst)
    }

    fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.read(offset, dst)
    }

    fn medium_reads(&self) -> MediumReads {
        MediumReads::Memory
    }

    fn read_now(&self, _offset: u64, _dst: &mut [u8]) -> Result<bool, StoreError> {
        Ok(false) // a simple store cannot tell whether a read would wait
    }

    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        read_then_crc32c(self, offset, dst, crc)
    }

    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        self.check_change(offset, src.iter().map(|piece| piece.len() as u64).sum())?;
        let mut at = offset;
        for piece in src {
            self.0.write(at, piece)?;
            at += piece.len() as u64;
        }
        match durability {
            Durability::Cached => Ok(()),
            Durability::Durable => self.0.flush(),
        }
    }

    fn atomic_write_bytes_max(&self) -> u64 {
        0
    }

    fn write_atomic(
        &self,
        _offset: u64,
        _src: &[&[u8]],
        _records: Option<&RecordRun>,
        _durability: Durability,
    ) -> Result<(), StoreError> {
        Err(not_atomic(self))
    }

    /// Whether the layers below keep old data is unknown.
    fn overwrites_in_place(&self) -> bool {
        false
    }

    fn in_place(&self) -> Option<&dyn InPlace> {
        None
    }

    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        Ok(None)
    }

    fn flush(&self) -> Result<(), StoreError> {
        if self.0.read_only() { Ok(()) } else { self.0.flush() }
    }

    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.check_change(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, _may_unmap: bool) -> Result<(), StoreError> {
        self.check_change(offset, len)?;
        let zeros = vec![0; ZEROS_BYTES.min(usize::try_from(len).unwrap_or(ZEROS_BYTES))];
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(zeros.len() as u64);
            self.0.write(offset + done, &zeros[..piece as usize])?;
            done += piece;
        }
        Ok(())
    }

    fn extents(&self, offset: u64, len: u64, _max: usize) -> Result<Vec<Extent>, StoreError> {
        self.geometry().check_range(offset, len.max(1))?;
        if len == 0 {
            return Err(StoreError::OutOfRange { offset, len, size_bytes: self.0.size_bytes() });
        }
        Ok(vec![Extent { offset, len, mapped: true }])
    }

    fn resize(&self, _size_bytes: u64) -> Result<(), StoreError> {
        Err(fixed_size(self))
    }

    fn medium_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.0.size_bytes())
    }

    fn make_writable(&self) -> Result<(), StoreError> {
        match self.0.read_only() {
            true => Err(StoreError::Unusable(format!("{} takes no writes", self.0.description()))),
            false => Ok(()),
        }
    }

    fn records(&self) -> Option<&Records> {
        None
    }

    fn label(&self) -> Option<&Arc<Label>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use parking_lot::Mutex;

    use super::*;

    struct Bytes {
        data: Mutex<Vec<u8>>,
        flushes: AtomicU32,
        read_only: bool,
    }

    impl SimpleStore for Bytes {
        fn size_bytes(&self) -> u64 {
            self.data.lock().len() as u64
        }
        fn description(&self) -> String {
            "bytes".to_owned()
        }
        fn read_only(&self) -> bool {
            self.read_only
        }
        fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
            dst.copy_from_slice(&self.data.lock()[offset as usize..][..dst.len()]);
            Ok(())
        }
        fn write(&self, offset: u64, src: &[u8]) -> Result<(), StoreError> {
            self.data.lock()[offset as usize..][..src.len()].copy_from_slice(src);
            Ok(())
        }
        fn flush(&self) -> Result<(), StoreError> {
            self.flushes.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn store(read_only: bool) -> Simple<Bytes> {
        let data = Mutex::new(vec![7; 256 * 1024]);
        Simple::new(Bytes { data, flushes: AtomicU32::new(0), read_only })
    }

    #[test]
    fn pieces_lie_one_after_the_other_and_durable_writes_are_flushed() {
        let store = store(false);
        store.write(512, &[&[1; 512], &[2; 512]], Durability::Cached).unwrap();
        assert_eq!(store.inner().flushes.load(Ordering::Relaxed), 0);
        store.write(2048, &[&[3; 512]], Durability::Durable).unwrap();
        assert_eq!(store.inner().flushes.load(Ordering::Relaxed), 1);
        let mut back = vec![0; 2560];
        let crc = store.read_crc32c(0, &mut back, 0).unwrap();
        let expected = [[7; 512], [1; 512], [2; 512], [7; 512], [3; 512]].concat();
        assert!(back == expected && crc == integrity::crc32c(&expected));
        store.write_zeroes(0, 200 * 1024, true).unwrap();
        let mut back = vec![1; 256 * 1024];
        store.read(0, &mut back).unwrap();
        let (zeros, rest) = back.split_at(200 * 1024);
        assert!(zeros.iter().all(|byte| *byte == 0) && rest.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn what_is_outside_or_not_allowed_never_reaches_the_inner_store() {
        let (writable, read_only) = (store(false), store(true));
        let size = writable.geometry().size_bytes;
        assert!(matches!(writable.read(size - 1, &mut [0; 2]), Err(StoreError::OutOfRange { .. })));
        let outside = writable.write(u64::MAX, &[&[0; 512]], Durability::Cached);
        assert!(matches!(outside, Err(StoreError::OutOfRange { .. })));
        assert!(matches!(writable.write_zeroes(size, 1, false), Err(StoreError::OutOfRange { .. })));
        assert!(matches!(read_only.write(0, &[&[0; 512]], Durability::Cached), Err(StoreError::ReadOnly)));
        assert!(matches!(read_only.write_zeroes(0, 512, true), Err(StoreError::ReadOnly)));
        assert!(matches!(read_only.unmap(0, 512), Err(StoreError::ReadOnly)));
        assert!(read_only.make_writable().is_err() && writable.make_writable().is_ok());
        assert_eq!(writable.atomic_write_bytes_max(), 0, "no write is all or nothing");
        assert!(read_only.flush().is_ok());
        assert_eq!(read_only.inner().flushes.load(Ordering::Relaxed), 0, "there is nothing to flush");
    }

    #[test]
    fn what_a_simple_store_lacks_is_said_and_not_pretended() {
        let (store, read_only) = (store(false), store(true));
        assert_eq!((store.placement(), store.description().as_str()), (Placement::Offload, "bytes"));
        let geometry = store.geometry();
        assert_eq!((geometry.logical_block_bytes, geometry.discard_granularity_bytes), (512, 0));
        assert!(!geometry.read_only && read_only.geometry().read_only);
        // Unmapped blocks keep their contents: the geometry says so.
        store.unmap(0, 512).unwrap();
        let mut back = [0; 512];
        assert!(!store.read_now(0, &mut back).unwrap() && back == [0; 512]);
        store.read_medium(0, &mut back).unwrap();
        assert_eq!(back, [7; 512]);
        assert_eq!(store.medium_reads(), MediumReads::Memory);
        assert!(store.write_atomic(0, &[&[1; 512]], None, Durability::Durable).is_err());
        assert!(!store.overwrites_in_place() && store.in_place().is_none());
        assert!(store.records().is_none() && store.label().is_none());
        assert_eq!(store.reopen().unwrap(), None);
        assert!(store.resize(geometry.size_bytes).is_err());
        assert_eq!(store.medium_bytes().unwrap(), geometry.size_bytes);
        let all = Extent { offset: 512, len: geometry.size_bytes - 512, mapped: true };
        assert_eq!(store.extents(512, all.len, 5).unwrap(), [all]);
        for (offset, len) in [(512, 0), (512, geometry.size_bytes), (geometry.size_bytes, 1)] {
            assert!(store.extents(offset, len, 1).is_err(), "{offset} {len}");
        }
        let mut written = [0; 512];
        store.read(0, &mut written).unwrap();
        assert_eq!(written, [7; 512], "nothing was changed");
    }
}
