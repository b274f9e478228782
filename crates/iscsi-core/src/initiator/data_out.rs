//! Sending commands with their data: immediate, unsolicited, and as requested by R2T (RFC 7143 11.3, 11.7, 11.8, 13.10-13.14).

use bytes::Bytes;
use iscsi_wire::{
    Cid, CmdSn, DataOut, DataSn, Itt, Lun, MAX_EXTENDED_CDB_LENGTH, R2t, R2tSn, ScsiCommand, Ttt,
    write_bidi_read_length, write_extended_cdb,
};

use super::actions::{CloseReason, violation};
use super::command::Command;
use super::data_in::check_allegiance;
use super::session::InitiatorSession;
use super::task::Task;
use crate::error::ProtocolViolation;
use crate::extents::Refused;
use crate::pdu_writer::TxPdu;

/// CDB bytes that the basic header segment holds.
const BHS_CDB_BYTES: usize = 16;

impl Command {
    /// Whether it can be sent.
    pub(super) fn check(&self) -> Result<(), ProtocolViolation> {
        if self.cdb.is_empty() || self.cdb.len() > BHS_CDB_BYTES + MAX_EXTENDED_CDB_LENGTH - 8 {
            return Err(ProtocolViolation::new(
                "RFC 7143 11.2.2.3",
                "a CDB of a length that no PDU can carry",
            ));
        }
        if u32::try_from(self.write.len()).is_err() {
            return Err(ProtocolViolation::new("RFC 7143 11.3.4", "more than 4 GiB of data in one command"));
        }
        Ok(())
    }

    /// The additional header segments that it needs.
    //= rfc7143 11.2.2 AHS-01 AHS-02
    fn ahs(&self) -> Bytes {
        let bidi = self.read_length > 0 && !self.write.is_empty();
        if self.cdb.len() <= BHS_CDB_BYTES && !bidi {
            return Bytes::new();
        }
        let mut ahs = Vec::new();
        if self.cdb.len() > BHS_CDB_BYTES {
            write_extended_cdb(&mut ahs, &self.cdb[BHS_CDB_BYTES..]).expect("its length was checked");
        }
        if bidi {
            write_bidi_read_length(&mut ahs, self.read_length);
        }
        Bytes::from(ahs)
    }
}

impl InitiatorSession {
    /// Sends a command with the data that may be sent without an R2T.
    ///
    /// | ImmediateData | InitialR2T | with the command | in Data-Out after it |
    /// |---|---|---|---|
    /// | Yes | No | one PDU's worth, within FirstBurstLength | the rest up to FirstBurstLength |
    /// | Yes | Yes | one PDU's worth, within FirstBurstLength | nothing |
    /// | No | No | nothing | up to FirstBurstLength |
    /// | No | Yes | nothing | nothing |
    //= rfc7143 13.10 UNS-01 UNS-03 UNS-04 UNS-05 KEY-09 KEY-10 MCS-03
    pub(super) fn send_command(&mut self, itt: Itt, cmd_sn: CmdSn) {
        let asymmetric = self.is_asymmetric();
        let Some(task) = self.tasks.command(itt) else { return };
        let cid = task.route.cid;
        let Some(connection) = self.connections.iter_mut().find(|connection| connection.cid == cid) else {
            return;
        };
        let (exp_stat_sn, max_data) = (connection.statuses.tell(), connection.max_send);
        let command = &task.command;
        let length = command.write.len() as u32;
        let first_burst = self.params.effective_first_burst().min(length);
        let immediate = if self.params.bursts.immediate_data { first_burst.min(max_data) } else { 0 };
        // On a different connection from the command's, unsolicited data could overtake it.
        let unsolicited = if self.params.bursts.initial_r2t || asymmetric { immediate } else { first_burst };
        let mut cdb = [0; BHS_CDB_BYTES];
        let in_header = command.cdb.len().min(BHS_CDB_BYTES);
        cdb[..in_header].copy_from_slice(&command.cdb[..in_header]);
        let header = ScsiCommand {
            immediate: false,
            final_bit: unsolicited == immediate,
            read: command.read_length > 0,
            write: length > 0,
            attr: command.attribute,
            priority: 0,
            lun: command.lun,
            itt,
            expected_data_transfer_length: if length > 0 { length } else { command.read_length },
            cmd_sn,
            exp_stat_sn,
            cdb,
        };
        let data = match immediate {
            0 => Default::default(),
            n => command.write.part(0..n as usize),
        };
        let (lun, ahs) = (command.lun, command.ahs());
        task.sent = unsolicited;
        self.send_pdu(cid, TxPdu { bhs: header.to_bhs(), ahs, data });
        if unsolicited > immediate {
            self.send_data_out(cid, itt, lun, Ttt::RESERVED, immediate, unsolicited - immediate);
        }
    }

    /// Answers an R2T at once, so that R2Ts are answered in the order in which they arrive.
    //= rfc7143 11.8 R2T-02 R2T-03 DAT-01 MCS-02
    pub(super) fn handle_r2t(&mut self, cid: Cid, pdu: &R2t) -> Result<(), CloseReason> {
        self.window.hear(pdu.numbers, self.now);
        self.note_next_stat_sn(cid, pdu.numbers.stat_sn);
        let (recovers, asymmetric) = (self.recovers(), self.is_asymmetric());
        let Some(task) = self.tasks.sent_command(pdu.itt) else {
            return self.late(pdu.itt, "RFC 7143 11.8", "an R2T");
        };
        check_allegiance(task, cid, asymmetric)?;
        if recovers && self.recover_r2t(pdu)? {
            return Ok(());
        }
        self.answer_r2t(cid, pdu)?;
        if recovers { self.resume(cid, pdu.itt) } else { Ok(()) }
    }

    /// Answers the R2T that is due. At error recovery level 1 it may request data that was sent before: the answer is the same.
    //= rfc7143 11.8 R2T-03 ERL-04
    pub(super) fn answer_r2t(&mut self, cid: Cid, pdu: &R2t) -> Result<(), CloseReason> {
        let (max_burst, recovers) = (self.params.bursts.max_burst_length, self.recovers());
        let order = self.params.data_order();
        let Some(task) = self.tasks.command(pdu.itt) else { return Ok(()) };
        let refuse = |what: String| Err(violation("RFC 7143 11.8", what));
        if pdu.ttt.is_reserved() {
            return refuse("an R2T without a target transfer tag".to_owned());
        }
        if pdu.r2t_sn != R2tSn(task.next_data_sn) {
            return refuse(format!("R2TSN {} where {} was due", pdu.r2t_sn, task.next_data_sn));
        }
        let (offset, length) = (pdu.buffer_offset, pdu.desired_data_transfer_length);
        if length == 0 || length > max_burst {
            return refuse(format!("an R2T for {length} bytes, with a MaxBurstLength of {max_burst}"));
        }
        if u64::from(offset) + u64::from(length) > task.command.write.len() as u64 {
            return refuse(format!("an R2T for {length} bytes at {offset}, beyond the command's data"));
        }
        if !order.sequences {
            enter_r2t(task, offset, length)?;
        } else if offset != task.sent && !recovers {
            return refuse(format!("an R2T at offset {offset} where {} was due", task.sent));
        }
        task.next_data_sn = task.next_data_sn.wrapping_add(1);
        task.sent = task.sent.max(offset + length);
        //= rfc7143 11.9.1 FAB-01
        if !task.terminated {
            let own = task.route.cid;
            let via = if self.params.asymmetric.has_halves() {
                self.data_out_connection(own).unwrap_or(cid)
            } else {
                cid
            };
            self.send_data_out(via, pdu.itt, pdu.lun, pdu.ttt, offset, length);
        }
        Ok(())
    }

    /// With halves: the connection for the data of a command that was sent on `own`, or that continues there: of those that carry
    /// commands the same one, as long as it stands, so that the data keeps its order.
    fn data_out_connection(&self, own: Cid) -> Option<Cid> {
        let mut half = self.connections.iter().filter(|c| c.state.serves() && !c.carries_data());
        let own = half.clone().find(|connection| connection.cid == own);
        own.or_else(|| half.next()).map(|connection| connection.cid)
    }

    /// Sends one sequence of Data-Out, with PDUs as long as the target accepts, and F on the last.
    //= rfc7143 11.7 DAT-01 DAT-02 DAT-03
    fn send_data_out(&mut self, cid: Cid, itt: Itt, lun: Lun, ttt: Ttt, offset: u32, length: u32) {
        let exp_stat_sn = self.exp_stat_sn(cid);
        let max_data = self.max_send(cid);
        let (mut at, end, mut data_sn) = (offset, offset + length, DataSn(0));
        let mut drawn = match self.params.data_order().pdus {
            true => None,
            false => self.config.send_order.places(offset, end, max_data),
        };
        let mut left = length;
        while left > 0 {
            if let Some(place) = drawn.as_mut().and_then(Vec::pop) {
                at = place;
            }
            let n = max_data.min(end - at);
            left -= n;
            let header =
                DataOut { final_bit: left == 0, lun, itt, ttt, exp_stat_sn, data_sn, buffer_offset: at };
            let Some(task) = self.tasks.task(itt) else { return };
            let data = task.command.write.part(at as usize..(at + n) as usize);
            self.send_pdu(cid, TxPdu::with_data(header.to_bhs(), data));
            at += n;
            data_sn = data_sn.next();
        }
    }

    /// MaxRecvDataSegmentLength of the target on the connection `cid`, bytes.
    fn max_send(&mut self, cid: Cid) -> u32 {
        self.connection(cid).map_or(512, |connection| connection.max_send)
    }
}

/// Enters an R2T, whose bytes must not have been requested, or sent unasked, before.
//= rfc7143 11.8 R2T-03
//= rfc7143 13.19 DAT-05
fn enter_r2t(task: &mut Task, offset: u32, length: u32) -> Result<(), CloseReason> {
    task.request(offset, length).map_err(|refused| {
        let what = match refused {
            Refused::Overlap => {
                format!("an R2T for {length} bytes at {offset}, some of which were sent before")
            }
            Refused::TooMany => "R2Ts that leave more holes than can be recorded".to_owned(),
            Refused::TooLong => {
                format!("an R2T for {length} bytes at {offset}, beyond what a command can transfer")
            }
        };
        violation("RFC 7143 11.8", what)
    })
}
