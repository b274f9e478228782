//! SCSI commands and their data on a connection of an evil target.

use super::connection::{Connection, End};
use super::disk::{Verdict, sense};
use super::lock;
use crate::frame::{Frame, Received};
use iscsi_wire::{
    DataIn, DataOut, DataSn, Itt, Lun, R2t, R2tSn, RejectReason, ScsiCommand, ScsiResponse, StatSn, Ttt,
    keys, parse_number,
};

/// Maximum number of concurrent tasks.
const MAX_TASKS: usize = 4096;

/// Base of the Target Transfer Tags of Data-In PDUs with the A bit; the task's own tag is combined
/// with it.
pub(super) const A_BIT_TAG: u32 = 0x5a5a_0000;

/// A write that is still receiving data.
pub(super) struct Task {
    lun: Lun,
    cdb_length: usize,
    edtl: usize,
    medium_offset: usize,
    buffer: Vec<u8>,
    unsolicited_open: bool,
    unsolicited: Sequence,
    outstanding: Vec<Sequence>,
    /// The ranges that have arrived, with DataPDUInOrder=No.
    arrived: Vec<(usize, usize)>,
    next_offset: usize,
    r2t_sn: u32,
}

/// A sequence of Data-Out PDUs up to an F bit: the requested range, and the progress.
#[derive(Clone, Copy, Default)]
struct Sequence {
    ttt: u32,
    start: usize,
    /// Offset of the next byte; with DataPDUInOrder=No, `start` and the bytes that have arrived.
    offset: usize,
    end: usize,
    next_data_sn: u32,
    /// A PDU is missing: the PDUs after it are discarded, and requested again after the F bit.
    broken: bool,
}

/// Enters a range; false if some of its bytes were entered before.
fn enter(ranges: &mut Vec<(usize, usize)>, start: usize, end: usize) -> bool {
    let fresh = ranges.iter().all(|(from, to)| start >= *to || end <= *from);
    ranges.push((start, end));
    fresh
}

impl Connection<'_> {
    pub(super) fn command(&mut self, command: &ScsiCommand, rx: &Received) -> Result<(), End> {
        if self.tasks.contains_key(&command.itt.0) || self.tasks.len() >= MAX_TASKS {
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
                let total = edtl.min(length);
                let mut buffer = vec![0; total];
                let immediate = rx.data.len().min(total);
                buffer[..immediate].copy_from_slice(&rx.data[..immediate]);
                let first_burst = self.number(keys::FIRST_BURST_LENGTH, 65_536).min(edtl);
                let task = Task {
                    lun: command.lun,
                    cdb_length: length,
                    edtl,
                    medium_offset: offset,
                    buffer,
                    unsolicited_open: !command.final_bit,
                    unsolicited: Sequence {
                        ttt: u32::MAX,
                        start: immediate,
                        offset: immediate,
                        end: first_burst,
                        next_data_sn: 0,
                        broken: false,
                    },
                    outstanding: Vec::new(),
                    arrived: Vec::new(),
                    next_offset: immediate,
                    r2t_sn: 0,
                };
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
                overflow: last && over > 0,
                underflow: last && under > 0,
                status_bit: last,
                status: 0,
                lun: if a_bit { command.lun } else { Lun(0) },
                itt: command.itt,
                ttt: if a_bit { Ttt(A_BIT_TAG ^ command.itt.0) } else { Ttt::RESERVED },
                stat_sn: if last { self.take_stat_sn() } else { StatSn(0) },
                exp_cmd_sn: self.exp_cmd_sn(),
                max_cmd_sn: self.max_cmd_sn(),
                data_sn: DataSn(data_sn),
                buffer_offset: offset as u32,
                residual_count: if last { under.max(over) } else { 0 },
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
            bidi_overflow: false,
            bidi_underflow: false,
            overflow: over > 0,
            underflow: under > 0,
            response: 0,
            status,
            itt,
            snack_tag: 0,
            stat_sn: self.take_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn(),
            max_cmd_sn: self.max_cmd_sn(),
            exp_data_sn: DataSn(r2ts),
            bidi_residual_count: 0,
            residual_count: under.max(over),
        };
        self.emit(Frame::of(response).data(sense))
    }

    /// Sends the R2Ts allowed now, or completes the write.
    fn pump(&mut self, itt: Itt) -> Result<(), End> {
        let max_burst = self.max_burst();
        let max_outstanding = self.number(keys::MAX_OUTSTANDING_R2T, 1);
        loop {
            let Some(task) = self.tasks.get_mut(&itt.0) else { return Ok(()) };
            if task.unsolicited_open || task.outstanding.len() >= max_outstanding {
                return Ok(());
            }
            let (offset, total) = (task.next_offset, task.buffer.len());
            if offset >= total {
                break;
            }
            let end = total.min(offset + max_burst);
            task.next_offset = end;
            let place = task.outstanding.len();
            self.send_r2t(itt, offset, end, place)?;
        }
        if !self.tasks.get(&itt.0).is_some_and(|task| task.outstanding.is_empty()) {
            return Ok(());
        }
        let Some(task) = self.tasks.remove(&itt.0) else { return Ok(()) };
        {
            let mut disk = lock(&self.shared.disk);
            let whole = task.buffer.len() - task.buffer.len() % super::BLOCK_SIZE;
            let end = task.medium_offset + whole;
            if let Some(range) = disk.blocks.get_mut(task.medium_offset..end) {
                range.copy_from_slice(&task.buffer[..whole]);
            }
        }
        self.response(itt, 0, task.edtl, task.cdb_length, task.r2t_sn, Vec::new())
    }

    /// A sequence ended with a hole: requests the rest of it again.
    fn ask_again(&mut self, itt: Itt, place: Option<usize>) -> Result<(), End> {
        let Some(task) = self.tasks.get_mut(&itt.0) else { return Ok(()) };
        match place {
            None => {
                task.unsolicited_open = false;
                task.next_offset = task.unsolicited.offset;
                self.pump(itt)
            }
            Some(place) => {
                let lost = task.outstanding.remove(place);
                self.send_r2t(itt, lost.offset, lost.end, place)
            }
        }
    }

    /// Restarts a write whose connection was lost: requests the data that has not arrived.
    pub(super) fn resume(&mut self, itt: Itt, mut task: Task) -> Result<(), End> {
        let open = task.unsolicited_open.then_some(task.unsolicited.offset);
        let lowest = task.outstanding.iter().map(|sequence| sequence.offset).chain(open).min();
        task.next_offset = lowest.unwrap_or(task.next_offset);
        task.unsolicited_open = false;
        task.outstanding.clear();
        self.tasks.insert(itt.0, task);
        self.pump(itt)
    }

    /// Requests data of a write; `place` is its position among the outstanding R2Ts.
    fn send_r2t(&mut self, itt: Itt, offset: usize, end: usize, place: usize) -> Result<(), End> {
        let (exp_cmd_sn, max_cmd_sn, stat_sn) = (self.exp_cmd_sn(), self.max_cmd_sn(), self.stat_sn);
        let Some(task) = self.tasks.get_mut(&itt.0) else { return Ok(()) };
        let pdu = R2t {
            lun: task.lun,
            itt,
            ttt: Ttt(self.next_ttt),
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            r2t_sn: R2tSn(task.r2t_sn),
            buffer_offset: offset as u32,
            desired_data_transfer_length: (end - offset) as u32,
        };
        let sequence =
            Sequence { ttt: self.next_ttt, start: offset, offset, end, next_data_sn: 0, broken: false };
        task.outstanding.insert(place.min(task.outstanding.len()), sequence);
        task.r2t_sn += 1;
        self.next_ttt = self.next_ttt.wrapping_add(1) & 0x7fff_ffff;
        self.emit(Frame::of(pdu))
    }

    pub(super) fn data_out(&mut self, pdu: &DataOut, rx: &Received) -> Result<(), End> {
        let in_order = self.results.get(keys::DATA_PDU_IN_ORDER).is_none_or(|value| value != "No");
        let Some(task) = self.tasks.get_mut(&pdu.itt.0) else {
            // Further data of an aborted task is ignored.
            return Ok(());
        };
        let unsolicited = pdu.ttt.is_reserved();
        let place = task.outstanding.iter().position(|sequence| sequence.ttt == pdu.ttt.0);
        let sequence = match place {
            _ if unsolicited && task.unsolicited_open => &mut task.unsolicited,
            Some(place) if !unsolicited => {
                if place != 0 {
                    self.watch.find("R2T-02", format!("R2Ts answered out of order: {}", rx.line()));
                }
                if pdu.lun != task.lun {
                    self.watch.find("DAT-04", format!("LUN of the R2T not copied: {}", rx.line()));
                }
                &mut task.outstanding[place]
            }
            _ => {
                self.watch.find("R2T-03", format!("data that nobody asked for: {}", rx.line()));
                return self.reject(rx, RejectReason::InvalidPduField);
            }
        };
        let (offset, end) = (pdu.buffer_offset as usize, pdu.buffer_offset as usize + rx.data.len());
        if self.level >= 1 {
            if pdu.data_sn.0 < sequence.next_data_sn {
                return Ok(());
            }
            sequence.broken |= pdu.data_sn.0 > sequence.next_data_sn;
            if sequence.broken {
                return if pdu.final_bit { self.ask_again(pdu.itt, place) } else { Ok(()) };
            }
        }
        if pdu.data_sn != DataSn(sequence.next_data_sn) {
            self.watch.find("DAT-02", format!("DataSN {} was due: {}", sequence.next_data_sn, rx.line()));
        }
        let arrived = if in_order { end } else { sequence.offset + rx.data.len() };
        let early = pdu.final_bit && arrived != sequence.end;
        let in_place = match in_order {
            true => offset == sequence.offset,
            false => offset >= sequence.start && enter(&mut task.arrived, offset, end),
        };
        if !in_place || end > sequence.end || (early && !in_order) {
            self.watch
                .find("DAT-03", format!("{}..{} was due: {}", sequence.offset, sequence.end, rx.line()));
            return self.reject(rx, RejectReason::InvalidPduField);
        }
        if early {
            let row = if unsolicited { "UNS-04" } else { "R2T-03" };
            self.watch.find(row, format!("F at {end}, {} bytes were due: {}", sequence.end, rx.line()));
        }
        (sequence.offset, sequence.next_data_sn) = (arrived, sequence.next_data_sn + 1);
        let next_offset = sequence.offset;
        if let Some(range) = task.buffer.get_mut(offset..end) {
            range.copy_from_slice(&rx.data);
        }
        if pdu.final_bit {
            if unsolicited {
                task.unsolicited_open = false;
                task.next_offset = next_offset;
            } else if let Some(place) = place {
                task.outstanding.remove(place);
            }
            return self.pump(pdu.itt);
        }
        Ok(())
    }
}
