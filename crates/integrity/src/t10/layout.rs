//! The layout of sectors and their protection information in a run of bytes (SBC-3 section 4.22), and the tuple.

use core::fmt;

/// Size of the protection information of a sector, bytes: guard, application tag and reference tag.
pub const TUPLE_BYTES: usize = 8;

/// Consecutive sectors, either alone or each followed by its tuple.
///
/// ```
/// use integrity::t10::Layout;
/// assert_eq!(Layout::plain(4096).stride_bytes(), 4096);
/// assert_eq!(Layout::interleaved(512).stride_bytes(), 520);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    sector_bytes: usize,
    tuple_bytes: usize,
}

impl Layout {
    /// Sectors of `sector_bytes` bytes, with nothing between them.
    pub const fn plain(sector_bytes: usize) -> Self {
        Self { sector_bytes, tuple_bytes: 0 }
    }

    /// Sectors of `sector_bytes` bytes, each followed by its tuple of [`TUPLE_BYTES`]: the form on the wire and, on
    /// many devices, on the medium (512+8, 4096+8).
    pub const fn interleaved(sector_bytes: usize) -> Self {
        Self { sector_bytes, tuple_bytes: TUPLE_BYTES }
    }

    /// The data in a sector, without its tuple, in bytes.
    pub const fn sector_bytes(self) -> usize {
        self.sector_bytes
    }

    /// The bytes that follow the data of each sector: 0 or [`TUPLE_BYTES`].
    pub const fn tuple_bytes(self) -> usize {
        self.tuple_bytes
    }

    /// The distance from the start of a sector to that of the next, in bytes.
    pub const fn stride_bytes(self) -> usize {
        self.sector_bytes.saturating_add(self.tuple_bytes)
    }

    /// The number of sectors in `bytes` bytes.
    ///
    /// # Errors
    /// [`ShapeError::NoSector`] if a sector has no bytes; [`ShapeError::PartOfASector`] if `bytes` is not a whole
    /// number of sectors.
    pub const fn sectors(self, bytes: usize) -> Result<usize, ShapeError> {
        let stride_bytes = self.stride_bytes();
        match self.sector_bytes {
            0 => Err(ShapeError::NoSector),
            _ if !bytes.is_multiple_of(stride_bytes) => {
                Err(ShapeError::PartOfASector { bytes, stride_bytes })
            }
            _ => Ok(bytes / stride_bytes),
        }
    }
}

/// Slices whose lengths do not fit together. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShapeError {
    /// A sector of no bytes.
    NoSector,
    /// The bytes are not whole sectors of the layout.
    PartOfASector {
        /// Bytes given.
        bytes: usize,
        /// Bytes of a sector, with its tuple if the layout has one.
        stride_bytes: usize,
    },
    /// The slice for results does not have one element per sector.
    Places {
        /// Sectors in the run.
        sectors: usize,
        /// Guards or tuples that the slice holds.
        places: usize,
    },
    /// The destination does not have the length that the sectors need.
    Destination {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The operation needs tuples, and the layout has none.
    NoTuples,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoSector => write!(f, "a sector has 0 bytes: give its size"),
            Self::PartOfASector { bytes, stride_bytes } => {
                write!(f, "{bytes} bytes are not whole sectors of {stride_bytes}: give whole ones")
            }
            Self::Places { sectors, places } => {
                write!(f, "{places} places for guards or tuples of {sectors} sectors: give one per sector")
            }
            Self::Destination { needed, given } => {
                write!(f, "a destination of {given} bytes for {needed}: give exactly as many")
            }
            Self::NoTuples => write!(f, "the layout has no tuples: give an interleaved one"),
        }
    }
}

impl core::error::Error for ShapeError {}

/// The protection information of one sector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuple {
    /// The guard of the sector's data.
    pub guard: u16,
    /// The application tag.
    pub app_tag: u16,
    /// The reference tag.
    pub ref_tag: u32,
}

impl Tuple {
    /// The tuple in wire format: all fields with the high byte first.
    #[inline]
    pub const fn to_bytes(self) -> [u8; TUPLE_BYTES] {
        let word = (self.guard as u64) << 48 | (self.app_tag as u64) << 32 | self.ref_tag as u64;
        word.to_be_bytes()
    }

    /// The tuple with this wire format.
    #[inline]
    pub const fn from_bytes(bytes: [u8; TUPLE_BYTES]) -> Self {
        let word = u64::from_be_bytes(bytes);
        Self { guard: (word >> 48) as u16, app_tag: (word >> 32) as u16, ref_tag: word as u32 }
    }
}
