//! Short commands: TEST UNIT READY, REQUEST SENSE (SPC-4 6.39, 6.47).

use crate::execution::{Execution, Request};
use crate::outcome::Outcome;
use crate::sense::{Asc, SenseData, SenseKey};

pub(crate) fn test_unit_ready(_request: &Request<'_>) -> Execution {
    Execution::good()
}

/// Reports a pending unit attention as data, which clears it; else what keeps the unit from being ready.
pub(crate) fn request_sense(request: &Request<'_>) -> Execution {
    let (attention, stopped) =
        request.lu.with_state(|state| (state.take_attention(request.nexus.id), state.stopped));
    let sense = match attention {
        Some(asc) => SenseData::new(SenseKey::UnitAttention, asc),
        None if stopped => SenseData::new(SenseKey::NotReady, Asc::INITIALIZING_COMMAND_REQUIRED),
        None => SenseData::new(SenseKey::NoSense, Asc::NONE),
    };
    let descriptor = request.cdb.bit(1, 0);
    Execution::done(Outcome::data_in(sense.to_bytes(descriptor), u64::from(request.cdb.u8(4))))
}
