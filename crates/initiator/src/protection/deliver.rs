//! What is read: blocks are checked in the pass that copies them to the caller, and lose their tuples by that.

use std::io::IoSliceMut;
use std::ops::Deref;

use integrity::Store;
use integrity::ip_checksum;
use integrity::t10::{self, Guard, TUPLE_BYTES, Tuple};

use super::scatter::{Gather, Scatter, total};
use super::send::GROUP_SECTORS;
use super::{PiFailure, PiPlace, Protection};

/// What is known of blocks that were read and failed no check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Blocks that were read.
    pub blocks: u64,
    /// Those of them with a tuple that turns the checks off: they were never written, or their writer wanted it so.
    pub unchecked: u64,
}

impl Protection {
    /// Copies the blocks from `lba` on out of `pieces`, in which each has its tuple behind it, to `to`, and checks them.
    /// Of blocks that fail a check, and of some before them, `to` holds zeros.
    ///
    /// # Errors
    /// The first block that fails a check.
    ///
    /// # Panics
    /// When `pieces` hold not exactly as many blocks as `to`.
    pub fn take_data<S: Deref<Target = [u8]>>(
        &self,
        lba: u64,
        pieces: &[S],
        to: &mut [u8],
    ) -> Result<Checked, PiFailure> {
        self.deliver(lba, pieces, &mut [IoSliceMut::new(to)], None)
    }

    /// As [`Protection::take_data`], into several places, and the tuples too when they are wanted.
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
                // Of what the CRC is computed over next: it says whether these were the right bytes.
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
            for (i, (&tuple, &guard)) in group[..n].iter().zip(&guards).enumerate() {
                let lba = lba.wrapping_add(checked.blocks + i as u64);
                match self.check(lba, tuple, guard, PiPlace::OnTheWayToHere) {
                    Ok(true) => {}
                    Ok(false) => checked.unchecked += 1,
                    Err(failure) => {
                        place.fill(0);
                        return Err(failure);
                    }
                }
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
            checked.blocks += n as u64;
        }
        Ok(checked)
    }
}
