//! PDUs received on a session's connections: each is checked, takes its turn in the command window, and is passed to its handler
//! (RFC 7143 4.2.2.1, 7.7, 11).

use bytes::Bytes;
use iscsi_wire::{Cid, CmdSn, Itt, Pdu, RejectReason, ScsiCommand, TaskManagementRequest};

use super::command_window::Arrival;
use super::session::{Queued, TargetSession};
use super::task::{Share, TaskId};
use crate::Time;
use crate::error::Fault;
use crate::limits::{MAX_HELD_REQUEST_BYTES, MAX_IMMEDIATE_TASKS};
use crate::pdu_reader::RxPdu;

/// Tag of a request that must have one, and its CmdSN if the request takes its turn in the command window.
fn request_place(pdu: &Pdu) -> Option<(Itt, Option<CmdSn>)> {
    let (itt, immediate, cmd_sn) = match pdu {
        Pdu::ScsiCommand(p) => (p.itt, p.immediate, p.cmd_sn),
        Pdu::TaskManagementRequest(p) => (p.itt, p.immediate, p.cmd_sn),
        Pdu::TextRequest(p) => (p.itt, p.immediate, p.cmd_sn),
        Pdu::LogoutRequest(p) => (p.itt, p.immediate, p.cmd_sn),
        _ => return None,
    };
    Some((itt, (!immediate).then_some(cmd_sn)))
}

impl TargetSession {
    /// Takes a PDU that arrived on connection `cid`.
    pub fn handle_pdu(&mut self, now: Time, cid: Cid, rx: &RxPdu) {
        self.now = now;
        let Some(connection) = self.connection(cid) else { return };
        // Any PDU shows that the initiator is alive; the next silence begins with a new ping.
        connection.last_life = now;
        connection.pinged = false;
        //= rfc7143 11.14 LGO-03
        if connection.closing {
            return;
        }
        if !rx.data_digest_ok {
            return self.data_digest_error(cid, rx);
        }
        let pdu = match Pdu::parse(&rx.bhs) {
            Ok(pdu) => pdu,
            //= rfc7143 11.17 PDU-04
            Err(iscsi_wire::WireError::UnknownOpcode(_)) => return self.fault(cid, rx, Fault::UnknownOpcode),
            //= rfc7143 11 PDU-03
            Err(_) => return self.fault(cid, rx, Fault::InvalidField),
        };
        //= rfc7143 11.5.2 PDU-06
        let bare =
            matches!(pdu, Pdu::TaskManagementRequest(_) | Pdu::LogoutRequest(_) | Pdu::SnackRequest(_));
        if (bare && !rx.data.is_empty()) || (!rx.ahs.is_empty() && !matches!(pdu, Pdu::ScsiCommand(_))) {
            return self.fault(cid, rx, Fault::InvalidField);
        }
        if self.is_discovery() && !self.allowed_in_discovery(&pdu) {
            //= rfc7143 4.3 DSC-01
            return self.fault(cid, rx, Fault::NotAllowedNow);
        }
        if pdu.opcode().is_initiator() {
            self.acknowledge(cid, rx.bhs.exp_stat_sn());
        }
        if let Some((itt, ordered)) = request_place(&pdu) {
            //= rfc7143 11.2.1.8 RSP-04
            //= sam5 5.11 TSK-06
            if itt.is_reserved() {
                return self.fault(cid, rx, Fault::InvalidField);
            }
            //= rfc7143 4.2.2.1 NUM-03
            if ordered.is_some_and(|cmd_sn| !self.window.admits(cmd_sn)) {
                return;
            }
        }
        match pdu {
            Pdu::ScsiCommand(command) => self.handle_command(cid, rx, &command),
            Pdu::DataOut(data) => self.handle_data_out(cid, rx, &data),
            Pdu::TaskManagementRequest(request) => self.handle_management(cid, rx, request),
            Pdu::NopOut(nop) => self.handle_nop_out(cid, rx, nop),
            Pdu::TextRequest(request) => {
                let Some(data) = self.data_for(request.immediate, request.cmd_sn, &rx.data) else {
                    return self.reject(cid, rx, RejectReason::LongOperationReject);
                };
                let rx = RxPdu { data, ..rx.clone() };
                self.arrive(request.immediate, request.cmd_sn, Queued::Text(cid, request, rx));
            }
            Pdu::LogoutRequest(request) => {
                self.arrive(request.immediate, request.cmd_sn, Queued::Logout(cid, request))
            }
            Pdu::SnackRequest(request) if self.params.level().recovers_pdus() => {
                self.handle_snack(cid, rx, &request);
            }
            // Not allowed here: a SNACK at level 0, a login request, and any target PDU.
            //= rfc7143 4.2.4 LGN-21 PDU-05
            //= rfc7143 11.16 SNK-07
            _ => self.fault(cid, rx, Fault::NotAllowedNow),
        }
    }

    fn handle_management(&mut self, cid: Cid, rx: &RxPdu, request: TaskManagementRequest) {
        // A function that is executed at once does not count: the others may be waiting for it.
        //= rfc7143 4.2.2.1 NUM-08
        if request.immediate
            && !super::task_management::waits_for_nothing(request.function)
            && self.immediate_management() >= MAX_IMMEDIATE_TASKS
        {
            return self.reject(cid, rx, RejectReason::TooManyImmediateCommands);
        }
        if self.itt_in_use(request.itt) {
            return self.reject(cid, rx, RejectReason::TaskInProgress);
        }
        self.arrive(request.immediate, request.cmd_sn, Queued::Management(cid, request));
    }

    fn allowed_in_discovery(&self, pdu: &Pdu) -> bool {
        match pdu {
            // Pings are allowed: they do no harm, and some initiators send them.
            Pdu::TextRequest(_) | Pdu::NopOut(_) => true,
            Pdu::LogoutRequest(request) => request.reason == iscsi_wire::LogoutReason::CloseSession,
            _ => false,
        }
    }

    /// Copies the data of a request that is not a command: the request may wait long for its turn or its answer, and would pin
    /// the whole receive buffer in which the data arrived. `None` when too much is waiting already: the CmdSN of such a request
    /// is not consumed.
    //= rfc7143 4.2.2.1 NUM-13
    pub(super) fn data_for(&self, immediate: bool, cmd_sn: CmdSn, data: &[u8]) -> Option<Bytes> {
        if !immediate && cmd_sn != self.window.exp_cmd_sn() {
            let waiting: usize = self.window.held().map(Queued::data_bytes).sum();
            if waiting + data.len() > MAX_HELD_REQUEST_BYTES {
                return None;
            }
        }
        Some(Bytes::copy_from_slice(data))
    }

    /// Runs a request at once if it is immediate, otherwise in its turn.
    //= rfc7143 4.2.2.1 NUM-02 NUM-11 TMF-09
    #[inline]
    pub(super) fn arrive(&mut self, immediate: bool, cmd_sn: CmdSn, queued: Queued) {
        if immediate {
            return self.run(queued);
        }
        match self.window.arrive(cmd_sn) {
            Arrival::Run => {
                self.run(queued);
                self.run_ready();
            }
            Arrival::Early => self.window.hold(cmd_sn, queued),
            Arrival::Ignored => {}
        }
    }

    /// Runs held requests whose turn has come, and task management requests that waited for them.
    pub(super) fn run_ready(&mut self) {
        while let Some(queued) = self.window.next_ready() {
            self.run(queued);
        }
        self.run_early_management();
    }

    #[inline]
    fn run(&mut self, queued: Queued) {
        match queued {
            Queued::Command(command) => self.start(command),
            Queued::Management(cid, request) => self.manage(cid, &request),
            Queued::NopOut(cid, nop, data) => self.answer_ping(cid, &nop, data),
            Queued::Text(cid, request, rx) => self.handle_text(cid, &request, &rx),
            Queued::Logout(cid, request) => self.handle_logout(cid, &request),
        }
    }

    /// Checks a SCSI command, enters it as a task, and passes it to the command window.
    fn handle_command(&mut self, cid: Cid, rx: &RxPdu, command: &ScsiCommand) {
        //= rfc7143 11.2.1.8 RSP-04
        if self.itt_in_use(command.itt) {
            return self.reject(cid, rx, RejectReason::TaskInProgress);
        }
        //= rfc7143 4.2.2.1 NUM-08
        if command.immediate && self.tasks.has_too_many_immediate(self.config.queue_depth) {
            return self.reject(cid, rx, RejectReason::TooManyImmediateCommands);
        }
        match self.book(cid, rx, command) {
            Ok(booked) => {
                let (immediate, cmd_sn) = (command.immediate, command.cmd_sn);
                self.arrive(immediate, cmd_sn, Queued::Command(booked));
            }
            Err(fault) => self.fault(cid, rx, fault),
        }
    }

    /// Removes a task from the table, and frees its place in the window and its budget.
    pub(super) fn remove_task(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        let Share { budget, early } = task.share;
        self.writes.return_early(early);
        self.tasks.remove(id);
        if budget == 0 {
            self.writes.withdraw(&[id]);
        }
        self.release_budget(budget);
    }

    pub(super) fn itt_in_use(&self, itt: Itt) -> bool {
        self.tasks.find(itt).is_some()
            || self.aborts.has_request(itt)
            || self.retained.get(itt).is_some_and(|outcome| outcome.orphan)
    }

    /// A PDU whose data does not match its digest: the data is not used, and a command's CmdSN is not consumed.
    //= rfc7143 7.8 DIG-08 DIG-10 DIG-11 NUM-13
    fn data_digest_error(&mut self, cid: Cid, rx: &RxPdu) {
        match iscsi_wire::DataOut::parse(&rx.bhs) {
            Ok(data) => self.handle_data_out(cid, rx, &data),
            Err(_) => self.fault(cid, rx, Fault::DataDigest),
        }
    }
}
