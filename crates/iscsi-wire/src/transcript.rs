//! One header as one line, for transcripts, traces and error messages; and [lines](PduLine) as PDUs, for scripts.
//!
//! Fields without meaning in the given PDU (reserved tags, zero offsets of ping data, ...) are left out, so
//! that a session is easy to read. The names are those of the PDU structs' fields, long ones shortened
//! (`edtl`, `len`).

mod build;
mod line;

pub use line::{LineError, Names, PduLine, Usual};

use crate::{Ahs, Bhs, Itt, Lun, Pdu, ResidualCount, ResponseNumbers, Ttt, parse_ahs};
use std::fmt::{self, Display, Write};

/// Prints a header and its AHS, for instance `ScsiCommand itt=7 cmd_sn=12 W edtl=8192 cdb=2a...`. A header
/// that does not parse is printed with the reason and its bytes.
pub fn one_line(bhs: &Bhs, ahs: &[u8]) -> String {
    let mut line = Line(String::with_capacity(128));
    // Writing to a String cannot fail.
    let _ = write_line(&mut line, bhs, ahs);
    line.0
}

struct Line(String);

impl Line {
    fn field(&mut self, name: &str, value: impl Display) -> fmt::Result {
        write!(self.0, " {name}={value}")
    }

    fn flag(&mut self, name: &str, on: bool) -> fmt::Result {
        if on { write!(self.0, " {name}") } else { Ok(()) }
    }

    fn itt(&mut self, itt: Itt) -> fmt::Result {
        if itt.is_reserved() { Ok(()) } else { self.field("itt", itt) }
    }

    fn ttt(&mut self, ttt: Ttt) -> fmt::Result {
        if ttt.is_reserved() { Ok(()) } else { self.field("ttt", ttt) }
    }

    /// The LUN of a ping, which is 0 if it is for no unit.
    fn unit(&mut self, lun: Lun) -> fmt::Result {
        if lun == Lun(0) { Ok(()) } else { self.field("lun", lun) }
    }

    fn residual(&mut self, prefix: &str, count: ResidualCount) -> fmt::Result {
        if count.overflow || count.underflow {
            let sign = if count.overflow { "overflow" } else { "underflow" };
            write!(self.0, " {prefix}{sign}={}", count.bytes)?;
        }
        Ok(())
    }

    fn window(&mut self, numbers: ResponseNumbers) -> fmt::Result {
        self.field("exp_cmd_sn", numbers.exp_cmd_sn)?;
        self.field("max_cmd_sn", numbers.max_cmd_sn)
    }

    fn hex(&mut self, name: &str, bytes: &[u8]) -> fmt::Result {
        write!(self.0, " {name}=")?;
        bytes.iter().try_for_each(|byte| write!(self.0, "{byte:02x}"))
    }
}

fn write_line(line: &mut Line, bhs: &Bhs, ahs: &[u8]) -> fmt::Result {
    match Pdu::parse(bhs) {
        Ok(pdu) => {
            line.0.push_str(pdu.opcode().name());
            line.flag("I", bhs.immediate() && has_immediate(&pdu))?;
            write_fields(line, &pdu)?;
        }
        Err(error) => {
            write!(line.0, "Malformed ({error})")?;
            line.hex("bhs", bhs.as_bytes())?;
        }
    }
    for segment in parse_ahs(ahs) {
        match segment {
            Ok(Ahs::ExtendedCdb(cdb)) => line.hex("extended_cdb", cdb)?,
            Ok(Ahs::BidiReadLength(length)) => line.field("bidi_read_length", length)?,
            Ok(Ahs::Unknown { kind, data }) => line.hex(&format!("ahs_type_{kind}"), data)?,
            Err(error) => write!(line.0, " ({error})")?,
        }
    }
    match bhs.data_segment_length() {
        0 => Ok(()),
        length => line.field("data", length),
    }
}

/// Does the I bit carry information? In Login it is always 1, elsewhere reserved.
fn has_immediate(pdu: &Pdu) -> bool {
    matches!(
        pdu,
        Pdu::NopOut(_)
            | Pdu::ScsiCommand(_)
            | Pdu::TaskManagementRequest(_)
            | Pdu::TextRequest(_)
            | Pdu::LogoutRequest(_)
    )
}

fn write_fields(line: &mut Line, pdu: &Pdu) -> fmt::Result {
    match pdu {
        Pdu::NopOut(p) => {
            line.itt(p.itt)?;
            line.ttt(p.ttt)?;
            line.unit(p.lun)?;
            line.field("cmd_sn", p.cmd_sn)?;
            line.field("exp_stat_sn", p.exp_stat_sn)
        }
        Pdu::NopIn(p) => {
            line.itt(p.itt)?;
            line.ttt(p.ttt)?;
            line.unit(p.lun)?;
            line.field("stat_sn", p.numbers.stat_sn)?;
            line.window(p.numbers)
        }
        Pdu::ScsiCommand(p) => {
            line.itt(p.itt)?;
            line.field("cmd_sn", p.cmd_sn)?;
            line.field("exp_stat_sn", p.exp_stat_sn)?;
            line.field("lun", p.lun)?;
            line.flag("F", p.final_bit)?;
            line.flag("R", p.read)?;
            line.flag("W", p.write)?;
            line.field("edtl", p.expected_data_transfer_length)?;
            if p.attr != crate::TaskAttribute::Simple {
                line.field("attr", format_args!("{:?}", p.attr))?;
            }
            line.hex("cdb", &p.cdb)
        }
        Pdu::TaskManagementRequest(p) => {
            line.itt(p.itt)?;
            line.field("cmd_sn", p.cmd_sn)?;
            line.field("exp_stat_sn", p.exp_stat_sn)?;
            line.field("function", format_args!("{:?}", p.function))?;
            line.field("lun", p.lun)?;
            if !p.referenced_task_tag.is_reserved() {
                line.field("referenced_task_tag", p.referenced_task_tag)?;
                line.field("ref_cmd_sn", p.ref_cmd_sn)?;
            }
            Ok(())
        }
        Pdu::LoginRequest(p) => {
            line.itt(p.itt)?;
            write_stages(line, p.transit, p.continue_bit, p.csg, p.nsg)?;
            line.field("isid", p.isid)?;
            line.field("tsih", p.tsih)?;
            line.field("cid", p.cid)?;
            line.field("cmd_sn", p.cmd_sn)?;
            line.field("exp_stat_sn", p.exp_stat_sn)
        }
        Pdu::TextRequest(p) => {
            line.itt(p.itt)?;
            line.ttt(p.ttt)?;
            line.flag("F", p.final_bit)?;
            line.flag("C", p.continue_bit)?;
            line.field("cmd_sn", p.cmd_sn)?;
            line.field("exp_stat_sn", p.exp_stat_sn)
        }
        Pdu::LogoutRequest(p) => {
            line.itt(p.itt)?;
            line.field("reason", format_args!("{:?}", p.reason))?;
            line.field("cid", p.cid)?;
            line.field("cmd_sn", p.cmd_sn)?;
            line.field("exp_stat_sn", p.exp_stat_sn)
        }
        _ => write_transfer_fields(line, pdu),
    }
}

/// Fields of the PDUs that move data.
fn write_transfer_fields(line: &mut Line, pdu: &Pdu) -> fmt::Result {
    match pdu {
        Pdu::DataOut(p) => {
            line.itt(p.itt)?;
            line.ttt(p.ttt)?;
            line.flag("F", p.final_bit)?;
            line.field("data_sn", p.data_sn)?;
            line.field("offset", p.buffer_offset)
        }
        Pdu::SnackRequest(p) => {
            line.itt(p.itt)?;
            line.ttt(p.ttt)?;
            line.field("type", format_args!("{:?}", p.snack_type))?;
            line.field("beg_run", p.beg_run)?;
            line.field("run_length", p.run_length)?;
            line.field("exp_stat_sn", p.exp_stat_sn)
        }
        Pdu::DataIn(p) => {
            line.itt(p.itt)?;
            line.ttt(p.ttt)?;
            line.flag("F", p.final_bit)?;
            line.flag("A", p.acknowledge)?;
            line.field("data_sn", p.data_sn)?;
            line.field("offset", p.buffer_offset)?;
            if p.status_bit {
                line.field("stat_sn", p.numbers.stat_sn)?;
                line.field("status", format_args!("{:#04x}", p.status))?;
                line.residual("", p.residual_count)?;
            }
            line.window(p.numbers)
        }
        Pdu::R2t(p) => {
            line.itt(p.itt)?;
            line.ttt(p.ttt)?;
            line.field("r2t_sn", p.r2t_sn)?;
            line.field("offset", p.buffer_offset)?;
            line.field("len", p.desired_data_transfer_length)?;
            line.field("stat_sn", p.numbers.stat_sn)?;
            line.window(p.numbers)
        }
        _ => write_target_fields(line, pdu),
    }
}

fn write_target_fields(line: &mut Line, pdu: &Pdu) -> fmt::Result {
    match pdu {
        Pdu::ScsiResponse(p) => {
            line.itt(p.itt)?;
            line.field("stat_sn", p.numbers.stat_sn)?;
            line.field("response", format_args!("{:#04x}", p.response))?;
            line.field("status", format_args!("{:#04x}", p.status))?;
            line.residual("", p.residual_count)?;
            line.residual("bidi_", p.bidi_residual_count)?;
            if p.snack_tag != 0 {
                line.field("snack_tag", p.snack_tag)?;
            }
            line.field("exp_data_sn", p.exp_data_sn)?;
            line.window(p.numbers)
        }
        Pdu::TaskManagementResponse(p) => {
            line.itt(p.itt)?;
            line.field("stat_sn", p.numbers.stat_sn)?;
            line.field("response", format_args!("{:?}", p.response))?;
            if p.additional != [0; 3] {
                line.hex("additional", &p.additional)?;
            }
            line.window(p.numbers)
        }
        Pdu::LoginResponse(p) => {
            line.itt(p.itt)?;
            line.field("stat_sn", p.numbers.stat_sn)?;
            line.field("status", format_args!("{:?}", p.status))?;
            write_stages(line, p.transit, p.continue_bit, p.csg, p.nsg)?;
            line.field("isid", p.isid)?;
            line.field("tsih", p.tsih)?;
            line.window(p.numbers)
        }
        Pdu::TextResponse(p) => {
            line.itt(p.itt)?;
            line.ttt(p.ttt)?;
            line.flag("F", p.final_bit)?;
            line.flag("C", p.continue_bit)?;
            line.field("stat_sn", p.numbers.stat_sn)?;
            line.window(p.numbers)
        }
        Pdu::LogoutResponse(p) => {
            line.itt(p.itt)?;
            line.field("stat_sn", p.numbers.stat_sn)?;
            line.field("response", format_args!("{:?}", p.response))?;
            line.field("time2wait", p.time2wait)?;
            line.field("time2retain", p.time2retain)?;
            line.window(p.numbers)
        }
        Pdu::AsyncMessage(p) => {
            line.field("stat_sn", p.numbers.stat_sn)?;
            line.field("event", format_args!("{:?}", p.event))?;
            line.field("lun", p.lun)?;
            line.field("vcode", p.vcode)?;
            line.field("parameters", format_args!("{},{},{}", p.parameter1, p.parameter2, p.parameter3))?;
            line.window(p.numbers)
        }
        Pdu::Reject(p) => {
            line.field("stat_sn", p.numbers.stat_sn)?;
            line.field("reason", format_args!("{:?}", p.reason))?;
            line.field("data_sn", p.data_sn)?;
            line.window(p.numbers)
        }
        // The callers have printed the others.
        _ => Ok(()),
    }
}

fn write_stages(
    line: &mut Line,
    transit: bool,
    continue_bit: bool,
    csg: crate::LoginStage,
    nsg: Option<crate::LoginStage>,
) -> fmt::Result {
    line.flag("T", transit)?;
    line.flag("C", continue_bit)?;
    line.field("csg", csg.code())?;
    nsg.map_or(Ok(()), |nsg| line.field("nsg", nsg.code()))
}
