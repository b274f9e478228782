//! Reads from the medium instead of the page cache, for verification and scrubbing.
//!
//! They use `O_DIRECT` on a second descriptor: the kernel first writes what it has cached of the range. If a file system refuses
//! that, everything is flushed, the cache of the range is dropped and the range is read again. Neither way reaches past a cache
//! inside the disk. A file system that lives in memory (`tmpfs`) has no medium.

use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::FileStore;
use crate::store::check_range;
use crate::{MediumReads, Op, StoreError};

/// Alignment of memory and offset: the largest sector that disks have.
const ALIGN: usize = 4096;
/// Most bytes read at a time.
const PIECE_BYTES: usize = 1 << 20;

impl FileStore {
    pub(super) fn how_medium_is_read(&self) -> MediumReads {
        match self.no_direct.load(Ordering::Relaxed) {
            true => MediumReads::CacheDropped,
            false => MediumReads::Direct,
        }
    }

    pub(super) fn read_from_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.size(), offset, dst.len() as u64)?;
        let result = self.health.check_present().and_then(|()| {
            if !self.no_direct.load(Ordering::Relaxed) {
                match self.read_direct(offset, dst) {
                    Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                        self.no_direct.store(true, Ordering::Relaxed);
                    }
                    Ok(true) => return Ok(()),
                    Ok(false) => return Err(self.shrunk(offset)),
                    Err(errno) => return Err(self.failed(Op::Read, offset, errno)),
                }
            }
            self.read_uncached(offset, dst)
        });
        if result.is_err() {
            dst.fill(0);
        }
        result
    }

    /// False when the file ends before the range does.
    fn read_direct(&self, offset: u64, dst: &mut [u8]) -> Result<bool, Errno> {
        let align = ALIGN as u64;
        let mut memory = vec![0; dst.len().min(PIECE_BYTES) + 3 * ALIGN];
        let skip = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        let memory = &mut memory[skip..];
        let mut done = 0;
        while done < dst.len() {
            let at = offset + done as u64;
            let (from, part) = (at - at % align, (dst.len() - done).min(PIECE_BYTES));
            let before = (at - from) as usize;
            let wanted = (before + part).next_multiple_of(ALIGN);
            let mut read = 0;
            // A read that is cut elsewhere than at a sector boundary has reached the end of the file.
            while read < before + part {
                match self.os().pread_direct(&mut memory[read..wanted], from + read as u64) {
                    Ok(n) if n > 0 && n.is_multiple_of(512) => read += n,
                    Ok(n) => {
                        read += n;
                        break;
                    }
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            if read < before + part {
                return Ok(false);
            }
            dst[done..done + part].copy_from_slice(&memory[before..before + part]);
            done += part;
        }
        Ok(true)
    }

    fn read_uncached(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        // The kernel drops only clean pages, so they are written first. After a failed flush nothing is written any more, and
        // nothing can be.
        if !self.read_only() && self.health.label().check_flushed().is_ok() {
            self.health.flush(self.os())?;
        }
        self.os()
            .drop_cache(offset, dst.len() as u64)
            .map_err(|errno| self.failed(Op::Read, offset, errno))?;
        self.read_all(offset, dst)
    }
}
