//! Readers of CDB fields. A CDB shorter than the field reads as zeros, so no reader can fail. The length of the CDB
//! has been compared with the command table before any handler runs.

/// Longest CDB of a command in the table (SBC-3 32-byte commands).
pub(crate) const MAX_CDB_BYTES: usize = 32;

/// A CDB with zeros after its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cdb {
    bytes: [u8; MAX_CDB_BYTES],
}

impl Cdb {
    /// Copies at most [`MAX_CDB_BYTES`].
    pub(crate) fn new(cdb: &[u8]) -> Self {
        let mut bytes = [0; MAX_CDB_BYTES];
        let len = cdb.len().min(MAX_CDB_BYTES);
        bytes[..len].copy_from_slice(&cdb[..len]);
        Self { bytes }
    }

    pub(crate) fn u8(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    pub(crate) fn bit(&self, byte: usize, bit: u8) -> bool {
        self.u8(byte) >> bit & 1 == 1
    }

    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.u8(at), self.u8(at + 1)])
    }

    pub(crate) fn u24(&self, at: usize) -> u32 {
        u32::from_be_bytes([0, self.u8(at), self.u8(at + 1), self.u8(at + 2)])
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }
}
