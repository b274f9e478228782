//! What is stored for a block with protection information, next to the block: a record of 16 bytes. Where records are kept, and how they
//! change together with their blocks, is in [`protected`](crate::protected).

use integrity::t10::Tuple;

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 16;
/// A tuple of a block that was never written.
const UNWRITTEN: Tuple = Tuple { guard: 0xffff, app_tag: 0xffff, ref_tag: 0xffff_ffff };

/// What is stored for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// It was never written, or was deallocated since: its data is zeros, its tuple all ones.
    Unwritten,
    /// It was written with this tuple, whose guard matches its data.
    Guarded(Tuple),
    /// It was written with a tuple that is not checked; the CRC32C is that of its data.
    Unchecked(Tuple, u32),
}

impl Record {
    /// The tuple as it is transferred.
    #[inline]
    pub fn tuple(self) -> Tuple {
        match self {
            Record::Unwritten => UNWRITTEN,
            Record::Guarded(tuple) | Record::Unchecked(tuple, _) => tuple,
        }
    }

    #[inline]
    fn from_bytes(bytes: [u8; RECORD_BYTES]) -> Self {
        let record = u128::from_be_bytes(bytes);
        let (inverted, digest, unchecked) = ((record >> 64) as u64, (record >> 32) as u32, record as u32);
        let tuple = Tuple::from_bytes((!inverted).to_be_bytes());
        match (inverted, unchecked) {
            (0, 0) => Record::Unwritten,
            (_, 0) => Record::Guarded(tuple),
            _ => Record::Unchecked(tuple, digest),
        }
    }

    #[inline]
    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let high = |tuple: Tuple| u128::from(!u64::from_be_bytes(tuple.to_bytes())) << 64;
        let record = match self {
            Record::Unwritten => 0,
            Record::Guarded(tuple) => high(tuple),
            Record::Unchecked(tuple, digest) => high(tuple) | u128::from(digest) << 32 | 1,
        };
        record.to_be_bytes()
    }
}

/// The records of consecutive blocks, in stored form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordRun(Vec<[u8; RECORD_BYTES]>);

impl RecordRun {
    /// An empty run, with room for this many.
    pub fn with_capacity(blocks: usize) -> Self {
        Self(Vec::with_capacity(blocks))
    }

    /// Appends the record of the next block.
    #[inline]
    pub fn push(&mut self, record: Record) {
        self.0.push(record.to_bytes());
    }

    /// Keeps only the records of the first `blocks` blocks.
    pub fn truncate(&mut self, blocks: usize) {
        self.0.truncate(blocks);
    }

    /// Records that were read in stored form.
    pub(crate) fn from_stored(records: Vec<[u8; RECORD_BYTES]>) -> Self {
        Self(records)
    }

    /// The number of blocks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without blocks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The records in stored form, this many blocks at a time.
    pub(crate) fn chunks(&self, blocks: usize) -> impl Iterator<Item = &[[u8; RECORD_BYTES]]> {
        self.0.chunks(blocks)
    }

    /// The records in stored form.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_flattened()
    }

    /// The tuples as they are transferred. All kinds of records have them in the same place. So no branch on the kind is needed, and no
    /// tuple is assembled in memory from halves, for which a load of the whole would then have to wait.
    #[inline]
    pub fn tuples(&self) -> impl ExactSizeIterator<Item = Tuple> + '_ {
        self.0.iter().map(|record| {
            let (tuple, _) = record.split_first_chunk().expect("a record begins with a tuple");
            Tuple::from_bytes((!u64::from_be_bytes(*tuple)).to_be_bytes())
        })
    }

    /// The records, one after the other.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record> + Clone + '_ {
        self.0.iter().copied().map(Record::from_bytes)
    }
}

impl FromIterator<Record> for RecordRun {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Self {
        Self(records.into_iter().map(Record::to_bytes).collect())
    }
}
