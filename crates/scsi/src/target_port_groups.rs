//! REPORT TARGET PORT GROUPS (SPC-4 6.37). Every group is active/optimized: all ports reach the same store.

use crate::config::TargetPort;
use crate::execution::{Execution, Request};
use crate::outcome::Outcome;
use crate::sense::SenseData;

/// ASYMMETRIC ACCESS STATE: active/optimized.
const ACTIVE_OPTIMIZED: u8 = 0x0;
/// AO_SUP: the only state supported.
const SUPPORTED_STATES: u8 = 0x01;

/// The ports of the target; the one that asks, when the configuration does not say.
pub(crate) fn ports(request: &Request<'_>) -> Vec<TargetPort> {
    let own = TargetPort {
        relative_port: request.nexus.relative_target_port,
        group: request.nexus.target_port_group,
    };
    let mut ports = request.lu.config().target_ports.clone();
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
    // RETURN DATA LENGTH, and in the extended header the format type and an IMPLICIT TRANSITION TIME of 0.
    let mut data = if extended { vec![0, 0, 0, 0, 0x10, 0, 0, 0] } else { vec![0; 4] };
    for group in ports.chunk_by(|a, b| a.group == b.group) {
        let group = &group[..group.len().min(255)];
        let [hi, lo] = group[0].group.to_be_bytes();
        data.extend([ACTIVE_OPTIMIZED, SUPPORTED_STATES, hi, lo, 0, 0, 0, group.len() as u8]);
        for port in group {
            let [hi, lo] = port.relative_port.to_be_bytes();
            data.extend([0, 0, hi, lo]);
        }
    }
    let length = u32::try_from(data.len() - 4).unwrap_or(u32::MAX);
    data[..4].copy_from_slice(&length.to_be_bytes());
    Execution::done(Outcome::data_in(data, u64::from(request.cdb.u32(6))))
}
