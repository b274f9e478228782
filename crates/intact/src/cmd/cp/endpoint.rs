//! The two sides of a copy: a file (or block device), or a logical unit.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::ExitCode;

use blockstore::side_file::directory_of;
use initiator::{IoError, IscsiUrl, LostWrites, WideDisk};
use parking_lot::Mutex;

use crate::cmd::client::{ClientArgs, not_opened, told};
use crate::cmd::{FAILED, MISUSED, fail};

/// One side.
pub enum Endpoint {
    File {
        file: File,
        size: u64,
        name: String,
        medium: Medium,
    },
    Disk {
        disk: WideDisk,
        size: u64,
        /// No more than that was asked for.
        one_connection: bool,
        /// Held while a block is changed that the copy covers only in part.
        tail: Mutex<()>,
    },
}

/// What a file is, as far as its writer minds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Nothing is there but what is written: the rest is zero.
    Empty,
    /// A range of it can be given back to the file system.
    Regular,
    /// A block device.
    Device,
    /// `/dev/null`: the source is read, and nothing is kept.
    Nowhere,
}

/// What of the destination a copy starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// A file is emptied.
    Nothing,
    /// A file keeps what it holds, up to the size of the source.
    Contents,
    /// The destination must be there already, with the size that it has: it is part of an earlier copy.
    Everything,
}

/// Why what was written may not stay.
#[derive(Debug)]
pub enum Unfinished {
    /// Some of it is gone, and can be written again.
    Lost(LostWrites),
    Failed(String),
}

/// Most ranges that are remembered as zero; what lies behind them is read.
const MAX_ZERO_RANGES: usize = 1 << 20;

/// What is known to be zero at the source without reading it.
#[derive(Default)]
pub struct Source {
    /// In ascending order, apart from each other.
    zeros: Vec<Range<u64>>,
}

impl Endpoint {
    /// Opens the side to read from.
    pub fn open_source(text: &str, client: &ClientArgs) -> Result<Self, ExitCode> {
        if IscsiUrl::is_url(text) {
            let (disk, one_connection) = open_disk(text, client)?;
            let size = disk.capacity().bytes();
            return Ok(Self::Disk { disk, size, one_connection, tail: Mutex::new(()) });
        }
        let failed = |error| fail(FAILED, format_args!("{text} cannot be read: {error}"));
        let file = File::open(text).map_err(failed)?;
        let size = file_size(&file).map_err(failed)?;
        Ok(Self::File { file, size, name: text.to_owned(), medium: Medium::Device })
    }

    /// Opens the side to write to, with room for all of `source`.
    pub fn open_destination(
        text: &str,
        client: &ClientArgs,
        source: &Self,
        keep: Keep,
    ) -> Result<Self, ExitCode> {
        let size = source.size();
        if IscsiUrl::is_url(text) {
            let (disk, one_connection) = open_disk(text, client)?;
            let room = disk.capacity().bytes();
            if size > room {
                return Err(fail(
                    FAILED,
                    format_args!(
                        "the source has {size} bytes, the destination only {room}: use a larger LUN"
                    ),
                ));
            }
            return Ok(Self::Disk { disk, size, one_connection, tail: Mutex::new(()) });
        }
        let remedy = match keep {
            Keep::Everything => "\n  remedy: remove the state to copy from the beginning",
            Keep::Nothing | Keep::Contents => "",
        };
        let failed = |error| fail(FAILED, format_args!("{text} cannot be written: {error}{remedy}"));
        // Not truncated by opening: it might be the source itself.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(keep != Keep::Everything)
            .truncate(false)
            .open(text)
            .map_err(failed)?;
        let kind = file.metadata().map_err(failed)?;
        if let Self::File { file: from, .. } = source {
            let other = from.metadata().map_err(failed)?;
            if (kind.dev(), kind.ino()) == (other.dev(), other.ino()) {
                return Err(fail(MISUSED, "source and destination are the same file"));
            }
        }
        let medium = match keep {
            _ if is_null(&kind) => Medium::Nowhere,
            _ if !kind.is_file() => Medium::Device,
            Keep::Nothing => Medium::Empty,
            Keep::Contents | Keep::Everything => Medium::Regular,
        };
        if kind.is_file() {
            match keep {
                Keep::Nothing => file.set_len(0).and_then(|()| file.set_len(size)).map_err(failed)?,
                Keep::Contents => file.set_len(size).map_err(failed)?,
                Keep::Everything => {}
            }
            // A state must not outlive the name of the file that it speaks of. Where the folder may not be read, the name is left to the
            // file system.
            let _ = File::open(directory_of(Path::new(text))).and_then(|folder| folder.sync_all());
        } else if medium == Medium::Device && file_size(&file).map_err(failed)? < size {
            return Err(fail(FAILED, format_args!("{text} is smaller than the {size} bytes of the source")));
        }
        Ok(Self::File { file, size, name: text.to_owned(), medium })
    }

    /// Whether nothing can be read from it again.
    pub fn is_nowhere(&self) -> bool {
        matches!(self, Self::File { medium: Medium::Nowhere, .. })
    }

    /// Whether all goes the same way: it is a file, or a unit with one connection.
    pub fn has_one_path(&self) -> bool {
        match self {
            Self::File { .. } => true,
            Self::Disk { one_connection, .. } => *one_connection,
        }
    }

    /// Bytes that take part in the copy.
    pub fn size(&self) -> u64 {
        match self {
            Self::File { size, .. } | Self::Disk { size, .. } => *size,
        }
    }

    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), String> {
        match self {
            Self::File { file, name, .. } => {
                file.read_exact_at(to, offset).map_err(|error| format!("reading {name}: {error}"))
            }
            Self::Disk { disk, .. } => {
                let block = disk.capacity().block_bytes as usize;
                let whole = to.len() / block * block;
                let (front, rest) = to.split_at_mut(whole);
                let failed = |error| format!("reading the LUN: {}", told(&error));
                disk.read(offset, front).map_err(failed)?;
                if !rest.is_empty() {
                    let mut last = vec![0; block];
                    disk.read(offset + whole as u64, &mut last).map_err(failed)?;
                    rest.copy_from_slice(&last[..rest.len()]);
                }
                Ok(())
            }
        }
    }

    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), String> {
        match self {
            Self::File { file, name, .. } => {
                file.write_all_at(from, offset).map_err(|error| format!("writing {name}: {error}"))
            }
            Self::Disk { disk, tail, .. } => {
                let failed = |error| format!("writing the LUN: {}", told(&error));
                let block = disk.capacity().block_bytes as usize;
                let (front, rest) = from.split_at(from.len() / block * block);
                disk.write(offset, front).map_err(failed)?;
                if !rest.is_empty() {
                    // What the source does not reach keeps what it holds.
                    let _held = tail.lock();
                    let at = offset + front.len() as u64;
                    let mut last = vec![0; block];
                    disk.read(at, &mut last).map_err(failed)?;
                    last[..rest.len()].copy_from_slice(rest);
                    disk.write(at, &last).map_err(failed)?;
                }
                Ok(())
            }
        }
    }

    pub fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), String> {
        match self {
            Self::File { medium: Medium::Empty | Medium::Nowhere, .. } => Ok(()),
            Self::File { file, medium: Medium::Regular, .. } => {
                use rustix::fs::{FallocateFlags, fallocate};
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                // Not every file system can make holes; then zeros are written.
                fallocate(file, flags, offset, length)
                    .or_else(|_| self.write(offset, &vec![0; length as usize]))
            }
            Self::File { medium: Medium::Device, .. } => self.write(offset, &vec![0; length as usize]),
            Self::Disk { disk, .. } => {
                let block = u64::from(disk.capacity().block_bytes);
                let whole = length / block * block;
                disk.write_zeroes(offset, whole)
                    .map_err(|error| format!("writing the LUN: {}", told(&error)))?;
                match length - whole {
                    0 => Ok(()),
                    rest => self.write(offset + whole, &vec![0; rest as usize]),
                }
            }
        }
    }

    /// Makes what was written stay.
    pub fn finish(&self) -> Result<(), Unfinished> {
        match self {
            Self::File { medium: Medium::Nowhere, .. } => Ok(()),
            Self::File { file, name, .. } => {
                file.sync_all().map_err(|error| Unfinished::Failed(format!("flushing {name}: {error}")))
            }
            Self::Disk { disk, .. } => disk.flush().map_err(|error| match error {
                IoError::LostWrites(lost) => Unfinished::Lost(*lost),
                error => Unfinished::Failed(format!("flushing the LUN: {}", told(&error))),
            }),
        }
    }
}

impl Source {
    /// Asks what is not allocated: GET LBA STATUS of a logical unit whose unmapped blocks read as zeros, holes of a file.
    pub fn map(endpoint: &Endpoint) -> Result<Self, String> {
        let mut map = Self::default();
        match endpoint {
            Endpoint::Disk { disk, size, .. }
                if disk.capacity().thin && disk.capacity().unmapped_reads_zero =>
            {
                let disk = disk.first();
                let mut at = 0;
                while at < *size && map.has_room() {
                    let extents =
                        disk.allocation(at).map_err(|error| format!("GET LBA STATUS: {}", told(&error)))?;
                    let Some(last) = extents.as_ref().and_then(|extents| extents.last()) else { break };
                    at = last.range.end;
                    extents.into_iter().flatten().filter(|e| !e.mapped).for_each(|e| map.add(e.range));
                }
            }
            Endpoint::Disk { .. } => {}
            Endpoint::File { file, size, .. } => {
                use rustix::fs::{SeekFrom, seek};
                let mut at = 0;
                while at < *size && map.has_room() {
                    // Not every file system knows its holes; then there are none.
                    let data = match seek(file, SeekFrom::Data(at)) {
                        Ok(data) => data,
                        Err(rustix::io::Errno::NXIO) => *size,
                        Err(_) => break,
                    };
                    if data > at {
                        map.add(at..data);
                    }
                    at = match seek(file, SeekFrom::Hole(data)) {
                        Ok(hole) if hole > data => hole,
                        _ => break,
                    };
                }
            }
        }
        Ok(map)
    }

    /// Whether another answer can be taken: what a target tells is bounded by one answer more.
    fn has_room(&self) -> bool {
        self.zeros.len() < MAX_ZERO_RANGES
    }

    /// Adds a range that begins where the last one ended, or later.
    fn add(&mut self, range: Range<u64>) {
        match self.zeros.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.zeros.push(range),
        }
    }

    /// Whether all of `length` bytes at `offset` are known to be zero.
    pub fn is_zero(&self, offset: u64, length: u64) -> bool {
        let (mut at, end) = (offset, offset + length);
        let first = self.zeros.partition_point(|range| range.end <= offset);
        for range in &self.zeros[first..] {
            if range.start > at || at >= end {
                break;
            }
            at = range.end;
        }
        at >= end
    }
}

/// A logical unit, and whether it has one connection.
fn open_disk(text: &str, client: &ClientArgs) -> Result<(WideDisk, bool), ExitCode> {
    let url = client.url(text)?;
    let (_, lun) = url.unit().map_err(|error| fail(MISUSED, error))?;
    let options = client.options(&url)?;
    let one_connection = options.connections == 1;
    Ok((WideDisk::open(options, lun).map_err(|error| not_opened(&error))?, one_connection))
}

/// Whether this is `/dev/null`, by any name.
fn is_null(kind: &std::fs::Metadata) -> bool {
    kind.file_type().is_char_device() && kind.rdev() == rustix::fs::makedev(1, 3)
}

/// Size of a file or block device.
pub fn file_size(file: &File) -> std::io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(std::io::ErrorKind::IsADirectory.into());
    }
    if metadata.file_type().is_block_device() {
        let end = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?;
        return Ok(end);
    }
    if !metadata.is_file() {
        // A pipe says that it has no bytes, and a copy of nothing would be no failure.
        return Err(std::io::Error::other("it is neither a file nor a block device"));
    }
    Ok(metadata.len())
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn zeros_are_known_only_where_ranges_cover_all() {
        let mut source = Source::default();
        [0..10, 10..20, 30..40].into_iter().for_each(|range| source.add(range));
        assert_eq!(source.zeros, [0..20, 30..40]);
        assert!(source.is_zero(0, 20) && source.is_zero(5, 10) && source.is_zero(30, 10));
        assert!(!source.is_zero(15, 10) && !source.is_zero(20, 5) && !source.is_zero(35, 10));
    }
}
