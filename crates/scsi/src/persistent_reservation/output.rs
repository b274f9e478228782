//! PERSISTENT RESERVE OUT (SPC-4 6.16). The parameter list is parsed first. Then the service action works on a copy
//! of the state, which replaces the state only if the action succeeds.

use std::sync::Arc;

use super::transport_id::{self, TransportId};
use super::{Kind, MAX_REGISTRATIONS, PersistentReservations, Registration, Reservation};
use crate::execution::{Execution, Request};
use crate::nexus::{Nexus, NexusId};
use crate::outcome::{Effect, Outcome, Status};
use crate::sense::{Asc, SenseData};
use crate::state::State;
use crate::target_port_groups;
use crate::unit_attention::UaScope;

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;
const REGISTER_AND_MOVE: u8 = 7;

/// Length of the basic parameter list.
const LIST_BYTES: usize = 24;
/// Longest parameter list accepted: the basic one with as many TransportIDs as can be registered.
const MAX_LIST_BYTES: u32 = (LIST_BYTES + 4 + 256 * MAX_REGISTRATIONS) as u32;

/// Why an action was rejected.
enum Refusal {
    Conflict,
    Busy,
    Check(SenseData),
}

impl From<SenseData> for Refusal {
    fn from(sense: SenseData) -> Self {
        Self::Check(sense)
    }
}

pub(crate) fn persistent_reserve_out(request: &Request<'_>) -> Execution {
    let cdb = request.cdb;
    let action = cdb.u8(1) & 0x1f;
    let length = cdb.u32(5);
    // Scope and type are meaningful only for the actions that make or release a reservation.
    if matches!(action, RESERVE | RELEASE | PREEMPT | PREEMPT_AND_ABORT) && cdb.u8(2) >> 4 != 0 {
        return Execution::check(SenseData::cdb_field(2, Some(7)));
    }
    if action == RESERVE && Kind::from_code(cdb.u8(2) & 0x0f).is_none() {
        return Execution::check(SenseData::cdb_field(2, Some(3)));
    }
    //= spc4 6.16.3 PR-15
    if (length as usize) < LIST_BYTES || length > MAX_LIST_BYTES {
        return Execution::check(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR));
    }
    Execution::parameters(request, u64::from(length), act)
}

/// The fields of the basic parameter list.
struct Parameters<'a> {
    key: u64,
    action_key: u64,
    spec_i_pt: bool,
    all_tg_pt: bool,
    aptpl: bool,
    list: &'a [u8],
}

fn u64_at(list: &[u8], at: usize) -> u64 {
    list[at..at + 8].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

fn act(request: &Request<'_>, list: &[u8]) -> Execution {
    let action = request.cdb.u8(1) & 0x1f;
    if list.len() < LIST_BYTES {
        return Execution::check(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR));
    }
    let parameters = Parameters {
        key: u64_at(list, 0),
        action_key: u64_at(list, 8),
        spec_i_pt: list[20] & 0x08 != 0,
        all_tg_pt: list[20] & 0x04 != 0,
        aptpl: list[20] & 0x01 != 0,
        list,
    };
    if action != REGISTER_AND_MOVE
        && let Err(sense) = check_flags(request, action, &parameters)
    {
        return Execution::check(sense);
    }
    let mut aborted = Vec::new();
    let mut number = 0;
    let result = request.lu.with_state(|state| {
        if state.is_replaced() {
            return Err(Refusal::Busy);
        }
        let mut changed = state.persistent.clone();
        let mut attentions = Vec::new();
        let mut change = Change {
            request,
            nexus: request.nexus,
            state: &*state,
            pr: &mut changed,
            attentions: &mut attentions,
        };
        match action {
            REGISTER => change.register(&parameters, false)?,
            REGISTER_AND_IGNORE => change.register(&parameters, true)?,
            RESERVE => change.reserve(&parameters)?,
            RELEASE => change.release(&parameters)?,
            CLEAR => change.clear(&parameters)?,
            PREEMPT | PREEMPT_AND_ABORT => aborted = change.preempt(&parameters)?,
            _ => change.register_and_move(&parameters)?,
        }
        debug_assert!(changed.has_holder(), "a reservation of nobody");
        state.persistent = changed;
        number = state.kept_has_changed();
        for (to, asc) in attentions {
            state.establish(UaScope::One(to), asc);
        }
        Ok(())
    });
    match result {
        Ok(()) => {
            let mut outcome = Outcome::good();
            outcome.effects.push(Effect::KeptStateChanged(number));
            //= spc4 5.12.11.5 PR-09
            if action == PREEMPT_AND_ABORT && !aborted.is_empty() {
                outcome.effects.push(Effect::AbortTasksOf(aborted));
            }
            Execution::done(outcome)
        }
        Err(Refusal::Conflict) => Execution::done(Outcome::status(Status::ReservationConflict)),
        Err(Refusal::Busy) => Execution::done(Outcome::status(Status::Busy)),
        Err(Refusal::Check(sense)) => Execution::check(sense),
    }
}

fn check_flags(request: &Request<'_>, action: u8, parameters: &Parameters<'_>) -> Result<(), SenseData> {
    let registers = matches!(action, REGISTER | REGISTER_AND_IGNORE);
    if parameters.spec_i_pt && action != REGISTER {
        return Err(SenseData::parameter_field(20, Some(3)));
    }
    if !parameters.spec_i_pt && parameters.list.len() != LIST_BYTES {
        return Err(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR));
    }
    if registers && parameters.aptpl && !request.lu.config().persist_reservations {
        return Err(SenseData::parameter_field(20, Some(0)));
    }
    Ok(())
}

/// A service action in progress.
struct Change<'a> {
    request: &'a Request<'a>,
    nexus: &'a Nexus,
    state: &'a State,
    pr: &'a mut PersistentReservations,
    attentions: &'a mut Vec<(NexusId, Asc)>,
}

impl Change<'_> {
    fn me(&self) -> NexusId {
        self.nexus.id
    }

    /// Checks that the command names the key of this nexus.
    fn registered(&self, key: u64) -> Result<(), Refusal> {
        if self.pr.key_of(self.me()) == Some(key) { Ok(()) } else { Err(Refusal::Conflict) }
    }

    fn bump(&mut self) {
        self.pr.generation = self.pr.generation.wrapping_add(1);
    }

    /// Establishes a unit attention for every registered nexus except this one.
    fn notify_registrants(&mut self, asc: Asc) {
        let me = self.me();
        self.attentions
            .extend(self.pr.registrations.iter().filter(|r| r.nexus != me).map(|r| (r.nexus, asc)));
    }

    //= spc4 5.12.7 PR-02
    fn register(&mut self, parameters: &Parameters<'_>, ignore: bool) -> Result<(), Refusal> {
        let existing = self.pr.key_of(self.me());
        if !ignore && existing.unwrap_or(0) != parameters.key {
            return Err(Refusal::Conflict);
        }
        let also = if parameters.spec_i_pt { self.specified_ports(parameters)? } else { Vec::new() };
        match (existing, parameters.action_key) {
            (None, 0) => return Ok(()),
            (Some(_), 0) => self.unregister(self.me()),
            (Some(_), key) => {
                if parameters.spec_i_pt {
                    return Err(SenseData::parameter_field(20, Some(3)).into());
                }
                let me = self.me();
                for registration in self.pr.registrations.iter_mut().filter(|r| r.nexus == me) {
                    registration.key = key;
                }
            }
            (None, key) => self.add(parameters, also, key)?,
        }
        self.pr.persist = parameters.aptpl;
        self.bump();
        Ok(())
    }

    /// Registers this nexus and those of SPEC_I_PT, through this port or all ports. If one of them fails, none is
    /// registered.
    //= spc4 5.12.7.3 PR-11 PR-15
    fn add(&mut self, parameters: &Parameters<'_>, also: Vec<Arc<str>>, key: u64) -> Result<(), Refusal> {
        let ports: Vec<(u16, u16)> = if parameters.all_tg_pt {
            target_port_groups::ports(self.request).iter().map(|p| (p.group, p.relative_port)).collect()
        } else {
            vec![(self.nexus.target_port_group, self.nexus.relative_target_port)]
        };
        for initiator_port in std::iter::once(self.nexus.initiator_port.clone()).chain(also) {
            for &(group, relative) in &ports {
                let nexus = self.nexus_of(&initiator_port, group, relative);
                if let Some(registration) = self.pr.registrations.iter_mut().find(|r| r.nexus == nexus.id) {
                    // SPEC_I_PT cannot register a nexus that is registered already.
                    if parameters.spec_i_pt {
                        return Err(Refusal::Conflict);
                    }
                    registration.key = key;
                    continue;
                }
                if self.pr.registrations.len() >= MAX_REGISTRATIONS {
                    return Err(SenseData::illegal(Asc::INSUFFICIENT_REGISTRATION_RESOURCES).into());
                }
                let mut registration = Registration::new(&nexus, key);
                registration.all_target_ports = parameters.all_tg_pt;
                self.pr.registrations.push(registration);
            }
        }
        Ok(())
    }

    /// The nexus of an initiator port through a port of the target, with the account that the port is known to
    /// have.
    fn nexus_of(&self, initiator_port: &str, group: u16, relative: u16) -> Nexus {
        let account = match *initiator_port == *self.nexus.initiator_port {
            true => self.nexus.account.as_ref(),
            false => self.state.nexuses.account_of(initiator_port),
        };
        Nexus::new(initiator_port, group, relative).with_account(account.map(|account| &**account))
    }

    /// The initiator ports that SPEC_I_PT names in addition to this one.
    fn specified_ports(&self, parameters: &Parameters<'_>) -> Result<Vec<Arc<str>>, Refusal> {
        let list = parameters.list;
        let length_error = SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR);
        if list.len() < LIST_BYTES + 4 {
            return Err(length_error.into());
        }
        let length = list[24..28].iter().fold(0usize, |sum, &byte| sum << 8 | usize::from(byte));
        let mut rest = list[28..].get(..length).ok_or(length_error)?;
        let mut ports: Vec<Arc<str>> = Vec::new();
        while !rest.is_empty() {
            let at = 28 + length - rest.len();
            let (id, taken) = transport_id::decode(rest, at)?;
            rest = &rest[taken..];
            for port in self.resolve(&id, at)? {
                if *port != *self.nexus.initiator_port && !ports.contains(&port) {
                    ports.push(port);
                }
            }
            if ports.len() > MAX_REGISTRATIONS {
                return Err(SenseData::illegal(Asc::INSUFFICIENT_REGISTRATION_RESOURCES).into());
            }
        }
        Ok(ports)
    }

    /// The ports of a TransportID; a device name means all known ports of that device.
    fn resolve(&self, id: &TransportId, at: usize) -> Result<Vec<Arc<str>>, Refusal> {
        let name = match id {
            TransportId::Port(name) => return Ok(vec![Arc::from(name.as_str())]),
            TransportId::Device(name) => name,
        };
        let is_of_device = |port: &str| port.split_once(",i,").is_some_and(|(device, _)| device == name);
        let mut ports: Vec<Arc<str>> =
            self.state.nexuses.initiator_ports().filter(|port| is_of_device(port)).cloned().collect();
        ports.extend(
            self.pr.registrations.iter().map(|r| &r.initiator_port).filter(|p| is_of_device(p)).cloned(),
        );
        ports.sort();
        ports.dedup();
        if ports.is_empty() {
            return Err(SenseData::parameter_field(u16::try_from(at).unwrap_or(u16::MAX), None).into());
        }
        Ok(ports)
    }

    /// Removes a registration, and the reservation if that was its last holder.
    //= spc4 5.12.11.3 PR-07 PR-08
    fn unregister(&mut self, nexus: NexusId) {
        let was_holder = self.pr.is_holder(nexus);
        self.pr.registrations.retain(|r| r.nexus != nexus);
        let Some(reservation) = self.pr.reservation else { return };
        let ends =
            if reservation.kind.all_registrants() { self.pr.registrations.is_empty() } else { was_holder };
        if ends {
            self.pr.reservation = None;
            if reservation.kind.registrants_share() {
                self.notify_registrants(Asc::RESERVATIONS_RELEASED);
            }
        }
    }

    fn kind(&self) -> Result<Kind, Refusal> {
        Kind::from_code(self.request.cdb.u8(2) & 0x0f).ok_or(Refusal::Check(SenseData::cdb_field(2, Some(3))))
    }

    //= spc4 5.12.9 PR-02
    fn reserve(&mut self, parameters: &Parameters<'_>) -> Result<(), Refusal> {
        self.registered(parameters.key)?;
        let kind = self.kind()?;
        match self.pr.reservation {
            None => self.pr.reservation = Some(Reservation { kind, holder: self.me() }),
            Some(reservation) if reservation.kind == kind && self.pr.is_holder(self.me()) => {}
            Some(_) => return Err(Refusal::Conflict),
        }
        Ok(())
    }

    //= spc4 5.12.11.2 PR-06 PR-08
    fn release(&mut self, parameters: &Parameters<'_>) -> Result<(), Refusal> {
        self.registered(parameters.key)?;
        let Some(reservation) = self.pr.reservation else { return Ok(()) };
        if !self.pr.is_holder(self.me()) {
            return Ok(());
        }
        if self.request.cdb.u8(2) & 0x0f != reservation.kind as u8 {
            return Err(SenseData::illegal(Asc::INVALID_RELEASE_OF_PERSISTENT_RESERVATION).into());
        }
        self.pr.reservation = None;
        if reservation.kind.registrants_share() {
            self.notify_registrants(Asc::RESERVATIONS_RELEASED);
        }
        Ok(())
    }

    //= spc4 5.12.11.6 PR-02
    fn clear(&mut self, parameters: &Parameters<'_>) -> Result<(), Refusal> {
        self.registered(parameters.key)?;
        self.notify_registrants(Asc::RESERVATIONS_PREEMPTED);
        self.pr.registrations.clear();
        self.pr.reservation = None;
        self.bump();
        Ok(())
    }

    /// Returns the nexuses whose registrations were removed, except this one.
    //= spc4 5.12.11.4 PR-02 PR-07 PR-08
    //= windows cluster HST-02
    fn preempt(&mut self, parameters: &Parameters<'_>) -> Result<Vec<NexusId>, Refusal> {
        self.registered(parameters.key)?;
        let victim_key = parameters.action_key;
        let all_registrants = self.pr.reservation.is_some_and(|r| r.kind.all_registrants());
        let holder_key =
            self.pr.reservation.filter(|_| !all_registrants).and_then(|r| self.pr.key_of(r.holder));
        // The reservation itself is preempted if the key is its holder's, or 0 when all registrants hold it.
        let takes_reservation =
            if all_registrants { victim_key == 0 } else { holder_key == Some(victim_key) };
        if victim_key == 0 && !all_registrants {
            return Err(SenseData::parameter_field(8, None).into());
        }
        let me = self.me();
        let is_victim = |r: &Registration| victim_key == 0 || r.key == victim_key;
        let victims: Vec<NexusId> =
            self.pr.registrations.iter().filter(|r| r.nexus != me && is_victim(r)).map(|r| r.nexus).collect();
        if takes_reservation {
            let kind = self.kind()?;
            let before = self.pr.reservation;
            self.pr.registrations.retain(|r| r.nexus == me || !is_victim(r));
            self.pr.reservation = Some(Reservation { kind, holder: me });
            if before.is_some_and(|r| r.kind != kind) {
                self.notify_registrants(Asc::RESERVATIONS_RELEASED);
            }
        } else {
            if !self.pr.registrations.iter().any(is_victim) {
                return Err(Refusal::Conflict);
            }
            self.pr.registrations.retain(|r| !is_victim(r));
            if self.pr.registrations.is_empty() {
                self.pr.reservation = None;
            }
        }
        self.attentions.extend(victims.iter().map(|&victim| (victim, Asc::REGISTRATIONS_PREEMPTED)));
        self.bump();
        Ok(victims)
    }

    //= spc4 5.12.8 PR-12
    fn register_and_move(&mut self, parameters: &Parameters<'_>) -> Result<(), Refusal> {
        let list = parameters.list;
        let (unregister, aptpl) = (list[17] & 0x02 != 0, list[17] & 0x01 != 0);
        let relative_port = u16::from_be_bytes([list[18], list[19]]);
        let length = list[20..24].iter().fold(0usize, |sum, &byte| sum << 8 | usize::from(byte));
        if list.len() != LIST_BYTES + length || length == 0 {
            return Err(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR).into());
        }
        if aptpl && !self.request.lu.config().persist_reservations {
            return Err(SenseData::parameter_field(17, Some(0)).into());
        }
        self.registered(parameters.key)?;
        let Some(reservation) = self.pr.reservation else { return Err(Refusal::Conflict) };
        if reservation.kind.all_registrants() || !self.pr.is_holder(self.me()) {
            return Err(Refusal::Conflict);
        }
        if parameters.action_key == 0 {
            return Err(SenseData::parameter_field(8, None).into());
        }
        let (id, taken) = transport_id::decode(&list[LIST_BYTES..], LIST_BYTES)?;
        let TransportId::Port(port) = id else {
            return Err(SenseData::parameter_field(LIST_BYTES as u16, Some(7)).into());
        };
        if taken != length {
            return Err(SenseData::parameter_field(20, None).into());
        }
        let group = target_port_groups::ports(self.request)
            .iter()
            .find(|known| known.relative_port == relative_port)
            .map(|known| known.group)
            .ok_or(Refusal::Check(SenseData::parameter_field(18, None)))?;
        let to = self.nexus_of(&port, group, relative_port);
        if to.id == self.me() {
            return Err(SenseData::parameter_field(LIST_BYTES as u16, None).into());
        }
        match self.pr.registrations.iter_mut().find(|r| r.nexus == to.id) {
            Some(registration) => registration.key = parameters.action_key,
            None => {
                if self.pr.registrations.len() >= MAX_REGISTRATIONS {
                    return Err(SenseData::illegal(Asc::INSUFFICIENT_REGISTRATION_RESOURCES).into());
                }
                self.pr.registrations.push(Registration::new(&to, parameters.action_key));
            }
        }
        self.pr.reservation = Some(Reservation { holder: to.id, ..reservation });
        if unregister {
            let me = self.me();
            self.pr.registrations.retain(|r| r.nexus != me);
        }
        self.pr.persist = aptpl;
        self.bump();
        Ok(())
    }
}
