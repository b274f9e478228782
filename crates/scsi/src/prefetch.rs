//! PRE-FETCH(10) and (16) (SBC-3 5.7, 5.8).

use crate::execution::{Execution, MediumPlan, Request};
use crate::medium::MediumOp;
use crate::outcome::Status;
use crate::read_write::{Fields, check_range};

/// A range longer than MAXIMUM PREFETCH LENGTH is prefetched up to that length and the command completes with
/// GOOD. If the whole range is prefetched, it completes with CONDITION MET.
fn prefetch(request: &Request<'_>, fields: Fields) -> Execution {
    let lu = request.lu;
    if let Err(sense) = check_range(lu, fields.lba, fields.blocks) {
        return Execution::check(sense);
    }
    let wanted = match fields.blocks {
        0 => lu.blocks().saturating_sub(fields.lba),
        blocks => blocks,
    };
    let blocks = wanted.min(u64::from(lu.config().limits.max_prefetch_blocks));
    if blocks == 0 {
        return Execution::good();
    }
    let good = if blocks == wanted { Status::ConditionMet } else { Status::Good };
    Execution::medium(
        MediumOp::Prefetch { lba: fields.lba, blocks },
        MediumPlan { good, ..MediumPlan::report() },
    )
}

pub(crate) fn prefetch_10(request: &Request<'_>) -> Execution {
    prefetch(request, Fields::ten(request.cdb))
}

pub(crate) fn prefetch_16(request: &Request<'_>) -> Execution {
    prefetch(request, Fields::sixteen(request.cdb))
}
