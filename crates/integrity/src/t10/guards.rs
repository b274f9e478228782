//! The guards of many sectors: computing them, alone or with a copy, writing them into tuples, and comparing them with
//! tuples.

use core::fmt;

use super::kernels::{self, Kernel};
use super::layout::{Layout, ShapeError};
use super::run::Run;
use crate::copy::Store;
use crate::sum::ip_checksum;

/// The kind of value in the guard field of a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The CRC of SBC-3 section 4.22.4: the only one on the wire and on the medium.
    Crc16,
    /// The IP checksum ([`ip_checksum`]): between a host's software and an adapter that replaces it by the CRC (Data
    /// Integrity Extensions). It does not detect swapped words, nor words of zeros that replace words of ones.
    IpChecksum,
}

/// A sector whose stored guard does not match its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardMismatch {
    /// Which sector of the run, from 0.
    pub sector: usize,
    /// The guard in its tuple.
    pub stored: u16,
    /// The guard of its data.
    pub computed: u16,
}

impl fmt::Display for GuardMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sector, stored, computed } = self;
        write!(
            f,
            "guard of sector {sector} is {stored:04x}, its data have {computed:04x}: do not use the data"
        )
    }
}

impl core::error::Error for GuardMismatch {}

/// Sectors that are processed before their guards are examined.
const GROUP_SECTORS: usize = 64;

/// Computes the guard of every sector of `data`.
///
/// # Errors
/// If `data` is not whole sectors of `layout`, or `guards` does not have one element per sector.
///
/// ```
/// use integrity::t10::{Guard, Layout, guards};
/// let mut tags = [0; 2];
/// guards(Guard::Crc16, &[0xff; 1024], Layout::plain(512), &mut tags).unwrap();
/// assert_eq!(tags, [integrity::crc16_t10dif(&[0xff; 512]); 2]);
/// ```
pub fn guards(guard: Guard, data: &[u8], layout: Layout, guards: &mut [u16]) -> Result<(), ShapeError> {
    kernels::active().guards(guard, data, layout, guards)
}

/// Copies `src` to `dst`, including tuples, and computes the guard of every sector.
///
/// # Errors
/// If `src` is not whole sectors of `layout`, `dst` has another length, or `guards` does not have one element per
/// sector.
pub fn copy_guards(
    guard: Guard,
    dst: &mut [u8],
    src: &[u8],
    layout: Layout,
    guards: &mut [u16],
    store: Store,
) -> Result<(), ShapeError> {
    kernels::active().copy_guards(guard, dst, src, layout, guards, store)
}

/// Writes the guard of every sector of `data` into its tuple; the tags stay unchanged.
///
/// # Errors
/// If `data` is not whole sectors of `layout`, or `layout` has no tuples.
///
/// ```
/// use integrity::t10::{Guard, Layout, check, fill};
/// let mut data = vec![7; 4 * 520];
/// fill(Guard::Crc16, &mut data, Layout::interleaved(512)).unwrap();
/// assert_eq!(check(Guard::Crc16, &data, Layout::interleaved(512)), Ok(None));
/// data[530] ^= 1;
/// assert_eq!(check(Guard::Crc16, &data, Layout::interleaved(512)).unwrap().unwrap().sector, 1);
/// ```
pub fn fill(guard: Guard, data: &mut [u8], layout: Layout) -> Result<(), ShapeError> {
    interleaved(layout, data.len())?;
    let mut group = [0; GROUP_SECTORS];
    for sectors in data.chunks_mut(GROUP_SECTORS * layout.stride_bytes()) {
        let group = &mut group[..layout.sectors(sectors.len())?];
        guards(guard, sectors, layout, group)?;
        for (sector, guard) in sectors.chunks_exact_mut(layout.stride_bytes()).zip(group) {
            sector[layout.sector_bytes()..][..2].copy_from_slice(&guard.to_be_bytes());
        }
    }
    Ok(())
}

/// The first sector of `data` whose tuple holds another guard than that of its data, if any. Escape values of the tags,
/// which disable checking, are ignored.
///
/// # Errors
/// If `data` is not whole sectors of `layout`, or `layout` has no tuples.
pub fn check(guard: Guard, data: &[u8], layout: Layout) -> Result<Option<GuardMismatch>, ShapeError> {
    interleaved(layout, data.len())?;
    let mut group = [0; GROUP_SECTORS];
    for (i, sectors) in data.chunks(GROUP_SECTORS * layout.stride_bytes()).enumerate() {
        let group = &mut group[..layout.sectors(sectors.len())?];
        guards(guard, sectors, layout, group)?;
        for (j, (sector, &computed)) in sectors.chunks_exact(layout.stride_bytes()).zip(&*group).enumerate() {
            let field = &sector[layout.sector_bytes()..];
            let stored = u16::from_be_bytes([field[0], field[1]]);
            if stored != computed {
                return Ok(Some(GuardMismatch { sector: i * GROUP_SECTORS + j, stored, computed }));
            }
        }
    }
    Ok(None)
}

/// Checks that `bytes` bytes are whole sectors with tuples.
fn interleaved(layout: Layout, bytes: usize) -> Result<(), ShapeError> {
    if layout.tuple_bytes() == 0 {
        return Err(ShapeError::NoTuples);
    }
    layout.sectors(bytes).map(drop)
}

/// Checks that `bytes` bytes are whole sectors of `layout` and that there is one place for the result of each; returns
/// their number.
pub(crate) fn check_places(layout: Layout, bytes: usize, places: usize) -> Result<usize, ShapeError> {
    match layout.sectors(bytes)? {
        sectors if sectors == places => Ok(sectors),
        sectors => Err(ShapeError::Places { sectors, places }),
    }
}

/// Checks that a destination of `given` bytes is exactly `sectors` sectors of `layout`.
pub(crate) fn check_destination(layout: Layout, sectors: usize, given: usize) -> Result<(), ShapeError> {
    match layout.stride_bytes().saturating_mul(sectors) {
        needed if needed == given => Ok(()),
        needed => Err(ShapeError::Destination { needed, given }),
    }
}

impl Kernel {
    /// Like [`guards`], with this kernel (if `guard` is the CRC).
    ///
    /// # Errors
    /// As [`guards`].
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub fn guards(
        &self,
        guard: Guard,
        data: &[u8],
        layout: Layout,
        guards: &mut [u16],
    ) -> Result<(), ShapeError> {
        check_places(layout, data.len(), guards.len())?;
        match guard {
            Guard::Crc16 => {
                self.run(None, 0, Run::new(layout.sector_bytes(), data, layout.stride_bytes(), None, guards));
            }
            Guard::IpChecksum => {
                for (sector, guard) in data.chunks_exact(layout.stride_bytes()).zip(guards) {
                    *guard = ip_checksum(&sector[..layout.sector_bytes()]);
                }
            }
        }
        Ok(())
    }

    /// Like [`copy_guards`], with this kernel (if `guard` is the CRC).
    ///
    /// # Errors
    /// As [`copy_guards`].
    ///
    /// # Panics
    /// If the kernel is not [available](Self::available).
    pub fn copy_guards(
        &self,
        guard: Guard,
        dst: &mut [u8],
        src: &[u8],
        layout: Layout,
        guards: &mut [u16],
        store: Store,
    ) -> Result<(), ShapeError> {
        match guard {
            Guard::Crc16 => self.copy_pass(None, dst, src, layout, guards, store).map(drop),
            Guard::IpChecksum => {
                let sectors = check_places(layout, src.len(), guards.len())?;
                check_destination(layout, sectors, dst.len())?;
                let sectors = dst.chunks_exact_mut(layout.stride_bytes());
                for ((to, from), guard) in sectors.zip(src.chunks_exact(layout.stride_bytes())).zip(guards) {
                    to.copy_from_slice(from);
                    *guard = ip_checksum(&to[..layout.sector_bytes()]);
                }
                Ok(())
            }
        }
    }
}
