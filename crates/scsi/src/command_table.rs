//! The commands of this device server. One entry holds a command's code, the CDB bits it evaluates, how reservations and unit
//! attentions treat it, whether it touches the medium, and its handler. Dispatch, the reserved-bit check and REPORT SUPPORTED
//! OPERATION CODES all read only this table.

use crate::access::Access;
use crate::access_state::Reach;
use crate::erase;
use crate::execution::{Execution, Request};
use crate::logical_unit::LogicalUnit;
use crate::persistent_reservation as pr;
use crate::readiness::EraseKind;
use crate::{
    atomic, capacity, identifying, inquiry, lba_status, log_sense, misc, mode_select, mode_sense, orwrite,
    prefetch, pseudo_error, read_write, report_luns, report_opcodes, reservation, sync_cache,
    target_port_groups, third_party, timestamp, unmap, verify, write_same,
};

/// What a pending unit attention does to a command.
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
    /// Like a write, and success clears the failed state of an earlier command of the same kind.
    Erase(EraseKind),
}

/// What a command does with the blocks of a unit, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandClass {
    /// Transfers them to the host.
    Read,
    /// Transfers them from the host.
    Write,
    /// SYNCHRONIZE CACHE.
    Flush,
    /// UNMAP.
    Unmap,
    /// None of these.
    Other,
}

/// What a program around the device server needs to know about a command, for statistics, repetition and dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandFacts {
    /// What it does with blocks.
    pub class: CommandClass,
    /// Executing the command twice has the same effect as once, as far as its initiator can see. Only then may it be sent
    /// again when it is unknown whether it was executed. False for an unknown command.
    pub idempotent: bool,
    /// The command reads the time or depends on it: call [`LogicalUnit::set_time`] first.
    pub timed: bool,
    /// The command is answered for all units of the target ([`crate::report_luns`]).
    pub of_target: bool,
}

impl CommandFacts {
    const UNKNOWN: Self =
        Self { class: CommandClass::Other, idempotent: false, timed: false, of_target: false };
}

/// Which part of the configuration a command depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// Thin provisioning.
    Thin,
    /// A limit for atomic writes that is not 0.
    Atomic,
    /// A medium on which overwritten data is gone.
    Sanitize,
    /// A secret for making tokens.
    Tokens,
    /// Hosts that may set access states.
    ExplicitAccess,
    /// Room for protection information.
    Protection,
    /// Room for protection information, and a limit for atomic writes.
    ProtectionAndAtomic,
}

/// One command.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) opcode: u8,
    pub(crate) service_action: Option<u16>,
    /// A bit is 1 where the device server evaluates the CDB bit; the length is the CDB's. Byte 0 and the service action field
    /// are all ones here.
    pub(crate) usage: &'static [u8],
    pub(crate) access: Access,
    pub(crate) attention: Attention,
    pub(crate) medium: MediumUse,
    pub(crate) needs: Needs,
    pub(crate) reach: Reach,
    pub(crate) facts: CommandFacts,
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
        needs: Needs::Nothing,
        reach: Reach::Active,
        facts: CommandFacts::UNKNOWN,
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

    const fn erases(mut self, kind: EraseKind) -> Self {
        self.medium = MediumUse::Erase(kind);
        self
    }

    const fn class(mut self, class: CommandClass) -> Self {
        self.facts.class = class;
        self
    }

    const fn idempotent(mut self) -> Self {
        self.facts.idempotent = true;
        self
    }

    const fn timed(mut self) -> Self {
        self.facts.timed = true;
        self
    }

    const fn of_target(mut self) -> Self {
        self.facts.of_target = true;
        self
    }

    const fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }

    /// Whether a unit with this configuration supports the command.
    pub(crate) fn supported(&self, lu: &LogicalUnit) -> bool {
        let config = lu.config();
        match self.needs {
            Needs::Nothing => true,
            Needs::Thin => lu.thin(),
            Needs::Atomic => config.limits.max_atomic_blocks > 0,
            Needs::Sanitize => config.medium.sanitize,
            Needs::Tokens => config.token_secret.is_some(),
            Needs::ExplicitAccess => lu.with_paths(|paths| paths.explicit_access_states),
            Needs::Protection => config.medium.protectable,
            Needs::ProtectionAndAtomic => config.medium.protectable && config.limits.max_atomic_blocks > 0,
        }
    }

    /// Also executed in standby.
    const fn standby(mut self) -> Self {
        self.reach = Reach::Standby;
        self
    }

    /// Executed in every state of the target port group.
    const fn everywhere(mut self) -> Self {
        self.reach = Reach::All;
        self
    }

    const fn under_attention(mut self) -> Self {
        self.attention = Attention::Ignore;
        self
    }
}

use Access::{Always, Discovery, Legacy, PersistentIn, PersistentOut, Prevent, Read, StartStop, Write};

const FF: u8 = 0xff;

/// All commands, by operation code and service action.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    command("TEST UNIT READY", 0x00, &[FF, 0, 0, 0, 0, 0], Always, misc::test_unit_ready).reads().idempotent(),
    command("REQUEST SENSE", 0x03, &[FF, 0x01, 0, 0, FF, 0], Discovery, misc::request_sense).under_attention().everywhere().idempotent(),
    command("FORMAT UNIT", 0x04, &[FF, FF, 0, 0, 0, 0], Write, erase::format_unit).erases(EraseKind::Format),
    command("READ(6)", 0x08, &[FF, 0x1f, FF, FF, FF, 0], Read, read_write::read_6).reads().class(CommandClass::Read).idempotent(),
    command("WRITE(6)", 0x0a, &[FF, 0x1f, FF, FF, FF, 0], Write, read_write::write_6).writes().class(CommandClass::Write).idempotent(),
    command("INQUIRY", 0x12, &[FF, 0x01, FF, FF, FF, 0], Discovery, inquiry::inquiry).under_attention().everywhere().idempotent(),
    command("MODE SELECT(6)", 0x15, &[FF, 0x11, 0, 0, FF, 0], Write, mode_select::mode_select_6).standby(),
    command("RESERVE(6)", 0x16, &[FF, 0, 0, 0, 0, 0], Legacy, reservation::reserve),
    command("RELEASE(6)", 0x17, &[FF, 0, 0, 0, 0, 0], Legacy, reservation::release),
    command("MODE SENSE(6)", 0x1a, &[FF, 0x08, FF, FF, FF, 0], Write, mode_sense::mode_sense_6).standby().idempotent(),
    command("START STOP UNIT", 0x1b, &[FF, 0x01, 0, 0x0f, 0xf7, 0], StartStop, misc::start_stop_unit).idempotent(),
    command("RECEIVE DIAGNOSTIC RESULTS", 0x1c, &[FF, 0x01, FF, FF, FF, 0], Write, misc::receive_diagnostic_results).standby(),
    command("SEND DIAGNOSTIC", 0x1d, &[FF, 0xf7, 0, FF, FF, 0], Write, misc::send_diagnostic).standby(),
    command("PREVENT ALLOW MEDIUM REMOVAL", 0x1e, &[FF, 0, 0, 0, 0x01, 0], Prevent, misc::prevent_allow_medium_removal),
    command("READ CAPACITY(10)", 0x25, &[FF, 0, FF, FF, FF, FF, 0, 0, 0x01, 0], Always, capacity::read_capacity_10).reads().idempotent(),
    command("READ(10)", 0x28, &[FF, 0xfe, FF, FF, FF, FF, 0x1f, FF, FF, 0], Read, read_write::read_10).reads().class(CommandClass::Read).idempotent(),
    command("WRITE(10)", 0x2a, &[FF, 0xfa, FF, FF, FF, FF, 0x1f, FF, FF, 0], Write, read_write::write_10).writes().class(CommandClass::Write).idempotent(),
    command("WRITE AND VERIFY(10)", 0x2e, &[FF, 0xf2, FF, FF, FF, FF, 0x1f, FF, FF, 0], Write, verify::write_and_verify_10).writes().class(CommandClass::Write).idempotent(),
    command("VERIFY(10)", 0x2f, &[FF, 0xf6, FF, FF, FF, FF, 0x1f, FF, FF, 0], Read, verify::verify_10).reads().idempotent(),
    command("PRE-FETCH(10)", 0x34, &[FF, 0x02, FF, FF, FF, FF, 0x1f, FF, FF, 0], Read, prefetch::prefetch_10).reads().idempotent(),
    command("SYNCHRONIZE CACHE(10)", 0x35, &[FF, 0x06, FF, FF, FF, FF, 0x1f, FF, FF, 0], Write, sync_cache::synchronize_cache_10).reads().class(CommandClass::Flush).idempotent(),
    command("READ DEFECT DATA(10)", 0x37, &[FF, 0, 0x1f, 0, 0, 0, 0, FF, FF, 0], Read, misc::read_defect_data_10).reads(),
    command("WRITE LONG(10)", 0x3f, &[FF, 0xc0, FF, FF, FF, FF, 0, FF, FF, 0], Write, pseudo_error::write_long_10).writes(),
    command("WRITE SAME(10)", 0x41, &[FF, 0xf8, FF, FF, FF, FF, 0x1f, FF, FF, 0], Write, write_same::write_same_10).writes().class(CommandClass::Write).idempotent(),
    command("UNMAP", 0x42, &[FF, 0x01, 0, 0, 0, 0, 0x1f, FF, FF, 0], Write, unmap::unmap).writes().needs(Needs::Thin).class(CommandClass::Unmap).idempotent(),
    command("SANITIZE, OVERWRITE", 0x48, &[FF, 0xbf, 0, 0, 0, 0, 0, FF, FF, 0], Write, erase::sanitize_overwrite).sa(1).erases(EraseKind::Sanitize).needs(Needs::Sanitize),
    command("SANITIZE, BLOCK ERASE", 0x48, &[FF, 0xbf, 0, 0, 0, 0, 0, FF, FF, 0], Write, erase::sanitize_block_erase).sa(2).erases(EraseKind::Sanitize).needs(Needs::Sanitize),
    command("SANITIZE, EXIT FAILURE MODE", 0x48, &[FF, 0xbf, 0, 0, 0, 0, 0, FF, FF, 0], Write, erase::sanitize_exit_failure_mode).sa(0x1f).erases(EraseKind::Sanitize).needs(Needs::Sanitize),
    command("LOG SENSE", 0x4d, &[FF, 0x01, FF, FF, 0, FF, FF, FF, FF, 0], Always, log_sense::log_sense).standby().idempotent(),
    command("MODE SELECT(10)", 0x55, &[FF, 0x11, 0, 0, 0, 0, 0, FF, FF, 0], Write, mode_select::mode_select_10).standby(),
    command("RESERVE(10)", 0x56, &[FF, 0, 0, 0, 0, 0, 0, 0, 0, 0], Legacy, reservation::reserve),
    command("RELEASE(10)", 0x57, &[FF, 0, 0, 0, 0, 0, 0, 0, 0, 0], Legacy, reservation::release),
    command("MODE SENSE(10)", 0x5a, &[FF, 0x18, FF, FF, 0, 0, 0, FF, FF, 0], Write, mode_sense::mode_sense_10).standby().idempotent(),
    command("PERSISTENT RESERVE IN, READ KEYS", 0x5e, &[FF, 0x1f, 0, 0, 0, 0, 0, FF, FF, 0], PersistentIn, pr::read_keys).sa(0).standby().idempotent(),
    command("PERSISTENT RESERVE IN, READ RESERVATION", 0x5e, &[FF, 0x1f, 0, 0, 0, 0, 0, FF, FF, 0], PersistentIn, pr::read_reservation).sa(1).standby().idempotent(),
    command("PERSISTENT RESERVE IN, REPORT CAPABILITIES", 0x5e, &[FF, 0x1f, 0, 0, 0, 0, 0, FF, FF, 0], PersistentIn, pr::report_capabilities).sa(2).standby().idempotent(),
    command("PERSISTENT RESERVE IN, READ FULL STATUS", 0x5e, &[FF, 0x1f, 0, 0, 0, 0, 0, FF, FF, 0], PersistentIn, pr::read_full_status).sa(3).standby().idempotent(),
    command("PERSISTENT RESERVE OUT, REGISTER", 0x5f, &[FF, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0], PersistentOut, pr::persistent_reserve_out).sa(0).standby(),
    command("PERSISTENT RESERVE OUT, RESERVE", 0x5f, &[FF, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0], PersistentOut, pr::persistent_reserve_out).sa(1).standby(),
    command("PERSISTENT RESERVE OUT, RELEASE", 0x5f, &[FF, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0], PersistentOut, pr::persistent_reserve_out).sa(2).standby(),
    command("PERSISTENT RESERVE OUT, CLEAR", 0x5f, &[FF, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0], PersistentOut, pr::persistent_reserve_out).sa(3).standby(),
    command("PERSISTENT RESERVE OUT, PREEMPT", 0x5f, &[FF, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0], PersistentOut, pr::persistent_reserve_out).sa(4).standby(),
    command("PERSISTENT RESERVE OUT, PREEMPT AND ABORT", 0x5f, &[FF, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0], PersistentOut, pr::persistent_reserve_out).sa(5).standby(),
    command("PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", 0x5f, &[FF, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0], PersistentOut, pr::persistent_reserve_out).sa(6).standby(),
    command("PERSISTENT RESERVE OUT, REGISTER AND MOVE", 0x5f, &[FF, 0x1f, FF, 0, 0, FF, FF, FF, FF, 0], PersistentOut, pr::persistent_reserve_out).sa(7).standby(),
    command("READ(32)", 0x7f, &[FF, 0, 0, 0, 0, 0, 0x1f, 0x18, FF, FF, 0xfe, 0, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF], Read, read_write::read_32).sa(0x09).reads().needs(Needs::Protection).class(CommandClass::Read).idempotent(),
    command("VERIFY(32)", 0x7f, &[FF, 0, 0, 0, 0, 0, 0x1f, 0x18, FF, FF, 0xf6, 0, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF], Read, verify::verify_32).sa(0x0a).reads().needs(Needs::Protection).idempotent(),
    command("WRITE(32)", 0x7f, &[FF, 0, 0, 0, 0, 0, 0x1f, 0x18, FF, FF, 0xfa, 0, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF], Write, read_write::write_32).sa(0x0b).writes().needs(Needs::Protection).class(CommandClass::Write).idempotent(),
    command("WRITE AND VERIFY(32)", 0x7f, &[FF, 0, 0, 0, 0, 0, 0x1f, 0x18, FF, FF, 0xf2, 0, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF], Write, verify::write_and_verify_32).sa(0x0c).writes().needs(Needs::Protection).class(CommandClass::Write).idempotent(),
    command("WRITE SAME(32)", 0x7f, &[FF, 0, 0, 0, 0, 0, 0x1f, 0x18, FF, FF, 0xf9, 0, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF], Write, write_same::write_same_32).sa(0x0d).writes().needs(Needs::Protection).class(CommandClass::Write).idempotent(),
    command("ORWRITE(32)", 0x7f, &[FF, 0, 0x07, 0x0f, 0, 0, 0x1f, 0x18, FF, FF, 0xfa, 0, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF], Write, orwrite::or_write_32).sa(0x0e).writes().needs(Needs::Protection).class(CommandClass::Write),
    command("WRITE ATOMIC(32)", 0x7f, &[FF, 0, 0, 0, FF, FF, 0x1f, 0x18, FF, FF, 0xf8, 0, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF], Write, atomic::write_atomic_32).sa(0x0f).writes().needs(Needs::ProtectionAndAtomic).class(CommandClass::Write),
    command("EXTENDED COPY(LID1)", 0x83, &[FF, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Write, third_party::extended_copy_lid1).sa(0x00).timed(),
    command("EXTENDED COPY(LID4)", 0x83, &[FF, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Write, third_party::extended_copy_lid4).sa(0x01).timed(),
    command("POPULATE TOKEN", 0x83, &[FF, 0x1f, 0, 0, 0, 0, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Read, third_party::populate_token).sa(0x10).reads().needs(Needs::Tokens).timed(),
    command("WRITE USING TOKEN", 0x83, &[FF, 0x1f, 0, 0, 0, 0, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, third_party::write_using_token).sa(0x11).writes().needs(Needs::Tokens).timed(),
    command("COPY OPERATION ABORT", 0x83, &[FF, 0x1f, FF, FF, FF, FF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Always, third_party::copy_operation_abort).sa(0x1c).timed(),
    command("RECEIVE COPY STATUS(LID1)", 0x84, &[FF, 0x1f, FF, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Always, third_party::copy_status_lid1).sa(0x00).timed(),
    command("RECEIVE COPY OPERATING PARAMETERS", 0x84, &[FF, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Always, third_party::operating_parameters).sa(0x03).timed(),
    command("RECEIVE COPY FAILURE DETAILS(LID1)", 0x84, &[FF, 0x1f, FF, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Always, third_party::failed_segment_details).sa(0x04).timed(),
    command("RECEIVE COPY STATUS(LID4)", 0x84, &[FF, 0x1f, FF, FF, FF, FF, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Always, third_party::copy_status_lid4).sa(0x05).timed(),
    command("RECEIVE ROD TOKEN INFORMATION", 0x84, &[FF, 0x1f, FF, FF, FF, FF, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Always, third_party::rod_token_information).sa(0x07).needs(Needs::Tokens).timed(),
    command("READ(16)", 0x88, &[FF, 0xfe, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Read, read_write::read_16).reads().class(CommandClass::Read).idempotent(),
    command("COMPARE AND WRITE", 0x89, &[FF, 0xfa, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0, 0, FF, 0x1f, 0], Write, atomic::compare_and_write).writes().class(CommandClass::Write),
    command("WRITE(16)", 0x8a, &[FF, 0xfa, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, read_write::write_16).writes().class(CommandClass::Write).idempotent(),
    command("ORWRITE(16)", 0x8b, &[FF, 0xfa, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, orwrite::or_write_16).writes().class(CommandClass::Write).idempotent(),
    command("WRITE AND VERIFY(16)", 0x8e, &[FF, 0xf2, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, verify::write_and_verify_16).writes().class(CommandClass::Write).idempotent(),
    command("VERIFY(16)", 0x8f, &[FF, 0xf6, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Read, verify::verify_16).reads().idempotent(),
    command("PRE-FETCH(16)", 0x90, &[FF, 0x02, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Read, prefetch::prefetch_16).reads().idempotent(),
    command("SYNCHRONIZE CACHE(16)", 0x91, &[FF, 0x06, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, sync_cache::synchronize_cache_16).reads().class(CommandClass::Flush).idempotent(),
    command("WRITE SAME(16)", 0x93, &[FF, 0xf9, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, write_same::write_same_16).writes().class(CommandClass::Write).idempotent(),
    command("WRITE ATOMIC(16)", 0x9c, &[FF, 0xf8, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, atomic::write_atomic_16).writes().needs(Needs::Atomic).class(CommandClass::Write),
    command("READ CAPACITY(16)", 0x9e, &[FF, 0x1f, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0x01, 0], Always, capacity::read_capacity_16).sa(0x10).reads().idempotent(),
    command("GET LBA STATUS(16)", 0x9e, &[FF, 0x1f, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0], Read, lba_status::get_lba_status).sa(0x12).reads().idempotent(),
    command("WRITE LONG(16)", 0x9f, &[FF, 0xdf, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0, FF, FF, 0, 0], Write, pseudo_error::write_long_16).sa(0x11).writes(),
    command("REPORT LUNS", 0xa0, &[FF, 0, FF, 0, 0, 0, FF, FF, FF, FF, 0, 0], Discovery, report_luns::own_lun).under_attention().everywhere().idempotent().of_target(),
    command("REPORT IDENTIFYING INFORMATION", 0xa3, &[FF, 0x1f, 0, 0, 0, 0, FF, FF, FF, FF, 0xfe, 0], Always, identifying::report).sa(0x05).idempotent().timed(),
    command("REPORT TARGET PORT GROUPS", 0xa3, &[FF, FF, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Always, target_port_groups::report).sa(0x0a).everywhere().idempotent().timed(),
    command("REPORT SUPPORTED OPERATION CODES", 0xa3, &[FF, 0x1f, 0x87, FF, FF, FF, FF, FF, FF, FF, 0, 0], Always, report_opcodes::report_opcodes).sa(0x0c).idempotent().timed(),
    command("REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", 0xa3, &[FF, 0x1f, 0x80, 0, 0, 0, FF, FF, FF, FF, 0, 0], Always, report_opcodes::report_task_management).sa(0x0d).idempotent().timed(),
    command("REPORT TIMESTAMP", 0xa3, &[FF, 0x1f, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Always, timestamp::report).sa(0x0f).idempotent().timed(),
    command("SET IDENTIFYING INFORMATION", 0xa4, &[FF, 0x1f, 0, 0, 0, 0, FF, FF, FF, FF, 0xfe, 0], Write, identifying::set).sa(0x06).timed(),
    command("SET TARGET PORT GROUPS", 0xa4, &[FF, 0x1f, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Write, target_port_groups::set).sa(0x0a).needs(Needs::ExplicitAccess).everywhere().timed(),
    command("SET TIMESTAMP", 0xa4, &[FF, 0x1f, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Write, timestamp::set).sa(0x0f).timed(),
    command("READ(12)", 0xa8, &[FF, 0xfe, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Read, read_write::read_12).reads().class(CommandClass::Read).idempotent(),
    command("WRITE(12)", 0xaa, &[FF, 0xfa, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, read_write::write_12).writes().class(CommandClass::Write).idempotent(),
    command("WRITE AND VERIFY(12)", 0xae, &[FF, 0xf2, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Write, verify::write_and_verify_12).writes().class(CommandClass::Write).idempotent(),
    command("VERIFY(12)", 0xaf, &[FF, 0xf6, FF, FF, FF, FF, FF, FF, FF, FF, 0x1f, 0], Read, verify::verify_12).reads().idempotent(),
    command("READ DEFECT DATA(12)", 0xb7, &[FF, 0x1f, 0, 0, 0, 0, FF, FF, FF, FF, 0, 0], Read, misc::read_defect_data_12).reads(),
];

/// What the first bytes of a CDB identify.
pub(crate) enum Lookup {
    /// A command of the table.
    Found(&'static Command),
    /// No command has this operation code.
    UnknownOpcode,
    /// The operation code is known, but not with this service action.
    UnknownServiceAction {
        /// Where the service action is.
        byte: u16,
        /// Its most significant bit, if the field does not consist of whole bytes.
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
        // Entries with the same operation code are adjacent, so a lookup may stop at the first different one.
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

/// Finds the command of a CDB among those that a unit with this configuration supports.
pub(crate) fn find(cdb: &[u8], lu: &LogicalUnit) -> Lookup {
    find_where(cdb, |command| command.supported(lu))
}

/// Finds the command of a CDB in the whole table.
pub(crate) fn find_any(cdb: &[u8]) -> Lookup {
    find_where(cdb, |_| true)
}

fn find_where(cdb: &[u8], supported: impl Fn(&Command) -> bool) -> Lookup {
    let Some(&opcode) = cdb.first() else { return Lookup::UnknownOpcode };
    let byte = |at: usize| u16::from(cdb.get(at).copied().unwrap_or(0));
    let mut known = false;
    for command in entries(opcode).filter(|command| supported(command)) {
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

/// The standard's name for the command of a CDB, for human readers: logs, statistics, traces.
pub fn command_name(cdb: &[u8]) -> Option<&'static str> {
    match find_any(cdb) {
        Lookup::Found(command) => Some(command.name),
        _ => None,
    }
}

/// The facts about the command of a CDB, whether or not a unit supports it.
//= rfc7143 7.15 ERL-10
pub fn command_facts(cdb: &[u8]) -> CommandFacts {
    match find_any(cdb) {
        Lookup::Found(command) => command.facts,
        _ => CommandFacts::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeating a command that must not be repeated destroys data, so this test derives the rule from the standard's names.
    // covers: ERL-10
    #[test]
    fn only_commands_whose_repetition_changes_nothing_are_idempotent() {
        let not_twice = [
            "COMPARE AND WRITE",
            "RESERVE",
            "RELEASE",
            "PERSISTENT RESERVE OUT",
            "EXTENDED COPY",
            "POPULATE TOKEN",
            "WRITE USING TOKEN",
            "ORWRITE(32)",
            "WRITE ATOMIC",
            "WRITE LONG",
            "FORMAT UNIT",
            "SANITIZE",
            "MODE SELECT",
            "SEND DIAGNOSTIC",
            "SET ",
        ];
        for command in COMMANDS {
            if not_twice.iter().any(|name| command.name.starts_with(name)) {
                assert!(!command.facts.idempotent, "{}", command.name);
            }
            let moves_plain_blocks = ["READ(", "WRITE(", "WRITE SAME(", "VERIFY(", "SYNCHRONIZE CACHE("];
            if moves_plain_blocks.iter().any(|name| command.name.starts_with(name)) {
                assert!(command.facts.idempotent, "{}", command.name);
            }
        }
        assert_eq!(command_facts(&[]), CommandFacts::UNKNOWN);
        assert_eq!(command_facts(&[0x7f; 4]), CommandFacts::UNKNOWN, "a 32-byte command that is cut short");
    }
}
