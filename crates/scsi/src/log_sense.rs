//! LOG SENSE (SPC-4 6.8): only the pages that need no counters: the list of pages, and the page that reports no
//! exception.

use crate::execution::{Execution, Request};
use crate::outcome::Outcome;
use crate::sense::SenseData;

const SUPPORTED_PAGES: u8 = 0x00;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x2f;
/// Page and subpage codes.
const PAGES: [(u8, u8); 3] =
    [(SUPPORTED_PAGES, 0x00), (SUPPORTED_PAGES, 0xff), (INFORMATIONAL_EXCEPTIONS, 0x00)];

pub(crate) fn log_sense(request: &Request<'_>) -> Execution {
    let cdb = request.cdb;
    // SP: nothing is saved. PC: only cumulative values, and all of them are constant.
    if cdb.bit(1, 0) {
        return Execution::check(SenseData::cdb_field(1, Some(0)));
    }
    let (page, subpage) = (cdb.u8(2) & 0x3f, cdb.u8(3));
    let parameters = match (page, subpage) {
        (SUPPORTED_PAGES, 0x00) => vec![SUPPORTED_PAGES, INFORMATIONAL_EXCEPTIONS],
        (SUPPORTED_PAGES, 0xff) => PAGES.iter().flat_map(|&(page, subpage)| [page, subpage]).collect(),
        // Parameter 0000h, format 11b: no exception, no temperature.
        (INFORMATIONAL_EXCEPTIONS, 0x00) => vec![0, 0, 0x03, 4, 0, 0, 0, 0],
        _ => return Execution::check(SenseData::cdb_field(2, Some(5))),
    };
    // PARAMETER POINTER: the only parameter has code 0.
    if cdb.u16(5) != 0 {
        return Execution::check(SenseData::cdb_field(5, None));
    }
    let spf = if subpage == 0 { 0 } else { 0x40 };
    let mut data = vec![page | spf, subpage, 0, parameters.len() as u8];
    data.extend(parameters);
    Execution::done(Outcome::data_in(data, u64::from(cdb.u16(7))))
}
