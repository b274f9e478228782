//! Short commands: TEST UNIT READY, REQUEST SENSE, START STOP UNIT, diagnostics, PREVENT ALLOW MEDIUM REMOVAL and the
//! defect lists of a medium that hides its defects.

use crate::execution::{Continuation, Execution, MediumPlan, Request};
use crate::logical_unit::LogicalUnit;
use crate::medium::{MediumOp, MediumReply};
use crate::outcome::Outcome;
use crate::sense::{Asc, SenseData, SenseKey};

pub(crate) fn test_unit_ready(_request: &Request<'_>) -> Execution {
    Execution::good()
}

/// Reports a pending unit attention as data, which clears it; otherwise the reason why the unit is not ready, if any.
//= spc4 6.39 UA-02
pub(crate) fn request_sense(request: &Request<'_>) -> Execution {
    let sense = request.lu.with_state(|state| match state.nexuses.take(request.nexus.id) {
        Some(asc) => SenseData::new(SenseKey::UnitAttention, asc),
        None => state
            .readiness
            .obstacle()
            .map_or(SenseData::new(SenseKey::NoSense, Asc::NONE), |(sense, _)| sense),
    });
    let descriptor = request.cdb.bit(1, 0);
    Execution::done(Outcome::data_in(sense.to_bytes(descriptor), u64::from(request.cdb.u8(4))))
}

/// Starts or stops the unit. There is nothing to load or eject, and the only power condition is active.
//= sbc3 5.22 SNS-04
pub(crate) fn start_stop_unit(request: &Request<'_>) -> Execution {
    let cdb = request.cdb;
    if let Some(sense) = request.lu.with_state(|state| state.readiness.operation_in_progress()) {
        return Execution::check(sense);
    }
    let (condition, no_flush, load_eject, start) =
        (cdb.u8(4) >> 4, cdb.bit(4, 2), cdb.bit(4, 1), cdb.bit(4, 0));
    match condition {
        0 if load_eject => Execution::check(SenseData::cdb_field(4, Some(1))),
        0 if start => {
            request.lu.with_state(|state| state.readiness.start());
            Execution::good()
        }
        0 if no_flush || request.lu.write_protected() => stop(request.lu),
        0 => Execution::medium(MediumOp::Flush, MediumPlan::then(Stop)),
        1 => {
            request.lu.with_state(|state| state.readiness.start());
            Execution::good()
        }
        _ => Execution::check(SenseData::cdb_field(4, Some(7))),
    }
}

/// START STOP UNIT with START 0 waits for its flush.
#[derive(Debug)]
struct Stop;

impl Continuation for Stop {
    fn replied(self: Box<Self>, lu: &LogicalUnit, _reply: MediumReply) -> Execution {
        stop(lu)
    }
}

/// The last step of START STOP UNIT with START 0.
fn stop(lu: &LogicalUnit) -> Execution {
    lu.with_state(|state| state.readiness.stop());
    Execution::good()
}

/// Longest parameter list of SEND DIAGNOSTIC: one page without parameters.
const DIAGNOSTIC_PAGE_BYTES: u16 = 4;
/// The list of supported diagnostic pages: only this page.
const DIAGNOSTIC_PAGES: [u8; 5] = [0, 0, 0, 1, 0];

/// The default self-test and the foreground ones succeed: they could only test this code. The one page that can be sent requests
/// the list of pages (SPC-4 7.2.3).
pub(crate) fn send_diagnostic(request: &Request<'_>) -> Execution {
    let cdb = request.cdb;
    let (bytes, kind, page_format, self_test) = (cdb.u16(3), cdb.u8(1) >> 5, cdb.bit(1, 4), cdb.bit(1, 2));
    if !matches!(kind, 0 | 4 | 5 | 6) {
        return Execution::check(SenseData::cdb_field(1, Some(7)));
    }
    if bytes == 0 {
        return Execution::good();
    }
    // A self-test takes no parameters, and parameters that are not in pages are vendor specific.
    if bytes != DIAGNOSTIC_PAGE_BYTES || !page_format || kind != 0 || self_test {
        return Execution::check(SenseData::cdb_field(3, None));
    }
    Execution::parameters(request, u64::from(bytes), |_, list| {
        match list.iter().position(|byte| *byte != 0) {
            Some(at) => Execution::check(SenseData::parameter_field(at as u16, None)),
            None => Execution::good(),
        }
    })
}

/// The list of pages, even if no page is named: no other one can have been sent.
pub(crate) fn receive_diagnostic_results(request: &Request<'_>) -> Execution {
    let cdb = request.cdb;
    if cdb.bit(1, 0) && cdb.u8(2) != 0 {
        return Execution::check(SenseData::cdb_field(2, None));
    }
    Execution::done(Outcome::data_in(DIAGNOSTIC_PAGES.to_vec(), u64::from(cdb.u16(3))))
}

/// The medium cannot be removed, so preventing that always holds.
pub(crate) fn prevent_allow_medium_removal(_request: &Request<'_>) -> Execution {
    Execution::good()
}

/// An empty defect list in the requested format. The header repeats REQ_PLIST, REQ_GLIST and the format.
pub(crate) fn read_defect_data_10(request: &Request<'_>) -> Execution {
    let lists = request.cdb.u8(2) & 0x1f;
    Execution::done(Outcome::data_in(vec![0, lists, 0, 0], u64::from(request.cdb.u16(7))))
}

pub(crate) fn read_defect_data_12(request: &Request<'_>) -> Execution {
    let lists = request.cdb.u8(1) & 0x1f;
    Execution::done(Outcome::data_in(vec![0, lists, 0, 0, 0, 0, 0, 0], u64::from(request.cdb.u32(6))))
}
