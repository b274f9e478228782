//! The system calls that a file store makes, behind a trait so that tests can play a disk that fails.

use std::fs::File;
use std::io::IoSlice;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fdatasync, fstat, fsync, ftruncate, seek};
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev, pwritev2};

use super::{Shape, Writable, open};
use crate::StoreError;

/// One open file or block device. Calls may transfer less than asked and may report `EINTR`.
pub(super) trait OsFile: Send + Sync {
    fn pread(&self, dst: &mut [u8], offset: u64) -> Result<usize, Errno>;
    fn pwritev(&self, src: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno>;
    /// Writes and waits until these bytes are on the medium.
    fn pwritev_dsync(&self, src: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno>;
    fn fdatasync(&self) -> Result<(), Errno>;
    /// Bytes in the file or the device now.
    fn size(&self) -> Result<u64, Errno>;
    /// Sets the size of a regular file and makes it durable.
    fn set_size(&self, size_bytes: u64) -> Result<(), Errno>;
    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), Errno>;
    fn zero_range(&self, offset: u64, len: u64) -> Result<(), Errno>;
    fn seek_data(&self, from: u64) -> Result<u64, Errno>;
    fn seek_hole(&self, from: u64) -> Result<u64, Errno>;
    /// The same file for writing too, where this one was opened to be read. `name` is for messages.
    fn writable(&self, name: &str, shape: &Shape, size_bytes: u64) -> Result<Writable, StoreError>;
}

/// The real thing.
pub(super) struct RealFile {
    pub(super) file: File,
    pub(super) block_device: bool,
}

impl OsFile for RealFile {
    fn pread(&self, dst: &mut [u8], offset: u64) -> Result<usize, Errno> {
        pread(&self.file, dst, offset)
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

    fn size(&self) -> Result<u64, Errno> {
        if self.block_device {
            // The size of a device is where its end is; the shared file position is used by nobody.
            return seek(&self.file, SeekFrom::End(0));
        }
        u64::try_from(fstat(&self.file)?.st_size).map_err(|_| Errno::OVERFLOW)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), Errno> {
        ftruncate(&self.file, size_bytes)?;
        fsync(&self.file)
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
