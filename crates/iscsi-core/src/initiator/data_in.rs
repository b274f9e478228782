//! What a target sends for a command: data, and the status that ends it (RFC 7143 11.4, 11.7).
//!
//! Data arrives in order (DataPDUInOrder and DataSequenceInOrder are Yes), so its place is known beforehand, and anything else
//! is a violation. Sequences longer than MaxBurstLength are taken as they come: the place and the end of the data are checked
//! without them, and widespread targets do not divide reads.

use iscsi_wire::{DataIn, DataSn, Itt, ScsiResponse};

use super::command::{Ending, Residual};
use super::session::{Action, CloseReason, InitiatorSession, violation};
use super::task::Task;
use crate::limits::MAX_SENSE_BYTES;
use crate::pdu_reader::RxPdu;

/// SCSI status CHECK CONDITION.
const CHECK_CONDITION: u8 = 0x02;

impl InitiatorSession {
    //= rfc7143 11.7 DAT-02 DAT-03 DAT-06
    pub(super) fn handle_data_in(&mut self, pdu: &DataIn, rx: RxPdu) -> Result<(), CloseReason> {
        self.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn);
        let Some(task) = self.tasks.command(pdu.itt).filter(|task| task.cmd_sn.is_some()) else {
            return Err(violation(
                "RFC 7143 11.7",
                format!("Data-In for task {}, which is not there", pdu.itt),
            ));
        };
        check_data_in(pdu, task, rx.data.len())?;
        let user = task.command.user;
        task.next_data_sn = task.next_data_sn.wrapping_add(1);
        task.received += rx.data.len() as u32;
        if !rx.data_digest_ok {
            //= rfc7143 7.8 DIG-12 DIG-11
            task.verdict = Some(Ending::DataDigest);
        } else if !rx.data.is_empty() && task.verdict.is_none() {
            self.actions.push_back(Action::DataIn { user, offset: pdu.buffer_offset, data: rx.data });
        }
        //= rfc7143 11.7.3 DAT-07
        if pdu.status_bit {
            let residual = residual_of(pdu.overflow, pdu.underflow, pdu.residual_count)?;
            if pdu.status == CHECK_CONDITION {
                return Err(no_sense());
            }
            self.take_stat_sn(pdu.stat_sn)?;
            self.end_with_status(pdu.itt, pdu.status, bytes::Bytes::new(), residual);
        }
        Ok(())
    }

    //= rfc7143 11.4 DAT-07 RSP-01
    pub(super) fn handle_response(&mut self, pdu: &ScsiResponse, rx: &RxPdu) -> Result<(), CloseReason> {
        //= rfc7143 7.8 DIG-12
        if !rx.data_digest_ok {
            return Err(CloseReason::DataDigest);
        }
        self.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn);
        self.take_stat_sn(pdu.stat_sn)?;
        let Some(task) = self.tasks.command(pdu.itt).filter(|task| task.cmd_sn.is_some()) else {
            return Err(violation(
                "RFC 7143 11.4",
                format!("a response for task {}, which is not there", pdu.itt),
            ));
        };
        //= rfc7143 11.4.3 RSP-03
        if pdu.response != ScsiResponse::COMPLETED_AT_TARGET {
            self.complete(pdu.itt, Ending::TargetFailure { response: pdu.response });
            return Ok(());
        }
        let bidi = !task.command.write.is_empty() && task.command.read_length > 0;
        let residual = match bidi {
            //= rfc7143 11.4.6 RES-03
            true => residual_of(pdu.bidi_overflow, pdu.bidi_underflow, pdu.bidi_residual_count)?,
            false => residual_of(pdu.overflow, pdu.underflow, pdu.residual_count)?,
        };
        let sense = match rx.data.len() {
            0 => bytes::Bytes::new(),
            n => {
                let length = rx.data.first_chunk().map_or(n, |two| usize::from(u16::from_be_bytes(*two)));
                if n < 2 || length > n - 2 {
                    return Err(violation("RFC 7143 11.4.7", "the sense length exceeds the data segment"));
                }
                rx.data.slice(2..2 + length.min(MAX_SENSE_BYTES))
            }
        };
        if pdu.status == CHECK_CONDITION && sense.is_empty() {
            return Err(no_sense());
        }
        self.end_with_status(pdu.itt, pdu.status, sense, residual);
        Ok(())
    }

    //= rfc7143 11.4.5 RES-04
    fn end_with_status(&mut self, itt: Itt, status: u8, sense: bytes::Bytes, residual: Residual) {
        let Some(task) = self.tasks.command(itt) else { return };
        let expected = task.command.read_length;
        let real = match residual {
            Residual::Underflow(missing) => expected.saturating_sub(missing),
            _ => expected,
        };
        let data_in_bytes = task.received.min(real);
        // Kept sense data would hold the whole receive buffer.
        let sense = if sense.is_empty() { sense } else { bytes::Bytes::copy_from_slice(&sense) };
        self.complete(itt, Ending::Status { status, sense, data_in_bytes, residual });
    }
}

//= rfc7143 11.7 DAT-03 DAT-08 MCS-02
fn check_data_in(pdu: &DataIn, task: &Task, length: usize) -> Result<(), CloseReason> {
    if pdu.data_sn != DataSn(task.next_data_sn) {
        return Err(violation(
            "RFC 7143 11.7.5",
            format!("DataSN {} where {} was due", pdu.data_sn, task.next_data_sn),
        ));
    }
    if pdu.buffer_offset != task.received {
        return Err(violation(
            "RFC 7143 11.7.6",
            format!("Data-In at offset {} where {} was due", pdu.buffer_offset, task.received),
        ));
    }
    if u64::from(pdu.buffer_offset) + length as u64 > u64::from(task.command.read_length) {
        return Err(violation("RFC 7143 11.7.6", "Data-In beyond what the command expects"));
    }
    if pdu.status_bit && !pdu.final_bit {
        return Err(violation("RFC 7143 11.7.3", "Data-In has S without F"));
    }
    Ok(())
}

//= rfc7143 11.4.5 RES-04
fn residual_of(overflow: bool, underflow: bool, count: u32) -> Result<Residual, CloseReason> {
    match (overflow, underflow) {
        (true, true) => Err(violation("RFC 7143 11.4.1", "a response has both overflow and underflow")),
        (true, false) => Ok(Residual::Overflow(count)),
        (false, true) => Ok(Residual::Underflow(count)),
        (false, false) => Ok(Residual::None),
    }
}

//= rfc7143 7.7 PDU-08 RSP-01
fn no_sense() -> CloseReason {
    violation("RFC 7143 11.4.7", "CHECK CONDITION without sense data")
}
