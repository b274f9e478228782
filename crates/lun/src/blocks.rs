//! The blocks of a unit as medium operations see them.
//!
//! [`execute`](crate::execute) knows what a medium operation does, in which pieces, and which right it holds meanwhile. An implementation of
//! [`Blocks`] knows what a block is: [plain](crate::plain) bytes, or bytes that are [protected](crate::protected) by a tuple.

use std::ops::Range;

use blockstore::StoreError;
use bytes::Bytes;
use payload::Payload;
use scsi::{MediumError, PiField};
use smallvec::SmallVec;

use crate::surroundings::Surroundings;
use crate::unit::Unit;

/// Most bytes of the medium that are compared, checked, combined or filled at a time. No command takes more memory than that, in
/// addition to its data-out and to one copy of it.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store failed.
    Store(StoreError),
    /// A check of protection information failed, at this LBA.
    Check(PiField, u64),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Failure {
    /// Reports the failure to the host of the unit, and returns it for the device server.
    pub(crate) fn report(&self, unit: &Unit) -> MediumError {
        match self {
            Self::Store(error) => unit.medium_error(error),
            Self::Check(field, lba) => {
                unit.check_failed(*field);
                MediumError::Protection { field: *field, lba: *lba }
            }
        }
    }
}

/// Where blocks are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The store may answer from its cache.
    Cache,
    /// The medium itself, to verify it.
    Medium,
}

impl Source {
    pub(crate) fn read(self, unit: &Unit, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Self::Cache => unit.store.read(offset, dst),
            Self::Medium => unit.store.read_medium(offset, dst),
        }
    }
}

/// What a medium operation asks of the blocks of a unit.
///
/// [`read`](Self::read) and [`write`](Self::write) take the right to their blocks ([`Unit::hold`]) themselves, as late as they can. For
/// all other methods the caller holds it, and asks for at most [`PIECE_BYTES`] of the medium at a time.
pub(crate) trait Blocks {
    /// Blocks of data-out, which may have tuples.
    type Run;
    /// What is written with the blocks of a [`Run`](Self::Run): their protection information.
    type Records;

    /// The unit.
    fn unit(&self) -> &Unit;

    /// Bytes of a block on its way between initiator and target, with its tuple if it has one there.
    fn wire_block_bytes(&self) -> u64;

    /// Reads blocks for the initiator.
    fn read(&self, lba: u64, blocks: u64, with: &Surroundings<'_>) -> Result<Payload, Failure>;

    /// Writes the data-out.
    fn write(&self, lba: u64, blocks: u64, durable: bool, with: &Surroundings<'_>) -> Result<(), Failure>;

    /// Takes `blocks` blocks of the data-out, from block `first` of it on. Nothing is checked yet.
    fn sent(&self, first: u64, blocks: u64, with: &Surroundings<'_>) -> Self::Run;

    /// A block that the target itself has made.
    fn own(&self, block: Bytes) -> Self::Run;

    /// Repeats a run of one block so many times.
    fn repeated(&self, block: Self::Run, times: u64) -> Self::Run;

    /// Prepares a [repeated](Self::repeated) run for the `blocks` blocks from `lba` on, no more than it has.
    fn place(&self, run: &mut Self::Run, lba: u64, blocks: u64);

    /// Checks a run that is to be at `lba`; what is to be written with it.
    fn check(&self, lba: u64, run: &Self::Run) -> Result<Self::Records, Failure>;

    /// Writes a checked run.
    fn put(&self, lba: u64, run: &Self::Run, records: &Self::Records, durable: bool) -> Result<(), Failure>;

    /// Writes a checked run all or nothing.
    fn put_atomic(
        &self,
        lba: u64,
        run: &Self::Run,
        records: &Self::Records,
        durable: bool,
    ) -> Result<(), Failure>;

    /// Checks blocks on the medium.
    fn verify(&self, lba: u64, blocks: u64, with: &Surroundings<'_>) -> Result<(), Failure>;

    /// Compares these blocks of a run, whose first block belongs at `lba`, with the medium. The first byte of the run, as it travels, that
    /// differs.
    fn difference(
        &self,
        source: Source,
        lba: u64,
        run: &Self::Run,
        part: Range<u64>,
        with: &Surroundings<'_>,
    ) -> Result<Option<u64>, Failure>;

    /// Writes the bitwise OR, or with `and` the bitwise AND, of the medium and these blocks of a checked run, whose first block belongs
    /// at `lba`.
    fn combine(
        &self,
        lba: u64,
        run: &Self::Run,
        part: Range<u64>,
        how: Combine,
        with: &Surroundings<'_>,
    ) -> Result<(), Failure>;
}

/// How blocks are combined with those on the medium, and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Combine {
    /// By AND instead of OR.
    pub and: bool,
    /// On stable storage before the reply.
    pub durable: bool,
}

impl Combine {
    /// Combines `new` into `medium`, byte by byte.
    pub(crate) fn into(self, medium: &mut [u8], new: &[u8]) {
        for (medium, new) in medium.iter_mut().zip(new) {
            *medium = if self.and { *medium & new } else { *medium | new };
        }
    }
}

/// The `len` bytes from `start` on of data that arrived in pieces, without a copy.
pub(crate) fn range(pieces: &[Bytes], start: u64, len: u64) -> SmallVec<[&[u8]; 8]> {
    let (mut skip, mut left) = (start, len);
    let mut out = SmallVec::new();
    for piece in pieces {
        let size = piece.len() as u64;
        if skip >= size {
            skip -= size;
            continue;
        }
        let n = (size - skip).min(left);
        if n == 0 {
            break;
        }
        out.push(&piece[skip as usize..(skip + n) as usize]);
        (skip, left) = (0, left - n);
    }
    out
}
