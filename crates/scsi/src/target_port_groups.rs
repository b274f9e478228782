//! REPORT and SET TARGET PORT GROUPS (SPC-4 6.37, 6.45).

use crate::access_state::{AccessState, Reach};
use crate::config::TargetPort;
use crate::execution::{Execution, Request};
use crate::outcome::Outcome;
use crate::sense::{Asc, SenseData};
use crate::unit_attention::UaScope;

/// T_SUP, U_SUP, S_SUP, AN_SUP, AO_SUP.
const SUPPORTED_STATES: u8 = 0x8f;
/// Bytes before the first descriptor of a SET TARGET PORT GROUPS parameter list, and of a descriptor.
const SET_HEADER_BYTES: usize = 4;
const SET_DESCRIPTOR_BYTES: usize = 4;

/// The ports of the target. The port of the requesting nexus is always among them.
pub(crate) fn ports(request: &Request<'_>) -> Vec<TargetPort> {
    let own = TargetPort {
        relative_port: request.nexus.relative_target_port,
        group: request.nexus.target_port_group,
    };
    let mut ports = request.lu.paths().target_ports;
    if !ports.contains(&own) {
        ports.push(own);
    }
    ports.sort_by_key(|port| (port.group, port.relative_port));
    ports.dedup();
    ports
}

//= spc4 6.37 ALU-01 ALU-02
pub(crate) fn report(request: &Request<'_>) -> Execution {
    let extended = match request.cdb.u8(1) >> 5 {
        0 => false,
        1 => true,
        _ => return Execution::check(SenseData::cdb_field(1, Some(7))),
    };
    let ports = ports(request);
    // RETURN DATA LENGTH; the extended header also has the format type and an IMPLICIT TRANSITION TIME of
    // 0.
    let mut data = if extended { vec![0, 0, 0, 0, 0x10, 0, 0, 0] } else { vec![0; 4] };
    for group in ports.chunk_by(|a, b| a.group == b.group) {
        let group = &group[..group.len().min(255)];
        let number = group[0].group;
        let [hi, lo] = number.to_be_bytes();
        let (state, status) =
            request.lu.with_state(|state| (state.access.of(number), state.access.status_code(number)));
        data.extend([state as u8, SUPPORTED_STATES, hi, lo, 0, status, 0, group.len() as u8]);
        for port in group {
            let [hi, lo] = port.relative_port.to_be_bytes();
            data.extend([0, 0, hi, lo]);
        }
    }
    let length = u32::try_from(data.len() - 4).unwrap_or(u32::MAX);
    data[..4].copy_from_slice(&length.to_be_bytes());
    Execution::done(Outcome::data_in(data, u64::from(request.cdb.u32(6))))
}

/// Sets states immediately. A list that names an unknown group or state changes nothing.
pub(crate) fn set(request: &Request<'_>) -> Execution {
    Execution::parameters(request, u64::from(request.cdb.u32(6).min(MAX_SET_LIST_BYTES)), set_list)
}

/// Longest parameter list examined: a descriptor for each possible group.
const MAX_SET_LIST_BYTES: u32 = 4 + 4 * 65536;

//= spc4 6.45 ALU-03
fn set_list(request: &Request<'_>, list: &[u8]) -> Execution {
    if list.is_empty() {
        return Execution::good();
    }
    if list.len() < SET_HEADER_BYTES || !(list.len() - SET_HEADER_BYTES).is_multiple_of(SET_DESCRIPTOR_BYTES)
    {
        return Execution::check(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR));
    }
    let own = request.lu.access_state(request.nexus.target_port_group);
    if own == AccessState::Transitioning {
        return Execution::check(own.refusal(Reach::Active).unwrap_or(SenseData::cdb_field(0, None)));
    }
    let ports = ports(request);
    let mut wanted = Vec::new();
    for (i, descriptor) in list[SET_HEADER_BYTES..].chunks_exact(SET_DESCRIPTOR_BYTES).enumerate() {
        let at = u16::try_from(SET_HEADER_BYTES + i * SET_DESCRIPTOR_BYTES).unwrap_or(u16::MAX);
        let Some(state) = AccessState::requested(descriptor[0] & 0x0f) else {
            return Execution::check(SenseData::parameter_field(at, Some(3)));
        };
        let group = u16::from_be_bytes([descriptor[2], descriptor[3]]);
        if !ports.iter().any(|port| port.group == group) {
            return Execution::check(SenseData::parameter_field(at.saturating_add(2), None));
        }
        wanted.push((group, state));
    }
    request.lu.with_state(|state| {
        let mut changed = false;
        for (group, to) in wanted {
            changed |= state.access.of(group) != to && state.access.set(group, to, true);
        }
        if changed {
            state.establish(UaScope::AllExcept(request.nexus.id), Asc::ACCESS_STATE_CHANGED);
        }
    });
    Execution::good()
}
