//! What the engine reports: how each task has ended, and the PDUs that it does not handle, as they came.

use bytes::Bytes;
use iscsi_core::pdu_reader::RxPdu;
use iscsi_core::wire::{
    Bhs, CmdSn, DataSn, Itt, Opcode, ResidualCount, ResponseNumbers, ScsiResponse, StatSn,
};
use offload::encoding::{
    Completion, DescriptorKind, NeedResync, RawPdu, RawReason, StopReason, TaskDone, TaskResult,
    residual_flags,
};

use super::{Agent, CONN, Event};

/// Where StatSN lies in every PDU of a target.
const STAT_SN: std::ops::Range<usize> = 24..28;
/// The S bit of Data-In.
const STATUS: u8 = 0x01;

impl Agent {
    /// The next event.
    pub(crate) fn poll(&mut self) -> Option<Event> {
        while let Some(completion) = self.completions.pop_front() {
            let event = match completion {
                Completion::TaskDone(done) => self.task_done(&done),
                Completion::RawPdu(raw) => self.raw_pdu(&raw).map(Event::Pdu),
                Completion::DigestError(_) => Some(Event::DigestError),
                Completion::SnackSent(snack) => {
                    self.unanswered.sent(self.now, snack);
                    Some(Event::Snack)
                }
                Completion::DataackSent(_) => None,
                Completion::NeedResync(need) => {
                    self.fail(stopped(&need));
                    None
                }
            };
            if event.is_some() {
                return event;
            }
        }
        self.failure.clone().map(Event::Lost)
    }

    /// A task has ended.
    fn task_done(&mut self, done: &TaskDone) -> Option<Event> {
        if done.descriptor != DescriptorKind::POST_TASK {
            return None;
        }
        let left = self.memory.end(usize::try_from(done.user).ok()?, done.sense_bytes)?;
        if left.abandoned {
            return None;
        }
        if done.result != TaskResult::GOOD {
            self.fail(format!("the engine has ended a command by itself ({:?})", done.result));
            return None;
        }
        let response = self.response_of(done);
        let (sense, data) = (Bytes::from(whole_sense(left.sense)), left.data);
        if data.len() != done.bytes_received as usize {
            self.fail("the engine reports data that it has not placed");
            return None;
        }
        // The session ends the command for it, or has ended it just now.
        self.ended += 1;
        Some(Event::Executed { response, sense, data })
    }

    fn response_of(&self, done: &TaskDone) -> ScsiResponse {
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        ScsiResponse {
            response: done.response,
            status: done.status,
            itt: Itt(done.itt),
            snack_tag: 0,
            numbers: ResponseNumbers { stat_sn: StatSn(done.stat_sn), exp_cmd_sn, max_cmd_sn },
            exp_data_sn: DataSn(0),
            bidi_residual_count: ResidualCount::default(),
            residual_count: ResidualCount {
                overflow: done.residual_flags & residual_flags::OVERFLOW != 0,
                underflow: done.residual_flags & residual_flags::UNDERFLOW != 0,
                bytes: done.residual_count,
            },
        }
    }

    /// ExpCmdSN and MaxCmdSN of the target.
    fn window(&self) -> (CmdSn, CmdSn) {
        let entry = self.engine.session(CONN).unwrap_or_default();
        (CmdSn(entry.exp_cmd_sn), CmdSn(entry.max_cmd_sn))
    }

    fn take_stat_sn(&mut self) -> StatSn {
        let taken = self.stat_sn;
        self.stat_sn = taken.next();
        taken
    }

    /// A PDU that the engine does not handle. Those behind which it has stopped are judged by the reason that it gives.
    fn raw_pdu(&mut self, raw: &RawPdu) -> Option<RxPdu> {
        let (header, data) = (raw.header_bytes as usize, raw.data_bytes as usize);
        let bytes = self.memory.of_ring(raw.addr, header.saturating_add(data)).map(Bytes::copy_from_slice);
        self.engine.release_raw(CONN, 1);
        if !matches!(raw.reason, RawReason::OPCODE | RawReason::NO_TASK) {
            return None;
        }
        let first = bytes.as_ref().and_then(|bytes| bytes.first_chunk::<{ Bhs::SIZE }>().copied());
        let (Some(bytes), Some(mut first)) = (bytes, first) else {
            self.fail("the engine reports a PDU outside of its ring");
            return None;
        };
        let opcode = Opcode::try_from(first[0] & 0x3f);
        // The session gets numbers without gaps; those that count nothing show the next one, as a target's do.
        let reserved = Bhs::from_bytes(first).itt().is_reserved();
        let counts = match opcode {
            Ok(Opcode::DataIn) => first[1] & STATUS != 0,
            Ok(Opcode::NopIn) => !reserved,
            Ok(Opcode::R2t) | Err(_) => false,
            Ok(_) => true,
        };
        let number = if counts { self.take_stat_sn() } else { self.stat_sn };
        if counts || opcode != Ok(Opcode::DataIn) {
            first[STAT_SN].copy_from_slice(&number.0.to_be_bytes());
        }
        let ahs = bytes.slice(Bhs::SIZE..header.max(Bhs::SIZE));
        Some(intact(Bhs::from_bytes(first), ahs, bytes.slice(header.max(Bhs::SIZE)..)))
    }
}

/// A PDU whose digests the engine has compared.
fn intact(bhs: Bhs, ahs: Bytes, data: Bytes) -> RxPdu {
    RxPdu { bhs, ahs, data, data_digest_ok: true }
}

/// SenseLength and sense data as they lie in the area, which may have cut them off: the length is that of what is there.
fn whole_sense(mut sense: Vec<u8>) -> Vec<u8> {
    if sense.len() == usize::from(offload::limits::SENSE_AREA_BYTES)
        && let Some(length) = sense.first_chunk_mut::<2>()
    {
        let there = offload::limits::SENSE_AREA_BYTES - 2;
        *length = u16::from_be_bytes(*length).min(there).to_be_bytes();
    }
    sense
}

/// Why the engine receives no more.
fn stopped(need: &NeedResync) -> String {
    let why = match need.reason {
        StopReason::HEADER_DIGEST => "a header digest does not match (RFC 7143 7.8)",
        StopReason::DATA_TOO_LONG => {
            "a PDU has more data than MaxRecvDataSegmentLength allows (RFC 7143 13.12)"
        }
        StopReason::DATA_DIGEST => "a data digest does not match at ErrorRecoveryLevel 0 (RFC 7143 7.8)",
        StopReason::PROTOCOL => "the target breaks a rule of RFC 7143 11",
        StopReason::SEQUENCE => "a PDU is missing at ErrorRecoveryLevel 0 (RFC 7143 7.9)",
        StopReason::NO_ROOM => "more is missing than the engine can request again",
        _ => "host memory refused the engine an access",
    };
    format!("{why}; the PDU begins at byte {} of the connection", need.position)
}
