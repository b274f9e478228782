//! Fixed interval markers: eight bytes between the bytes of PDUs, at fixed distances, which say where the next PDU begins. RFC 3720 had
//! them and RFC 7143 forbids them; the 2005 paper names them as what a receiver must leave out of its digests (section 3.3). They exist
//! only here, to see what leaving something out costs.

/// A pointer to the next PDU, twice (RFC 3720 appendix A).
pub(super) const MARKER_BYTES: usize = 8;

/// Where in the stream of a connection the next marker is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Markers {
    /// Bytes of PDUs between two markers; none if the stream has no markers.
    interval: Option<usize>,
    /// Bytes since the end of the last marker; up to `MARKER_BYTES` more than the interval within a marker.
    at: usize,
}

/// The next bytes of a stream that are of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub bytes: usize,
    pub is_marker: bool,
}

impl Markers {
    /// A stream that begins after a marker.
    pub(super) fn new(interval: Option<usize>) -> Self {
        Self { interval, at: 0 }
    }

    /// Length of the next `bytes` bytes of PDUs with the markers before and among them. One that follows them belongs to what follows.
    #[inline]
    pub(super) fn stream_bytes(&self, bytes: usize) -> usize {
        let Some(interval) = self.interval else { return bytes };
        let before = interval - self.at.min(interval);
        match bytes.checked_sub(before) {
            None | Some(0) => bytes,
            Some(behind) => bytes + MARKER_BYTES * behind.div_ceil(interval),
        }
    }

    /// The next piece of the stream, of at most `most` bytes.
    #[inline]
    pub(super) fn next(&mut self, most: usize) -> Piece {
        let Some(interval) = self.interval else { return Piece { bytes: most, is_marker: false } };
        let is_marker = self.at >= interval;
        let end = if is_marker { interval + MARKER_BYTES } else { interval };
        let bytes = most.min(end - self.at);
        self.at += bytes;
        if self.at == interval + MARKER_BYTES {
            self.at = 0;
        }
        Piece { bytes, is_marker }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of the bytes of a stream, read in pieces of at most `most`.
    fn kinds(markers: &mut Markers, stream_bytes: usize, most: usize) -> Vec<bool> {
        let mut kinds = Vec::new();
        while kinds.len() < stream_bytes {
            let piece = markers.next(most.min(stream_bytes - kinds.len()));
            assert!(piece.bytes > 0);
            kinds.extend(std::iter::repeat_n(piece.is_marker, piece.bytes));
        }
        kinds
    }

    #[test]
    fn a_stream_has_a_marker_after_each_interval_however_it_is_cut() {
        for most in [1, 3, 8, 100, 4096] {
            let mut markers = Markers::new(Some(20));
            let all: Vec<bool> = (0..100).flat_map(|_| kinds(&mut markers, 7, most)).collect();
            assert!(all.iter().enumerate().all(|(at, is_marker)| *is_marker == (at % 28 >= 20)));
        }
        assert!(!kinds(&mut Markers::new(None), 5000, 700).contains(&true));
    }

    #[test]
    fn the_length_of_a_pdu_counts_the_markers_before_its_last_byte() {
        for sizes in [[1, 1, 1], [19, 1, 1], [20, 20, 20], [21, 48, 8192], [7, 4096, 13]] {
            let mut markers = Markers::new(Some(20));
            for bytes in sizes.repeat(9) {
                let length = markers.stream_bytes(bytes);
                let kinds = kinds(&mut markers, length, 9);
                assert_eq!(kinds.iter().filter(|is_marker| !**is_marker).count(), bytes);
                assert_eq!(kinds.last(), Some(&false), "a marker behind it is not part of it");
            }
        }
    }
}
