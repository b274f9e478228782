//! REPORT SUPPORTED OPERATION CODES and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4 6.34, 6.35), both read from
//! the command table and the configuration.

use crate::cdb::Cdb;
use crate::command_table::{COMMANDS, Command, VARIABLE_LENGTH, entries};
use crate::execution::{Execution, Request};
use crate::logical_unit::LogicalUnit;
use crate::outcome::Outcome;
use crate::sense::SenseData;

/// A command timeouts descriptor that specifies no timeout (SPC-4 6.34.4).
const NO_TIMEOUTS: [u8; 12] = [0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

pub(crate) fn report_opcodes(request: &Request<'_>) -> Execution {
    let cdb = request.cdb;
    let lu = request.lu;
    let timeouts = cdb.bit(2, 7);
    let data = match cdb.u8(2) & 7 {
        0 => Ok(all(lu, timeouts)),
        option @ 1..=3 => one(lu, cdb, option, timeouts),
        _ => Err(SenseData::cdb_field(2, Some(2))),
    };
    Execution::done(match data {
        Ok(data) => Outcome::data_in(data, u64::from(cdb.u32(6))),
        Err(sense) => Outcome::check(sense),
    })
}

/// Linux requests this before it sends a command that not every disk supports.
//= linux sd HST-05
fn all(lu: &LogicalUnit, timeouts: bool) -> Vec<u8> {
    let mut data = vec![0; 4];
    for command in COMMANDS.iter().filter(|command| command.supported(lu)) {
        let [sa_hi, sa_lo] = command.service_action.unwrap_or(0).to_be_bytes();
        let flags = u8::from(command.service_action.is_some()) | if timeouts { 2 } else { 0 };
        data.extend([command.opcode, 0, sa_hi, sa_lo, 0, flags, 0, command.usage.len() as u8]);
        if timeouts {
            data.extend(NO_TIMEOUTS);
        }
    }
    let length = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&length.to_be_bytes());
    data
}

/// Options: 1 an operation code without service actions, 2 one with service actions, 3 either.
fn one(lu: &LogicalUnit, cdb: &Cdb, option: u8, timeouts: bool) -> Result<Vec<u8>, SenseData> {
    let (opcode, service_action) = (cdb.u8(3), cdb.u16(4));
    let mut of_opcode = entries(opcode).filter(|command| command.supported(lu)).peekable();
    let has_actions = of_opcode.peek().is_some_and(|command| command.service_action.is_some());
    let known = of_opcode.peek().is_some();
    match option {
        1 if has_actions => return Err(SenseData::cdb_field(2, Some(2))),
        2 if known && !has_actions => return Err(SenseData::cdb_field(2, Some(2))),
        _ => {}
    }
    let found = of_opcode.find(|command| match command.service_action {
        Some(action) => action == service_action,
        None => option == 1 || service_action == 0,
    });
    let Some(command) = found else {
        return Ok(vec![0, 0x01, 0, 0]); // SUPPORT 001b: not supported
    };
    let mut data = vec![0, 0x03 | if timeouts { 0x80 } else { 0 }, 0, command.usage.len() as u8];
    data.extend(usage_data(command));
    if timeouts {
        data.extend(NO_TIMEOUTS);
    }
    Ok(data)
}

/// CDB USAGE DATA: the map, with the operation code and the service action in their own fields.
fn usage_data(command: &Command) -> Vec<u8> {
    let mut usage = command.usage.to_vec();
    usage[0] = command.opcode;
    if let Some(action) = command.service_action {
        let [hi, lo] = action.to_be_bytes();
        if command.opcode == VARIABLE_LENGTH {
            usage[8..10].copy_from_slice(&[hi, lo]);
        } else {
            usage[1] = usage[1] & 0xe0 | lo & 0x1f;
        }
    }
    usage
}

//= spc4 6.35 TSK-04
pub(crate) fn report_task_management(request: &Request<'_>) -> Execution {
    let allocation_length = u64::from(request.cdb.u32(6));
    if allocation_length < 4 {
        return Execution::check(SenseData::cdb_field(6, None));
    }
    let [first, second] = request.lu.config().task_management;
    let data = if request.cdb.bit(2, 7) {
        // REPD: the extended form, with no timeouts specified.
        vec![first, second, 0, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    } else {
        vec![first, second, 0, 0]
    };
    Execution::done(Outcome::data_in(data, allocation_length))
}
