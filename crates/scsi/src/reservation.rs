//! RESERVE and RELEASE, 6 and 10 bytes, as SPC-2 defines them, alongside persistent reservations with CRH 1
//! (SPC-4 5.12.3).

use crate::execution::{Execution, Request};
use crate::outcome::{Outcome, Status};

fn conflict() -> Execution {
    Execution::done(Outcome::status(Status::ReservationConflict))
}

//= spc2 7.21 PR-14
pub(crate) fn reserve(request: &Request<'_>) -> Execution {
    let nexus = request.nexus.id;
    request.lu.with_state(|state| {
        if state.is_replaced() {
            return Execution::done(Outcome::status(Status::Busy));
        }
        // If there are registrations, RESERVE succeeds without effect for a registered nexus and conflicts for
        // others.
        if !state.persistent.registrations.is_empty() {
            return match state.persistent.key_of(nexus) {
                Some(_) => Execution::good(),
                None => conflict(),
            };
        }
        match state.reserved_by {
            Some(holder) if holder != nexus => conflict(),
            _ => {
                state.reserved_by = Some(nexus);
                Execution::good()
            }
        }
    })
}

/// RELEASE of a reservation that another nexus holds succeeds without effect.
pub(crate) fn release(request: &Request<'_>) -> Execution {
    let nexus = request.nexus.id;
    request.lu.with_state(|state| {
        if state.is_replaced() {
            return Execution::done(Outcome::status(Status::Busy));
        }
        if !state.persistent.registrations.is_empty() && state.persistent.key_of(nexus).is_none() {
            return conflict();
        }
        if state.reserved_by == Some(nexus) {
            state.reserved_by = None;
        }
        Execution::good()
    })
}
