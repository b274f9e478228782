//! UNMAP (SBC-3 5.27). Every descriptor is checked before any request to the medium.

use crate::execution::{Execution, MediumPlan, Request};
use crate::medium::MediumOp;
use crate::read_write::check_range;
use crate::sense::{Asc, SenseData};

const HEADER_BYTES: usize = 8;
const DESCRIPTOR_BYTES: usize = 16;

pub(crate) fn unmap(request: &Request<'_>) -> Execution {
    if request.cdb.bit(1, 0) {
        return Execution::check(SenseData::cdb_field(1, Some(0)));
    }
    Execution::parameters(request, u64::from(request.cdb.u16(7)), unmap_list)
}

//= sbc3 5.27.2 UNM-01 UNM-02
fn unmap_list(request: &Request<'_>, list: &[u8]) -> Execution {
    if list.is_empty() {
        return Execution::good();
    }
    match ranges(request, list) {
        Err(sense) => Execution::check(sense),
        Ok(ranges) if ranges.is_empty() => Execution::good(),
        Ok(ranges) => Execution::medium(
            MediumOp::Unmap { ranges, durable: !request.lu.write_cache() },
            MediumPlan { transfer_bytes: list.len() as u64, ..MediumPlan::report() },
        ),
    }
}

fn ranges(request: &Request<'_>, list: &[u8]) -> Result<Vec<(u64, u64)>, SenseData> {
    let limits = &request.lu.config().limits;
    if list.len() < HEADER_BYTES {
        return Err(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR));
    }
    let descriptor_bytes = usize::from(u16::from_be_bytes([list[2], list[3]]));
    let descriptors = list[HEADER_BYTES..]
        .get(..descriptor_bytes)
        .ok_or(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR))?;
    // An incomplete last descriptor is ignored.
    if (descriptors.len() / DESCRIPTOR_BYTES) as u64 > u64::from(limits.max_unmap_descriptors) {
        return Err(SenseData::parameter_field(2, None));
    }
    let mut ranges = Vec::with_capacity(descriptors.len() / DESCRIPTOR_BYTES);
    let mut total = 0u64;
    for (i, descriptor) in descriptors.chunks_exact(DESCRIPTOR_BYTES).enumerate() {
        let field = |at: usize, len: usize| {
            descriptor[at..at + len].iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))
        };
        let (lba, blocks) = (field(0, 8), field(8, 4));
        check_range(request.lu, lba, blocks)?;
        total += blocks;
        if total > u64::from(limits.max_unmap_blocks) {
            let at = HEADER_BYTES + i * DESCRIPTOR_BYTES + 8;
            return Err(SenseData::parameter_field(u16::try_from(at).unwrap_or(u16::MAX), None));
        }
        if blocks > 0 {
            ranges.push((lba, blocks));
        }
    }
    Ok(ranges)
}
