//! Reading: blocks are checked, and their tuples stripped, in the pass that copies them to the caller. Or they are checked
//! in place, piece by piece as they arrive, while they are in the cache.

use std::io::IoSliceMut;
use std::ops::Deref;

use integrity::Store;
use integrity::ip_checksum;
use integrity::t10::{self, Guard, Layout, TUPLE_BYTES, Tuple};

use super::scatter::{Gather, Scatter, total};
use super::send::GROUP_SECTORS;
use super::{PiFailure, PiPlace, Protection};

/// What is known about blocks that were read and failed no check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Blocks that were read.
    pub blocks: u64,
    /// Blocks with a tuple that turns the checks off: they were never written, or their writer chose so.
    pub unchecked: u64,
}

impl Protection {
    /// Copies the blocks from `lba` on out of `pieces`, in which each block is followed by its tuple, to `to`, and checks
    /// them. For blocks that fail a check, and for some before them, `to` holds zeros.
    ///
    /// # Errors
    /// The first block that fails a check.
    ///
    /// # Panics
    /// If `pieces` do not hold exactly as many blocks as `to`.
    pub fn take_data<S: Deref<Target = [u8]>>(
        &self,
        lba: u64,
        pieces: &[S],
        to: &mut [u8],
    ) -> Result<Checked, PiFailure> {
        self.deliver(lba, pieces, &mut [IoSliceMut::new(to)], None)
    }

    /// Like [`Protection::take_data`], into several places, and with the tuples if they are wanted.
    pub(super) fn deliver<S: Deref<Target = [u8]>>(
        &self,
        lba: u64,
        pieces: &[S],
        data: &mut [IoSliceMut<'_>],
        tuples: Option<(&mut [IoSliceMut<'_>], Guard)>,
    ) -> Result<Checked, PiFailure> {
        let count = total(data) / self.block;
        assert_eq!(total(pieces), self.wire_bytes(count), "as many blocks on either side");
        let (mut from, mut to) = (Gather::new(pieces), Scatter::new(data));
        let (mut split, mut sector) = (Vec::new(), Vec::new());
        let mut host = tuples.map(|(places, guard)| (Scatter::new(places), guard));
        let mut checked = Checked::default();
        while checked.blocks < count as u64 {
            let together = (to.front().len() / self.block).clamp(1, GROUP_SECTORS);
            let run = from.take(self.block + TUPLE_BYTES, together, &mut split);
            let n = run.len() / (self.block + TUPLE_BYTES);
            let mut sums = [0; GROUP_SECTORS];
            if let Some((_, Guard::IpChecksum)) = host {
                // Computed over the bytes over which the CRC is computed next: the CRC tells whether they were the right
                // ones.
                for (sum, sector) in sums.iter_mut().zip(run.chunks_exact(self.block + TUPLE_BYTES)) {
                    *sum = ip_checksum(&sector[..self.block]);
                }
            }
            let direct = to.front().len() >= n * self.block;
            let place = if direct {
                &mut to.front()[..n * self.block]
            } else {
                sector.resize(n * self.block, 0);
                &mut sector[..]
            };
            let (mut guards, mut group) = ([0; GROUP_SECTORS], [Tuple::default(); GROUP_SECTORS]);
            let stripped =
                t10::strip(place, run, self.block, &mut guards[..n], &mut group[..n], Store::Temporal);
            stripped.expect("the place is that of the blocks");
            let arrived = group[..n].iter().copied().zip(guards);
            if let Err(failure) = self.check_arrived(lba, arrived, &mut checked) {
                place.fill(0);
                return Err(failure);
            }
            if direct {
                to.advance(n * self.block);
            } else {
                to.put(&sector);
            }
            if let Some((places, guard)) = &mut host {
                for (tuple, sum) in group[..n].iter().zip(sums) {
                    let tuple =
                        if *guard == Guard::IpChecksum { Tuple { guard: sum, ..*tuple } } else { *tuple };
                    places.put(&tuple.to_bytes());
                }
            }
        }
        Ok(checked)
    }

    /// Checks the next blocks of a read that began at `lba`, using each block's tuple and the guard computed over its data.
    fn check_arrived(
        &self,
        lba: u64,
        blocks: impl Iterator<Item = (Tuple, u16)>,
        checked: &mut Checked,
    ) -> Result<(), PiFailure> {
        for (tuple, guard) in blocks {
            let lba = lba.wrapping_add(checked.blocks);
            checked.unchecked += u64::from(!self.check(lba, tuple, guard, PiPlace::OnTheWayToHere)?);
            checked.blocks += 1;
        }
        Ok(())
    }

    /// Expects the blocks from `lba` on, in pieces that are checked in place.
    ///
    /// ```no_run
    /// # fn checked(protection: &initiator::Protection, pieces: &[bytes::Bytes]) -> Result<u64, initiator::PiFailure> {
    /// let mut arrival = protection.arrival(40);
    /// for piece in pieces {
    ///     arrival.take(piece)?;
    /// }
    /// // Only now are they to be used.
    /// Ok(arrival.checked().blocks)
    /// # }
    /// ```
    pub fn arrival(&self, lba: u64) -> Arrival {
        Arrival { protection: self.clone(), lba, cut: Vec::new(), checked: Checked::default() }
    }
}

/// Blocks of a read that arrive each followed by its tuple, split at any byte: see [`Protection::arrival`].
#[derive(Debug)]
pub struct Arrival {
    protection: Protection,
    lba: u64,
    /// The start of a block whose end has not arrived.
    cut: Vec<u8>,
    checked: Checked,
}

impl Arrival {
    /// Expects other blocks, from `lba` on.
    pub fn restart(&mut self, lba: u64) {
        self.lba = lba;
        self.cut.clear();
        self.checked = Checked::default();
    }

    /// Checks the blocks that the next `piece` completes.
    ///
    /// # Errors
    /// The first block that fails a check: nothing of the read may be used.
    pub fn take(&mut self, piece: &[u8]) -> Result<(), PiFailure> {
        let (wire, mut rest) = (self.protection.wire_bytes(1), piece);
        if !self.cut.is_empty() {
            let (end, later) = rest.split_at(rest.len().min(wire - self.cut.len()));
            self.cut.extend_from_slice(end);
            rest = later;
            if self.cut.len() < wire {
                return Ok(());
            }
            let whole = std::mem::take(&mut self.cut);
            self.look(&whole)?;
            self.cut = whole;
            self.cut.clear();
        }
        let (whole, cut) = rest.split_at(rest.len() - rest.len() % wire);
        self.look(whole)?;
        self.cut.extend_from_slice(cut);
        Ok(())
    }

    /// The blocks that were complete so far.
    pub fn checked(&self) -> Checked {
        self.checked
    }

    fn look(&mut self, blocks: &[u8]) -> Result<(), PiFailure> {
        let layout = Layout::interleaved(self.protection.block);
        for run in blocks.chunks(GROUP_SECTORS * layout.stride_bytes()) {
            let mut guards = [0; GROUP_SECTORS];
            let guards = &mut guards[..run.len() / layout.stride_bytes()];
            t10::guards(Guard::Crc16, run, layout, guards).expect("a place for each block");
            let tuples = run.chunks_exact(layout.stride_bytes()).map(tuple_behind);
            let arrived = tuples.zip(guards.iter().copied());
            self.protection.check_arrived(self.lba, arrived, &mut self.checked)?;
        }
        Ok(())
    }
}

/// The tuple at the end of a block in its wire format.
fn tuple_behind(block: &[u8]) -> Tuple {
    block.last_chunk().map_or_else(Tuple::default, |bytes| Tuple::from_bytes(*bytes))
}
