//! REPORT and SET IDENTIFYING INFORMATION (SPC-4 5.6, 6.32, 6.43): what an administrator writes on a unit, as on a label. It
//! survives everything that the unit survives, and it survives power loss where reservations do.

use crate::execution::{Execution, Request};
use crate::outcome::{Effect, Outcome, Status};
use crate::sense::{Asc, SenseData};
use crate::unit_attention::UaScope;

/// INFORMATION TYPE: arbitrary bytes, and a UTF-8 text with a terminating zero.
const BYTES: u8 = 0x00;
const TEXT: u8 = 0x02;
/// INFORMATION TYPE: the list of the types, with the length of each.
const SUPPORTED: u8 = 0x7f;
/// Where the CDBs hold the type, in bits 7 to 1.
const TYPE_AT: u16 = 10;
/// Maximum number of bytes of each type (SPC-4 table 60).
const MAX_BYTES: u16 = 512;
const MAX_TEXT_BYTES: u16 = 256;

/// What hosts have set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentifyingInformation {
    /// Peripheral device identifying information, at most 512 bytes.
    pub bytes: Vec<u8>,
    /// Peripheral device text identifying information, UTF-8, at most 256 bytes including the terminating zero.
    pub text: Vec<u8>,
}

impl IdentifyingInformation {
    /// True when nothing is set.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.text.is_empty()
    }

    /// The same, with each value truncated to its maximum length.
    pub(crate) fn bounded(mut self) -> Self {
        self.bytes.truncate(MAX_BYTES.into());
        self.text.truncate(MAX_TEXT_BYTES.into());
        self
    }

    fn of(&mut self, kind: u8) -> Option<(&mut Vec<u8>, u16)> {
        match kind {
            BYTES => Some((&mut self.bytes, MAX_BYTES)),
            TEXT => Some((&mut self.text, MAX_TEXT_BYTES)),
            _ => None,
        }
    }
}

fn kind(request: &Request<'_>) -> u8 {
    request.cdb.u8(TYPE_AT.into()) >> 1
}

fn unknown_type() -> SenseData {
    SenseData::cdb_field(TYPE_AT, Some(7))
}

//= spc4 6.32 CDB-05
pub(crate) fn report(request: &Request<'_>) -> Execution {
    let kind = kind(request);
    let information = match kind {
        SUPPORTED => {
            let descriptor = |(kind, max): (u8, u16)| [&[kind << 1, 0][..], &max.to_be_bytes()].concat();
            Some([(BYTES, MAX_BYTES), (TEXT, MAX_TEXT_BYTES)].into_iter().flat_map(descriptor).collect())
        }
        _ => request.lu.with_state(|state| state.identifying.of(kind).map(|(value, _)| value.clone())),
    };
    let Some(information) = information else { return Execution::check(unknown_type()) };
    let mut data = vec![0, 0];
    data.extend((information.len() as u16).to_be_bytes());
    data.extend(information);
    Execution::done(Outcome::data_in(data, u64::from(request.cdb.u32(6))))
}

pub(crate) fn set(request: &Request<'_>) -> Execution {
    let length = request.cdb.u32(6);
    let most = IdentifyingInformation::default().of(kind(request)).map(|(_, max)| u32::from(max));
    match most {
        None => Execution::check(unknown_type()),
        Some(most) if length > most => Execution::check(SenseData::cdb_field(6, None)),
        Some(_) => Execution::parameters(request, length.into(), set_list),
    }
}

/// An empty list removes the information.
//= spc4 6.43 UA-03
fn set_list(request: &Request<'_>, list: &[u8]) -> Execution {
    let kind = kind(request);
    if kind == TEXT && !list.is_empty() {
        let ends = list.iter().position(|&byte| byte == 0) == Some(list.len() - 1);
        if !ends || std::str::from_utf8(list).is_err() {
            return Execution::check(SenseData::parameter_field(0, None));
        }
    }
    let change = request.lu.with_state(|state| {
        if state.is_replaced() {
            return None;
        }
        if let Some((value, _)) = state.identifying.of(kind) {
            *value = list.to_vec();
        }
        state.establish(UaScope::AllExcept(request.nexus.id), Asc::DEVICE_IDENTIFIER_CHANGED);
        Some(state.kept_has_changed())
    });
    let Some(change) = change else {
        return Execution::done(Outcome::status(Status::Busy));
    };
    let mut outcome = Outcome::good();
    outcome.effects.push(Effect::KeptStateChanged(change));
    Execution::done(outcome)
}
