//! From the device server's outcome to Data-In and SCSI Response (RFC 7143 11.4, 11.7).

use bytes::Bytes;
use iscsi_wire::{DataIn, DataSn, Itt, ScsiResponse, Ttt};

use super::actions::{Completion, DataInPayload};
use super::session::TargetSession;
use super::task::{Ending, State, Task, TaskId};
use crate::pdu_writer::{TxData, TxPdu};

/// Statuses that may travel in a Data-In PDU: those of success (RFC 7143 11.7.3).
const COLLAPSIBLE: [u8; 2] = [0x00, 0x04];

/// A transfer that was not what the initiator expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Residual {
    overflow: bool,
    underflow: bool,
    count: u32,
}

impl Residual {
    /// Difference between what the initiator expected and the SCSI transfer length.
    //= rfc7143 11.4.5 RES-01 RES-02
    fn of(expected: u32, transferred: u64) -> Self {
        let expected = u64::from(expected);
        let count = u32::try_from(expected.abs_diff(transferred)).unwrap_or(u32::MAX);
        Self { overflow: transferred > expected, underflow: transferred < expected, count }
    }
}

impl TargetSession {
    /// The device server is done with `id`, or was done with it when it was abandoned.
    pub fn complete(&mut self, id: TaskId, completion: Completion) {
        let Some(task) = self.tasks.get_mut(id) else { return self.task_gone(id) };
        if task.state == State::Held {
            return;
        }
        if task.ending.is_some() {
            return self.task_gone(id);
        }
        if task.expects_data() {
            // The initiator owes data: the status must not overtake it (RFC 7143 11.4.2).
            //= rfc7143 11.4.2 RSP-01
            task.state = State::Released;
            task.ending = Some(Ending {
                status: completion.status,
                sense: completion.sense,
                transfer_bytes: completion.transfer_bytes,
            });
            return;
        }
        if let Some(task) = self.remove_task(id) {
            self.respond(&task, completion);
        }
    }

    /// Sends the status of a condemned task once nothing more is due for it, its turn has come, and the device server has let
    /// go of it: no command that follows the status may meet it on the medium.
    pub(super) fn end_if_settled(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        if task.expects_data() || task.state == State::Held || self.leaving.contains_key(&id) {
            return;
        }
        let Some(Ending { status, sense, transfer_bytes }) = task.ending.clone() else { return };
        if let Some(task) = self.remove_task(id) {
            self.respond(
                &task,
                Completion { status, sense, transfer_bytes, data_in: DataInPayload::default() },
            );
        }
    }

    fn respond(&mut self, task: &Task, completion: Completion) {
        let read_length = match (task.read, task.bidi_read_length) {
            (true, Some(length)) => length,
            (true, None) => task.edtl,
            (false, _) => 0,
        };
        let bidi = task.bidi_read_length.is_some();
        let mut data_in = completion.data_in;
        if data_in.bytes.len() > read_length as usize {
            data_in.bytes.truncate(read_length as usize);
        }
        // Of a bidirectional command the transfer length is that of the write; the read has a residual of its own.
        //= rfc7143 11.4.6 RES-03
        let residual =
            Residual::of(if task.read || task.write { task.edtl } else { 0 }, completion.transfer_bytes);
        let bidi_residual =
            if bidi { Residual::of(read_length, data_in.bytes.len() as u64) } else { Residual::default() };
        //= rfc7143 11.7.3 DAT-07 DAT-08
        let collapse = !bidi && completion.sense.is_empty() && COLLAPSIBLE.contains(&completion.status);
        let mut data_sn = task.next_data_sn;
        if !data_in.bytes.is_empty() {
            let status = collapse.then_some((completion.status, residual));
            data_sn = self.send_data_in(task, &data_in, data_sn, status);
            if collapse {
                return;
            }
        }
        //= rfc7143 11.4.8 RSP-02
        self.bhs_response(
            task,
            completion.status,
            completion.sense,
            residual,
            bidi_residual,
            DataSn(data_sn),
        );
    }

    /// Cuts data into PDUs no longer than the initiator takes and sequences no longer than MaxBurstLength; the next DataSN.
    //= rfc7143 11.7.1 DAT-01 DAT-02
    fn send_data_in(
        &mut self,
        task: &Task,
        data_in: &DataInPayload,
        mut data_sn: u32,
        status: Option<(u8, Residual)>,
    ) -> u32 {
        let Some(connection) = self.connection(task.cid) else { return data_sn };
        let max_pdu = connection.params.max_send_data_segment_length as usize;
        let max_burst = self.params.max_burst_length as usize;
        let total = data_in.bytes.len();
        let (mut offset, mut burst_end) = (0, max_burst.min(total));
        while offset < total {
            let end = (offset + max_pdu).min(burst_end);
            let last = end == total;
            let with_status = status.filter(|_| last);
            let Some(n) = self.numbers(task.cid, with_status.is_some()) else { return data_sn };
            let (status, residual) = with_status.unwrap_or_default();
            let pdu = DataIn {
                final_bit: end == burst_end,
                acknowledge: false,
                overflow: residual.overflow,
                underflow: residual.underflow,
                status_bit: with_status.is_some(),
                status,
                lun: iscsi_wire::Lun(0),
                itt: task.itt,
                ttt: Ttt::RESERVED,
                stat_sn: if with_status.is_some() { n.stat_sn } else { iscsi_wire::StatSn(0) },
                exp_cmd_sn: n.exp_cmd_sn,
                max_cmd_sn: n.max_cmd_sn,
                data_sn: DataSn(data_sn),
                buffer_offset: offset as u32,
                residual_count: residual.count,
            };
            let data =
                TxData { bytes: data_in.bytes.slice(offset..end), crc32c: chunk_crc(data_in, offset, end) };
            self.send(task.cid, TxPdu::with_data(pdu.to_bhs(), data));
            data_sn += 1;
            offset = end;
            if offset == burst_end {
                burst_end = (burst_end + max_burst).min(total);
            }
        }
        data_sn
    }

    //= rfc7143 11.4.7 RSP-01
    fn bhs_response(
        &mut self,
        task: &Task,
        status: u8,
        sense: Bytes,
        residual: Residual,
        bidi: Residual,
        exp_data_sn: DataSn,
    ) {
        let Some(n) = self.numbers(task.cid, true) else { return };
        let response = ScsiResponse {
            bidi_overflow: bidi.overflow,
            bidi_underflow: bidi.underflow,
            overflow: residual.overflow,
            underflow: residual.underflow,
            response: 0,
            status,
            itt: task.itt,
            snack_tag: 0,
            stat_sn: n.stat_sn,
            exp_cmd_sn: n.exp_cmd_sn,
            max_cmd_sn: n.max_cmd_sn,
            exp_data_sn,
            bidi_residual_count: bidi.count,
            residual_count: residual.count,
        };
        let mut data = Vec::new();
        if !sense.is_empty() {
            data.reserve(2 + sense.len());
            data.extend_from_slice(&(sense.len() as u16).to_be_bytes());
            data.extend_from_slice(&sense);
        }
        self.send(task.cid, TxPdu::with_data(response.to_bhs(), Bytes::from(data)));
    }

    /// Answers a task management request on behalf of [`super::task_management`].
    pub(super) fn send_management_response(
        &mut self,
        cid: iscsi_wire::Cid,
        itt: Itt,
        response: iscsi_wire::TmfResponse,
    ) {
        self.bhs_pdu(cid, |n| {
            iscsi_wire::TaskManagementResponse {
                response,
                itt,
                stat_sn: n.stat_sn,
                exp_cmd_sn: n.exp_cmd_sn,
                max_cmd_sn: n.max_cmd_sn,
                additional: [0; 3],
            }
            .to_bhs()
        });
    }
}

/// The checksum of `start..end` if exactly those bytes were a run whose checksum was computed while they were copied.
fn chunk_crc(data_in: &DataInPayload, start: usize, end: usize) -> Option<u32> {
    let chunk = data_in.chunk_bytes as usize;
    if chunk == 0 || !start.is_multiple_of(chunk) || end != (start + chunk).min(data_in.chunked_bytes) {
        return None;
    }
    data_in.chunk_crcs.get(start / chunk).copied()
}
