//! MODE SELECT(6) and (10) (SPC-4 6.9, 6.10). All pages are checked before the first is applied.
//!
//! A host that turns the write cache off sends no more flushes. So cached data goes to stable storage before GOOD; if that fails,
//! the command fails and WCE is 0 all the same.

use crate::execution::{Execution, MediumPlan, Request};
use crate::medium::MediumOp;
use crate::mode_pages::{PageControl, page_bytes, reserved_value};
use crate::sense::{Asc, SenseData};
use crate::unit_attention::UaScope;

pub(crate) fn mode_select_6(request: &Request<'_>) -> Execution {
    begin(request, u64::from(request.cdb.u8(4)))
}

pub(crate) fn mode_select_10(request: &Request<'_>) -> Execution {
    begin(request, u64::from(request.cdb.u16(7)))
}

fn begin(request: &Request<'_>, length: u64) -> Execution {
    // SP: saving is not supported. PF 0 means pages in a format that only old vendors' manuals define.
    if request.cdb.bit(1, 0) {
        return Execution::check(SenseData::cdb_field(1, Some(0)));
    }
    if !request.cdb.bit(1, 4) && length > 0 {
        return Execution::check(SenseData::cdb_field(1, Some(4)));
    }
    Execution::parameters(request, length, select)
}

fn select(request: &Request<'_>, list: &[u8]) -> Execution {
    if list.is_empty() {
        return Execution::good();
    }
    let config = request.lu.config();
    let selected = request.lu.with_state(|state| {
        let mut mode = state.mode;
        for (code, at, page) in parse(request, list)? {
            let current = mode.page(config, code, PageControl::Current).unwrap_or_default();
            let mask = mode.page(config, code, PageControl::Changeable).unwrap_or_default();
            let header = if code.1 == 0 { 2 } else { 4 };
            //= spc4 6.9 MOD-05
            for i in header..page.len() {
                let wrong = (page[i] ^ current[i]) & !mask[i];
                if wrong != 0 {
                    let bit = 7 - wrong.leading_zeros() as u8;
                    return Err(SenseData::parameter_field((at + i) as u16, Some(bit)));
                }
            }
            if let Some((byte, bit)) = reserved_value(code, page) {
                return Err(SenseData::parameter_field((at + byte) as u16, Some(bit)));
            }
            mode.apply(code, page);
        }
        let uncached = state.mode.write_cache() && !mode.write_cache();
        if mode != state.mode {
            state.mode = mode;
            state.establish(UaScope::AllExcept(request.nexus.id), Asc::MODE_PARAMETERS_CHANGED);
        }
        Ok(uncached)
    });
    match selected {
        //= sbc3 6.4.5 MOD-03
        Ok(true) => Execution::medium(
            MediumOp::Settle,
            MediumPlan { transfer_bytes: list.len() as u64, ..MediumPlan::report() },
        ),
        Ok(false) => Execution::good(),
        Err(sense) => Execution::check(sense),
    }
}

type ListedPage<'a> = ((u8, u8), usize, &'a [u8]);

/// Splits the parameter list into (code, offset, page). A list that ends within a header, a block descriptor or a page gets
/// 5/1A/00.
fn parse<'a>(request: &Request<'_>, list: &'a [u8]) -> Result<Vec<ListedPage<'a>>, SenseData> {
    let truncated = SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR);
    let ten = request.cdb.u8(0) == 0x55;
    let header = if ten { 8 } else { 4 };
    if list.len() < header {
        return Err(truncated);
    }
    let long = ten && list[4] & 1 == 1;
    let descriptor_bytes =
        if ten { usize::from(list[6]) << 8 | usize::from(list[7]) } else { usize::from(list[3]) };
    let one = if long { 16 } else { 8 };
    if descriptor_bytes != 0 && descriptor_bytes != one {
        return Err(SenseData::parameter_field(if ten { 6 } else { 3 }, None));
    }
    let mut at = header + descriptor_bytes;
    if list.len() < at {
        return Err(truncated);
    }
    if descriptor_bytes != 0 {
        check_block_descriptor(request, &list[header..at], long)
            .map_err(|byte| SenseData::parameter_field((header + byte) as u16, None))?;
    }
    let mut pages = Vec::new();
    while at < list.len() {
        let rest = &list[at..];
        let subpage_format = rest[0] & 0x40 != 0;
        let page_header = if subpage_format { 4 } else { 2 };
        if rest.len() < page_header {
            return Err(truncated);
        }
        let code = (rest[0] & 0x3f, if subpage_format { rest[1] } else { 0 });
        let length = if subpage_format {
            usize::from(rest[2]) << 8 | usize::from(rest[3])
        } else {
            usize::from(rest[1])
        };
        let expected = page_bytes(code).ok_or(SenseData::parameter_field(at as u16, Some(5)))?;
        if page_header + length != expected {
            return Err(SenseData::parameter_field((at + page_header - 1) as u16, None));
        }
        if rest.len() < expected {
            return Err(truncated);
        }
        pages.push((code, at, &rest[..expected]));
        at += expected;
    }
    Ok(pages)
}

/// A block descriptor may only repeat the current values; only FORMAT UNIT changes capacity or block size.
fn check_block_descriptor(request: &Request<'_>, descriptor: &[u8], long: bool) -> Result<(), usize> {
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
    let blocks = request.lu.blocks();
    let (count, length, length_at, all) = if long {
        (number(&descriptor[..8]), number(&descriptor[12..]), 12, u64::MAX)
    } else {
        (number(&descriptor[..4]), number(&descriptor[5..]), 5, u64::from(u32::MAX))
    };
    if count != 0 && count != all && count != blocks {
        return Err(0);
    }
    if length != 0 && length != u64::from(request.lu.block_bytes()) {
        return Err(length_at);
    }
    Ok(())
}
