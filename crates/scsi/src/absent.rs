//! Commands that need no logical unit: those addressed to a LUN that does not exist (SPC-4 4.2.6, 6.6.2) and REPORT
//! LUNS.

use crate::cdb::Cdb;
use crate::command_table::{self, Lookup};
use crate::dispatch::check_cdb;
use crate::inquiry;
use crate::outcome::Outcome;
use crate::report_luns::list;
use crate::sense::{Asc, SenseData};

/// Answers REPORT LUNS, received for any LUN, with the target's list. `luns` is sorted.
///
/// The caller also calls [`crate::LogicalUnit::clear_unit_attention`] with [`Asc::REPORTED_LUNS_DATA_CHANGED`] on
/// every unit for the requesting nexus. The outcome is CHECK CONDITION if `cdb` is not a valid REPORT LUNS.
pub fn report_luns(luns: &[u16], cdb: &[u8]) -> Outcome {
    match command_table::find_any(cdb) {
        Lookup::Found(command) if command.opcode == 0xa0 => match check_cdb(command, cdb) {
            Some(sense) => Outcome::check(sense),
            None => list(luns, &Cdb::new(cdb)),
        },
        _ => Outcome::check(SenseData::illegal(Asc::INVALID_OPERATION_CODE)),
    }
}

/// Answers a command for a LUN that does not exist: INQUIRY reports peripheral qualifier 3, REQUEST SENSE returns
/// 5/25/00 as data, every other command completes with 5/25/00. REPORT LUNS must go to [`report_luns`] instead.
//= spc4 4.2.6 CDB-02
pub fn absent_lun(cdb: &[u8]) -> Outcome {
    let not_supported = SenseData::illegal(Asc::LOGICAL_UNIT_NOT_SUPPORTED);
    let Lookup::Found(command) = command_table::find_any(cdb) else { return Outcome::check(not_supported) };
    let fields = Cdb::new(cdb);
    match command.opcode {
        0x12 | 0x03 if check_cdb(command, cdb).is_some() => {
            Outcome::check(check_cdb(command, cdb).unwrap_or(not_supported))
        }
        0x12 => inquiry::absent(&fields),
        0x03 => Outcome::data_in(not_supported.to_bytes(fields.bit(1, 0)), u64::from(fields.u8(4))),
        _ => Outcome::check(not_supported),
    }
}
