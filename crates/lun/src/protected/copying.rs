//! Blocks of a third-party copy (SPC-4 6.4, SBC-3 4.28) between two units, with their protection information.
//!
//! If both units have the same type of protection, a block is copied with its tuple: the guard of its host is checked when the block
//! leaves the source, checked again before it enters the destination, and stored there. So the data is never without its guard. The
//! application tag does not change. The reference tag changes with the address in types 1 and 2. A tuple that disables the checks is
//! copied too, with the digest next to it. A block that was never written has no tuple: its copy gets one. If the types differ, new
//! tuples are computed, but only for data whose guards have not changed since the source.

use blockstore::{Record, RecordRun};
use scsi::{MediumError, PiField, ProtectionType};

use super::Protected;
use crate::blocks::{Failure, Source};
use crate::unit::{Access, Unit};

/// Blocks between two units.
pub(crate) struct Cargo {
    /// Their data.
    data: Vec<u8>,
    origin: Option<Origin>,
}

/// The source, if the blocks were protected there.
struct Origin {
    kind: ProtectionType,
    lba: u64,
    records: RecordRun,
    /// Guards of the data at the time of the check.
    guards: Vec<u16>,
}

/// Reads blocks, and checks them if they are protected.
//= spc4 6.4.6.2 CPY-01
pub(crate) fn load(unit: &Unit, lba: u64, blocks: u64) -> Result<Cargo, MediumError> {
    let _held = unit.hold(lba, blocks, Access::Look);
    let Some(medium) = Protected::internal(unit, lba) else {
        let block = u64::from(unit.scsi.block_bytes());
        let mut data = vec![0; (blocks * block) as usize];
        let read = unit.store.read(lba * block, &mut data);
        read.map_err(|error| unit.medium_error(&error))?;
        return Ok(Cargo { data, origin: None });
    };
    let (data, records, guards) =
        medium.checked(Source::Cache, lba, blocks).map_err(|failure| failure.report(unit))?;
    Ok(Cargo { data, origin: Some(Origin { kind: medium.kind(), lba, records, guards }) })
}

/// Writes blocks, with tuples if the unit has them.
//= spc4 6.4.6.2 CPY-01
pub(crate) fn unload(unit: &Unit, lba: u64, cargo: &Cargo, durable: bool) -> Result<(), MediumError> {
    let block = u64::from(unit.scsi.block_bytes());
    let _held = unit.hold(lba, cargo.data.len() as u64 / block, Access::Change);
    let Some(medium) = Protected::internal(unit, lba) else {
        let written = unit.store.write(lba * block, &[&cargo.data], unit.durability(durable));
        return written.map_err(|error| unit.medium_error(&error));
    };
    let written = match &cargo.origin {
        Some(origin) if origin.kind == medium.kind() => {
            medium.write_carried(lba, &cargo.data, origin, durable)
        }
        origin => medium.write_anew(lba, &cargo.data, origin.as_ref(), durable),
    };
    written.map_err(|failure| failure.report(unit))
}

impl Protected<'_> {
    /// Writes blocks with the tuples of their source.
    fn write_carried(&self, lba: u64, data: &[u8], origin: &Origin, durable: bool) -> Result<(), Failure> {
        let (by, guards) = (lba.wrapping_sub(origin.lba), self.guards(data));
        let moved = origin.records.iter().map(|record| match record {
            Record::Guarded(tuple) => Record::Guarded(origin.kind.moved(tuple, by)),
            others => others,
        });
        self.check_all(lba, moved.clone(), &guards, data, self.block)?;
        let records = (lba..).zip(moved.zip(&guards)).map(|(lba, (record, &guard))| match record {
            Record::Unwritten => Record::Guarded(self.protection.made(lba, guard)),
            others => others,
        });
        self.put_pieces(lba, &[data], &records.collect(), durable)
    }

    /// Writes blocks with new tuples, after a check that their guards are still those of the source.
    fn write_anew(
        &self,
        lba: u64,
        data: &[u8],
        origin: Option<&Origin>,
        durable: bool,
    ) -> Result<(), Failure> {
        let guards = self.guards(data);
        if let Some(origin) = origin
            && let Some(at) = guards.iter().zip(&origin.guards).position(|(here, there)| here != there)
        {
            return Err(Failure::Check(PiField::Guard, lba + at as u64));
        }
        self.put_pieces(lba, &[data], &self.made(lba, &guards), durable)
    }
}

#[cfg(test)]
mod tests;
