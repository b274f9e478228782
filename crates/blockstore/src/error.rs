//! What can go wrong in a store, in words for an operator: what happened and what to do about it.

use std::fmt;

/// The operation that was requested of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Opening, creating or locking the store.
    Open,
    /// [`read`](crate::BlockStore::read) and [`read_crc32c`](crate::BlockStore::read_crc32c).
    Read,
    /// [`write`](crate::BlockStore::write).
    Write,
    /// [`flush`](crate::BlockStore::flush).
    Flush,
    /// [`unmap`](crate::BlockStore::unmap).
    Unmap,
    /// [`write_zeroes`](crate::BlockStore::write_zeroes).
    WriteZeroes,
    /// [`extents`](crate::BlockStore::extents).
    Extents,
    /// [`resize`](crate::BlockStore::resize).
    Resize,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Open => "open",
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Unmap => "unmap",
            Op::WriteZeroes => "write zeroes",
            Op::Extents => "query extents",
            Op::Resize => "resize",
        })
    }
}

/// Why a store refused or failed an operation. Offsets are bytes from the start of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The range is not inside the store; nothing was done.
    #[error(
        "bytes {offset}+{len} are outside the store of {size_bytes} bytes; ask its geometry again, it may have changed"
    )]
    OutOfRange {
        /// First byte requested.
        offset: u64,
        /// Bytes requested.
        len: u64,
        /// Size of the store at that moment.
        size_bytes: u64,
    },
    /// The store may not be changed; nothing was done.
    #[error("the store is read-only; open it without `ro` to change it")]
    ReadOnly,
    /// No room for the data: file system full, quota, or memory limit. The rest of the store is unharmed.
    #[error("no space left behind the store; free some or unmap unused blocks, then repeat the write")]
    NoSpace,
    /// The medium could not deliver the data at this offset.
    #[error(
        "the medium failed to read at byte {offset}; restore these blocks from a copy and check the disk"
    )]
    MediumRead {
        /// First byte that is known to be bad, or start of the failed range.
        offset: u64,
    },
    /// The medium could not take the data at this offset.
    #[error("the medium failed to write at byte {offset}; repeat the write and check the disk")]
    MediumWrite {
        /// Start of the failed range.
        offset: u64,
    },
    /// A flush failed, so it is not known which acknowledged writes reached the medium. Nothing is written until the store is
    /// [opened again](crate::BlockStore::reopen), even after a restart: see [`FileStore`](crate::FileStore) for the reason.
    #[error(
        "an earlier flush failed ({0}): acknowledged writes may be lost; check the disk and the data, then `intact lun reopen`"
    )]
    FlushFailed(String),
    /// The file or device behind the store vanished or shrank. Final for this store object.
    #[error("the store is gone: {0}; bring it back, then reopen it")]
    Gone(String),
    /// The store cannot be created, opened or resized as requested. The text holds the remedy.
    #[error("{0}")]
    Unusable(String),
    /// Any other error of the operating system.
    #[error("cannot {op} at byte {offset}: {source}; see the system log")]
    Io {
        /// The operation that failed.
        op: Op,
        /// Where, in bytes.
        offset: u64,
        /// The system's own reason.
        source: std::io::Error,
    },
}
