//! A run of sectors as the kernels see it, and the way in which kernels without a pass of their own process one.

use crate::copy::{Store, copy_crc32c};
use crate::crc32c::crc32c_append;

/// Sectors in memory: sector i begins `i * src_stride` bytes into `src`.
///
/// Invariants, checked by [`new`](Self::new): `sector_bytes` is not 0, no stride is shorter than it, and `src` and the
/// destination hold at least `guards.len()` whole strides, the last of which may end with its sector.
pub(crate) struct Run<'a> {
    pub(super) src: &'a [u8],
    pub(super) src_stride: usize,
    pub(super) copy: Option<Copy<'a>>,
    pub(super) sector_bytes: usize,
    /// One element for the guard of each sector.
    pub(super) guards: &'a mut [u16],
}

/// Destination of the copy: sector i goes to `i * stride` bytes into `dst`. The bytes between sectors are left alone.
pub(crate) struct Copy<'a> {
    pub(crate) dst: &'a mut [u8],
    pub(crate) stride: usize,
    /// Only some kernels offer the choice.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) store: Store,
}

impl<'a> Run<'a> {
    /// Inlined, so that a run is built in place. Passed through memory, it was copied by loads wider than the stores
    /// that had just written it, which stalled until those stores had completed.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[inline(always)]
    pub(crate) fn new(
        sector_bytes: usize,
        src: &'a [u8],
        src_stride: usize,
        copy: Option<Copy<'a>>,
        guards: &'a mut [u16],
    ) -> Self {
        assert_ne!(sector_bytes, 0, "a sector without bytes");
        let holds = |len: usize, stride| {
            let before_last = guards.len().saturating_sub(1).checked_mul(stride);
            let needed = before_last.and_then(|bytes| bytes.checked_add(sector_bytes));
            stride >= sector_bytes && (guards.is_empty() || needed.is_some_and(|needed| needed <= len))
        };
        assert!(holds(src.len(), src_stride), "sectors beyond the source");
        assert!(copy.as_ref().is_none_or(|c| holds(c.dst.len(), c.stride)), "sectors beyond the destination");
        Self { src, src_stride, copy, sector_bytes, guards }
    }

    /// Processes the sectors with a kernel for one run of bytes, piece by piece in the first-level cache; the digest
    /// and the guards are those of the bytes stored.
    ///
    /// # Safety
    /// - The machine has the instructions of `append`.
    pub(super) unsafe fn piecewise(
        &mut self,
        append: unsafe fn(u16, &[u8]) -> u16,
        mut crc: Option<u32>,
        tuple_bytes: usize,
    ) -> u32 {
        const PIECE_BYTES: usize = 4096;
        for (i, guard) in self.guards.iter_mut().enumerate() {
            *guard = 0;
            let from = &self.src[i * self.src_stride..][..self.sector_bytes];
            match &mut self.copy {
                None => {
                    for piece in from.chunks(PIECE_BYTES) {
                        crc = crc.map(|crc| crc32c_append(crc, piece));
                        // SAFETY: the caller vouches for the instructions.
                        *guard = unsafe { append(*guard, piece) };
                    }
                }
                Some(copy) => {
                    let to = &mut copy.dst[i * copy.stride..][..self.sector_bytes];
                    for (to, from) in to.chunks_mut(PIECE_BYTES).zip(from.chunks(PIECE_BYTES)) {
                        match &mut crc {
                            Some(crc) => {
                                let copied = copy_crc32c(*crc, to, from, Store::Temporal);
                                *crc = copied.expect("pieces of equal lengths");
                            }
                            None => to.copy_from_slice(from),
                        }
                        // SAFETY: the caller vouches for the instructions.
                        *guard = unsafe { append(*guard, to) };
                    }
                }
            }
            if tuple_bytes > 0 {
                crc = crc.map(|crc| crc32c_append(crc, &[0; 8][..tuple_bytes]));
            }
        }
        crc.unwrap_or_default()
    }
}
