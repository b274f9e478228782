//! PDUs made from the fields of a line: those of an initiator here, and those of a [target].

mod target;

use super::line::{LineError, Names, PduLine, Usual};
use crate::{
    CmdSn, DataOut, DataSn, Isid, Itt, LoginRequest, LoginStage, LogoutReason, LogoutRequest, Lun, NopOut,
    Pdu, ScsiCommand, SnackRequest, SnackType, StatSn, TaskAttribute, TaskManagementRequest, TextRequest,
    TmfFunction, Tsih, Ttt, write_bidi_read_length, write_extended_cdb,
};
use data_encoding::HEXLOWER_PERMISSIVE;
use std::fmt::Debug;

/// Words of every line that are not fields of its header.
const OF_ALL: &[&str] = &["data", "bad_digest"];

/// Makes a PDU of a line.
type Make = fn(&Fields<'_>) -> Result<Pdu, LineError>;

/// The name of a PDU, the fields that it can be given, and what makes it.
type Kind = (&'static str, &'static [&'static str], Make);

/// The PDUs of an initiator.
const PDUS: &[Kind] = &[
    ("NopOut", &["I", "lun", "itt", "ttt", "cmd_sn", "exp_stat_sn"], nop_out),
    (
        "ScsiCommand",
        &[
            "I",
            "F",
            "R",
            "W",
            "attr",
            "priority",
            "lun",
            "itt",
            "edtl",
            "cmd_sn",
            "exp_stat_sn",
            "cdb",
            "extended_cdb",
            "bidi_read_length",
        ],
        scsi_command,
    ),
    (
        "TaskManagementRequest",
        &[
            "I",
            "function",
            "lun",
            "itt",
            "referenced_task_tag",
            "cmd_sn",
            "exp_stat_sn",
            "ref_cmd_sn",
            "exp_data_sn",
        ],
        task_management,
    ),
    (
        "LoginRequest",
        &[
            "T",
            "C",
            "csg",
            "nsg",
            "version_max",
            "version_min",
            "isid",
            "tsih",
            "itt",
            "cid",
            "cmd_sn",
            "exp_stat_sn",
        ],
        login,
    ),
    ("TextRequest", &["I", "F", "C", "lun", "itt", "ttt", "cmd_sn", "exp_stat_sn"], text),
    ("DataOut", &["F", "lun", "itt", "ttt", "exp_stat_sn", "data_sn", "offset"], data_out),
    ("LogoutRequest", &["I", "reason", "itt", "cid", "cmd_sn", "exp_stat_sn"], logout),
    ("SnackRequest", &["type", "lun", "itt", "ttt", "exp_stat_sn", "beg_run", "run_length"], snack),
];

/// A line with what its fields may refer to.
struct Fields<'a> {
    line: &'a PduLine,
    usual: &'a Usual,
    names: &'a Names,
}

impl Fields<'_> {
    fn number(&self, field: &str) -> Result<Option<u32>, LineError> {
        self.line.number(field, self.names)
    }

    fn or_zero(&self, field: &str) -> Result<u32, LineError> {
        Ok(self.number(field)?.unwrap_or(0))
    }

    fn itt(&self, field: &str) -> Result<Itt, LineError> {
        Ok(self.number(field)?.map_or(Itt::RESERVED, Itt))
    }

    fn ttt(&self) -> Result<Ttt, LineError> {
        Ok(self.number("ttt")?.map_or(Ttt::RESERVED, Ttt))
    }

    fn lun(&self, usual: Lun) -> Result<Lun, LineError> {
        Ok(self.line.small("lun", 0x3fff)?.map_or(usual, Lun::from_index))
    }

    fn cmd_sn(&self) -> Result<CmdSn, LineError> {
        Ok(self.number("cmd_sn")?.map_or(self.usual.cmd_sn, CmdSn))
    }

    fn exp_stat_sn(&self) -> Result<StatSn, LineError> {
        Ok(self.number("exp_stat_sn")?.map_or(self.usual.exp_stat_sn, StatSn))
    }

    fn stage(&self, field: &str, usual: LoginStage) -> Result<LoginStage, LineError> {
        let Some(code) = self.line.small::<u8>(field, 3)? else { return Ok(usual) };
        LoginStage::try_from(code).map_err(|_| self.choice(field, "0, 1, 3".to_owned()))
    }

    fn choice(&self, field: &str, known: String) -> LineError {
        let value = self.line.text(field).unwrap_or_default().to_owned();
        LineError::Choice { field: field.to_owned(), value, known }
    }

    /// The code that the standard calls so.
    fn one_of<T: Copy + Debug>(&self, field: &'static str, all: &[T]) -> Result<Option<T>, LineError> {
        let Some(text) = self.line.text(field) else { return Ok(None) };
        let found = all.iter().find(|code| format!("{code:?}") == text).copied();
        let known = || all.iter().map(|code| format!("{code:?}")).collect::<Vec<_>>().join(", ");
        found.map(Some).ok_or_else(|| self.choice(field, known()))
    }

    fn needed<T>(&self, field: &'static str, value: Option<T>) -> Result<T, LineError> {
        value.ok_or_else(|| LineError::Missing { pdu: self.line.name().to_owned(), field })
    }

    fn cdb(&self) -> Result<[u8; 16], LineError> {
        let Some(hex) = self.line.text("cdb") else { return Ok(self.usual.cdb) };
        let bytes = HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).ok().filter(|bytes| bytes.len() <= 16);
        let known = || self.choice("cdb", "at most 16 bytes of two hexadecimal digits each".to_owned());
        let bytes = bytes.ok_or_else(known)?;
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(&bytes);
        Ok(cdb)
    }

    fn ahs(&self) -> Result<Vec<u8>, LineError> {
        let mut ahs = Vec::new();
        if let Some(length) = self.number("bidi_read_length")? {
            write_bidi_read_length(&mut ahs, length);
        }
        if let Some(length) = self.line.small::<u16>("extended_cdb", 244)? {
            // The AHS of a CDB that is too long is not written; the table of limits has refused it already.
            let _ = write_extended_cdb(&mut ahs, &vec![0xcd; length.into()]);
        }
        Ok(ahs)
    }
}

impl PduLine {
    /// The PDU that the line describes, and its AHS. `data=`, its length, and `bad_digest` are for the caller.
    pub fn pdu(&self, usual: &Usual, names: &Names) -> Result<(Pdu, Vec<u8>), LineError> {
        pdu(self, usual, names)
    }
}

fn pdu(line: &PduLine, usual: &Usual, names: &Names) -> Result<(Pdu, Vec<u8>), LineError> {
    let kind = PDUS.iter().chain(target::PDUS).find(|(name, ..)| *name == line.name());
    let Some((_, known, make)) = kind else { return Err(LineError::UnknownPdu(line.name().to_owned())) };
    for word in line.words() {
        if !known.contains(&word.field()) && !OF_ALL.contains(&word.field()) {
            let (pdu, field) = (line.name().to_owned(), word.field().to_owned());
            return Err(LineError::UnknownField { pdu, field });
        }
        word.check_sent()?;
    }
    let fields = Fields { line, usual, names };
    Ok((make(&fields)?, fields.ahs()?))
}

fn nop_out(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(NopOut {
        immediate: fields.line.flag("I"),
        lun: fields.lun(Lun(0))?,
        itt: fields.itt("itt")?,
        ttt: fields.ttt()?,
        cmd_sn: fields.cmd_sn()?,
        exp_stat_sn: fields.exp_stat_sn()?,
    }
    .into())
}

fn scsi_command(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(ScsiCommand {
        immediate: fields.line.flag("I"),
        final_bit: fields.line.flag("F"),
        read: fields.line.flag("R"),
        write: fields.line.flag("W"),
        attr: fields.one_of("attr", TaskAttribute::ALL)?.unwrap_or(TaskAttribute::Simple),
        priority: fields.line.small("priority", 15)?.unwrap_or(0),
        lun: fields.lun(fields.usual.lun)?,
        itt: fields.itt("itt")?,
        expected_data_transfer_length: fields.or_zero("edtl")?,
        cmd_sn: fields.cmd_sn()?,
        exp_stat_sn: fields.exp_stat_sn()?,
        cdb: fields.cdb()?,
    }
    .into())
}

fn task_management(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(TaskManagementRequest {
        immediate: fields.line.flag("I"),
        function: fields.needed("function", fields.one_of("function", TmfFunction::ALL)?)?,
        lun: fields.lun(fields.usual.lun)?,
        itt: fields.itt("itt")?,
        referenced_task_tag: fields.itt("referenced_task_tag")?,
        cmd_sn: fields.cmd_sn()?,
        exp_stat_sn: fields.exp_stat_sn()?,
        ref_cmd_sn: CmdSn(fields.or_zero("ref_cmd_sn")?),
        exp_data_sn: DataSn(fields.or_zero("exp_data_sn")?),
    }
    .into())
}

fn login(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    let transit = fields.line.flag("T");
    let isid = fields.number("isid")?.map(|number| {
        let [a, b, c, d] = number.to_be_bytes();
        Isid([0x80, 0, a, b, c, d])
    });
    let nsg = fields.stage("nsg", LoginStage::FullFeature)?;
    Ok(LoginRequest {
        transit,
        continue_bit: fields.line.flag("C"),
        csg: fields.stage("csg", LoginStage::Operational)?,
        nsg: transit.then_some(nsg),
        version_max: fields.line.small("version_max", 0xff)?.unwrap_or(0),
        version_min: fields.line.small("version_min", 0xff)?.unwrap_or(0),
        isid: isid.unwrap_or(fields.usual.isid),
        tsih: fields.line.small("tsih", 0xffff)?.map_or(fields.usual.tsih, Tsih),
        itt: Itt(fields.or_zero("itt")?),
        cid: fields.line.small("cid", 0xffff)?.map_or(fields.usual.cid, crate::Cid),
        cmd_sn: fields.cmd_sn()?,
        exp_stat_sn: fields.exp_stat_sn()?,
    }
    .into())
}

fn text(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(TextRequest {
        immediate: fields.line.flag("I"),
        final_bit: fields.line.flag("F"),
        continue_bit: fields.line.flag("C"),
        lun: fields.lun(Lun(0))?,
        itt: fields.itt("itt")?,
        ttt: fields.ttt()?,
        cmd_sn: fields.cmd_sn()?,
        exp_stat_sn: fields.exp_stat_sn()?,
    }
    .into())
}

fn data_out(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    let ttt = fields.ttt()?;
    // With an R2T the LUN is copied from it; without one the field is reserved (RFC 7143 11.7.2).
    let usual = if ttt.is_reserved() { Lun(0) } else { fields.usual.lun };
    Ok(DataOut {
        final_bit: fields.line.flag("F"),
        lun: fields.lun(usual)?,
        itt: fields.itt("itt")?,
        ttt,
        exp_stat_sn: fields.exp_stat_sn()?,
        data_sn: DataSn(fields.or_zero("data_sn")?),
        buffer_offset: fields.or_zero("offset")?,
    }
    .into())
}

fn logout(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(LogoutRequest {
        immediate: fields.line.flag("I"),
        reason: fields.one_of("reason", LogoutReason::ALL)?.unwrap_or(LogoutReason::CloseSession),
        itt: fields.itt("itt")?,
        cid: fields.line.small("cid", 0xffff)?.map_or(fields.usual.cid, crate::Cid),
        cmd_sn: fields.cmd_sn()?,
        exp_stat_sn: fields.exp_stat_sn()?,
    }
    .into())
}

fn snack(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(SnackRequest {
        snack_type: fields.needed("type", fields.one_of("type", SnackType::ALL)?)?,
        lun: fields.lun(fields.usual.lun)?,
        itt: fields.itt("itt")?,
        ttt: fields.ttt()?,
        exp_stat_sn: fields.exp_stat_sn()?,
        beg_run: fields.or_zero("beg_run")?,
        run_length: fields.or_zero("run_length")?,
    }
    .into())
}
