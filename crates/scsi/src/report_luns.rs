//! REPORT LUNS (SPC-4 6.33). The list of units belongs to the target, so the caller supplies it.

use crate::cdb::Cdb;
use crate::execution::{Execution, Request};
use crate::outcome::Outcome;
use crate::sense::{Asc, SenseData};

/// The eight bytes of a LUN: peripheral addressing below 256, flat space addressing above (SAM-5 4.7).
fn lun_bytes(lun: u16) -> [u8; 8] {
    let [hi, lo] = lun.to_be_bytes();
    if hi == 0 { [0, lo, 0, 0, 0, 0, 0, 0] } else { [0x40 | hi & 0x3f, lo, 0, 0, 0, 0, 0, 0] }
}

/// The LUN list. SELECT REPORT 0 and 2 list all units; 1 lists the well-known ones, and there are
/// none.
pub(crate) fn list(luns: &[u16], cdb: &Cdb) -> Outcome {
    let select = cdb.u8(2);
    if select > 2 {
        return Outcome::check(SenseData::cdb_field(2, None));
    }
    let allocation_length = cdb.u32(6);
    if allocation_length < 16 {
        return Outcome::check(SenseData::cdb_field(6, None));
    }
    let listed = if select == 1 { &[] } else { luns };
    let mut data = u32::try_from(listed.len() * 8).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    data.extend([0; 4]);
    for &lun in listed {
        data.extend(lun_bytes(lun));
    }
    Outcome::data_in(data, u64::from(allocation_length))
}

/// REPORT LUNS that reached a unit: a unit only knows about itself.
pub(crate) fn own_lun(request: &Request<'_>) -> Execution {
    //= spc4 6.33 UA-02
    request.lu.clear_unit_attention(request.nexus.id, Asc::REPORTED_LUNS_DATA_CHANGED);
    Execution::done(list(&[request.lu.config().lun], request.cdb))
}
