//! SCSI commands and their data on a connection of an evil target.

use super::connection::{Connection, End};
use super::disk::{Verdict, sense};
use super::kept::A_BIT_TAG;
use super::lock;
use super::task::{Range, Rules, Task, Then};
use crate::frame::{Frame, Received};
use iscsi_wire::{
    DataIn, DataOut, DataSn, Itt, Lun, R2t, RejectReason, ResidualCount, ResponseNumbers, ScsiCommand,
    ScsiResponse, StatSn, Ttt, keys, parse_number,
};

impl Connection<'_> {
    pub(super) fn command(&mut self, command: &ScsiCommand, rx: &Received) -> Result<(), End> {
        if self.tasks.refuses(command.itt.0) {
            return self.reject(rx, RejectReason::TaskInProgress);
        }
        self.session.task(command.itt.0, self.peer.connection());
        let edtl = command.expected_data_transfer_length as usize;
        let verdict = lock(&self.shared.disk).execute(&command.cdb, command.lun.to_index() == Some(0));
        match verdict {
            Verdict::Data(data) => self.read_answer(command, data, edtl),
            Verdict::Check(key, asc, ascq) => {
                let data = sense(key, asc, ascq);
                self.response(command.itt, 2, edtl, 0, 0, data)
            }
            Verdict::Write { offset, length } => {
                let first_burst = self.number(keys::FIRST_BURST_LENGTH, 65_536);
                let task = Task::new(command, offset, length, &rx.data, first_burst);
                self.tasks.insert(command.itt.0, task);
                self.pump(command.itt)
            }
        }
    }

    fn number(&self, key: &str, default: usize) -> usize {
        let value = self.results.get(key).and_then(|value| parse_number(value).ok());
        value.and_then(|value| usize::try_from(value).ok()).unwrap_or(default)
    }

    /// MaxBurstLength, at least 512 even if an impossible value was negotiated (RFC 7143 13.13).
    fn max_burst(&self) -> usize {
        self.number(keys::MAX_BURST_LENGTH, 262_144).max(512)
    }

    fn read_answer(&mut self, command: &ScsiCommand, data: Vec<u8>, edtl: usize) -> Result<(), End> {
        let length = data.len().min(edtl);
        if length == 0 {
            return self.response(command.itt, 0, edtl, data.len(), 0, Vec::new());
        }
        let max_burst = self.max_burst();
        let (mut offset, mut data_sn, mut going) = (0, 0, Ok(()));
        while offset < length {
            let burst_end = length.min((offset / max_burst + 1) * max_burst);
            let end = burst_end.min(offset + self.initiator_max_recv);
            let last = end == length;
            // Once per burst the initiator is asked to acknowledge the data it has.
            let a_bit = self.level >= 1 && end == burst_end && !last;
            let under = edtl.saturating_sub(data.len()) as u32;
            let over = data.len().saturating_sub(edtl) as u32;
            let pdu = DataIn {
                final_bit: end == burst_end,
                acknowledge: a_bit,
                status_bit: last,
                status: 0,
                lun: if a_bit { command.lun } else { Lun(0) },
                itt: command.itt,
                ttt: if a_bit { Ttt(A_BIT_TAG ^ command.itt.0) } else { Ttt::RESERVED },
                numbers: match last {
                    true => self.take_numbers(),
                    false => ResponseNumbers { stat_sn: StatSn(0), ..self.numbers() },
                },
                data_sn: DataSn(data_sn),
                buffer_offset: offset as u32,
                residual_count: ResidualCount {
                    overflow: last && over > 0,
                    underflow: last && under > 0,
                    bytes: if last { under.max(over) } else { 0 },
                },
            };
            let frame = Frame::of(pdu).data(&data[offset..end]);
            match going {
                // The rest waits until another connection takes over the task.
                Err(End) if self.level >= 2 => self.kept.keep(&frame),
                Err(End) => return Err(End),
                Ok(()) => going = self.emit(frame),
            }
            (offset, data_sn) = (end, data_sn + 1);
        }
        going
    }

    /// A SCSI Response; `moved` is the number of bytes that the CDB transfers.
    fn response(
        &mut self,
        itt: Itt,
        status: u8,
        edtl: usize,
        moved: usize,
        r2ts: u32,
        sense: Vec<u8>,
    ) -> Result<(), End> {
        let (under, over) = (edtl.saturating_sub(moved) as u32, moved.saturating_sub(edtl) as u32);
        let response = ScsiResponse {
            response: 0,
            status,
            itt,
            snack_tag: 0,
            numbers: self.take_numbers(),
            exp_data_sn: DataSn(r2ts),
            bidi_residual_count: ResidualCount::default(),
            residual_count: ResidualCount {
                overflow: over > 0,
                underflow: under > 0,
                bytes: under.max(over),
            },
        };
        self.emit(Frame::of(response).data(sense))
    }

    /// Sends the R2Ts allowed now, or completes the write.
    fn pump(&mut self, itt: Itt) -> Result<(), End> {
        let max_burst = self.max_burst();
        let max_outstanding = self.number(keys::MAX_OUTSTANDING_R2T, 1);
        while let Some(task) = self.tasks.get_mut(itt.0)
            && let Some(range) = task.next_range(max_outstanding, max_burst)
        {
            self.send_r2t(itt, range)?;
        }
        if !self.tasks.get_mut(itt.0).is_some_and(|task| task.is_complete()) {
            return Ok(());
        }
        let Some(task) = self.tasks.remove(itt.0).map(Task::into_complete) else { return Ok(()) };
        let whole = task.data.len() - task.data.len() % super::BLOCK_SIZE;
        lock(&self.shared.disk).store(task.medium_offset, &task.data[..whole]);
        self.response(itt, 0, task.edtl, task.cdb_length, task.r2ts, Vec::new())
    }

    /// Restarts a write whose connection was lost: requests the data that has not arrived.
    pub(super) fn resume(&mut self, itt: Itt, mut task: Task) -> Result<(), End> {
        task.restart();
        self.tasks.insert(itt.0, task);
        self.pump(itt)
    }

    /// Requests data of a write.
    fn send_r2t(&mut self, itt: Itt, range: Range) -> Result<(), End> {
        let numbers = self.numbers();
        let ttt = self.tasks.next_ttt();
        let Some(task) = self.tasks.get_mut(itt.0) else { return Ok(()) };
        let pdu = R2t {
            lun: task.lun(),
            itt,
            ttt: Ttt(ttt),
            numbers,
            r2t_sn: task.requested(ttt, &range),
            buffer_offset: range.offset as u32,
            desired_data_transfer_length: (range.end - range.offset) as u32,
        };
        self.emit(Frame::of(pdu))
    }

    pub(super) fn data_out(&mut self, pdu: &DataOut, rx: &Received) -> Result<(), End> {
        let in_order = self.results.get(keys::DATA_PDU_IN_ORDER).is_none_or(|value| value != "No");
        let rules = Rules { recovers: self.level >= 1, in_order };
        let Some(task) = self.tasks.get_mut(pdu.itt.0) else {
            // Further data of an aborted task is ignored.
            return Ok(());
        };
        match task.take(pdu, rx, rules, |row, words| self.watch.find(row, words)) {
            Then::Wait => Ok(()),
            Then::Reject => self.reject(rx, RejectReason::InvalidPduField),
            Then::Again(range) => self.send_r2t(pdu.itt, range),
            Then::Continue => self.pump(pdu.itt),
        }
    }
}
