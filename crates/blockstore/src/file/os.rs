//! The system calls that a file store makes, behind a trait so that tests can simulate a disk that fails.
//!
//! A file is open twice: once for all ordinary work, and once to read the medium (`O_DIRECT` where the file system has it) and as
//! the witness of failed write-backs. Only `health.rs` calls the syncs.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use rustix::fs::{
    Advice, FallocateFlags, OFlags, SeekFrom, fadvise, fallocate, fdatasync, fstat, fsync, ftruncate, seek,
};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwritev, pwritev2};

use super::system::{cannot, check_no_loop_device, lock, queue_attribute};
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
    fn writable(&self, name: &str, size_bytes: u64) -> Result<Writable, StoreError>;
    /// Makes the lock of a file that stays read-only a shared one again.
    fn share_lock(&self, name: &str);
}

/// A file that was opened read-only, opened for writing.
pub(super) struct Writable {
    pub(super) file: Box<dyn OsFile>,
    pub(super) can_punch: bool,
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
        let again = path_again(&file);
        let mut direct = OpenOptions::new();
        direct.read(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
        let second = match direct.open(&again) {
            Ok(file) => Some(Second { file, direct: true }),
            Err(_) => File::open(&again).ok().map(|file| Second { file, direct: false }),
        };
        RealFile { file, block_device, second }
    }

    /// Whether holes can be punched. A file is tested by punching behind its end, which changes nothing; for a device the attributes
    /// of its request queue decide.
    pub(super) fn can_punch(&self, metadata: &Metadata, size_bytes: u64) -> bool {
        if self.block_device {
            return queue_attribute(metadata.rdev(), "write_zeroes_max_bytes").is_some_and(|max| max > 0);
        }
        match self.punch_hole(size_bytes, 4096) {
            Err(errno) => !matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::FBIG),
            Ok(()) => true,
        }
    }

    /// Locks the file exclusively and opens it for writing.
    fn open_for_writing(&self, name: &str) -> Result<File, StoreError> {
        lock(&self.file, name, false)?;
        let mut how = OpenOptions::new();
        how.read(true).write(true);
        if self.block_device {
            how.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        how.open(path_again(&self.file)).map_err(|source| cannot(name, "open it for writing", source))
    }
}

/// The path of an open file. Its own path may lead to another file by now.
fn path_again(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
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

    fn writable(&self, name: &str, size_bytes: u64) -> Result<Writable, StoreError> {
        let file = self.open_for_writing(name)?;
        let metadata = file.metadata().map_err(|source| cannot(name, "look at it", source))?;
        check_no_loop_device(&metadata, name, false)?;
        // The lock stays with the file that was opened first.
        let file = RealFile::new(file, self.block_device);
        let can_punch = file.can_punch(&metadata, size_bytes);
        Ok(Writable { file: Box::new(file), can_punch })
    }

    fn share_lock(&self, name: &str) {
        // A lock that could not be converted is lost. If another process has it now, our reads of the file do no harm.
        let _ = lock(&self.file, name, true);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn holes_are_punched_only_where_the_file_system_can() {
        let can = |path: &Path| {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            let metadata = file.metadata().unwrap();
            RealFile::new(file, false).can_punch(&metadata, 0)
        };
        // The file system of processes has no fallocate(2).
        assert!(!can(Path::new("/proc/self/comm")));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, [1; 512]).unwrap();
        // Not every file system below the directory can; whether this one can is what the call itself says.
        let opened = RealFile::new(OpenOptions::new().read(true).write(true).open(&file).unwrap(), false);
        assert_eq!(can(&file), opened.punch_hole(0, 512).is_ok());
    }
}
