//! The system calls that a file store makes, behind a trait so that tests can simulate a disk that fails.
//!
//! A file is open twice: once for all ordinary work, and once to read the medium (`O_DIRECT` where the file system has it) and as
//! the witness of failed write-backs. Only `health.rs` calls the syncs.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{
    Advice, FallocateFlags, OFlags, SeekFrom, fadvise, fallocate, fdatasync, fstat, fsync, ftruncate, seek,
};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwritev, pwritev2};

use super::{Shape, Writable, open};
use crate::StoreError;

/// One open file or block device. Calls may transfer less than requested and may report `EINTR`.
pub(super) trait OsFile: Send + Sync {
    fn pread(&self, dst: &mut [u8], offset: u64) -> Result<usize, Errno>;
    /// Reads without waiting: `EAGAIN` if nothing is cached, `EOPNOTSUPP` from file systems that cannot tell (tmpfs).
    fn pread_nowait(&self, dst: &mut [u8], offset: u64) -> Result<usize, Errno>;
    fn pwritev(&self, src: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno>;
    /// Writes and waits until these bytes are on the medium.
    fn pwritev_dsync(&self, src: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno>;
    fn fdatasync(&self) -> Result<(), Errno>;
    fn fsync(&self) -> Result<(), Errno>;
    /// `fdatasync` of the second descriptor. It reports a failed write-back even if another descriptor has already reported it.
    fn sync_witness(&self) -> Result<(), Errno>;
    /// Reads from the medium, after writing to it what the cache has of the range. `EINVAL` if that cannot be done, or not with
    /// this alignment.
    fn pread_direct(&self, dst: &mut [u8], offset: u64) -> Result<usize, Errno>;
    /// Drops the clean pages of a range from the cache; a length of 0 means everything from `offset` on.
    fn drop_cache(&self, offset: u64, len: u64) -> Result<(), Errno>;
    /// Bytes in the file or the device now.
    fn size(&self) -> Result<u64, Errno>;
    /// Sets the size of a regular file.
    fn set_size(&self, size_bytes: u64) -> Result<(), Errno>;
    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), Errno>;
    fn zero_range(&self, offset: u64, len: u64) -> Result<(), Errno>;
    fn seek_data(&self, from: u64) -> Result<u64, Errno>;
    fn seek_hole(&self, from: u64) -> Result<u64, Errno>;
    /// The same file opened for writing too, if this one was opened read-only. `name` is for messages.
    fn writable(&self, name: &str, shape: &Shape, size_bytes: u64) -> Result<Writable, StoreError>;
}

/// The real file.
pub(super) struct RealFile {
    file: File,
    block_device: bool,
    /// The same file opened a second time; `None` where there is no `/proc`.
    second: Option<Second>,
}

struct Second {
    file: File,
    direct: bool,
}

impl RealFile {
    pub(super) fn new(file: File, block_device: bool) -> Self {
        // Not by its path, which may lead to another file by now.
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut direct = OpenOptions::new();
        direct.read(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
        let second = match direct.open(&again) {
            Ok(file) => Some(Second { file, direct: true }),
            Err(_) => File::open(&again).ok().map(|file| Second { file, direct: false }),
        };
        RealFile { file, block_device, second }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn is_block_device(&self) -> bool {
        self.block_device
    }
}

impl OsFile for RealFile {
    fn pread(&self, dst: &mut [u8], offset: u64) -> Result<usize, Errno> {
        pread(&self.file, dst, offset)
    }

    fn pread_nowait(&self, dst: &mut [u8], offset: u64) -> Result<usize, Errno> {
        preadv2(&self.file, &mut [IoSliceMut::new(dst)], offset, ReadWriteFlags::NOWAIT)
    }

    fn pwritev(&self, src: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        pwritev(&self.file, src, offset)
    }

    fn pwritev_dsync(&self, src: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        pwritev2(&self.file, src, offset, ReadWriteFlags::DSYNC)
    }

    fn fdatasync(&self) -> Result<(), Errno> {
        fdatasync(&self.file)
    }

    fn fsync(&self) -> Result<(), Errno> {
        fsync(&self.file)
    }

    fn sync_witness(&self) -> Result<(), Errno> {
        // A missing witness counts as one that saw a loss.
        self.second.as_ref().map_or(Err(Errno::IO), |second| fdatasync(&second.file))
    }

    fn pread_direct(&self, dst: &mut [u8], offset: u64) -> Result<usize, Errno> {
        match &self.second {
            Some(Second { file, direct: true }) => pread(file, dst, offset),
            _ => Err(Errno::INVAL),
        }
    }

    fn drop_cache(&self, offset: u64, len: u64) -> Result<(), Errno> {
        fadvise(&self.file, offset, NonZeroU64::new(len), Advice::DontNeed)
    }

    fn size(&self) -> Result<u64, Errno> {
        if self.block_device {
            // The size of a device is the position of its end; nothing uses the shared file position.
            return seek(&self.file, SeekFrom::End(0));
        }
        u64::try_from(fstat(&self.file)?.st_size).map_err(|_| Errno::OVERFLOW)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), Errno> {
        ftruncate(&self.file, size_bytes)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), Errno> {
        fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<(), Errno> {
        fallocate(&self.file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, len)
    }

    fn seek_data(&self, from: u64) -> Result<u64, Errno> {
        seek(&self.file, SeekFrom::Data(from))
    }

    fn seek_hole(&self, from: u64) -> Result<u64, Errno> {
        seek(&self.file, SeekFrom::Hole(from))
    }

    fn writable(&self, name: &str, shape: &Shape, size_bytes: u64) -> Result<Writable, StoreError> {
        open::for_writing(self, name, shape, size_bytes)
    }
}
