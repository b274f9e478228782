//! A disk that fails on purpose, behind the real store.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::health::Health;
use super::os::{OsFile, Writable};
use super::{FileStore, Shape};
use crate::{BlockStore, Durability, Label, MediumReads, StoreError};

/// What the next call of a kind does instead of its work.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Fail(Errno),
    /// Transfer at most this many bytes.
    Short(usize),
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// The content of the medium, where that matters: only a test changes it.
    medium: Vec<u8>,
    /// One queue per call name; an empty queue means that the call works.
    script: Vec<(&'static str, VecDeque<Act>)>,
    calls: Vec<&'static str>,
}

/// The scripted disk, shared with the test.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn script(&self, call: &'static str, acts: &[Act]) {
        self.0.lock().script.push((call, acts.iter().copied().collect()));
    }

    fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().calls)
    }

    /// Counts the call, and returns its scripted limit.
    fn enter(&self, call: &'static str) -> Result<usize, Errno> {
        let mut state = self.0.lock();
        state.calls.push(call);
        let act =
            state.script.iter_mut().filter(|(name, _)| *name == call).find_map(|(_, acts)| acts.pop_front());
        match act {
            None => Ok(usize::MAX),
            Some(Act::Short(limit)) => Ok(limit),
            Some(Act::Fail(errno)) => Err(errno),
        }
    }

    fn put(&self, src: &[IoSlice<'_>], offset: u64, limit: usize) -> usize {
        let flat: Vec<u8> = src.iter().flat_map(|slice| slice.iter().copied()).take(limit).collect();
        let mut state = self.0.lock();
        let at = offset as usize;
        if state.bytes.len() < at + flat.len() {
            state.bytes.resize(at + flat.len(), 0);
        }
        state.bytes[at..at + flat.len()].copy_from_slice(&flat);
        flat.len()
    }

    fn zero(&self, offset: u64, len: u64) {
        self.0.lock().bytes[offset as usize..(offset + len) as usize].fill(0);
    }
}

impl OsFile for Disk {
    fn pread(&self, dst: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let limit = self.enter("pread")?;
        let state = self.0.lock();
        let src = state.bytes.get(offset as usize..).unwrap_or_default();
        let n = src.len().min(dst.len()).min(limit);
        dst[..n].copy_from_slice(&src[..n]);
        Ok(n)
    }
    fn pread_nowait(&self, dst: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.enter("nowait").and_then(|limit| {
            let limit = limit.min(dst.len());
            self.pread(&mut dst[..limit], offset)
        })
    }
    fn pwritev(&self, src: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        let limit = self.enter("pwritev")?;
        Ok(self.put(src, offset, limit))
    }
    fn pwritev_dsync(&self, src: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        let limit = self.enter("dsync")?;
        Ok(self.put(src, offset, limit))
    }
    fn fdatasync(&self) -> Result<(), Errno> {
        self.enter("fdatasync").map(|_| ())
    }
    fn fsync(&self) -> Result<(), Errno> {
        self.enter("fsync").map(|_| ())
    }
    fn sync_witness(&self) -> Result<(), Errno> {
        self.enter("witness").map(|_| ())
    }
    fn pread_direct(&self, dst: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let limit = self.enter("direct")?;
        let state = self.0.lock();
        let src = state.medium.get(offset as usize..).unwrap_or_default();
        let n = src.len().min(dst.len()).min(limit);
        dst[..n].copy_from_slice(&src[..n]);
        Ok(n)
    }
    fn drop_cache(&self, _offset: u64, _len: u64) -> Result<(), Errno> {
        self.enter("drop_cache")?;
        let mut state = self.0.lock();
        state.bytes = state.medium.clone();
        Ok(())
    }
    fn size(&self) -> Result<u64, Errno> {
        Ok(self.0.lock().bytes.len() as u64)
    }
    fn set_size(&self, size_bytes: u64) -> Result<(), Errno> {
        self.enter("set_size")?;
        self.0.lock().bytes.resize(size_bytes as usize, 0);
        Ok(())
    }
    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.enter("punch")?;
        self.zero(offset, len);
        Ok(())
    }
    fn zero_range(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.enter("zero_range")?;
        self.zero(offset, len);
        Ok(())
    }
    fn seek_data(&self, from: u64) -> Result<u64, Errno> {
        self.enter("seek_data").map(|_| from)
    }
    fn seek_hole(&self, _from: u64) -> Result<u64, Errno> {
        self.enter("seek_hole")?;
        self.size()
    }

    fn writable(&self, name: &str, _size_bytes: u64) -> Result<Writable, StoreError> {
        Err(StoreError::Unusable(name.to_owned()))
    }

    fn share_lock(&self, _name: &str) {}
}

const SIZE: u64 = 256 * 1024;
const SHAPE: Shape = Shape {
    block_device: false,
    logical_block_bytes: 512,
    physical_block_bytes: 4096,
    rotational: false,
    read_only: false,
    discard_granularity_bytes: 4096,
    fallocate_align: 1,
    identity: [0; 16],
};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 + 1).collect()
}

fn store_with(shape: Shape) -> (Disk, FileStore) {
    let disk = Disk::default();
    disk.0.lock().bytes = pattern(SIZE as usize);
    let health = Health::new("disk".to_owned(), Arc::new(Label::in_memory()));
    let store = FileStore::new(Box::new(disk.clone()), "disk".to_owned(), health, shape, SIZE);
    (disk, store)
}

fn store() -> (Disk, FileStore) {
    store_with(SHAPE)
}

#[test]
fn short_and_interrupted_transfers_are_finished() {
    let (disk, store) = store();
    disk.script("pread", &[Act::Short(1), Act::Fail(Errno::INTR), Act::Short(700), Act::Short(3)]);
    let mut dst = vec![0; 5000];
    store.read(100, &mut dst).unwrap();
    assert_eq!(dst, pattern(SIZE as usize)[100..5100]);

    for (call, durability) in [("pwritev", Durability::Cached), ("dsync", Durability::Durable)] {
        disk.script(call, &[Act::Short(1), Act::Fail(Errno::INTR), Act::Short(1500), Act::Short(600)]);
        // More slices than one call takes, some of them empty.
        let data: Vec<u8> = (0..8192).map(|i| (i * 7 % 256) as u8).collect();
        let slices: Vec<&[u8]> = data.chunks(64).flat_map(|chunk| [chunk, &[]]).collect();
        store.write(512, &slices, durability).unwrap();
        assert_eq!(disk.0.lock().bytes[512..512 + 8192], data[..], "{call}");
        disk.0.lock().bytes[512..512 + 8192].fill(0);
    }
}

#[test]
fn medium_errors_name_the_byte_and_leave_nothing_stale() {
    let (disk, store) = store();
    disk.script("pread", &[Act::Short(1024), Act::Fail(Errno::IO)]);
    let mut dst = vec![0xEE; 4096];
    let error = store.read(8192, &mut dst).unwrap_err();
    assert!(matches!(error, StoreError::MediumRead { offset: 9216 }), "{error}");
    assert!(dst[1024..].iter().all(|&byte| byte == 0));

    disk.script("pwritev", &[Act::Short(512), Act::Fail(Errno::IO)]);
    let error = store.write(0, &[&[1; 1024]], Durability::Cached).unwrap_err();
    assert!(matches!(error, StoreError::MediumWrite { offset: 512 }), "{error}");
    // A failed cached write concerns that write only.
    store.flush().unwrap();
}

#[test]
fn a_full_medium_is_no_space_and_not_final() {
    let (disk, store) = store();
    for errno in [Errno::NOSPC, Errno::DQUOT] {
        disk.script("pwritev", &[Act::Fail(errno)]);
        let error = store.write(0, &[&[1; 512]], Durability::Cached).unwrap_err();
        assert!(matches!(error, StoreError::NoSpace), "{error}");
        // Durable: no room to allocate, and there was no failed write-back whose report the write could have
        // used up.
        disk.script("dsync", &[Act::Fail(errno)]);
        let error = store.write(0, &[&[1; 512]], Durability::Durable).unwrap_err();
        assert!(matches!(error, StoreError::NoSpace), "{error}");
    }
    store.write(0, &[&[1; 512]], Durability::Durable).unwrap();
    store.flush().unwrap();
}

#[test]
fn no_space_at_write_back_of_a_durable_write_is_final() {
    let (disk, store) = store();
    disk.script("dsync", &[Act::Fail(Errno::NOSPC)]);
    disk.script("witness", &[Act::Fail(Errno::INTR), Act::Fail(Errno::NOSPC)]);
    let error = store.write(0, &[&[1; 512]], Durability::Durable).unwrap_err();
    assert!(matches!(error, StoreError::FlushFailed(_)), "{error}");
    assert!(matches!(store.flush(), Err(StoreError::FlushFailed(_))));
}

#[test]
fn after_a_failed_flush_nothing_is_changed_any_more() {
    let (disk, store) = store();
    disk.script("fdatasync", &[Act::Fail(Errno::INTR), Act::Fail(Errno::IO)]);
    assert!(matches!(store.flush(), Err(StoreError::FlushFailed(_))));
    disk.calls();
    assert!(matches!(store.flush(), Err(StoreError::FlushFailed(_))));
    assert!(matches!(store.write(0, &[&[1; 512]], Durability::Durable), Err(StoreError::FlushFailed(_))));
    assert!(matches!(store.write(0, &[&[1; 512]], Durability::Cached), Err(StoreError::FlushFailed(_))));
    assert!(matches!(store.unmap(0, 512), Err(StoreError::FlushFailed(_))));
    assert!(matches!(store.write_zeroes(0, 512, false), Err(StoreError::FlushFailed(_))));
    assert!(matches!(store.resize(2 * SIZE), Err(StoreError::FlushFailed(_))));
    assert_eq!(disk.calls(), [""; 0], "the kernel must not be asked again: it would say yes");
    store.read(0, &mut [0; 512]).unwrap();
}

#[test]
fn a_failed_durable_write_fails_later_flushes_too() {
    let (disk, store) = store();
    disk.script("dsync", &[Act::Fail(Errno::IO)]);
    let error = store.write(4096, &[&[1; 512]], Durability::Durable).unwrap_err();
    assert!(matches!(error, StoreError::MediumWrite { offset: 4096 }), "{error}");
    assert!(matches!(store.flush(), Err(StoreError::FlushFailed(_))));
}

#[test]
fn without_dsync_a_durable_write_syncs() {
    let (disk, store) = store();
    disk.script("dsync", &[Act::Fail(Errno::OPNOTSUPP)]);
    store.write(0, &[&[1; 512]], Durability::Durable).unwrap();
    assert_eq!(disk.calls(), ["dsync", "pwritev", "fdatasync"]);
    store.write(0, &[&[2; 512]], Durability::Durable).unwrap();
    assert_eq!(disk.calls(), ["pwritev", "fdatasync"], "asked once only");
    store.write(0, &[&[2; 512]], Durability::Cached).unwrap();
    assert_eq!(disk.calls(), ["pwritev"]);
}

#[test]
fn a_device_that_leaves_is_gone_for_good() {
    let (disk, store) = store();
    for errno in [Errno::NXIO, Errno::NODEV, Errno::STALE] {
        disk.script("pread", &[Act::Fail(errno)]);
    }
    let mut dst = [0xEE; 512];
    assert!(matches!(store.read(0, &mut dst), Err(StoreError::Gone(_))));
    dst.fill(0xEE);
    assert!(matches!(store.read(0, &mut dst), Err(StoreError::Gone(_))));
    assert_eq!(dst, [0; 512]);
    assert!(matches!(store.write(0, &[&[1; 512]], Durability::Cached), Err(StoreError::Gone(_))));
    assert!(matches!(store.flush(), Err(StoreError::Gone(_))));
    assert!(matches!(store.extents(0, 512, 1), Err(StoreError::Gone(_))));
}

#[test]
fn zeroing_falls_back_from_punch_to_range_to_writing() {
    for (may_unmap, expected) in
        [(true, &["punch", "zero_range", "pwritev"][..]), (false, &["zero_range", "pwritev"])]
    {
        let (disk, store) = store();
        disk.script("punch", &[Act::Fail(Errno::OPNOTSUPP)]);
        disk.script("zero_range", &[Act::Fail(Errno::OPNOTSUPP)]);
        store.write_zeroes(1000, 100_000, may_unmap).unwrap();
        assert_eq!(disk.calls(), expected);
        let mut after = pattern(SIZE as usize);
        after[1000..101_000].fill(0);
        assert_eq!(disk.0.lock().bytes, after);
        store.write_zeroes(0, 512, may_unmap).unwrap();
        assert_eq!(disk.calls(), ["pwritev"], "asked once only");
    }
}

#[test]
fn unaligned_edges_of_a_device_are_written() {
    let (disk, store) = store_with(Shape { block_device: true, fallocate_align: 4096, ..SHAPE });
    store.unmap(1000, 10_000).unwrap();
    assert_eq!(disk.calls(), ["pwritev", "punch", "pwritev"]);
    let mut after = pattern(SIZE as usize);
    after[1000..11_000].fill(0);
    assert_eq!(disk.0.lock().bytes, after);

    store.unmap(20_490, 10).unwrap(); // inside one sector: nothing to punch
    assert_eq!(disk.calls(), ["pwritev"]);
    after[20_490..20_500].fill(0);
    assert_eq!(disk.0.lock().bytes, after);
}

#[test]
fn a_medium_error_while_punching_is_not_hidden_by_a_fallback() {
    let (disk, store) = store();
    disk.script("punch", &[Act::Fail(Errno::IO)]);
    assert!(matches!(store.unmap(4096, 4096), Err(StoreError::MediumWrite { offset: 4096 })));
    assert_eq!(disk.calls(), ["punch", "witness"]);
}

#[test]
fn a_device_has_one_mapped_extent_and_grows_only_after_the_device() {
    let (disk, store) = store_with(Shape { block_device: true, ..SHAPE });
    let extents = store.extents(512, 8192, 10).unwrap();
    assert_eq!(extents, [crate::Extent { offset: 512, len: 8192, mapped: true }]);
    assert!(matches!(store.resize(2 * SIZE), Err(StoreError::Unusable(_))));
    disk.0.lock().bytes.resize(2 * SIZE as usize, 0);
    store.resize(2 * SIZE).unwrap();
    assert_eq!(store.geometry().size_bytes, 2 * SIZE);
    assert!(!disk.calls().contains(&"set_size"));
}

#[test]
fn a_read_only_store_changes_nothing() {
    let (disk, store) = store_with(Shape { read_only: true, ..SHAPE });
    assert!(matches!(store.write(0, &[&[1; 512]], Durability::Cached), Err(StoreError::ReadOnly)));
    assert!(matches!(store.unmap(0, 512), Err(StoreError::ReadOnly)));
    assert!(matches!(store.write_zeroes(0, 512, true), Err(StoreError::ReadOnly)));
    assert!(matches!(store.resize(2 * SIZE), Err(StoreError::ReadOnly)));
    store.flush().unwrap();
    assert_eq!(disk.calls(), [""; 0]);
}

/// Growing a file syncs it, and may use up the report of a failed write-back.
#[test]
fn a_sync_that_fails_while_the_file_grows_is_a_failed_flush() {
    for (call, lost) in [("fsync", "fsync"), ("set_size", "witness")] {
        let (disk, store) = store();
        store.write(0, &[&[1; 512]], Durability::Cached).unwrap();
        disk.script(call, &[Act::Fail(Errno::IO)]);
        disk.script(lost, &[Act::Fail(Errno::IO)]);
        assert!(matches!(store.resize(2 * SIZE), Err(StoreError::FlushFailed(_))), "{call}");
        assert!(matches!(store.flush(), Err(StoreError::FlushFailed(_))), "{call}");
        let durable = store.write(0, &[&[1; 512]], Durability::Durable);
        assert!(matches!(durable, Err(StoreError::FlushFailed(_))), "{call}");
        assert_eq!(store.geometry().size_bytes, SIZE);
        let failed = store.label().unwrap().failed_flush().unwrap();
        assert_eq!(failed.unflushed_bytes, 512);
        assert!(failed.reason.contains("disk: Input/output error"), "{failed:?}");
    }
    let (disk, store) = store();
    disk.script("set_size", &[Act::Fail(Errno::NOSPC)]);
    assert!(matches!(store.resize(2 * SIZE), Err(StoreError::NoSpace)), "nothing was lost");
    store.flush().unwrap();
}

/// On NFS a plain write may return the error of an earlier one that could not be written back.
#[test]
fn a_plain_write_that_takes_the_report_of_a_failed_write_back_is_a_failed_flush() {
    let (disk, store) = store();
    for (call, change) in [
        ("pwritev", (|store| store.write(0, &[&[1; 512]], Durability::Cached)) as fn(&FileStore) -> _),
        ("punch", |store| store.unmap(0, 4096)),
    ] {
        disk.script(call, &[Act::Fail(Errno::NOSPC)]);
        assert!(matches!(change(&store), Err(StoreError::NoSpace)), "no write-back failed");
        store.flush().unwrap();
        disk.script(call, &[Act::Fail(Errno::NOSPC)]);
        disk.script("witness", &[Act::Fail(Errno::NOSPC)]);
        assert!(matches!(change(&store), Err(StoreError::FlushFailed(_))), "{call}");
        assert!(matches!(store.flush(), Err(StoreError::FlushFailed(_))), "{call}");
        disk.0.lock().medium = pattern(SIZE as usize);
        store.reopen().unwrap().expect("it had failed");
    }
}

#[test]
fn a_store_that_is_opened_again_takes_writes_and_shows_what_the_medium_has() {
    let (disk, store) = store();
    assert_eq!(store.reopen().unwrap(), None, "nothing had failed");
    assert_eq!(disk.calls(), [""; 0]);
    let medium = vec![7; SIZE as usize];
    disk.0.lock().medium = medium.clone();
    store.write(0, &[&[1; 1024]], Durability::Cached).unwrap();
    disk.script("fdatasync", &[Act::Fail(Errno::IO), Act::Fail(Errno::IO)]);
    assert!(store.flush().is_err());
    let error = store.reopen().unwrap_err().to_string();
    assert!(error.contains("still fails") && error.contains("disk"), "{error}");
    assert!(matches!(store.write(0, &[&[1; 512]], Durability::Cached), Err(StoreError::FlushFailed(_))));

    let failed = store.reopen().unwrap().expect("it had failed");
    assert_eq!(failed.unflushed_bytes, 1024);
    assert_eq!(store.label().unwrap().failed_flush(), None);
    let mut read = [0; 512];
    store.read(0, &mut read).unwrap();
    assert_eq!(read, [7; 512], "not what was only ever cached");
    store.write(0, &[&[1; 512]], Durability::Durable).unwrap();
    store.flush().unwrap();
}

#[test]
fn a_file_that_was_restored_in_its_place_is_opened_again() {
    let (disk, store) = store();
    disk.0.lock().bytes.truncate(1000);
    assert!(matches!(store.flush(), Err(StoreError::Gone(_))));
    disk.0.lock().medium = vec![7; 1000];
    let error = store.reopen().unwrap_err().to_string();
    assert!(error.contains("has 1000 bytes"), "{error}");
    assert!(matches!(store.flush(), Err(StoreError::Gone(_))));
    disk.0.lock().medium = vec![7; SIZE as usize];
    disk.0.lock().bytes = vec![7; SIZE as usize];
    store.reopen().unwrap();
    store.write(0, &[&[1; 512]], Durability::Durable).unwrap();
}

#[test]
fn a_read_of_the_medium_does_not_see_what_is_only_cached() {
    for (direct, how) in [(true, MediumReads::Direct), (false, MediumReads::CacheDropped)] {
        let (disk, store) = store();
        let medium: Vec<u8> = pattern(SIZE as usize).iter().map(|byte| !byte).collect();
        disk.0.lock().medium = medium.clone();
        if !direct {
            disk.script("direct", &[Act::Fail(Errno::INVAL)]);
        }
        for (offset, len) in [(0, 512), (1000, 5000), (4096, 4096), (SIZE - 700, 700), (0, SIZE)] {
            let mut read = vec![0; len as usize];
            store.read_medium(offset, &mut read).unwrap();
            assert_eq!(read, medium[offset as usize..(offset + len) as usize], "{offset} {len}");
        }
        assert_eq!(store.medium_reads(), how);
        assert!(matches!(store.read_medium(SIZE, &mut [0]), Err(StoreError::OutOfRange { .. })));
    }
}

/// The kernel drops no page that is not written yet.
#[test]
fn what_is_cached_is_written_before_a_read_that_drops_the_cache() {
    for read_only in [false, true] {
        let (disk, store) = store_with(Shape { read_only, ..SHAPE });
        disk.0.lock().medium = pattern(SIZE as usize);
        disk.script("direct", &[Act::Fail(Errno::INVAL)]);
        disk.calls();
        store.read_medium(0, &mut [0; 512]).unwrap();
        let expected: &[&str] = match read_only {
            true => &["direct", "drop_cache"],
            false => &["direct", "fdatasync", "drop_cache"],
        };
        assert!(disk.calls().starts_with(expected), "read_only: {read_only}");
    }
}

/// A file need not end at a sector.
#[test]
fn a_read_of_the_medium_takes_the_blocks_before_an_odd_end() {
    let (disk, store) = store();
    let medium = pattern(SIZE as usize - 100);
    disk.0.lock().medium = medium.clone();
    let mut read = [0; 512];
    store.read_medium(SIZE - 1024, &mut read).unwrap();
    assert_eq!(read[..], medium[SIZE as usize - 1024..][..512]);
    assert!(store.read_medium(SIZE - 512, &mut read).is_err(), "its end is missing");
}

#[test]
fn a_medium_that_fails_is_seen_although_its_blocks_are_cached() {
    let (disk, store) = store();
    let mut read = [0xee; 512];
    store.read(4096, &mut read).unwrap();
    disk.script("direct", &[Act::Fail(Errno::INTR), Act::Fail(Errno::IO)]);
    assert!(matches!(store.read_medium(4096, &mut read), Err(StoreError::MediumRead { offset: 4096 })));
    assert_eq!(read, [0; 512]);
    disk.0.lock().medium = pattern(4096);
    assert!(matches!(store.read_medium(4096, &mut read), Err(StoreError::Gone(_))), "it ends before");
}

#[test]
fn a_read_that_takes_no_waiting_brings_all_or_nothing_and_is_not_asked_for_where_there_is_none() {
    let (disk, store) = store();
    let mut dst = vec![0; 5000];
    assert!(store.read_now(100, &mut dst).unwrap());
    assert_eq!(dst, pattern(SIZE as usize)[100..5100]);
    assert!(matches!(store.read_now(SIZE, &mut dst), Err(StoreError::OutOfRange { .. })));

    // Not all of it is cached, nothing is, or the medium has lost it: the real read that follows reports it.
    for act in [Act::Short(4999), Act::Fail(Errno::AGAIN), Act::Fail(Errno::INTR), Act::Fail(Errno::IO)] {
        disk.script("nowait", &[act]);
        assert!(!store.read_now(100, &mut dst).unwrap());
    }
    assert!(store.read_now(100, &mut dst).unwrap());

    disk.script("nowait", &[Act::Fail(Errno::OPNOTSUPP)]);
    assert!(!store.read_now(100, &mut dst).unwrap());
    disk.calls();
    assert!(!store.read_now(100, &mut dst).unwrap());
    assert!(disk.calls().is_empty(), "the file system has said that it cannot");
    store.read(100, &mut dst).unwrap();
}
