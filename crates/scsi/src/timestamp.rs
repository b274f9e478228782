//! REPORT TIMESTAMP and SET TIMESTAMP (SPC-4 6.38, 6.46): a clock that hosts set, in milliseconds. Until a host sets it, it reports
//! how long the unit has existed. It is not kept across a restart.

use std::time::Duration;

use crate::execution::{Execution, Request};
use crate::outcome::Outcome;
use crate::sense::{Asc, SenseData};
use crate::unit_attention::UaScope;

/// Bytes of the parameter data of either command.
const PARAMETER_BYTES: usize = 12;
/// TIMESTAMP ORIGIN: counted from power on, and set by SET TIMESTAMP.
const FROM_ZERO: u8 = 0;
const SET_BY_HOST: u8 = 2;

/// The value that a host has set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamp {
    /// Milliseconds, 48 bits.
    value: u64,
    /// When it was set.
    at: Duration,
}

//= spc4 6.38 CDB-05
pub(crate) fn report(request: &Request<'_>) -> Execution {
    let now = request.lu.now();
    let set = request.lu.with_state(|state| state.timestamp());
    let (origin, base, since) = match set {
        Some(Timestamp { value, at }) => (SET_BY_HOST, value, now.saturating_sub(at)),
        None => (FROM_ZERO, 0, now),
    };
    let value = base.wrapping_add(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let [_, _, value @ ..] = value.to_be_bytes();
    let mut data = vec![0, (PARAMETER_BYTES - 2) as u8, origin, 0];
    data.extend(value);
    data.extend([0, 0]);
    Execution::done(Outcome::data_in(data, u64::from(request.cdb.u32(6))))
}

pub(crate) fn set(request: &Request<'_>) -> Execution {
    let bytes = request.cdb.u32(6);
    match bytes as usize {
        0 => Execution::good(),
        PARAMETER_BYTES => Execution::parameters(request, u64::from(bytes), set_list),
        _ => Execution::check(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR)),
    }
}

//= spc4 6.46 UA-03
fn set_list(request: &Request<'_>, list: &[u8]) -> Execution {
    if let Some(at) = [0, 1, 2, 3, 10, 11].into_iter().find(|at| list[*at] != 0) {
        return Execution::check(SenseData::parameter_field(at as u16, None));
    }
    let value = list[4..10].iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    let timestamp = Timestamp { value, at: request.lu.now() };
    request.lu.with_state(|state| {
        state.set_timestamp(timestamp);
        state.establish(UaScope::AllExcept(request.nexus.id), Asc::TIMESTAMP_CHANGED);
    });
    Execution::good()
}
