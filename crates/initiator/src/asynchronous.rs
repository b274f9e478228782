//! A logical unit as a block device for asynchronous programs. The futures need no particular runtime: the event loop of the
//! session wakes them, and also times the pauses between repeats.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use iscsi_core::wire::Lun;

use crate::cdb;
use crate::disk::{Disk, MAX_PIECES_UNDER_WAY};
use crate::error::{ConnectError, IoError};
use crate::options::Options;
use crate::reply::reply;
use crate::session::Session;
use crate::ticket::Ticket;

/// A [`Disk`] whose operations are futures. Clones are the same disk.
///
/// A future that is dropped before it completes leaves its commands outstanding: a write may still be executed, in part or whole.
/// This touches no memory of the caller, because the data was copied.
#[derive(Clone, Debug)]
pub struct AsyncDisk {
    disk: Disk,
}

impl From<Disk> for AsyncDisk {
    fn from(disk: Disk) -> Self {
        Self { disk }
    }
}

impl AsyncDisk {
    /// Opens a session and the logical unit `lun` of its target, on a temporary thread.
    ///
    /// # Errors
    /// [`OpenError`]: there is no session, or no such unit.
    pub async fn connect(options: Options, lun: Lun) -> Result<Self, OpenError> {
        let (answer, opened) = reply();
        let open = move || {
            let open = || {
                let session = Session::connect(options)?;
                Ok(Self { disk: Disk::open(&session, lun)? })
            };
            answer.give(open());
        };
        let thread = std::thread::Builder::new().name("intact-open".into()).spawn(open);
        thread.map_err(|error| OpenError::Session(ConnectError::Local(error)))?;
        // The thread answers unless it panics.
        opened.await.unwrap_or_else(|| Err(OpenError::Unit(IoError::loop_ended())))
    }

    /// The same disk with blocking operations.
    pub fn blocking(&self) -> &Disk {
        &self.disk
    }

    /// Reads `to.len()` bytes at `offset`.
    ///
    /// # Errors
    /// Those of [`Disk::read`].
    pub async fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), IoError> {
        let mut pieces = self.disk.pieces(offset, to.len())?;
        let mut under_way: VecDeque<(Range<usize>, Ticket)> = VecDeque::new();
        loop {
            while under_way.len() < MAX_PIECES_UNDER_WAY
                && let Some(range) = pieces.next()
            {
                let ticket = self.disk.submit_piece(offset, &range);
                under_way.push_back((range, ticket));
            }
            let Some((range, ticket)) = under_way.pop_front() else { return Ok(()) };
            let response = ticket.ended().await?;
            self.disk.take_piece(offset, range, &response, to)?;
        }
    }

    /// Writes `from` at `offset`. The bytes are copied once.
    ///
    /// # Errors
    /// Those of [`Disk::write`]. Every command has ended by then.
    pub async fn write(&self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        self.write_with(offset, from.len(), |lba, range| self.disk.write_data(lba, &from[range])).await
    }

    /// Writes `from` at `offset` without copying, like [`Disk::write_bytes`].
    ///
    /// # Errors
    /// Those of [`AsyncDisk::write`].
    pub async fn write_bytes(&self, offset: u64, from: &Bytes) -> Result<(), IoError> {
        self.write_with(offset, from.len(), |lba, range| self.disk.shared_data(lba, from.slice(range))).await
    }

    async fn write_with(
        &self,
        offset: u64,
        length: usize,
        data: impl Fn(u64, Range<usize>) -> crate::WriteData,
    ) -> Result<(), IoError> {
        let mut pieces = self.disk.pieces(offset, length)?;
        let (mut under_way, mut result) = (VecDeque::new(), Ok(()));
        loop {
            while result.is_ok()
                && under_way.len() < MAX_PIECES_UNDER_WAY
                && let Some(range) = pieces.next()
            {
                under_way.push_back(self.disk.submit_write(offset, range, &data));
            }
            // Also after an error: no piece may be executed after this returns.
            let Some(ticket) = under_way.pop_front() else { return result };
            let ended = Ticket::ended(ticket).await.map(drop);
            result = result.and(ended);
        }
    }

    /// Makes all earlier writes durable, like [`Disk::flush`].
    ///
    /// # Errors
    /// Those of [`Disk::flush`].
    pub async fn flush(&self) -> Result<(), IoError> {
        let told = self.disk.epoch();
        self.disk.submit(&cdb::synchronize_cache(), 0, crate::WriteData::default()).ended().await?;
        self.disk.flushed(told)
    }

    /// Tells the device that `length` bytes at `offset` are no longer needed, like [`Disk::unmap`].
    ///
    /// # Errors
    /// Those of [`Disk::unmap`].
    pub async fn unmap(&self, offset: u64, length: u64) -> Result<(), IoError> {
        for ticket in self.disk.unmaps(offset, length)? {
            ticket.ended().await?;
        }
        Ok(())
    }
}

/// Why [`AsyncDisk::connect`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no session.
    #[error(transparent)]
    Session(#[from] ConnectError),
    /// The session has no such block device.
    #[error(transparent)]
    Unit(#[from] IoError),
}
