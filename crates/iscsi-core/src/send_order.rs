//! In which order an end sends data where the session allows any (RFC 7143 13.18, 13.19).
//!
//! We always send in the order of the bytes: it costs the least at both ends. A receiver must take every other order as well, so
//! the simulator lets both ends draw one.

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SendOrder {
    /// In the order of the bytes.
    #[default]
    InPlace,
    /// For tests: in an order drawn from this number, which changes with each draw.
    Drawn(u64),
}

impl SendOrder {
    /// Whether the order differs from that of the bytes.
    pub(crate) fn is_drawn(&self) -> bool {
        matches!(self, Self::Drawn(_))
    }

    /// Brings `items` into the order in which to send them.
    pub(crate) fn arrange<T>(&mut self, items: &mut [T]) {
        let Self::Drawn(random) = self else { return };
        for i in (1..items.len()).rev() {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            items.swap(i, (*random >> 33) as usize % (i + 1));
        }
    }

    /// Where the pieces of `piece` bytes of the range `from..to` begin, in the order in which to send them, last first; `None` for
    /// the order of the bytes.
    pub(crate) fn places(&mut self, from: u32, to: u32, piece: u32) -> Option<Vec<u32>> {
        if !self.is_drawn() {
            return None;
        }
        let mut places: Vec<u32> = (from..to).step_by(piece.max(1) as usize).collect();
        self.arrange(&mut places);
        Some(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_order_has_every_piece_once_and_is_another_each_time() {
        assert_eq!(SendOrder::InPlace.places(0, 10, 3), None);
        let mut order = SendOrder::Drawn(7);
        let (first, second) = (order.places(100, 1124, 100).unwrap(), order.places(100, 1124, 100).unwrap());
        assert_ne!(first, second);
        for mut places in [first, second] {
            places.sort_unstable();
            assert_eq!(places, (0..11).map(|n| 100 + n * 100).collect::<Vec<_>>());
        }
    }
}
