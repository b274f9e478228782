//! SYNCHRONIZE CACHE (SBC-3 5.23, 5.24): all written data is on stable storage before GOOD.
//!
//! IMMED is accepted, but the status still comes last: a host that sets it must cope with either.

use crate::execution::{Execution, MediumPlan, Request};
use crate::medium::MediumOp;
use crate::read_write::{Fields, check_range};

fn synchronize(request: &Request<'_>, fields: Fields) -> Execution {
    if let Err(sense) = check_range(request.lu, fields.lba, fields.blocks) {
        return Execution::check(sense);
    }
    Execution::medium(MediumOp::Flush, MediumPlan::report())
}

pub(crate) fn synchronize_cache_10(request: &Request<'_>) -> Execution {
    synchronize(request, Fields::ten(request.cdb))
}

pub(crate) fn synchronize_cache_16(request: &Request<'_>) -> Execution {
    synchronize(request, Fields::sixteen(request.cdb))
}
