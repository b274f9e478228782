//! A volume in a regular file or on a block device, through the page cache.
//!
//! * A flush is `fdatasync`, a durable write `pwritev2(RWF_DSYNC)` (if the file system lacks it: write, then `fdatasync`). After one
//!   of these has failed, every later change and flush fails with [`StoreError::FlushFailed`] until an operator reopens the store,
//!   even after a restart: the kernel has dropped what it could not write, so a retry that succeeds would acknowledge lost data. See
//!   `health.rs`.
//! * A file that shrank under the store makes it [`StoreError::Gone`] for good. The size is checked before every change too, because
//!   a write past the new end would silently grow the file again with zeros in the gap. (A truncation between check and write is not
//!   seen; the lock keeps well-behaved programs out.)
//! * The file is locked (`flock`): exclusively, or shared by read-only stores, until one of them is made writable. A block device
//!   that is opened for writing is also claimed (`O_EXCL`): it cannot be mounted, and opening it fails if it already is.
//! * Unmap punches holes. Whatever the kernel cannot deallocate is overwritten with zeros.
//!
//! Left out: `O_DIRECT` and asynchronous submission; both belong to an engine driver.

mod health;
mod medium;
mod open;
mod os;
mod system;
#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::io::Errno;

pub use self::open::FileOptions;
pub(crate) use self::open::Labelled;

use self::health::{Health, NotDurable};
use self::os::{OsFile, Writable};
use crate::gather::{Gather, total_bytes};
use crate::store::{ExtentList, Identity, check_extent_range, check_resize};
use crate::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Op, Placement,
    RecordRun, Records, StoreError, not_atomic, read_then_crc32c,
};

/// Slices handed to one system call: enough for a 256 KiB burst in 8 KiB PDUs, small enough for the stack.
const IOV_SLICES: usize = 32;
/// The zeros that are written where the kernel cannot zero a range itself.
static ZEROES: [u8; 64 * 1024] = [0; 64 * 1024];

/// A volume in a file or on a block device; see the module's head.
pub struct FileStore {
    /// As it was opened; holds the lock.
    os: Box<dyn OsFile>,
    /// The same file, if it was opened for writing later.
    writable: OnceLock<Writable>,
    name: String,
    shape: Shape,
    size_bytes: AtomicU64,
    health: Health,
    resizing: Mutex<()>,
    no_direct: AtomicBool,
    no_punch: AtomicBool,
    no_zero_range: AtomicBool,
    /// The file system does not support reads that do not wait.
    no_wait: AtomicBool,
}

/// Properties found when the store was opened; constant afterwards.
#[derive(Clone, Copy, Debug)]
struct Shape {
    block_device: bool,
    logical_block_bytes: u32,
    physical_block_bytes: u32,
    rotational: bool,
    read_only: bool,
    /// 0 when the kernel cannot punch holes here.
    discard_granularity_bytes: u32,
    /// Alignment that `fallocate` requires: 1 for files, the sector for block devices.
    fallocate_align: u32,
    identity: Identity,
}

/// How a range becomes zeros without transferring them.
#[derive(Clone, Copy, PartialEq)]
enum Zeroing {
    Punch,
    ZeroRange,
}

impl FileStore {
    fn new(os: Box<dyn OsFile>, name: String, health: Health, shape: Shape, size_bytes: u64) -> Self {
        FileStore {
            os,
            writable: OnceLock::new(),
            name,
            shape,
            size_bytes: AtomicU64::new(size_bytes),
            health,
            resizing: Mutex::new(()),
            no_direct: AtomicBool::new(false),
            no_punch: AtomicBool::new(shape.discard_granularity_bytes == 0),
            no_zero_range: AtomicBool::new(false),
            no_wait: AtomicBool::new(false),
        }
    }

    /// Distinguishes the file from others that have, or had, its name.
    pub(crate) fn identity(&self) -> Identity {
        self.shape.identity
    }

    /// The label of the volume that this file is, or is a part of.
    pub(crate) fn volume_label(&self) -> &Arc<Label> {
        self.health.label()
    }

    fn os(&self) -> &dyn OsFile {
        self.writable.get().map_or(&*self.os, |writable| &*writable.file)
    }

    fn read_only(&self) -> bool {
        self.shape.read_only && self.writable.get().is_none()
    }

    fn size(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn shrunk(&self, found: u64) -> StoreError {
        self.health.set_gone(format!("{} shrank to {found} bytes from {}", self.name, self.size()))
    }

    /// Fails unless the file or device still has the full size of the store.
    fn check_whole(&self, op: Op) -> Result<(), StoreError> {
        self.health.check_present()?;
        if self.shape.block_device {
            return Ok(()); // a device that shrinks or leaves reports it on every access
        }
        let found = self.os().size().map_err(|errno| self.failed(op, 0, errno))?;
        if found < self.size() { Err(self.shrunk(found)) } else { Ok(()) }
    }

    /// Whether the file has its full size again.
    fn check_size_again(&self) -> Result<(), StoreError> {
        let found = self.os().size().map_err(|errno| self.failed(Op::Open, 0, errno))?;
        if found >= self.size() {
            return Ok(());
        }
        Err(StoreError::Unusable(format!(
            "{} has {found} bytes of {}; restore it in its place, or read the configuration again when it is another file",
            self.name,
            self.size()
        )))
    }

    /// The checks before every change.
    fn check_change(&self, op: Op, offset: u64, len: u64) -> Result<(), StoreError> {
        if self.read_only() {
            return Err(StoreError::ReadOnly);
        }
        crate::store::check_range(self.size(), offset, len)?;
        self.health.label().check_flushed()?;
        self.check_whole(op)
    }

    /// The error for a change that failed at `offset`: the failure of an earlier write-back, if this change was the first to report
    /// it.
    fn change_failed(&self, op: Op, offset: u64, errno: Errno) -> StoreError {
        match self.health.ask_witness(self.os()) {
            Ok(()) => self.failed(op, offset, errno),
            Err(error) => error,
        }
    }

    /// The error that an error number means for an operation at `offset`.
    fn failed(&self, op: Op, offset: u64, errno: Errno) -> StoreError {
        match errno {
            // ENODATA, EILSEQ and EREMOTEIO are how the block layer reports medium, protection and target errors;
            // file systems report corruption as EBADMSG or EUCLEAN.
            Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::REMOTEIO | Errno::BADMSG | Errno::UCLEAN => {
                match op {
                    Op::Read | Op::Extents => StoreError::MediumRead { offset },
                    _ => StoreError::MediumWrite { offset },
                }
            }
            Errno::NOSPC | Errno::DQUOT => StoreError::NoSpace,
            Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM | Errno::STALE => {
                self.health.set_gone(format!("{}: {}", self.name, std::io::Error::from(errno)))
            }
            Errno::ROFS => StoreError::ReadOnly,
            _ => StoreError::Io { op, offset, source: errno.into() },
        }
    }

    fn read_all(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        let mut done = 0;
        while done < dst.len() {
            let at = offset + done as u64;
            match self.os().pread(&mut dst[done..], at) {
                Ok(0) => {
                    dst[done..].fill(0);
                    return Err(self.shrunk(at));
                }
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    dst[done..].fill(0);
                    return Err(self.failed(Op::Read, at, errno));
                }
            }
        }
        Ok(())
    }

    /// Fills `dst` from the system's cache; false when not all of it is there, or that cannot be found out. Errors of the file are
    /// left to the read that follows then.
    fn read_cached(&self, offset: u64, dst: &mut [u8]) -> bool {
        if self.no_wait.load(Ordering::Relaxed) {
            return false;
        }
        match self.os().pread_nowait(dst, offset) {
            Ok(n) => n == dst.len(),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.no_wait.store(true, Ordering::Relaxed);
                false
            }
            Err(_) => false,
        }
    }

    /// Writes a gather list with `call`, which may take only part at a time. Reports the error and where it happened.
    fn write_all(
        mut gather: Gather<'_>,
        offset: u64,
        len: u64,
        call: impl Fn(&[IoSlice<'_>], u64) -> Result<usize, Errno>,
    ) -> Result<(), (u64, Errno)> {
        let mut at = offset;
        let end = offset + len;
        while at < end {
            let mut slices = [IoSlice::new(&[]); IOV_SLICES];
            let mut ahead = gather;
            let mut used = 0;
            while used < IOV_SLICES
                && let Some(run) = ahead.next_run(usize::MAX)
            {
                slices[used] = IoSlice::new(run);
                used += 1;
            }
            match call(&slices[..used], at) {
                // Nothing was taken and no reason given: treated as an error, or the loop would not end.
                Ok(0) => return Err((at, Errno::IO)),
                Ok(n) => {
                    gather.advance(n);
                    at += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err((at, errno)),
            }
        }
        Ok(())
    }

    fn write_cached(&self, op: Op, gather: Gather<'_>, offset: u64, len: u64) -> Result<(), StoreError> {
        self.health.will_write(len);
        Self::write_all(gather, offset, len, |src, at| self.os().pwritev(src, at))
            .map_err(|(at, errno)| self.change_failed(op, at, errno))
    }

    fn write_durable(&self, gather: Gather<'_>, offset: u64, len: u64) -> Result<(), StoreError> {
        let written = self.health.write_durable(self.os(), |call| Self::write_all(gather, offset, len, call));
        match written {
            Ok(()) => Ok(()),
            Err(NotDurable::Unsupported) => {
                self.write_cached(Op::Write, gather, offset, len)?;
                self.health.flush(self.os())
            }
            Err(NotDurable::Failed(at, errno)) => Err(self.failed(Op::Write, at, errno)),
            Err(NotDurable::Store(error)) => Err(error),
        }
    }

    /// Asks the kernel to zero a range; false when it cannot do it in this way here.
    fn try_zero(&self, op: Op, how: Zeroing, offset: u64, len: u64) -> Result<bool, StoreError> {
        let unsupported = if how == Zeroing::Punch { &self.no_punch } else { &self.no_zero_range };
        while !unsupported.load(Ordering::Relaxed) {
            let result = match how {
                Zeroing::Punch => self.os().punch_hole(offset, len),
                Zeroing::ZeroRange => self.os().zero_range(offset, len),
            };
            match result {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => unsupported.store(true, Ordering::Relaxed),
                Err(errno) => return Err(self.change_failed(op, offset, errno)),
            }
        }
        Ok(false)
    }

    fn overwrite_with_zeroes(&self, op: Op, offset: u64, len: u64) -> Result<(), StoreError> {
        let mut at = offset;
        let end = offset + len;
        while at < end {
            let part = (end - at).min((ZEROES.len() * IOV_SLICES) as u64) as usize;
            let mut slices: [&[u8]; IOV_SLICES] = [&[]; IOV_SLICES];
            let mut left = part;
            for slice in &mut slices {
                *slice = &ZEROES[..left.min(ZEROES.len())];
                left -= slice.len();
            }
            self.write_cached(op, Gather::new(&slices), at, part as u64)?;
            at += part as u64;
        }
        Ok(())
    }

    /// Zeros a range by the first of `ways` that works, or else by writing. Unaligned edges are always written.
    fn zero(&self, op: Op, ways: &[Zeroing], offset: u64, len: u64) -> Result<(), StoreError> {
        self.check_change(op, offset, len)?;
        let align = u64::from(self.shape.fallocate_align);
        let end = offset + len;
        let first = offset.next_multiple_of(align).min(end);
        let last = (end - end % align).max(first);
        self.overwrite_with_zeroes(op, offset, first - offset)?;
        let mut done = first == last;
        for &how in ways {
            done = done || self.try_zero(op, how, first, last - first)?;
        }
        if !done {
            self.overwrite_with_zeroes(op, first, last - first)?;
        }
        self.overwrite_with_zeroes(op, last, end - last)
    }
}

impl BlockStore for FileStore {
    fn geometry(&self) -> Geometry {
        Geometry {
            size_bytes: self.size(),
            logical_block_bytes: self.shape.logical_block_bytes,
            physical_block_bytes: self.shape.physical_block_bytes,
            rotational: self.shape.rotational,
            discard_granularity_bytes: match self.writable.get() {
                Some(writable) if writable.can_punch => self.shape.physical_block_bytes,
                Some(_) => 0,
                None if self.shape.read_only => 0,
                None => self.shape.discard_granularity_bytes,
            },
            read_only: self.read_only(),
        }
    }

    fn placement(&self) -> Placement {
        Placement::Offload
    }

    fn description(&self) -> String {
        format!("file:{}", self.name)
    }

    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        crate::store::check_range(self.size(), offset, dst.len() as u64)?;
        let result = self.health.check_present();
        if result.is_err() {
            dst.fill(0);
            return result;
        }
        self.read_all(offset, dst)
    }

    fn read_now(&self, offset: u64, dst: &mut [u8]) -> Result<bool, StoreError> {
        crate::store::check_range(self.size(), offset, dst.len() as u64)?;
        self.health.check_present()?;
        Ok(self.read_cached(offset, dst))
    }

    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        read_then_crc32c(self, offset, dst, crc)
    }

    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        let len = total_bytes(src, offset, self.size())?;
        self.check_change(Op::Write, offset, len)?;
        let gather = Gather::new(src);
        match durability {
            Durability::Cached => self.write_cached(Op::Write, gather, offset, len),
            Durability::Durable => self.write_durable(gather, offset, len),
        }
    }

    fn atomic_write_bytes_max(&self) -> u64 {
        0 // no file system reports which writes it leaves whole; see `JournaledStore`
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

    fn overwrites_in_place(&self) -> bool {
        false // file systems and flash keep the old contents
    }

    fn in_place(&self) -> Option<&dyn InPlace> {
        None
    }

    fn flush(&self) -> Result<(), StoreError> {
        if self.read_only() {
            return Ok(());
        }
        self.check_whole(Op::Flush)?;
        self.health.flush(self.os())
    }

    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.zero(Op::Unmap, &[Zeroing::Punch, Zeroing::ZeroRange], offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError> {
        let ways: &[Zeroing] =
            if may_unmap { &[Zeroing::Punch, Zeroing::ZeroRange] } else { &[Zeroing::ZeroRange] };
        self.zero(Op::WriteZeroes, ways, offset, len)
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
        check_extent_range(self.size(), offset, len)?;
        self.check_whole(Op::Extents)?;
        let end = offset + len;
        let mut list = ExtentList::new(max);
        let mut at = offset;
        while at < end {
            // A device, or a file system that does not know holes: everything counts as data.
            let data = match self.os().seek_data(at) {
                _ if self.shape.block_device => at,
                Ok(data) => data.clamp(at, end),
                Err(Errno::NXIO) => end, // no data up to the end of the file
                Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
                Err(errno) => return Err(self.failed(Op::Extents, at, errno)),
            };
            if data > at {
                if !list.push(at, data - at, false) {
                    break;
                }
                at = data;
                continue;
            }
            let hole = match self.os().seek_hole(at) {
                _ if self.shape.block_device => end,
                // The hole is not beyond `at` only if the file changed between the calls: then `at` was data a moment ago.
                Ok(hole) if hole > at => hole.min(end),
                Ok(_) | Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => end,
                Err(errno) => return Err(self.failed(Op::Extents, at, errno)),
            };
            if !list.push(at, hole - at, true) {
                break;
            }
            at = hole;
        }
        Ok(list.into_vec())
    }

    /// Growing a file allocates no space. A block device must have been grown by other means before, and so must a file that is open
    /// read-only.
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        let _one_at_a_time = self.resizing.lock();
        check_resize(&Geometry { read_only: false, ..self.geometry() }, size_bytes)?;
        self.check_whole(Op::Resize)?;
        let found = self.os().size().map_err(|errno| self.failed(Op::Resize, 0, errno))?;
        if found < size_bytes {
            check_resize(&self.geometry(), size_bytes)?;
            if self.shape.block_device {
                return Err(StoreError::Unusable(format!(
                    "{} has {found} bytes, {size_bytes} were asked for; grow the device first",
                    self.name
                )));
            }
            let grown = self.health.grow(self.os(), size_bytes)?;
            grown.map_err(|errno| self.failed(Op::Resize, 0, errno))?;
        }
        self.size_bytes.store(size_bytes, Ordering::Release);
        Ok(())
    }

    fn medium_bytes(&self) -> Result<u64, StoreError> {
        self.health.check_present()?;
        self.os().size().map_err(|errno| self.failed(Op::Resize, 0, errno))
    }

    fn make_writable(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.resizing.lock();
        if !self.read_only() {
            return Ok(());
        }
        let writable = self.os.writable(&self.name, self.size()).and_then(|writable| {
            self.health.label().make_writable()?;
            Ok(writable)
        });
        let writable = writable.inspect_err(|_| self.os.share_lock(&self.name))?;
        self.no_punch.store(!writable.can_punch, Ordering::Relaxed);
        let _ = self.writable.set(writable);
        Ok(())
    }

    fn records(&self) -> Option<&Records> {
        None
    }

    fn label(&self) -> Option<&Arc<Label>> {
        Some(self.health.label())
    }

    fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.read_from_medium(offset, dst)
    }

    fn medium_reads(&self) -> MediumReads {
        self.how_medium_is_read()
    }

    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        if !self.health.has_failed() {
            return Ok(None);
        }
        self.health.reopen(self.os(), || self.check_size_again())?;
        self.health.label().clear_failed_flush()
    }
}
