//! The commands of this device server: one entry says a command's code, the CDB bits it evaluates, how reservations
//! and unit attentions treat it, whether it touches the medium, and its handler. Dispatch, the reserved-bit check and
//! REPORT SUPPORTED OPERATION CODES all read this table and nothing else.

use crate::execution::{Execution, Request};
use crate::{capacity, inquiry, misc, mode_select, mode_sense, read_write, report_luns, sync_cache};

/// How a reservation of another nexus treats the command (SPC-4 table 51, SBC-3 table 13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Allowed whatever is reserved.
    Always,
    /// Reads the medium: allowed under Write Exclusive types.
    Read,
    /// Conflicts for those whom the reservation type excludes from writing.
    Write,
}

/// What a pending unit attention does to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    /// It is reported instead of executing the command.
    Report,
    /// The command executes (INQUIRY, REPORT LUNS, REQUEST SENSE).
    Ignore,
}

/// Whether the command touches the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediumUse {
    /// No.
    None,
    /// It needs the unit to be ready.
    Read,
    /// It also needs the unit not to be write protected.
    Write,
}

/// One command.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) opcode: u8,
    pub(crate) service_action: Option<u16>,
    /// A bit is 1 where the device server evaluates the CDB bit; the length is the CDB's. Byte 0 and the service
    /// action field are all ones here.
    pub(crate) usage: &'static [u8],
    pub(crate) access: Access,
    pub(crate) attention: Attention,
    pub(crate) medium: MediumUse,
    pub(crate) handler: fn(&Request<'_>) -> Execution,
}

const fn command(
    name: &'static str,
    opcode: u8,
    usage: &'static [u8],
    access: Access,
    handler: fn(&Request<'_>) -> Execution,
) -> Command {
    Command {
        name,
        opcode,
        service_action: None,
        usage,
        access,
        attention: Attention::Report,
        medium: MediumUse::None,
        handler,
    }
}

impl Command {
    const fn sa(mut self, service_action: u16) -> Self {
        self.service_action = Some(service_action);
        self
    }

    const fn reads(mut self) -> Self {
        self.medium = MediumUse::Read;
        self
    }

    const fn writes(mut self) -> Self {
        self.medium = MediumUse::Write;
        self
    }

    const fn under_attention(mut self) -> Self {
        self.attention = Attention::Ignore;
        self
    }
}

use Access::{Always, Read, Write};

const FF: u8 = 0xff;

/// All commands, by operation code and service action.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    command("TEST UNIT READY", 0x00, &[FF, 0, 0, 0, 0, 0], Always, misc::test_unit_ready).reads(),
    command("REQUEST SENSE", 0x03, &[FF, 0x01, 0, 0, FF, 0], Always, misc::request_sense).under_attention(),
    command("READ(6)", 0x08, &[FF, 0x1f, FF, FF, FF, 0], Read, read_write::read_6).reads(),
    command("WRITE(6)", 0x0a, &[FF, 0x1f, FF, FF, FF, 0], Write, read_write::write_6).writes(),
    command("INQUIRY", 0x12, &[FF, 0x01, FF, FF, FF, 0], Always, inquiry::inquiry).under_attention(),
    command("MODE SELECT(6)", 0x15, &[FF, 0x11, 0, 0, FF, 0], Write, mode_select::mode_select_6),
    command("MODE SENSE(6)", 0x1a, &[FF, 0x08, FF, FF, FF, 0], Write, mode_sense::mode_sense_6),
    command("READ CAPACITY(10)", 0x25, &[FF, 0, FF, FF, FF, FF, 0, 0, 0x01, 0], Always, capacity::read_capacity_10).reads(),
    command("READ(10)", 0x28, &[FF, 0xf8, FF, FF, FF, FF, 0x1f, FF, FF, 0], Read, read_write::read_10).reads(),
    command("WRITE(10)", 0x2a, &[FF, 0xf8, FF, FF, FF, FF, 0x1f, FF, FF, 0], Write, read_write::write_10).writes(),
    command("SYNCHRONIZE CACHE(10)", 0x35, &[FF, 0x06, FF, FF, FF, FF, 0x1f, FF, FF, 0], Write, sync_cache::synchronize_cache_10).reads(),
    command("MODE SELECT(10)", 0x55, &[FF, 0x11, 0, 0, 0, 0, 0, FF, FF, 0], Write, mode_select::mode_select_10),
    command("MODE SENSE(10)", 0x5a, &[FF, 0x18, FF, FF, 0, 0, 0, FF, FF, 0], Write, mode_sense::mode_sense_10),
    command("READ(16)", 0x88, &[FF, 0xf8, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Read, read_write::read_16).reads(),
    command("WRITE(16)", 0x8a, &[FF, 0xf8, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, read_write::write_16).writes(),
    command("SYNCHRONIZE CACHE(16)", 0x91, &[FF, 0x06, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, sync_cache::synchronize_cache_16).reads(),
    command("READ CAPACITY(16)", 0x9e, &[FF, 0x1f, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x01, 0], Always, capacity::read_capacity_16).sa(0x10).reads(),
    command("REPORT LUNS", 0xa0, &[FF, 0, FF, 0, 0, 0, FF, FF, FF, FF, 0, 0], Always, report_luns::own_lun).under_attention(),
    command("READ(12)", 0xa8, &[FF, 0xf8, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Read, read_write::read_12).reads(),
    command("WRITE(12)", 0xaa, &[FF, 0xf8, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, read_write::write_12).writes(),
];

/// What the first bytes of a CDB name.
pub(crate) enum Lookup {
    /// A command of the table.
    Found(&'static Command),
    /// No command has this operation code.
    UnknownOpcode,
    /// The operation code is known, but not with this service action.
    UnknownServiceAction {
        /// Where the service action is.
        byte: u16,
        /// Its most significant bit, when it is not whole bytes.
        bit: Option<u8>,
    },
}

/// First entry of each operation code in [`COMMANDS`], or `NONE`.
static FIRST: [u8; 256] = {
    assert!(COMMANDS.len() < NONE as usize);
    let mut first = [NONE; 256];
    let mut i = COMMANDS.len();
    while i > 0 {
        i -= 1;
        let opcode = COMMANDS[i].opcode as usize;
        // Entries of one operation code are neighbours, so that a lookup may stop at the first other one.
        assert!(i == 0 || COMMANDS[i - 1].opcode <= COMMANDS[i].opcode);
        first[opcode] = i as u8;
    }
    first
};

const NONE: u8 = u8::MAX;

/// Operation code of the variable-length CDBs, whose service action is in bytes 8 and 9 (SPC-4 4.2.3).
pub(crate) const VARIABLE_LENGTH: u8 = 0x7f;

/// The entries of an operation code.
pub(crate) fn entries(opcode: u8) -> impl Iterator<Item = &'static Command> {
    let first = FIRST[opcode as usize];
    let from = if first == NONE { COMMANDS.len() } else { first as usize };
    COMMANDS[from..].iter().take_while(move |command| command.opcode == opcode)
}

/// Finds the command that a CDB names.
pub(crate) fn find(cdb: &[u8]) -> Lookup {
    let Some(&opcode) = cdb.first() else { return Lookup::UnknownOpcode };
    let byte = |at: usize| u16::from(cdb.get(at).copied().unwrap_or(0));
    let mut known = false;
    for command in entries(opcode) {
        known = true;
        let actual = match command.service_action {
            None => return Lookup::Found(command),
            Some(_) if opcode == VARIABLE_LENGTH => byte(8) << 8 | byte(9),
            Some(_) => byte(1) & 0x1f,
        };
        if command.service_action == Some(actual) {
            return Lookup::Found(command);
        }
    }
    match (known, opcode) {
        (false, _) => Lookup::UnknownOpcode,
        (true, VARIABLE_LENGTH) => Lookup::UnknownServiceAction { byte: 8, bit: None },
        (true, _) => Lookup::UnknownServiceAction { byte: 1, bit: Some(4) },
    }
}
