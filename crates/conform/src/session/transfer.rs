//! Commands on the wire: sending, serving R2Ts, collecting data, and the rules checked meanwhile.

use super::{Command, Outcome, Residual, Session, Unsolicited};
use crate::frame::{Frame, Received};
use crate::{LoginScript, PeerError};
use iscsi_wire::{
    CmdSn, DataIn, DataOut, DataSn, Itt, Lun, Pdu, R2t, R2tSn, ScsiCommand, ScsiResponse, Ttt,
    write_bidi_read_length, write_extended_cdb,
};

/// PDUs of one command before a script gives up.
const MAX_PDUS: usize = 100_000;

/// A command that has been sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its tag.
    pub itt: Itt,
    /// Its CmdSN.
    pub cmd_sn: CmdSn,
    command: Command,
    r2ts_seen: std::cell::Cell<u32>,
}

impl Sent {
    /// A command that a script has sent itself.
    pub(crate) fn new(itt: Itt, cmd_sn: CmdSn, command: Command) -> Self {
        Sent { itt, cmd_sn, command, r2ts_seen: Default::default() }
    }

    /// Expected Data Transfer Length in bytes.
    pub(crate) fn edtl(&self) -> usize {
        self.command.edtl as usize
    }
}

impl Session {
    /// The PDU of `command` with task tag and CmdSN, not sent yet. It includes immediate data.
    pub fn command_frame(&mut self, command: &Command) -> (Sent, Frame) {
        let (itt, cmd_sn) = (self.itt(), self.take_cmd_sn(command.immediate));
        let mut cdb = [0; 16];
        let head = command.cdb.len().min(16);
        cdb[..head].copy_from_slice(&command.cdb[..head]);
        let (immediate_data, final_bit) = match command.unsolicited {
            Unsolicited::No => (0, true),
            Unsolicited::Immediate(bytes) => (bytes, true),
            Unsolicited::Burst { immediate, total } => (immediate, total <= immediate),
        };
        let pdu = ScsiCommand {
            immediate: command.immediate,
            final_bit,
            read: command.read,
            write: command.write,
            attr: command.attr,
            priority: 0,
            lun: command.lun.unwrap_or(self.lun),
            itt,
            expected_data_transfer_length: command.edtl,
            cmd_sn,
            exp_stat_sn: self.peer.ledger.exp_stat_sn(),
            cdb,
        };
        let mut ahs = Vec::new();
        let _ = write_extended_cdb(&mut ahs, command.cdb.get(16..).unwrap_or_default());
        if let Some(length) = command.bidi_read_length {
            write_bidi_read_length(&mut ahs, length);
        }
        let data = command.data.get(..immediate_data).unwrap_or(&command.data);
        (Sent::new(itt, cmd_sn, command.clone()), Frame::of(pdu).ahs(ahs).data(data))
    }

    /// Sends `command` and its unsolicited data.
    pub fn start(&mut self, command: &Command) -> Result<Sent, PeerError> {
        let (sent, frame) = self.command_frame(command);
        self.peer.send(&frame)?;
        if let Unsolicited::Burst { immediate, total } = command.unsolicited
            && total > immediate
        {
            let data = command.data.get(immediate..total).unwrap_or_default();
            self.send_data(&sent, Ttt::RESERVED, immediate, data)?;
        }
        Ok(sent)
    }

    /// Sends one sequence of Data-Out PDUs: `data` at `offset`, F on the last.
    pub fn send_data(&mut self, sent: &Sent, ttt: Ttt, offset: usize, data: &[u8]) -> Result<(), PeerError> {
        let size = (self.params.max_send_data_segment_length.max(512) as usize) & !3;
        let count = data.len().div_ceil(size).max(1);
        for index in 0..count {
            let start = index * size;
            let part = &data[start.min(data.len())..(start + size).min(data.len())];
            let mut pdu = self.data_out(sent, ttt, offset + start);
            (pdu.data_sn, pdu.final_bit) = (DataSn(index as u32), index + 1 == count);
            self.peer.send(&Frame::of(pdu).data(part))?;
        }
        Ok(())
    }

    /// A Data-Out PDU with DataSN 0 and F set, not sent yet.
    pub fn data_out(&self, sent: &Sent, ttt: Ttt, offset: usize) -> DataOut {
        DataOut {
            final_bit: true,
            // With an R2T the LUN is copied from it; without one, the field is reserved (RFC 7143
            // 11.7.2).
            lun: if ttt.is_reserved() { Lun(0) } else { sent.command.lun.unwrap_or(self.lun) },
            itt: sent.itt,
            ttt,
            exp_stat_sn: self.peer.ledger.exp_stat_sn(),
            data_sn: DataSn(0),
            buffer_offset: u32::try_from(offset).unwrap_or(u32::MAX),
        }
    }

    /// Waits for the next R2T of `sent`.
    pub fn expect_r2t(&mut self, sent: &Sent) -> Result<R2t, PeerError> {
        let rx = self.next_for(sent.itt)?;
        match rx.pdu()? {
            Pdu::R2t(r2t) => {
                sent.r2ts_seen.set(sent.r2ts_seen.get() + 1);
                Ok(r2t)
            }
            _ => Err(PeerError::Unexpected { wanted: "R2t".to_owned(), got: rx.line() }),
        }
    }

    /// Answers one R2T in full.
    pub fn serve(&mut self, sent: &Sent, r2t: &R2t) -> Result<(), PeerError> {
        let offset = r2t.buffer_offset as usize;
        let end = offset.saturating_add(r2t.desired_data_transfer_length as usize);
        let Some(data) = sent.command.data.get(offset..end) else {
            self.peer.ledger.find("R2T-01", format!("R2T beyond the transfer: offset {offset} to {end}"));
            let wanted = "an R2T inside the transfer".to_owned();
            return Err(PeerError::Unexpected { wanted, got: format!("offset {offset} to {end}") });
        };
        let data = data.to_vec();
        self.send_data(sent, r2t.ttt, offset, &data)
    }

    /// Serves R2Ts and collects data until the command ends.
    pub fn finish(&mut self, sent: &Sent) -> Result<Outcome, PeerError> {
        let mut watch = Watch::new(sent, self);
        for _ in 0..MAX_PDUS {
            let rx = self.next_for(sent.itt)?;
            if let Some(outcome) = watch.follow(sent, &rx, self, true)? {
                return Ok(outcome);
            }
        }
        Err(PeerError::Unexpected { wanted: "an end of the command".to_owned(), got: "no end".to_owned() })
    }

    /// Sends a command and runs it to its end.
    pub fn run(&mut self, command: &Command) -> Result<Outcome, PeerError> {
        let sent = self.start(command)?;
        self.finish(&sent)
    }

    /// Like [`Session::run`]; anything but GOOD is an error.
    pub fn run_good(&mut self, command: &Command) -> Result<Outcome, PeerError> {
        let outcome = self.run(command)?;
        if outcome.is_good() {
            Ok(outcome)
        } else {
            Err(PeerError::Unexpected { wanted: "GOOD".to_owned(), got: outcome.words() })
        }
    }

    /// Clears the unit attentions of a new nexus.
    pub fn clear_unit_attentions(&mut self) -> Result<(), PeerError> {
        for _ in 0..16 {
            if !self.run(&Command::test_unit_ready())?.is_unit_attention() {
                break;
            }
        }
        Ok(())
    }

    /// The script with which it logged in, for a login with the same identity.
    pub fn same_identity(&self) -> LoginScript {
        self.script.clone()
    }
}

/// Enters a range; false if some of its bytes were entered before.
fn take_range(ranges: &mut Vec<(usize, usize)>, start: usize, length: usize) -> bool {
    let end = start.saturating_add(length);
    let fresh = ranges.iter().all(|(from, to)| end <= *from || start >= *to);
    if length > 0 {
        ranges.push((start, end));
    }
    fresh
}

/// The rules checked while one command runs; a broken rule is a finding.
pub(crate) struct Watch {
    outcome: Outcome,
    itt: Itt,
    lun: Lun,
    cmd_sn: Option<CmdSn>,
    edtl: usize,
    read_length: usize,
    bidi: bool,
    received: usize,
    /// The ranges of Data-In that have arrived, where they may arrive in any order.
    arrived: Vec<(usize, usize)>,
    /// The ranges that R2Ts have requested, where they may be requested in any order.
    requested: Vec<(usize, usize)>,
    data_in_order: bool,
    r2ts_in_order: bool,
    in_sequence: usize,
    last_final: bool,
    data_sn: u32,
    r2t_sn: u32,
    next_r2t_offset: Option<u32>,
    outstanding: usize,
    max_burst: usize,
    max_outstanding: usize,
}

impl Watch {
    pub(crate) fn new(sent: &Sent, session: &Session) -> Self {
        let command = &sent.command;
        let bidi = command.read && command.write;
        Watch {
            outcome: Outcome::default(),
            itt: sent.itt,
            lun: command.lun.unwrap_or(session.lun),
            cmd_sn: (!command.immediate).then_some(sent.cmd_sn),
            edtl: command.edtl as usize,
            read_length: if bidi { command.bidi_read_length.unwrap_or(0) } else { command.edtl } as usize,
            bidi,
            received: 0,
            arrived: Vec::new(),
            requested: Vec::new(),
            data_in_order: session.params.data_pdu_in_order() && session.params.data_sequence_in_order(),
            r2ts_in_order: session.params.data_sequence_in_order(),
            in_sequence: 0,
            last_final: true,
            data_sn: 0,
            r2t_sn: sent.r2ts_seen.get(),
            next_r2t_offset: None,
            outstanding: 0,
            max_burst: session.params.writes.max_burst_length as usize,
            max_outstanding: session.params.writes.max_outstanding_r2t as usize,
        }
    }

    /// Takes a PDU of the command, and answers an R2T if `serve`. Returns the outcome when the command has ended.
    pub(crate) fn follow(
        &mut self,
        sent: &Sent,
        rx: &Received,
        session: &mut Session,
        serve: bool,
    ) -> Result<Option<Outcome>, PeerError> {
        match rx.pdu()? {
            Pdu::R2t(r2t) => {
                self.r2t(&r2t, session);
                if serve {
                    session.serve(sent, &r2t)?;
                    self.outstanding -= 1;
                }
                Ok(None)
            }
            Pdu::DataIn(data_in) => {
                self.data_in(&data_in, rx, session)?;
                Ok(data_in.status_bit.then(|| self.ended_by_data(&data_in, session)))
            }
            Pdu::ScsiResponse(response) => Ok(Some(self.ended(&response, rx, session))),
            _ => {
                let wanted = "data, an R2T or the response".to_owned();
                Err(PeerError::Unexpected { wanted, got: rx.line() })
            }
        }
    }

    fn r2t(&mut self, r2t: &R2t, session: &mut Session) {
        if session.recovering {
            // A reassigned task may continue or restart the R2TSN count.
            self.r2t_sn = r2t.r2t_sn.0;
        }
        let ledger = &mut session.peer.ledger;
        if r2t.r2t_sn != R2tSn(self.r2t_sn) {
            ledger.find(
                "R2T-05",
                format!("R2TSN {} where {} was due, itt={}", r2t.r2t_sn, self.r2t_sn, self.itt),
            );
        }
        if r2t.lun != self.lun {
            ledger.find("R2T-01", format!("an R2T with the LUN {} for a command of {}", r2t.lun, self.lun));
        }
        let length = r2t.desired_data_transfer_length;
        if length as usize > self.max_burst {
            ledger.find("R2T-01", format!("R2T of {length} bytes, MaxBurstLength {}", self.max_burst));
        }
        // Recovery R2Ts address the missing data.
        let start = r2t.buffer_offset as usize;
        let gap = self.next_r2t_offset.is_some_and(|due| due != r2t.buffer_offset);
        if !session.recovering && self.r2ts_in_order && gap {
            ledger.find("R2T-05", format!("R2T at {} is not contiguous", r2t.buffer_offset));
        }
        if !self.r2ts_in_order && !take_range(&mut self.requested, start, length as usize) {
            ledger.find("DAT-05", format!("R2T at {start} requests bytes again"));
        }
        self.next_r2t_offset = Some(r2t.buffer_offset.wrapping_add(length));
        self.outstanding += 1;
        if self.outstanding > self.max_outstanding {
            ledger.find("R2T-02", format!("{} R2Ts outstanding", self.outstanding));
        }
        self.r2t_sn += 1;
        self.outcome.r2ts.push(*r2t);
    }

    fn data_in(&mut self, p: &DataIn, rx: &Received, session: &mut Session) -> Result<(), PeerError> {
        let ledger = &mut session.peer.ledger;
        if p.data_sn != DataSn(self.data_sn) && !self.bidi {
            ledger.find("DAT-02", format!("DataSN {} was due: {}", self.data_sn, rx.line()));
        }
        self.data_sn += 1;
        let (offset, length) = (p.buffer_offset as usize, rx.data.len());
        if self.data_in_order && offset != self.received && length > 0 {
            ledger.find("DAT-03", format!("offset {} was due: {}", self.received, rx.line()));
        }
        if !self.data_in_order && !take_range(&mut self.arrived, offset, length) {
            ledger.find("DAT-05", format!("bytes came again: {}", rx.line()));
        }
        self.in_sequence += length;
        if self.in_sequence > self.max_burst {
            ledger
                .find("DAT-01", format!("a sequence above MaxBurstLength {}: {}", self.max_burst, rx.line()));
        }
        self.last_final = p.final_bit;
        if p.final_bit {
            self.in_sequence = 0;
        }
        let end = offset.saturating_add(length);
        if end > self.read_length {
            let wanted = format!("data inside the {} bytes of the transfer", self.read_length);
            return Err(PeerError::Unexpected { wanted, got: rx.line() });
        }
        if self.outcome.data.len() < end {
            self.outcome.data.resize(end, 0);
        }
        self.outcome.data[offset..end].copy_from_slice(&rx.data);
        self.received = match self.data_in_order {
            true => self.received.max(end),
            // No byte came twice, so the sum is the length of what is whole, if nothing is missing.
            false => self.received + length,
        };
        self.outcome.data_ins.push(*p);
        Ok(())
    }

    fn ended_by_data(&mut self, p: &DataIn, session: &mut Session) -> Outcome {
        if p.status == 2 || self.bidi {
            session
                .peer
                .ledger
                .find("DAT-07", format!("status {:#04x} in a Data-In, itt={}", p.status, self.itt));
        }
        self.outcome.status = p.status;
        self.outcome.residual = Residual::of(p.residual_count);
        self.outcome.residual_count = p.residual_count.bytes;
        self.check_acknowledged(p.numbers.exp_cmd_sn, session);
        self.check_residual(session);
        std::mem::take(&mut self.outcome)
    }

    fn ended(&mut self, p: &ScsiResponse, rx: &Received, session: &mut Session) -> Outcome {
        let end = Outcome::of_response(rx);
        let ledger = &mut session.peer.ledger;
        let sent_by_target = self.data_sn + self.r2t_sn;
        if p.response == 0 && !session.recovering && p.exp_data_sn != DataSn(sent_by_target) {
            ledger.find("RSP-02", format!("{sent_by_target} Data-In and R2T came: {}", rx.line()));
        }
        if !self.last_final {
            ledger.find("DAT-01", format!("the last Data-In before the response has no F, itt={}", self.itt));
        }
        if self.outstanding > 0 {
            ledger.find("RSP-01", format!("a response while an R2T is unanswered: {}", rx.line()));
        }
        let Outcome { data, data_ins, r2ts, .. } = std::mem::take(&mut self.outcome);
        self.outcome = Outcome { data, data_ins, r2ts, ..end };
        self.check_acknowledged(p.numbers.exp_cmd_sn, session);
        self.check_residual(session);
        std::mem::take(&mut self.outcome)
    }

    fn check_acknowledged(&self, exp_cmd_sn: CmdSn, session: &mut Session) {
        if let Some(cmd_sn) = self.cmd_sn
            && !cmd_sn.lt(exp_cmd_sn)
        {
            let words =
                format!("itt={} was answered with ExpCmdSN {exp_cmd_sn}, its CmdSN is {cmd_sn}", self.itt);
            session.peer.ledger.find("NUM-11", words);
        }
    }

    /// A read that completed with GOOD transferred what the residual says.
    fn check_residual(&self, session: &mut Session) {
        if !self.outcome.is_good()
            || self.bidi
            || self.edtl != self.read_length
            || self.outcome.data_ins.is_empty()
        {
            return;
        }
        let due = match self.outcome.residual {
            Residual::Underflow(count) => self.edtl.saturating_sub(count as usize),
            _ => self.edtl,
        };
        if self.received != due {
            let words = format!("{} of {} bytes, {:?}", self.received, self.edtl, self.outcome.residual);
            session.peer.ledger.find("RES-01", words);
        }
    }
}
