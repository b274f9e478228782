//! MODE SENSE(6) and (10) (SPC-4 6.11, 6.12).

use crate::execution::{Execution, Request};
use crate::logical_unit::LogicalUnit;
use crate::mode_pages::{PAGES, PageControl};
use crate::outcome::Outcome;
use crate::sense::{Asc, SenseData};

/// DEVICE-SPECIFIC PARAMETER: WP and DPOFUA (SBC-3 6.5.1).
//= sbc3 6.5.1 MOD-02 CDB-07
fn device_specific(lu: &LogicalUnit) -> u8 {
    0x10 | if lu.write_protected() { 0x80 } else { 0 }
}

fn block_descriptor(lu: &LogicalUnit, long: bool) -> Vec<u8> {
    let mut descriptor = Vec::with_capacity(16);
    if long {
        descriptor.extend(lu.blocks().to_be_bytes());
        descriptor.extend([0; 4]);
    } else {
        descriptor.extend(u32::try_from(lu.blocks()).unwrap_or(u32::MAX).to_be_bytes());
    }
    descriptor.extend(lu.block_bytes().to_be_bytes());
    descriptor
}

/// The pages that PAGE CODE and SUBPAGE CODE select.
fn pages(request: &Request<'_>) -> Result<Vec<u8>, SenseData> {
    let control = match request.cdb.u8(2) >> 6 {
        0 => PageControl::Current,
        1 => PageControl::Changeable,
        2 => PageControl::Default,
        _ => return Err(SenseData::illegal(Asc::SAVING_PARAMETERS_NOT_SUPPORTED)),
    };
    let (page, subpage) = (request.cdb.u8(2) & 0x3f, request.cdb.u8(3));
    // Page 3Fh is all pages: without subpages, or with all of them.
    let wanted = |code: &&(u8, u8)| match (page, subpage) {
        (0x3f, 0x00) => code.1 == 0,
        (0x3f, 0xff) => true,
        (0x3f, _) => false,
        _ => page == code.0 && (subpage == 0xff || subpage == code.1),
    };
    let mode = request.lu.with_state(|state| state.mode);
    let mut data = Vec::new();
    for &code in PAGES.iter().filter(wanted) {
        data.extend(mode.page(request.lu.config(), code, control).unwrap_or_default());
    }
    match data.is_empty() {
        false => Ok(data),
        true if PAGES.iter().any(|code| code.0 == page) || page == 0x3f => Err(SenseData::cdb_field(3, None)),
        true => Err(SenseData::cdb_field(2, Some(5))),
    }
}

pub(crate) fn mode_sense_6(request: &Request<'_>) -> Execution {
    let pages = match pages(request) {
        Ok(pages) => pages,
        Err(sense) => return Execution::check(sense),
    };
    let descriptor = if request.cdb.bit(1, 3) { Vec::new() } else { block_descriptor(request.lu, false) };
    let length = 3 + descriptor.len() + pages.len();
    let mut data =
        vec![u8::try_from(length).unwrap_or(u8::MAX), 0, device_specific(request.lu), descriptor.len() as u8];
    data.extend(descriptor);
    data.extend(pages);
    Execution::done(Outcome::data_in(data, u64::from(request.cdb.u8(4))))
}

pub(crate) fn mode_sense_10(request: &Request<'_>) -> Execution {
    let pages = match pages(request) {
        Ok(pages) => pages,
        Err(sense) => return Execution::check(sense),
    };
    let long = request.cdb.bit(1, 4);
    let descriptor = if request.cdb.bit(1, 3) { Vec::new() } else { block_descriptor(request.lu, long) };
    let length = 6 + descriptor.len() + pages.len();
    let mut data = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes().to_vec();
    let long_bit = u8::from(long && !descriptor.is_empty());
    data.extend([0, device_specific(request.lu), long_bit, 0, 0, descriptor.len() as u8]);
    data.extend(descriptor);
    data.extend(pages);
    Execution::done(Outcome::data_in(data, u64::from(request.cdb.u16(7))))
}
