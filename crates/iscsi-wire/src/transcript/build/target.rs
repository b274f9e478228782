//! PDUs of a target. Login and Text Responses are not among them: what matters in them is their text, which a line does not have.

use super::{Fields, Kind};
use crate::transcript::line::LineError;
use crate::{
    AsyncEvent, AsyncMessage, CmdSn, DataIn, DataSn, LogoutResponse, LogoutResponseCode, Lun, NopIn, Pdu,
    R2t, R2tSn, Reject, RejectReason, ResidualCount, ResponseNumbers, ScsiResponse, StatSn,
    TaskManagementResponse, TmfResponse,
};

/// The fields that each can be given, and what makes it.
pub(super) const PDUS: &[Kind] = &[
    ("NopIn", &["lun", "itt", "ttt", "stat_sn", "exp_cmd_sn", "max_cmd_sn"], nop_in),
    (
        "ScsiResponse",
        &[
            "itt",
            "stat_sn",
            "response",
            "status",
            "overflow",
            "underflow",
            "bidi_overflow",
            "bidi_underflow",
            "snack_tag",
            "exp_data_sn",
            "exp_cmd_sn",
            "max_cmd_sn",
        ],
        scsi_response,
    ),
    (
        "TaskManagementResponse",
        &["itt", "stat_sn", "response", "exp_cmd_sn", "max_cmd_sn"],
        task_management_response,
    ),
    (
        "DataIn",
        &[
            "lun",
            "itt",
            "ttt",
            "F",
            "A",
            "data_sn",
            "offset",
            "stat_sn",
            "status",
            "overflow",
            "underflow",
            "exp_cmd_sn",
            "max_cmd_sn",
        ],
        data_in,
    ),
    ("R2t", &["lun", "itt", "ttt", "r2t_sn", "offset", "len", "stat_sn", "exp_cmd_sn", "max_cmd_sn"], r2t),
    (
        "LogoutResponse",
        &["itt", "stat_sn", "response", "time2wait", "time2retain", "exp_cmd_sn", "max_cmd_sn"],
        logout_response,
    ),
    ("AsyncMessage", &["lun", "stat_sn", "event", "vcode", "exp_cmd_sn", "max_cmd_sn"], async_message),
    ("Reject", &["stat_sn", "reason", "data_sn", "exp_cmd_sn", "max_cmd_sn"], reject),
];

impl Fields<'_> {
    fn numbers(&self) -> Result<ResponseNumbers, LineError> {
        let usual = &self.usual.numbers;
        Ok(ResponseNumbers {
            stat_sn: self.number("stat_sn")?.map_or(usual.stat_sn, StatSn),
            exp_cmd_sn: self.number("exp_cmd_sn")?.map_or(usual.exp_cmd_sn, CmdSn),
            max_cmd_sn: self.number("max_cmd_sn")?.map_or(usual.max_cmd_sn, CmdSn),
        })
    }

    fn data_sn(&self, field: &str) -> Result<DataSn, LineError> {
        Ok(DataSn(self.or_zero(field)?))
    }

    fn residual_count(&self, over: &str, under: &str) -> Result<ResidualCount, LineError> {
        let (over, under) = (self.number(over)?, self.number(under)?);
        let bytes = over.or(under).unwrap_or(0);
        Ok(ResidualCount { overflow: over.is_some(), underflow: under.is_some(), bytes })
    }
}

fn nop_in(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(NopIn {
        lun: fields.lun(Lun(0))?,
        itt: fields.itt("itt")?,
        ttt: fields.ttt()?,
        numbers: fields.numbers()?,
    }
    .into())
}

fn scsi_response(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(ScsiResponse {
        response: fields.line.small("response", 0xff)?.unwrap_or(0),
        status: fields.line.small("status", 0xff)?.unwrap_or(0),
        itt: fields.itt("itt")?,
        snack_tag: fields.or_zero("snack_tag")?,
        numbers: fields.numbers()?,
        exp_data_sn: fields.data_sn("exp_data_sn")?,
        bidi_residual_count: fields.residual_count("bidi_overflow", "bidi_underflow")?,
        residual_count: fields.residual_count("overflow", "underflow")?,
    }
    .into())
}

fn task_management_response(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(TaskManagementResponse {
        response: fields.one_of("response", TmfResponse::ALL)?.unwrap_or(TmfResponse::FunctionComplete),
        itt: fields.itt("itt")?,
        numbers: fields.numbers()?,
        additional: [0; 3],
    }
    .into())
}

/// With `status=` it has a status, and only then a StatSN (RFC 7143 11.7.3).
fn data_in(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    let status: Option<u8> = fields.line.small("status", 0xff)?;
    let acknowledge = fields.line.flag("A");
    let mut numbers = fields.numbers()?;
    if status.is_none() {
        numbers.stat_sn = StatSn(fields.or_zero("stat_sn")?);
    }
    Ok(DataIn {
        final_bit: fields.line.flag("F"),
        acknowledge,
        status_bit: status.is_some(),
        status: status.unwrap_or(0),
        lun: fields.lun(if acknowledge { fields.usual.lun } else { Lun(0) })?,
        itt: fields.itt("itt")?,
        ttt: fields.ttt()?,
        numbers,
        data_sn: fields.data_sn("data_sn")?,
        buffer_offset: fields.or_zero("offset")?,
        residual_count: fields.residual_count("overflow", "underflow")?,
    }
    .into())
}

fn r2t(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(R2t {
        lun: fields.lun(fields.usual.lun)?,
        itt: fields.itt("itt")?,
        ttt: fields.ttt()?,
        numbers: fields.numbers()?,
        r2t_sn: R2tSn(fields.or_zero("r2t_sn")?),
        buffer_offset: fields.or_zero("offset")?,
        desired_data_transfer_length: fields.or_zero("len")?,
    }
    .into())
}

fn logout_response(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(LogoutResponse {
        response: fields.one_of("response", LogoutResponseCode::ALL)?.unwrap_or(LogoutResponseCode::Success),
        itt: fields.itt("itt")?,
        numbers: fields.numbers()?,
        time2wait: fields.line.small("time2wait", 0xffff)?.unwrap_or(0),
        time2retain: fields.line.small("time2retain", 0xffff)?.unwrap_or(0),
    }
    .into())
}

fn async_message(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    use AsyncEvent as E;
    let events = [
        E::ScsiAsyncEvent,
        E::LogoutRequest,
        E::ConnectionDrop,
        E::SessionDrop,
        E::NegotiationRequest,
        E::TaskTermination,
        E::Vendor(255),
    ];
    Ok(AsyncMessage {
        lun: fields.lun(Lun(0))?,
        numbers: fields.numbers()?,
        event: fields.needed("event", fields.one_of("event", &events)?)?,
        vcode: fields.line.small("vcode", 0xff)?.unwrap_or(0),
        parameter1: 0,
        parameter2: 0,
        parameter3: 0,
    }
    .into())
}

fn reject(fields: &Fields<'_>) -> Result<Pdu, LineError> {
    Ok(Reject {
        reason: fields.needed("reason", fields.one_of("reason", RejectReason::ALL)?)?,
        numbers: fields.numbers()?,
        data_sn: fields.data_sn("data_sn")?,
    }
    .into())
}
