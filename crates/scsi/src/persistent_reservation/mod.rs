//! Persistent reservations (SPC-4 5.12, 6.15, 6.16).
//!
//! A registration belongs to an I_T nexus by value: initiator port name, account and target port. It survives the loss of the
//! nexus, so it is stored separately from the attached nexuses. A registration made for a port whose account was unknown
//! (SPEC_I_PT, REGISTER AND MOVE, state stored before accounts existed) belongs to the first nexus that attaches as that port.
//! Invariants: at most one registration per nexus; the holder of a reservation is registered; an all-registrants reservation exists
//! only while a nexus is registered.

mod input;
mod output;
mod rules;
mod transport_id;

use std::sync::Arc;

use crate::nexus::{Nexus, NexusId};

pub(crate) use input::{read_full_status, read_keys, read_reservation, report_capabilities};
pub(crate) use output::persistent_reserve_out;
pub(crate) use rules::{Standing, allowed};

/// Maximum number of registrations of a unit; further ones are rejected with 5/55/04.
pub(crate) const MAX_REGISTRATIONS: usize = 512;

/// Reservation TYPE (SPC-4 table 56).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrantsOnly = 5,
    ExclusiveAccessRegistrantsOnly = 6,
    WriteExclusiveAllRegistrants = 7,
    ExclusiveAccessAllRegistrants = 8,
}

impl Kind {
    //= spc4 6.15.3.4 PR-03
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::WriteExclusive,
            3 => Self::ExclusiveAccess,
            5 => Self::WriteExclusiveRegistrantsOnly,
            6 => Self::ExclusiveAccessRegistrantsOnly,
            7 => Self::WriteExclusiveAllRegistrants,
            8 => Self::ExclusiveAccessAllRegistrants,
            _ => return None,
        })
    }

    pub(crate) fn all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }

    /// All registered nexuses share the access: registrants only and all registrants.
    pub(crate) fn registrants_share(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    pub(crate) fn reads_allowed(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive | Self::WriteExclusiveRegistrantsOnly | Self::WriteExclusiveAllRegistrants
        )
    }
}

/// A registered I_T nexus, by its names: it outlives the session.
//= spc4 5.12.1 PR-13
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) nexus: NexusId,
    pub(crate) initiator_port: Arc<str>,
    pub(crate) account: Option<Arc<str>>,
    pub(crate) target_port_group: u16,
    pub(crate) relative_target_port: u16,
    pub(crate) key: u64,
    /// Registered with ALL_TG_PT.
    pub(crate) all_target_ports: bool,
}

impl Registration {
    fn new(nexus: &Nexus, key: u64) -> Self {
        Self {
            nexus: nexus.id,
            initiator_port: nexus.initiator_port.clone(),
            account: nexus.account.clone(),
            target_port_group: nexus.target_port_group,
            relative_target_port: nexus.relative_target_port,
            key,
            all_target_ports: false,
        }
    }
}

/// A reservation; its scope is always the logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) kind: Kind,
    /// The nexus that made the reservation; without meaning for the all-registrants kinds.
    pub(crate) holder: NexusId,
}

/// Registrations and reservation of a unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct PersistentReservations {
    /// PRGENERATION.
    pub(crate) generation: u32,
    /// APTPL of the last successful registration.
    pub(crate) persist: bool,
    pub(crate) registrations: Vec<Registration>,
    pub(crate) reservation: Option<Reservation>,
}

impl PersistentReservations {
    pub(crate) fn key_of(&self, nexus: NexusId) -> Option<u64> {
        self.registrations.iter().find(|r| r.nexus == nexus).map(|r| r.key)
    }

    /// If `nexus` has no registration, it takes over a registration of its port that was made without an account.
    pub(crate) fn claim(&mut self, nexus: &Nexus) {
        if nexus.account.is_none() || self.key_of(nexus.id).is_some() {
            return;
        }
        let unclaimed =
            Nexus::new(&nexus.initiator_port, nexus.target_port_group, nexus.relative_target_port).id;
        for registration in self.registrations.iter_mut().filter(|r| r.nexus == unclaimed) {
            registration.nexus = nexus.id;
            registration.account = nexus.account.clone();
            if let Some(reservation) = self.reservation.as_mut().filter(|r| r.holder == unclaimed) {
                reservation.holder = nexus.id;
            }
        }
    }

    /// True when `nexus` holds the reservation: it made it, or all registrants hold it and it is one of them.
    pub(crate) fn is_holder(&self, nexus: NexusId) -> bool {
        self.reservation.is_some_and(|reservation| {
            if reservation.kind.all_registrants() {
                self.key_of(nexus).is_some()
            } else {
                reservation.holder == nexus
            }
        })
    }

    /// False if there is a reservation that no registered nexus holds: only a registered nexus can release one.
    fn has_holder(&self) -> bool {
        self.reservation.is_none() || self.registrations.iter().any(|r| self.is_holder(r.nexus))
    }

    /// The relation of `nexus` to the reservation, for the access rules.
    pub(crate) fn standing(&self, nexus: NexusId) -> Standing {
        match self.reservation {
            None => Standing::Free,
            Some(_) if self.is_holder(nexus) => Standing::Free,
            Some(Reservation { kind, .. }) => {
                Standing::Other { kind, registered: self.key_of(nexus).is_some() }
            }
        }
    }
}

/// A registration in a form that can be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrRegistration {
    /// SCSI initiator port name.
    pub initiator_port: String,
    /// The account with which the initiator authenticated; `None`: it did not, or the account is unknown.
    pub account: Option<String>,
    /// Target portal group tag.
    pub target_port_group: u16,
    /// Relative target port identifier.
    pub relative_target_port: u16,
    /// Reservation key; never 0.
    pub key: u64,
    /// Registered with ALL_TG_PT.
    pub all_target_ports: bool,
}

/// Persistent reservations in a form that can be stored, for APTPL. PRGENERATION is not included: SPC-4 5.12.6 sets it to 0 at
/// power on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrState {
    /// All registrations.
    pub registrations: Vec<PrRegistration>,
    /// The reservation's TYPE code and the index of the holder's registration.
    pub reservation: Option<(u8, usize)>,
}

impl PersistentReservations {
    pub(crate) fn export(&self) -> PrState {
        let holder = |reservation: &Reservation| {
            if reservation.kind.all_registrants() {
                return Some(0);
            }
            self.registrations.iter().position(|r| r.nexus == reservation.holder)
        };
        PrState {
            registrations: self
                .registrations
                .iter()
                .map(|r| PrRegistration {
                    initiator_port: r.initiator_port.to_string(),
                    account: r.account.as_deref().map(str::to_owned),
                    target_port_group: r.target_port_group,
                    relative_target_port: r.relative_target_port,
                    key: r.key,
                    all_target_ports: r.all_target_ports,
                })
                .collect(),
            reservation: self.reservation.as_ref().and_then(|r| Some((r.kind as u8, holder(r)?))),
        }
    }

    /// Takes the consistent part of a stored state; compare with [`PersistentReservations::export`] to see what was dropped.
    pub(crate) fn import(stored: &PrState) -> Self {
        let mut state = Self { persist: true, ..Self::default() };
        let mut holder = None;
        for (i, stored_one) in stored.registrations.iter().enumerate().take(MAX_REGISTRATIONS) {
            let nexus = Nexus::new(
                &stored_one.initiator_port,
                stored_one.target_port_group,
                stored_one.relative_target_port,
            )
            .with_account(stored_one.account.as_deref());
            if stored_one.key == 0 || state.key_of(nexus.id).is_some() {
                continue;
            }
            if stored.reservation.is_some_and(|(_, index)| index == i) {
                holder = Some(nexus.id);
            }
            let mut registration = Registration::new(&nexus, stored_one.key);
            registration.all_target_ports = stored_one.all_target_ports;
            state.registrations.push(registration);
        }
        if let (Some((code, _)), Some(holder)) = (stored.reservation, holder)
            && let Some(kind) = Kind::from_code(code)
        {
            state.reservation = Some(Reservation { kind, holder });
        }
        state
    }
}
