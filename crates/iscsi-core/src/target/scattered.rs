//! Data-Out that has arrived in another order than that of its bytes (RFC 7143 13.18, 13.19).
//!
//! A task's data without gaps is in `Task::data`. What arrives behind a gap waits here until the gap is closed. Which bytes have
//! arrived is known by a bounded set of [`Extents`]: a byte that comes twice is refused, and so is data that leaves too many
//! holes. Short pieces that touch are copied together, so the pieces of a task number at most two for each
//! [`COPIED_BELOW_BYTES`] of its data, and one for each hole.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use super::data_out::{COPIED_BELOW_BYTES, keep};
use super::task::Task;
use crate::extents::{Extents, Refused};

/// The data of a task behind its first gap, and which bytes of it have arrived at all.
#[derive(Debug)]
pub(super) struct Scattered {
    extents: Extents,
    /// By offset. No two short ones touch.
    pieces: BTreeMap<u32, Bytes>,
}

impl Scattered {
    /// Bytes that wait here.
    pub fn bytes(&self) -> u64 {
        self.pieces.values().map(|piece| piece.len() as u64).sum()
    }

    /// Keeps a piece that overlaps no other.
    fn insert(&mut self, offset: u32, data: &Bytes) {
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

impl Task {
    /// Puts data in its place: behind the data without gaps, or aside until the gap before it is closed.
    ///
    /// # Errors
    /// Why the data is refused. Then it was not kept.
    //= rfc7143 13.18 KEY-17
    //= rfc7143 13.19 DAT-05
    pub fn place(&mut self, offset: u32, data: &Bytes) -> Result<(), Refused> {
        if data.is_empty() {
            return Ok(());
        }
        let received = self.received;
        if offset == received && self.scattered().is_none() {
            self.append(data);
            return Ok(());
        }
        let scattered = self
            .repair()
            .scattered
            .get_or_insert_with(|| Scattered { extents: Extents::up_to(received), pieces: BTreeMap::new() });
        scattered.extents.add(offset, data.len())?;
        if offset != received {
            scattered.insert(offset, data);
            return Ok(());
        }
        self.append(data);
        while let Some(piece) = self.next_piece() {
            self.append(&piece);
        }
        self.repair().scattered.take_if(|scattered| scattered.pieces.is_empty());
        Ok(())
    }

    fn scattered(&self) -> Option<&Scattered> {
        self.repair.as_ref()?.scattered.as_ref()
    }

    /// The piece behind the data without gaps, if it has arrived.
    fn next_piece(&mut self) -> Option<Bytes> {
        let received = self.received;
        self.repair.as_mut()?.scattered.as_mut()?.pieces.remove(&received)
    }

    fn append(&mut self, data: &Bytes) {
        self.received += data.len() as u32;
        keep(&mut self.data, data);
    }

    /// Forgets the data that has arrived.
    pub fn drop_data(&mut self) {
        self.data.clear();
        if let Some(repair) = &mut self.repair {
            repair.scattered = None;
        }
    }

    /// Data that has arrived and is kept, bytes.
    pub fn kept_bytes(&self) -> u64 {
        let waiting = self.scattered().map_or(0, Scattered::bytes);
        self.data.iter().map(|piece| piece.len() as u64).sum::<u64>() + waiting
    }
}
