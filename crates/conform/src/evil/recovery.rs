//! Recovery on a connection of an evil target: PDUs are kept and sent again when a SNACK requests them, and tasks of
//! lost connections are taken over.

use super::connection::{Connection, End, in_window};
use super::kept::{A_BIT_TAG, Orphan};
use super::session::Found;
use crate::frame::{Frame, Received, u32_at};
use iscsi_wire::{
    DataIn, DataSn, Itt, Opcode, RejectReason, ResidualCount, ResponseNumbers, ScsiResponse, SnackRequest,
    SnackType, StatSn, TaskManagementRequest, TmfResponse, Ttt,
};

impl Connection<'_> {
    /// Sends a PDU again, with the current command window.
    fn again(&mut self, frame: Frame) -> Result<(), End> {
        let frame = in_window(frame, self.numbers());
        self.emit_as_is(frame.remark("again"))
    }

    pub(super) fn snack(&mut self, request: &SnackRequest, rx: &Received) -> Result<(), End> {
        let (beg_run, run_length) = (request.beg_run, request.run_length);
        if self.level == 0 {
            self.watch.find("SNK-02", format!("a SNACK at level 0: {}", rx.line()));
            return self.reject(rx, RejectReason::ProtocolError);
        }
        let frames = match request.snack_type {
            SnackType::DataOrR2t => self.kept.data_or_r2ts(request.itt, beg_run, run_length),
            SnackType::Status => {
                if !request.itt.is_reserved() || !request.ttt.is_reserved() {
                    self.watch.find("SNK-02", format!("tags in a status SNACK: {}", rx.line()));
                }
                self.kept.responses(beg_run, run_length)
            }
            SnackType::DataAck => return self.data_ack(request, rx),
            SnackType::RData => return self.r_data(request, rx),
        };
        let Some(frames) = frames else {
            self.watch
                .find("SNK-02", format!("asks for what was not sent or was acknowledged: {}", rx.line()));
            let next = DataSn(self.kept.next_number(request.itt));
            return self.reject_at(rx, RejectReason::ProtocolError, next);
        };
        let now = self.stat_sn;
        for frame in frames {
            let r2t = frame.bhs().opcode() == Opcode::R2t.code();
            self.again(if r2t { frame.patch(24, &now.0.to_be_bytes()) } else { frame })?;
        }
        Ok(())
    }

    fn data_ack(&mut self, request: &SnackRequest, rx: &Received) -> Result<(), End> {
        let itt = request.ttt.0 ^ A_BIT_TAG;
        let Some(kept) = self.kept.data_mut(itt) else {
            // The acknowledgement of the status may have overtaken the request.
            return Ok(());
        };
        let asked = kept.get(&request.beg_run.wrapping_sub(1)).map(Frame::bhs);
        let right = asked.is_none_or(|bhs| bhs.as_bytes()[1] & 0x40 != 0);
        if !right || request.run_length != 0 || !request.itt.is_reserved() {
            self.watch.find("SNK-03", format!("not what a Data-In with A asked for: {}", rx.line()));
            return self.reject(rx, RejectReason::InvalidDataAck);
        }
        *kept = kept.split_off(&request.beg_run);
        Ok(())
    }

    fn r_data(&mut self, request: &SnackRequest, rx: &Received) -> Result<(), End> {
        let tag = request.ttt.0;
        if [0, u32::MAX].contains(&tag) || request.beg_run != 0 || request.run_length != 0 {
            self.watch.find("SNK-04", format!("a malformed R-Data SNACK: {}", rx.line()));
            return self.reject(rx, RejectReason::ProtocolError);
        }
        let Some((kept, sent)) = self.kept.take_data(request.itt) else {
            return self.reject(rx, RejectReason::ProtocolError);
        };
        let mut data_sn = kept.keys().next().copied().unwrap_or(0);
        let mut residual = None;
        let count = kept.len();
        for (n, frame) in kept.into_values().enumerate() {
            let Ok(first) = DataIn::parse(&frame.bhs()) else { continue };
            if first.status_bit {
                residual = Some(first);
            }
            let bytes = frame.data_bytes().to_vec();
            for (at, part) in bytes.chunks(self.initiator_max_recv).enumerate() {
                let offset = at * self.initiator_max_recv;
                let whole = offset + part.len() == bytes.len();
                let pdu = DataIn {
                    final_bit: whole && (first.final_bit || n + 1 == count),
                    acknowledge: false,
                    status_bit: false,
                    status: 0,
                    ttt: Ttt::RESERVED,
                    numbers: ResponseNumbers { stat_sn: StatSn(0), ..self.numbers() },
                    data_sn: DataSn(data_sn),
                    buffer_offset: first.buffer_offset + offset as u32,
                    residual_count: ResidualCount::default(),
                    ..first
                };
                data_sn += 1;
                self.emit(Frame::of(pdu).data(part))?;
            }
        }
        let Some(sent) = sent else { return Ok(()) };
        let response = ScsiResponse {
            response: 0,
            status: 0,
            itt: request.itt,
            snack_tag: tag,
            numbers: ResponseNumbers { stat_sn: StatSn(u32_at(&sent.bhs(), 24)), ..self.numbers() },
            exp_data_sn: DataSn(data_sn),
            bidi_residual_count: ResidualCount::default(),
            residual_count: residual.map_or_else(ResidualCount::default, |pdu| pdu.residual_count),
        };
        self.emit(Frame::of(response))
    }

    /// TASK REASSIGN: its response code, and the task to continue after the response.
    pub(super) fn reassign(&mut self, request: &TaskManagementRequest) -> (TmfResponse, Option<Box<Orphan>>) {
        if self.level < 2 {
            return (TmfResponse::TaskReassignNotSupported, None);
        }
        if !request.immediate {
            self.watch.find("ERL-06", "TASK REASSIGN that is not immediate");
        }
        match self.session.reassign(request.referenced_task_tag.0, self.peer.connection()) {
            Found::Waiting(orphan) => (TmfResponse::FunctionComplete, Some(orphan)),
            Found::Allegiant => (TmfResponse::TaskStillAllegiant, None),
            Found::Nothing => (TmfResponse::TaskDoesNotExist, None),
        }
    }

    /// Continues a task that this connection took over, from `exp_data_sn` on.
    pub(super) fn take_over(&mut self, itt: Itt, exp_data_sn: u32, orphan: Orphan) -> Result<(), End> {
        if let Some(task) = orphan.task {
            return self.resume(itt, task);
        }
        let status = orphan.status;
        let window = self.numbers();
        for (number, frame) in orphan.data {
            if number < exp_data_sn {
                continue;
            }
            let with_status = frame.bhs().as_bytes()[1] & 1 != 0;
            let frame = in_window(frame, window);
            if with_status {
                let stat_sn = self.take_numbers().stat_sn;
                return self.emit(frame.patch(24, &stat_sn.0.to_be_bytes()).remark("taken over"));
            }
            self.emit(frame.remark("taken over"))?;
        }
        let Some(status) = status else { return Ok(()) };
        let stat_sn = self.take_numbers().stat_sn;
        let mut frame = in_window(status, window).patch(24, &stat_sn.0.to_be_bytes());
        if frame.bhs().opcode() == Opcode::DataIn.code() {
            // All data has arrived: send the status alone.
            frame = frame.data(Vec::new());
        }
        self.emit(frame.remark("taken over"))
    }
}
