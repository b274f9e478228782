//! From a CDB to the handler of its command: the checks that every command passes.
//!
//! Their order: unit attention, missing medium, access state and reservation (both only for known commands), known command, CDB length
//! and reserved bits, readiness, write protection. A read or write takes no lock while no unit attention is pending for its nexus,
//! nothing is reserved, the unit is ready, every target port group is in an active state, and there are no tokens or blocks marked as
//! unreadable.

use crate::cdb::{Cdb, MAX_CDB_BYTES};
use crate::command_table::{self, Attention, Command, Lookup, MediumUse, VARIABLE_LENGTH};
use crate::execution::{Execution, Request};
use crate::logical_unit::LogicalUnit;
use crate::nexus::Nexus;
use crate::outcome::{Outcome, Status};
use crate::sense::{Asc, SenseData, SenseKey};
use crate::state::{GATE_ACCESS, GATE_NOT_READY, GATE_RESERVED, GATE_UNIT_ATTENTION};

/// A variable-length CDB holds its own length; the number of bytes delivered by the transport must match.
//= rfc7143 11.2.2.3 AHS-04
//= sbc3 4.2.5 CDB-06
fn variable_length_mismatch(cdb: &[u8]) -> Option<SenseData> {
    const HEADER_BYTES: usize = 8;
    let announced = match cdb {
        [VARIABLE_LENGTH, _, _, _, _, _, _, additional, ..] => HEADER_BYTES + usize::from(*additional),
        _ => return None,
    };
    (announced != cdb.len()).then(|| SenseData::cdb_field(7, None))
}

impl LogicalUnit {
    /// Starts a command. `cdb` is the whole CDB, including its extended part; iSCSI pads short ones to 16 bytes.
    ///
    /// Same as [`LogicalUnit::begin_offering`] with no data-out.
    pub fn begin(&self, nexus: &Nexus, cdb: &[u8]) -> Execution {
        self.begin_offering(nexus, cdb, 0)
    }

    /// Starts a command with which the initiator offers `offered` bytes of data-out (its expected data transfer length, 0 without
    /// the W bit): a COMPARE AND WRITE of no blocks is rejected when it offers data.
    pub fn begin_offering(&self, nexus: &Nexus, cdb: &[u8], offered: u64) -> Execution {
        let mut execution = self.dispatch(nexus, cdb, offered);
        execution.note_end(self, nexus);
        execution.finish(self);
        execution
    }

    fn dispatch(&self, nexus: &Nexus, cdb: &[u8], offered: u64) -> Execution {
        let lookup = command_table::find(cdb, self);
        let gate = self.gate();
        if gate != 0
            && let Some(refusal) = self.gate_check(gate, nexus, &lookup, cdb)
        {
            return refusal;
        }
        if let Some(sense) = variable_length_mismatch(cdb) {
            return Execution::check(sense);
        }
        let command = match lookup {
            Lookup::Found(command) => command,
            //= spc4 4.2.6 CDB-02
            Lookup::UnknownOpcode => {
                return Execution::check(SenseData::illegal(Asc::INVALID_OPERATION_CODE));
            }
            Lookup::UnknownServiceAction { byte, bit } => {
                return Execution::check(SenseData::cdb_field(byte, bit));
            }
        };
        if let Some(sense) = check_cdb(command, cdb) {
            return Execution::check(sense);
        }
        if command.medium != MediumUse::None
            && gate & GATE_NOT_READY != 0
            && let Some((sense, cure)) = self.with_state(|state| state.readiness.obstacle())
            && (cure.is_none() || !matches!(command.medium, MediumUse::Erase(kind) if Some(kind) == cure))
        {
            return Execution::check(sense);
        }
        let writes = matches!(command.medium, MediumUse::Write | MediumUse::Erase(_));
        if let Err(sense) = self.check_write_protection(writes) {
            return Execution::check(sense);
        }
        (command.handler)(&Request { lu: self, nexus, cdb: &Cdb::new(cdb), offered })
    }

    /// The response if a pending unit attention, a missing medium, an access state or a reservation stops the command.
    fn gate_check(&self, gate: u32, nexus: &Nexus, lookup: &Lookup, cdb: &[u8]) -> Option<Execution> {
        let command = match lookup {
            Lookup::Found(command) => Some(*command),
            _ => None,
        };
        let attention = command.map_or(Attention::Report, |command| command.attention);
        //= sam5 5.14.1 UA-02
        if gate & GATE_UNIT_ATTENTION != 0
            && attention == Attention::Report
            && nexus.may_have_attention()
            && let Some(asc) = self.with_state(|state| state.report_attention(nexus.id))
        {
            return Some(Execution::check(SenseData::new(SenseKey::UnitAttention, asc)));
        }
        // Reservations and mode pages also belong to the missing disk: nothing may be stored in its place.
        if self.config().medium.missing && attention == Attention::Report {
            let asc = Asc::MANUAL_INTERVENTION_REQUIRED;
            return Some(Execution::check(SenseData::new(SenseKey::NotReady, asc)));
        }
        //= spc4 5.15.2.4 ALU-04 ALU-05
        if gate & GATE_ACCESS != 0
            && let Some(command) = command
            && let Some(sense) = self.access_state(nexus.target_port_group).refusal(command.reach)
        {
            return Some(Execution::check(sense));
        }
        if gate & GATE_RESERVED == 0 {
            return None;
        }
        let access = command?.access.resolve(cdb);
        //= sam5 5.3.1 SNS-06
        let conflict = || Execution::done(Outcome::status(Status::ReservationConflict));
        (!self.reservations_admit(nexus, access)).then(conflict)
    }
}

//= spc4 4.2.6 CDB-01
pub(crate) fn check_cdb(command: &Command, cdb: &[u8]) -> Option<SenseData> {
    let usage = command.usage;
    if cdb.len() < usage.len() {
        return Some(SenseData::cdb_field(u16::try_from(cdb.len()).unwrap_or(0), None));
    }
    debug_assert!(usage.len() <= MAX_CDB_BYTES);
    let at = (1..usage.len()).find(|&at| cdb[at] & !usage[at] != 0)?;
    let bit = 7 - (cdb[at] & !usage[at]).leading_zeros() as u8;
    Some(SenseData::cdb_field(at as u16, Some(bit)))
}
