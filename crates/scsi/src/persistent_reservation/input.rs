//! PERSISTENT RESERVE IN (SPC-4 6.15). ADDITIONAL LENGTH always covers the whole list, whatever the allocation
//! length.

use super::{PersistentReservations, transport_id};
use crate::execution::{Execution, Request};
use crate::outcome::Outcome;

/// Header, then `list`, cut to the allocation length.
fn answer(request: &Request<'_>, generation: u32, list: Vec<u8>) -> Execution {
    let mut data = generation.to_be_bytes().to_vec();
    data.extend(u32::try_from(list.len()).unwrap_or(u32::MAX).to_be_bytes());
    data.extend(list);
    Execution::done(Outcome::data_in(data, u64::from(request.cdb.u16(7))))
}

fn snapshot(request: &Request<'_>) -> PersistentReservations {
    request.lu.with_state(|state| state.persistent.clone())
}

//= spc4 6.15.2 PR-01
pub(crate) fn read_keys(request: &Request<'_>) -> Execution {
    let state = snapshot(request);
    answer(request, state.generation, state.registrations.iter().flat_map(|r| r.key.to_be_bytes()).collect())
}

//= spc4 6.15.3 PR-01 PR-07
pub(crate) fn read_reservation(request: &Request<'_>) -> Execution {
    let state = snapshot(request);
    let mut list = Vec::new();
    if let Some(reservation) = state.reservation {
        let key = if reservation.kind.all_registrants() {
            0
        } else {
            state.key_of(reservation.holder).unwrap_or(0)
        };
        list.extend(key.to_be_bytes());
        list.extend([0, 0, 0, 0, 0, reservation.kind as u8, 0, 0]);
    }
    answer(request, state.generation, list)
}

//= spc4 6.15.4 PR-01 PR-10
pub(crate) fn report_capabilities(request: &Request<'_>) -> Execution {
    let persist = request.lu.config().persist_reservations;
    let active = request.lu.with_state(|state| state.persistent.persist);
    // CRH, SIP_C, ATP_C, PTPL_C; TMV, PTPL_A; then the type mask.
    let data = vec![
        0,
        8,
        0x10 | 0x08 | 0x04 | u8::from(persist),
        0x80 | u8::from(active),
        0x80 | 0x40 | 0x20 | 0x08 | 0x02,
        0x01,
        0,
        0,
    ];
    Execution::done(Outcome::data_in(data, u64::from(request.cdb.u16(7))))
}

//= spc4 6.15.5 PR-01
pub(crate) fn read_full_status(request: &Request<'_>) -> Execution {
    let state = snapshot(request);
    let mut list = Vec::new();
    for registration in &state.registrations {
        let id = transport_id::encode(&registration.initiator_port);
        let holder = state.is_holder(registration.nexus);
        let kind = state.reservation.filter(|_| holder).map_or(0, |reservation| reservation.kind as u8);
        list.extend(registration.key.to_be_bytes());
        list.extend([0; 4]);
        list.extend([u8::from(registration.all_target_ports) << 1 | u8::from(holder), kind, 0, 0, 0, 0]);
        list.extend(registration.relative_target_port.to_be_bytes());
        list.extend((id.len() as u32).to_be_bytes());
        list.extend(id);
    }
    answer(request, state.generation, list)
}
