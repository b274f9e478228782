//! One pass for everything that protects a payload in transit: the copy, its CRC32C, and the T10 guard of every sector.
//!
//! A write with protection information arrives as sectors followed by their tuples, under one digest, and a read is
//! sent the same way. The functions here touch each byte once. The digest covers the bytes on the wire, tuples
//! included; the guards are those of the data as stored:
//!
//! | | `src` | `dst` | the digest is of |
//! |---|---|---|---|
//! | [`crc32c_t10`] | either layout | none | `src` |
//! | [`copy_crc32c_t10`] | either layout | the same | both |
//! | [`insert_crc32c_t10`] | sectors | sectors with tuples | `dst` |
//! | [`strip_crc32c_t10`] | sectors with tuples | sectors | `src` |
//!
//! [`t10::insert`](insert) and [`t10::strip`](strip) are the last two without the digest.
//!
//! CRC32C is linear: the digest of sectors with tuples is that of the sectors with zeros for tuples, plus that of the
//! tuples with zeros for sectors. So the kernel need not know a tuple before its guard is computed.

use crate::combine::{CombineBy, crc32c_combine_blocks};
use crate::copy::Store;
use crate::t10::guards::{check_destination, check_places};
use crate::t10::kernels::{self, Kernel};
use crate::t10::run::{Copy, Run};
use crate::t10::{Layout, ShapeError, TUPLE_BYTES, Tuple};

/// Sectors that the kernel processes before their tuples are handled.
const GROUP_SECTORS: usize = 64;

/// Continues `crc` (finished form) over `data`, including tuples, and computes the guard of every sector.
///
/// # Errors
/// If `data` is not whole sectors of `layout`, or `guards` does not have one element per sector.
///
/// ```
/// use integrity::{crc32c, crc32c_t10, t10::Layout};
/// let data = [0x5a; 1024];
/// let mut guards = [0; 2];
/// assert_eq!(crc32c_t10(0, &data, Layout::plain(512), &mut guards), Ok(crc32c(&data)));
/// assert_eq!(guards, [integrity::crc16_t10dif(&data[..512]); 2]);
/// ```
pub fn crc32c_t10(crc: u32, data: &[u8], layout: Layout, guards: &mut [u16]) -> Result<u32, ShapeError> {
    kernels::active().crc32c_t10(crc, data, layout, guards)
}

/// Copies `src` to `dst`, including tuples, continues `crc` (finished form) over the bytes copied, and computes the
/// guard of every sector. [`Store::NonTemporal`] takes effect only if every sector of `dst` begins a cache line.
///
/// Do not expose the bytes in `dst` before the digest and the guards have been compared.
///
/// # Errors
/// If `src` is not whole sectors of `layout`, `dst` has another length, or `guards` does not have one element per
/// sector.
///
/// ```
/// use integrity::{Store, copy_crc32c_t10, crc32c, t10::Layout};
/// let src = [0x5a; 1024];
/// let (mut dst, mut guards) = ([0; 1024], [0; 2]);
/// let crc = copy_crc32c_t10(0, &mut dst, &src, Layout::plain(512), &mut guards, Store::Temporal).unwrap();
/// assert_eq!((crc, dst), (crc32c(&src), src));
/// ```
pub fn copy_crc32c_t10(
    crc: u32,
    dst: &mut [u8],
    src: &[u8],
    layout: Layout,
    guards: &mut [u16],
    store: Store,
) -> Result<u32, ShapeError> {
    kernels::active().copy_crc32c_t10(crc, dst, src, layout, guards, store)
}

/// Copies the sectors of `src` to `dst`, each followed by a tuple with the tags from `tuples`. Writes the guard of each
/// into both, and continues `crc` (finished form) over `dst`.
///
/// # Errors
/// If `src` is not whole sectors, `dst` is not as many sectors with tuples, or `tuples` does not have one element per
/// sector.
///
/// ```
/// use integrity::{Store, crc32c, insert_crc32c_t10, t10::Tuple};
/// let mut tuples = [Tuple { guard: 0, app_tag: 7, ref_tag: 0x1000 }];
/// let mut dst = [0; 520];
/// let crc = insert_crc32c_t10(0, &mut dst, &[0xff; 512], 512, &mut tuples, Store::Temporal).unwrap();
/// assert_eq!(crc, crc32c(&dst));
/// assert_eq!(tuples[0].guard, integrity::crc16_t10dif(&[0xff; 512]));
/// assert_eq!(dst[512..], tuples[0].to_bytes());
/// ```
pub fn insert_crc32c_t10(
    crc: u32,
    dst: &mut [u8],
    src: &[u8],
    sector_bytes: usize,
    tuples: &mut [Tuple],
    store: Store,
) -> Result<u32, ShapeError> {
    kernels::active().insert_pass(Some(crc), dst, src, sector_bytes, tuples, store)
}

/// Copies the sectors of `src` to `dst` without the tuples that follow them. Returns the tuples as received in `tuples`
/// and the guards computed from the data in `guards`, and continues `crc` (finished form) over `src`.
///
/// Do not expose the bytes in `dst` before the digest and the guards have been compared.
///
/// # Errors
/// If `src` is not whole sectors with tuples, `dst` is not as many sectors without, or `guards` or `tuples` does not
/// have one element per sector.
///
/// ```
/// use integrity::{Store, crc32c, strip_crc32c_t10, t10::Tuple};
/// let src = [0xff; 520];
/// let (mut dst, mut guards, mut tuples) = ([0; 512], [0], [Tuple::default()]);
/// let crc = strip_crc32c_t10(0, &mut dst, &src, 512, &mut guards, &mut tuples, Store::Temporal).unwrap();
/// assert_eq!((crc, dst), (crc32c(&src), [0xff; 512]));
/// assert_ne!(tuples[0].guard, guards[0]);
/// ```
pub fn strip_crc32c_t10(
    crc: u32,
    dst: &mut [u8],
    src: &[u8],
    sector_bytes: usize,
    guards: &mut [u16],
    tuples: &mut [Tuple],
    store: Store,
) -> Result<u32, ShapeError> {
    kernels::active().strip_pass(Some(crc), dst, src, sector_bytes, guards, tuples, store)
}

/// Like [`insert_crc32c_t10`], without the CRC32C.
///
/// # Errors
/// As [`insert_crc32c_t10`].
pub fn insert(
    dst: &mut [u8],
    src: &[u8],
    sector_bytes: usize,
    tuples: &mut [Tuple],
    store: Store,
) -> Result<(), ShapeError> {
    kernels::active().insert_pass(None, dst, src, sector_bytes, tuples, store).map(drop)
}

/// Like [`strip_crc32c_t10`], without the CRC32C.
///
/// # Errors
/// As [`strip_crc32c_t10`].
pub fn strip(
    dst: &mut [u8],
    src: &[u8],
    sector_bytes: usize,
    guards: &mut [u16],
    tuples: &mut [Tuple],
    store: Store,
) -> Result<(), ShapeError> {
    kernels::active().strip_pass(None, dst, src, sector_bytes, guards, tuples, store).map(drop)
}

/// The same with a given kernel, for tests and benches. All methods panic if the kernel is not
/// [available](Kernel::available), and return the errors of the functions of the same names.
impl Kernel {
    /// Like [`crc32c_t10`].
    #[expect(clippy::missing_errors_doc, reason = "the block says it for all")]
    pub fn crc32c_t10(
        &self,
        crc: u32,
        data: &[u8],
        layout: Layout,
        guards: &mut [u16],
    ) -> Result<u32, ShapeError> {
        check_places(layout, data.len(), guards.len())?;
        let (sector_bytes, stride) = (layout.sector_bytes(), layout.stride_bytes());
        if layout.tuple_bytes() == 0 {
            return Ok(self.run(Some(crc), 0, Run::new(sector_bytes, data, stride, None, guards)));
        }
        Ok(self.pass(Some(crc), layout, data, stride, None, guards.len(), |i, guard| {
            guards[i] = guard;
            tuple_at(data, layout, i)
        }))
    }

    /// Like [`copy_crc32c_t10`].
    #[expect(clippy::missing_errors_doc, reason = "the block says it for all")]
    pub fn copy_crc32c_t10(
        &self,
        crc: u32,
        dst: &mut [u8],
        src: &[u8],
        layout: Layout,
        guards: &mut [u16],
        store: Store,
    ) -> Result<u32, ShapeError> {
        self.copy_pass(Some(crc), dst, src, layout, guards, store)
    }

    /// The copy within one layout, with or without a digest.
    pub(crate) fn copy_pass(
        &self,
        crc: Option<u32>,
        dst: &mut [u8],
        src: &[u8],
        layout: Layout,
        guards: &mut [u16],
        store: Store,
    ) -> Result<u32, ShapeError> {
        let sectors = check_places(layout, src.len(), guards.len())?;
        check_destination(layout, sectors, dst.len())?;
        let (sector_bytes, stride) = (layout.sector_bytes(), layout.stride_bytes());
        let copy = Some(Copy { dst, stride, store });
        if layout.tuple_bytes() == 0 {
            return Ok(self.run(crc, 0, Run::new(sector_bytes, src, stride, copy, guards)));
        }
        Ok(self.pass(crc, layout, src, stride, copy, sectors, |i, guard| {
            guards[i] = guard;
            tuple_at(src, layout, i)
        }))
    }

    /// Like [`insert_crc32c_t10`]; without a `crc`, like [`insert`].
    #[expect(clippy::missing_errors_doc, reason = "the block says it for all")]
    pub fn insert_pass(
        &self,
        crc: Option<u32>,
        dst: &mut [u8],
        src: &[u8],
        sector_bytes: usize,
        tuples: &mut [Tuple],
        store: Store,
    ) -> Result<u32, ShapeError> {
        let layout = Layout::interleaved(sector_bytes);
        let sectors = check_places(Layout::plain(sector_bytes), src.len(), tuples.len())?;
        check_destination(layout, sectors, dst.len())?;
        let copy = Some(Copy { dst, stride: layout.stride_bytes(), store });
        Ok(self.pass(crc, layout, src, sector_bytes, copy, sectors, |i, guard| {
            tuples[i].guard = guard;
            tuples[i].to_bytes()
        }))
    }

    /// Like [`strip_crc32c_t10`]; without a `crc`, like [`strip`].
    #[expect(clippy::missing_errors_doc, reason = "the block says it for all")]
    #[expect(clippy::too_many_arguments, reason = "those of the function, and the kernel")]
    pub fn strip_pass(
        &self,
        crc: Option<u32>,
        dst: &mut [u8],
        src: &[u8],
        sector_bytes: usize,
        guards: &mut [u16],
        tuples: &mut [Tuple],
        store: Store,
    ) -> Result<u32, ShapeError> {
        let layout = Layout::interleaved(sector_bytes);
        let sectors = check_places(layout, src.len(), guards.len())?;
        check_places(layout, src.len(), tuples.len())?;
        check_destination(Layout::plain(sector_bytes), sectors, dst.len())?;
        let copy = Some(Copy { dst, stride: sector_bytes, store });
        Ok(self.pass(crc, layout, src, layout.stride_bytes(), copy, sectors, |i, guard| {
            guards[i] = guard;
            let bytes = tuple_at(src, layout, i);
            tuples[i] = Tuple::from_bytes(bytes);
            bytes
        }))
    }

    /// Processes the sectors of an interleaved layout. `tuple` returns the bytes of each tuple, given the number and
    /// the guard of its sector; they are written behind the sectors of the copy if it has room between them.
    #[expect(clippy::too_many_arguments, reason = "a run, and what becomes of its tuples")]
    fn pass(
        &self,
        mut crc: Option<u32>,
        layout: Layout,
        src: &[u8],
        src_stride: usize,
        mut copy: Option<Copy<'_>>,
        sectors: usize,
        mut tuple: impl FnMut(usize, u16) -> [u8; TUPLE_BYTES],
    ) -> u32 {
        let sector_bytes = layout.sector_bytes();
        let past_tuples = crc.map(|_| past(layout));
        let (mut guards, mut tuples) = ([0; GROUP_SECTORS], [[0; TUPLE_BYTES]; GROUP_SECTORS]);
        for first in (0..sectors).step_by(GROUP_SECTORS) {
            let group = GROUP_SECTORS.min(sectors - first);
            let (guards, tuples) = (&mut guards[..group], &mut tuples[..group]);
            let part = copy.as_mut().map(|c| Copy { dst: &mut c.dst[first * c.stride..], ..*c });
            let run = Run::new(sector_bytes, &src[first * src_stride..], src_stride, part, guards);
            let digest = self.run(crc, TUPLE_BYTES, run);
            crc = crc.map(|_| digest);
            for (i, (bytes, guard)) in tuples.iter_mut().zip(guards).enumerate() {
                *bytes = tuple(first + i, *guard);
            }
            if let Some(copy) = copy.as_mut().filter(|copy| copy.stride > sector_bytes) {
                let sectors = copy.dst[first * copy.stride..].chunks_exact_mut(copy.stride);
                for (sector, bytes) in sectors.zip(&*tuples) {
                    sector[sector_bytes..].copy_from_slice(bytes);
                }
            }
            if let Some(past_tuples) = &past_tuples {
                let mut registers = [0; GROUP_SECTORS];
                self.words(tuples, &mut registers);
                crc = crc.map(|crc| crc ^ crc32c_combine_blocks(0, &registers[..group], past_tuples));
            }
        }
        crc.unwrap_or_default()
    }
}

/// Moves a digest past a sector with its tuple.
fn past(layout: Layout) -> CombineBy {
    const BY_520: CombineBy = CombineBy::new(520);
    const BY_4104: CombineBy = CombineBy::new(4104);
    match layout.stride_bytes() {
        520 => BY_520,
        4104 => BY_4104,
        other => CombineBy::new(other as u64),
    }
}

/// The tuple of sector `i`.
fn tuple_at(data: &[u8], layout: Layout, i: usize) -> [u8; TUPLE_BYTES] {
    let at = i * layout.stride_bytes() + layout.sector_bytes();
    core::array::from_fn(|byte| data[at + byte])
}
