//! READ CAPACITY(10) and READ CAPACITY(16) (SBC-3 5.15, 5.16).

use crate::execution::{Execution, Request};
use crate::logical_unit::LogicalUnit;
use crate::outcome::Outcome;
use crate::sense::{Asc, SenseData, SenseKey};

fn last_lba(lu: &LogicalUnit) -> Result<u64, SenseData> {
    lu.blocks().checked_sub(1).ok_or(SenseData::new(SenseKey::NotReady, Asc::MEDIUM_NOT_PRESENT))
}

pub(crate) fn read_capacity_10(request: &Request<'_>) -> Execution {
    let cdb = request.cdb;
    // PMI and its LBA are obsolete: a host that sets them expects information that this server does not
    // report.
    if !cdb.bit(8, 0) && cdb.u32(2) != 0 {
        return Execution::check(SenseData::cdb_field(2, None));
    }
    let last = match last_lba(request.lu) {
        Ok(last) => u32::try_from(last).unwrap_or(u32::MAX),
        Err(sense) => return Execution::check(sense),
    };
    let mut data = last.to_be_bytes().to_vec();
    data.extend(request.lu.block_bytes().to_be_bytes());
    Execution::done(Outcome::data_in(data, 8))
}

pub(crate) fn read_capacity_16(request: &Request<'_>) -> Execution {
    let lu = request.lu;
    let cdb = request.cdb;
    if !cdb.bit(14, 0) && cdb.u64(2) != 0 {
        return Execution::check(SenseData::cdb_field(2, None));
    }
    let last = match last_lba(lu) {
        Ok(last) => last,
        Err(sense) => return Execution::check(sense),
    };
    let mut data = vec![0; 32];
    data[0..8].copy_from_slice(&last.to_be_bytes());
    data[8..12].copy_from_slice(&lu.block_bytes().to_be_bytes());
    let ratio = (lu.config().medium.physical_block_bytes / lu.block_bytes()).max(1);
    data[12] = lu.protection().capacity_bits();
    data[13] = (ratio.ilog2() as u8).min(0x0f);
    if lu.thin() {
        data[14] = 0x80 | 0x40; // LBPME, LBPRZ
    }
    Execution::done(Outcome::data_in(data, u64::from(cdb.u32(10))))
}
