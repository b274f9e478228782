//! Blocks of a third-party copy (SPC-4 6.4, SBC-3 4.28) on their way from one unit to another, with what protects them.
//!
//! Where both units are formatted alike, a block takes its tuple along: the guard that its host made is checked as it
//! leaves the one, checked again before it enters the other, and kept there, so that at no moment the data are without it.
//! Its application tag stays as it is; its reference tag goes the way of the block in types 1 and 2, where it counts with
//! the address. A tuple that turns the checks off is kept too, with the digest beside it. A block that was never written has
//! none to go with it: its copy gets one. Where the units differ, all tuples are made anew.

use blockstore::{Record, RecordRun};
use scsi::{MediumError, Protection, ProtectionType};

use super::{Failure, Medium};
use crate::device::Device;
use crate::medium;

/// Blocks on their way.
pub(crate) struct Cargo {
    /// Their data.
    pub data: Vec<u8>,
    origin: Option<Origin>,
}

/// Where they come from, if they were protected there.
struct Origin {
    kind: ProtectionType,
    lba: u64,
    records: RecordRun,
}

/// Reads blocks, with their checks where they have any.
//= spc4 6.4.6.2 CPY-01
pub(crate) fn read(device: &Device, lba: u64, blocks: u64) -> Result<Cargo, MediumError> {
    let Some(medium) = Medium::internal(device, lba) else {
        let block = u64::from(device.unit.block_bytes());
        let mut data = vec![0; (blocks * block) as usize];
        let read = device.store.read(lba * block, &mut data);
        read.map_err(|error| medium::medium_error(device, &error))?;
        return Ok(Cargo { data, origin: None });
    };
    let (data, records) = medium.read(lba, blocks).map_err(|failure| medium.error(&failure))?;
    Ok(Cargo { data, origin: Some(Origin { kind: medium.kind(), lba, records }) })
}

/// Writes blocks with their tuples, where the unit has any; false: nothing was done, because it has none.
//= spc4 6.4.6.2 CPY-01
pub(crate) fn write(device: &Device, lba: u64, cargo: &Cargo, durable: bool) -> Result<bool, MediumError> {
    let Some(medium) = Medium::internal(device, lba) else { return Ok(false) };
    let written = match &cargo.origin {
        Some(origin) if origin.kind == medium.kind() => {
            medium.write_carried(lba, &cargo.data, origin, durable)
        }
        _ => medium.write_made(lba, &cargo.data, durable),
    };
    written.map(|()| true).map_err(|failure| medium.error(&failure))
}

impl<'a> Medium<'a> {
    /// A unit that has tuples, for an operation that is no command's own and begins at `lba`.
    fn internal(device: &'a Device, lba: u64) -> Option<Self> {
        let protection = Protection::internal(device.unit.protection(), lba)?;
        let (records, block) = (device.store.records()?, device.unit.block_bytes() as usize);
        Some(Self { device, records, protection, block })
    }

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
        self.put(lba, &[data], &records.collect(), durable)
    }
}
