//! Received write data as a list of pieces.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

/// Received write data, in the order of its bytes and without gaps. Long pieces share the receive buffers.
pub type DataOutPieces = SmallVec<[Bytes; 2]>;

/// Data-Out with less data than this is copied, bytes.
pub(super) const COPIED_BELOW_BYTES: usize = 4096;

/// Keeps data until all of it has arrived. Short pieces are copied together: otherwise each would pin the whole receive buffer it
/// arrived in, and an initiator that sends a byte at a time among other PDUs would take up memory without limit.
pub(super) fn keep(pieces: &mut DataOutPieces, data: &Bytes) {
    if data.len() >= COPIED_BELOW_BYTES {
        return pieces.push(data.clone());
    }
    let mut own = match pieces.pop().map(Bytes::try_into_mut) {
        Some(Ok(own)) => own,
        Some(Err(shared)) => {
            pieces.push(shared);
            BytesMut::with_capacity(COPIED_BELOW_BYTES)
        }
        None => BytesMut::with_capacity(COPIED_BELOW_BYTES),
    };
    own.extend_from_slice(data);
    pieces.push(own.freeze());
}

/// Truncates `pieces` to `bytes` in total.
pub(super) fn trim(pieces: &mut DataOutPieces, bytes: usize) {
    let mut room = bytes;
    for piece in pieces.iter_mut() {
        piece.truncate(room);
        room -= piece.len();
    }
    pieces.retain(|piece| !piece.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_are_copied_together_and_long_ones_stay_where_they_are() {
        // A receive buffer with another handle elsewhere, like those in the ring of slabs.
        let buffer = Bytes::from((0..40_000u32).map(|i| i as u8).collect::<Vec<_>>());
        let cuts = [1, 1, 3, 4096, 4095, 8000, 2, 2];
        let (mut pieces, mut at) = (DataOutPieces::new(), 0);
        for len in cuts {
            keep(&mut pieces, &buffer.slice(at..at + len));
            at += len;
        }
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [5, 4096, 4095, 8000, 4]);
        assert_eq!(pieces.concat(), buffer[..at]);
        for (index, offset) in [(1, 5), (3, 5 + 4096 + 4095)] {
            assert_eq!(pieces[index].as_ptr(), buffer[offset..].as_ptr(), "it was copied");
        }
        let mut bytewise = DataOutPieces::new();
        (0..40_000).for_each(|i| keep(&mut bytewise, &buffer.slice(i..i + 1)));
        assert_eq!(bytewise.len(), 1);
        assert_eq!(bytewise[0], buffer);
    }
}
