//! Data-Out that has arrived in another order than that of its bytes (RFC 7143 13.18, 13.19).
//!
//! A task's data without gaps is in `Task::data`. What arrives behind a gap waits here until the gap is closed. Which bytes have
//! arrived is known by a bounded set of [`Extents`]: a byte that comes twice is refused, and so is data that leaves too many
//! holes. Short pieces that touch are copied together, so the pieces of a task number at most two for each
//! [`COPIED_BELOW_BYTES`] of its data, and one for each hole.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use super::pieces::COPIED_BELOW_BYTES;
use crate::extents::{Extents, Refused};

/// The data of a task behind its first gap, and which bytes of it have arrived at all.
#[derive(Debug)]
pub(super) struct Scattered {
    extents: Extents,
    /// By offset. No two short ones touch.
    pieces: BTreeMap<u32, Bytes>,
}

impl Scattered {
    /// Nothing waits yet, and the first `received` bytes have arrived.
    pub(crate) fn behind(received: u32) -> Self {
        Self { extents: Extents::up_to(received), pieces: BTreeMap::new() }
    }

    /// Enters bytes that arrive.
    ///
    /// # Errors
    /// Why they are refused.
    pub(crate) fn enter(&mut self, offset: u32, length: usize) -> Result<(), Refused> {
        self.extents.add(offset, length)
    }

    /// Takes the piece that begins at `offset`, if it has arrived.
    pub(crate) fn take(&mut self, offset: u32) -> Option<Bytes> {
        self.pieces.remove(&offset)
    }

    /// Whether no piece waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes that wait here.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.values().map(|piece| piece.len() as u64).sum()
    }

    /// Keeps a piece that overlaps no other.
    pub(crate) fn insert(&mut self, offset: u32, data: &Bytes) {
        if data.len() >= COPIED_BELOW_BYTES {
            self.pieces.insert(offset, data.clone());
            return;
        }
        // Copied: otherwise each short piece would pin the whole receive buffer it arrived in.
        let (mut start, mut own) = (offset, BytesMut::new());
        let before = self.pieces.range(..offset).next_back();
        let touches = |(at, piece): &(&u32, &Bytes)| {
            **at as usize + piece.len() == offset as usize && piece.len() < COPIED_BELOW_BYTES
        };
        if let Some(at) = before.filter(touches).map(|(at, _)| *at)
            && let Some(piece) = self.pieces.remove(&at)
        {
            start = at;
            own = piece.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        }
        own.extend_from_slice(data);
        let end = start + own.len() as u32;
        if self.pieces.get(&end).is_some_and(|piece| piece.len() < COPIED_BELOW_BYTES)
            && let Some(piece) = self.pieces.remove(&end)
        {
            own.extend_from_slice(&piece);
        }
        self.pieces.insert(start, own.freeze());
    }
}
