//! The data of a read as it arrives: in the order of its bytes, unless the session allows another (RFC 7143 13.18, 13.19).

use bytes::Bytes;
use smallvec::SmallVec;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// With their offsets in the command's data. Sorted; none overlaps another.
    pieces: SmallVec<[(u32, Bytes); 4]>,
}

impl Arrived {
    /// Keeps a piece. Earlier ones that it overlaps are dropped: the command was started again, and all of its data comes again.
    pub(super) fn put(&mut self, offset: u32, data: Bytes) {
        let end = u64::from(offset) + data.len() as u64;
        if self.pieces.last().is_none_or(|last| end_of(last) <= offset.into()) {
            return self.pieces.push((offset, data));
        }
        self.pieces.retain(|piece| end_of(piece) <= offset.into() || u64::from(piece.0) >= end);
        let at = self.pieces.partition_point(|piece| piece.0 < offset);
        self.pieces.insert(at, (offset, data));
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    /// The pieces from the start up to the first byte that is missing.
    pub(super) fn whole(self) -> SmallVec<[Bytes; 4]> {
        let mut due = 0;
        let whole = self.pieces.into_iter().take_while(|piece| {
            let fits = u64::from(piece.0) == due;
            due = end_of(piece);
            fits
        });
        whole.map(|(_, data)| data).collect()
    }
}

/// Offset after the last byte of a piece.
fn end_of(piece: &(u32, Bytes)) -> u64 {
    u64::from(piece.0) + piece.1.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(byte: u8, length: usize) -> Bytes {
        Bytes::from(vec![byte; length])
    }

    #[test]
    fn pieces_in_any_order_are_whole_up_to_the_first_gap() {
        let orders = [[0u32, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]];
        for order in orders {
            let mut arrived = Arrived::default();
            for n in order {
                arrived.put(n * 100, filled(n as u8, 100));
            }
            let whole = arrived.whole().concat();
            assert_eq!(whole, (0..400).map(|n| (n / 100) as u8).collect::<Vec<_>>());
        }
        let mut arrived = Arrived::default();
        arrived.put(300, filled(3, 100));
        arrived.put(0, filled(0, 100));
        arrived.put(100, filled(1, 100));
        assert_eq!(arrived.whole().concat().len(), 200, "behind a gap is not whole");
        assert!(Arrived::default().whole().is_empty());
    }

    #[test]
    fn what_comes_again_replaces_what_came_before() {
        let mut arrived = Arrived::default();
        arrived.put(0, filled(1, 300));
        arrived.put(300, filled(1, 100));
        for (offset, length) in [(0, 150), (150, 150), (300, 100)] {
            arrived.put(offset, filled(2, length));
        }
        assert_eq!(arrived.whole().concat(), [2; 400]);
        let mut arrived = Arrived::default();
        arrived.put(0, filled(1, 400));
        arrived.put(200, filled(2, 200));
        arrived.put(0, filled(2, 200));
        assert_eq!(arrived.whole().concat(), [2; 400]);
    }
}
