//! The one logical unit of an evil target: a RAM disk that supports what an initiator needs to come
//! up.

/// Bytes per block.
pub const BLOCK_SIZE: usize = 512;

/// A RAM disk.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) blocks: Vec<u8>,
}

/// What a CDB requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// GOOD, with this data for the initiator.
    Data(Vec<u8>),
    /// Requests that this many bytes be written at this byte offset.
    Write { offset: usize, length: usize },
    /// CHECK CONDITION with sense key, ASC and ASCQ.
    Check(u8, u8, u8),
}

/// The bytes of the medium that a READ or a WRITE names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Is it a WRITE?
    pub(crate) write: bool,
    /// Offset in bytes.
    pub(crate) offset: usize,
    /// Length in bytes.
    pub(crate) length: usize,
}

impl Access {
    /// `None` if the CDB is no READ or WRITE that the disk supports.
    pub(crate) fn of(cdb: &[u8; 16]) -> Option<Self> {
        let number = |range: std::ops::Range<usize>| {
            cdb[range].iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte))
        };
        let (write, lba, blocks) = match cdb[0] {
            0x28 | 0x2a => (cdb[0] == 0x2a, number(2..6), number(7..9)),
            0x88 | 0x8a => (cdb[0] == 0x8a, number(2..10), number(10..14)),
            _ => return None,
        };
        // What is beyond every disk stays so.
        let bytes = |blocks: u64| usize::try_from(blocks).unwrap_or(usize::MAX).saturating_mul(BLOCK_SIZE);
        Some(Access { write, offset: bytes(lba), length: bytes(blocks) })
    }
}

impl Disk {
    pub(super) fn new(bytes: usize) -> Self {
        Disk { blocks: vec![0; bytes] }
    }

    /// What the CDB requests; READ data is copied out.
    pub(super) fn execute(&self, cdb: &[u8; 16], lun_is_ours: bool) -> Verdict {
        let be16 = |at: usize| usize::from(u16::from_be_bytes([cdb[at], cdb[at + 1]]));
        let be32 = |at: usize| u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]]) as usize;
        if cdb[0] == 0xa0 {
            let mut list = vec![0; 16];
            list[3] = 8;
            return Verdict::Data(cut(list, be32(6)));
        }
        if cdb[0] == 0x12 {
            return self.inquiry(cdb, lun_is_ours);
        }
        if !lun_is_ours {
            return Verdict::Check(5, 0x25, 0);
        }
        match cdb[0] {
            0x00 | 0x35 | 0x91 | 0x1b => Verdict::Data(Vec::new()),
            0x25 => {
                let last = u32::try_from(self.count() - 1).unwrap_or(u32::MAX);
                let mut data = last.to_be_bytes().to_vec();
                data.extend((BLOCK_SIZE as u32).to_be_bytes());
                Verdict::Data(data)
            }
            0x9e if cdb[1] & 0x1f == 0x10 => {
                let mut data = vec![0; 32];
                data[..8].copy_from_slice(&(self.count() as u64 - 1).to_be_bytes());
                data[8..12].copy_from_slice(&(BLOCK_SIZE as u32).to_be_bytes());
                Verdict::Data(cut(data, be32(10)))
            }
            0x1a => Verdict::Data(cut(vec![3, 0, 0, 0], usize::from(cdb[4]))),
            0x5a => Verdict::Data(cut(vec![0, 6, 0, 0, 0, 0, 0, 0], be16(7))),
            _ => match Access::of(cdb) {
                Some(access) => self.medium_access(access),
                None => Verdict::Check(5, 0x20, 0),
            },
        }
    }

    /// Overwrites the medium from byte `offset` on, as far as it reaches.
    pub(super) fn store(&mut self, offset: usize, data: &[u8]) {
        let end = offset.saturating_add(data.len()).min(self.blocks.len());
        if let Some(range) = self.blocks.get_mut(offset..end) {
            let length = range.len();
            range.copy_from_slice(&data[..length]);
        }
    }

    fn count(&self) -> usize {
        self.blocks.len() / BLOCK_SIZE
    }

    fn medium_access(&self, access: Access) -> Verdict {
        let Access { write, offset, length } = access;
        match offset.checked_add(length).and_then(|end| self.blocks.get(offset..end)) {
            Some(_) if write => Verdict::Write { offset, length },
            Some(range) => Verdict::Data(range.to_vec()),
            None => Verdict::Check(5, 0x21, 0),
        }
    }

    fn inquiry(&self, cdb: &[u8; 16], ours: bool) -> Verdict {
        let allocation = usize::from(u16::from_be_bytes([cdb[3], cdb[4]]));
        let page = |code: u8, body: &[u8]| {
            let mut data = vec![0, code, 0, body.len() as u8];
            data.extend_from_slice(body);
            Verdict::Data(cut(data, allocation))
        };
        if cdb[1] & 1 == 0 {
            let mut data = vec![0; 96];
            (data[0], data[2], data[3], data[4], data[7]) = (if ours { 0 } else { 0x7f }, 6, 0x12, 91, 2);
            data[8..16].copy_from_slice(b"CONFORM ");
            data[16..32].copy_from_slice(b"EVIL TARGET     ");
            data[32..36].copy_from_slice(b"1   ");
            return Verdict::Data(cut(data, allocation));
        }
        match cdb[2] {
            0x00 => page(0, &[0x00, 0x80, 0x83, 0xb0, 0xb1]),
            0x80 => page(0x80, b"00000001"),
            0x83 => page(0x83, &[1, 3, 0, 8, 0x30, 0, 0, 0, 0, 0, 0, 1]),
            0xb0 => page(0xb0, &[0; 60]),
            0xb1 => page(0xb1, &[0; 60]),
            _ => Verdict::Check(5, 0x24, 0),
        }
    }
}

fn cut(mut data: Vec<u8>, allocation_length: usize) -> Vec<u8> {
    data.truncate(allocation_length);
    data
}

/// Fixed-format sense with its length, as a SCSI Response carries it.
pub(crate) fn sense(key: u8, asc: u8, ascq: u8) -> Vec<u8> {
    let mut data = vec![0; 20];
    (data[1], data[2], data[4], data[9], data[14], data[15]) = (18, 0x70, key, 10, asc, ascq);
    data
}
