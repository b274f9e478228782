//! What is asked of a session and how it ended.

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_wire::{Lun, RejectReason, TaskAttribute};
use smallvec::SmallVec;

use crate::error::ProtocolViolation;
use crate::pdu_writer::TxData;

/// Run length of the checksums kept with write data, bytes: small enough that the runs of any sensible negotiation are made of
/// whole ones, large enough that joining them costs nothing beside computing them.
const CHUNK_BYTES: usize = 16 * 1024;

/// Data of a write: bytes that do not change any more, with their checksums if those were computed while copying.
#[derive(Clone, Debug, Default)]
pub struct WriteData {
    bytes: Bytes,
    /// CRC32C of each run of [`CHUNK_BYTES`], the last one shorter; empty when none were computed.
    crcs: SmallVec<[u32; 4]>,
}

impl From<Bytes> for WriteData {
    /// Takes shared, immutable bytes as they are: nothing is copied.
    fn from(bytes: Bytes) -> Self {
        Self { bytes, crcs: SmallVec::new() }
    }
}

impl WriteData {
    /// Copies the caller's bytes into `space` (of the same length), digesting what is stored when `digest` says so. What the
    /// caller does with its memory afterwards can neither change what travels nor make a digest wrong.
    ///
    /// # Panics
    /// When the lengths differ.
    //= rfc7143 11.2.3 DIG-15
    pub fn copy_from(source: &[u8], mut space: BytesMut, digest: bool) -> Self {
        assert_eq!(source.len(), space.len(), "the copy has the length of the original");
        let mut crcs = SmallVec::new();
        if digest {
            for (to, from) in space.chunks_mut(CHUNK_BYTES).zip(source.chunks(CHUNK_BYTES)) {
                let copied = integrity::copy_crc32c(0, to, from, integrity::Store::Temporal);
                crcs.push(copied.expect("the chunks of equal lengths are equally long"));
            }
        } else {
            space.copy_from_slice(source);
        }
        Self { bytes: space.freeze(), crcs }
    }

    /// Length, bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True when there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The part `range` as the data of one PDU, with its checksum when the kept ones make it up.
    pub(super) fn part(&self, range: Range<usize>) -> TxData {
        let crc32c = self.crc_of(&range);
        TxData { bytes: self.bytes.slice(range), crc32c }
    }

    fn crc_of(&self, range: &Range<usize>) -> Option<u32> {
        let whole = range.start.is_multiple_of(CHUNK_BYTES)
            && (range.end.is_multiple_of(CHUNK_BYTES) || range.end == self.len());
        if self.crcs.is_empty() || range.is_empty() || !whole {
            return None;
        }
        let first = range.start / CHUNK_BYTES;
        let mut crc = *self.crcs.get(first)?;
        for n in first + 1..range.end.div_ceil(CHUNK_BYTES) {
            let chunk_bytes = CHUNK_BYTES.min(self.len() - n * CHUNK_BYTES) as u64;
            crc = integrity::crc32c_combine(crc, *self.crcs.get(n)?, chunk_bytes);
        }
        Some(crc)
    }
}

/// A SCSI command for a session.
#[derive(Clone, Debug)]
pub struct Command {
    /// The caller's name for it; comes back with data and completion.
    pub user: u64,
    /// Logical unit.
    pub lun: Lun,
    /// The CDB; what is beyond 16 bytes travels in an AHS.
    pub cdb: SmallVec<[u8; 32]>,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Most bytes of Data-In that are wanted.
    pub read_length: u32,
    /// Data-Out.
    pub write: WriteData,
    /// Time after which the command is aborted; zero waits for ever.
    pub timeout: Duration,
    /// Doing it twice is the same as doing it once: it may be begun anew when nobody knows whether it was carried out.
    pub idempotent: bool,
}

impl Command {
    /// A command with the CDB `cdb` and no data, which must not be carried out twice.
    pub fn new(lun: Lun, cdb: &[u8]) -> Self {
        Self {
            user: 0,
            lun,
            cdb: SmallVec::from_slice(cdb),
            attribute: TaskAttribute::Simple,
            read_length: 0,
            write: WriteData::default(),
            timeout: Duration::from_secs(30),
            idempotent: false,
        }
    }
}

/// Difference between what was expected and what was to be transferred, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// Both are the same.
    #[default]
    None,
    /// The command had less to transfer.
    Underflow(u32),
    /// The command had more to transfer.
    Overflow(u32),
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The target carried it out and gave a SCSI status.
    Status {
        /// SCSI status code.
        status: u8,
        /// Sense data, when the status comes with it.
        sense: Bytes,
        /// Bytes of Data-In that count: what arrived, without what the residual says is none.
        data_in_bytes: u32,
        /// Residual of the transfer.
        residual: Residual,
    },
    /// The target failed to carry it out (iSCSI response code other than 0).
    TargetFailure {
        /// The response code.
        response: u8,
    },
    /// Data that arrived for it did not match its digest; none of it counts.
    DataDigest,
    /// The target refused its PDU.
    Rejected(RejectReason),
    /// It took too long and was aborted; whether it was carried out is not known.
    TimedOut,
    /// It was aborted together with others of its logical unit; whether it was carried out is not known.
    Aborted,
    /// Its connection was lost; whether it was carried out is not known, and doing it twice is not the same as doing it once.
    OutcomeUnknown,
    /// It cannot be sent as it is.
    Unsendable(ProtocolViolation),
}

/// A command that ended, with the command itself: who wants to repeat it needs no copy.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The command.
    pub command: Command,
    /// How it ended.
    pub ending: Ending,
}
