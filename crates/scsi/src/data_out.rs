//! Data-out as the transport delivers it.

/// Data-out, in the pieces in which it arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataOut<'a> {
    pieces: &'a [&'a [u8]],
    offered: Option<u64>,
}

impl<'a> DataOut<'a> {
    /// The concatenation of these pieces.
    pub fn new(pieces: &'a [&'a [u8]]) -> Self {
        Self { pieces, offered: None }
    }

    /// Also sets how many bytes the initiator offered (its expected data transfer length), which may be more than
    /// were requested: WRITE SAME and COMPARE AND WRITE reject data-out of the wrong length either way.
    pub fn with_offered(self, offered: u64) -> Self {
        Self { offered: Some(offered), ..self }
    }

    pub(crate) fn offered(&self) -> u64 {
        self.offered.unwrap_or(0).max(self.len())
    }

    /// Bytes in all pieces.
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// No bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first bytes, at most `max`.
    pub(crate) fn to_vec(self, max: u64) -> Vec<u8> {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(max.min(self.len() as usize));
        for piece in self.pieces {
            let room = max - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        bytes
    }

    /// The first `max` bytes are all zero.
    pub(crate) fn is_zero(&self, max: u64) -> bool {
        let mut left = usize::try_from(max).unwrap_or(usize::MAX);
        for piece in self.pieces {
            let part = &piece[..piece.len().min(left)];
            if part.iter().any(|&byte| byte != 0) {
                return false;
            }
            left -= part.len();
        }
        true
    }
}
