//! Blocks of a third-party copy (SPC-4 6.4, SBC-3 4.28) on their way from one unit to another, with what protects them.
//!
//! Where both units are formatted alike, a block takes its tuple along: the guard that its host made is checked as it
//! leaves the one, checked again before it enters the other, and kept there, so that at no moment the data are without it.
//! Its application tag stays as it is; its reference tag goes the way of the block in types 1 and 2, where it counts with
//! the address. A tuple that turns the checks off is kept too, with the digest beside it. A block that was never written has
//! none to go with it: its copy gets one. Where the types differ tuples are made anew, but only of data that still have the
//! guards with which they left.

use blockstore::{Record, RecordRun};
use scsi::{MediumError, PiField, ProtectionType};

use super::Protected;
use crate::blocks::{Failure, Source};
use crate::unit::{Access, Unit};

/// Blocks on their way.
pub(crate) struct Cargo {
    /// Their data.
    data: Vec<u8>,
    origin: Option<Origin>,
}

/// Where they come from, if they were protected there.
struct Origin {
    kind: ProtectionType,
    lba: u64,
    records: RecordRun,
    /// Of the data, when they were checked.
    guards: Vec<u16>,
}

/// Reads blocks, with their checks where they have any.
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

/// Writes blocks, with their tuples where the unit has any.
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
    /// Writes blocks that bring their tuples along.
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

    /// Writes blocks whose tuples are made here, once their guards are known to be those with which they left their origin.
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
