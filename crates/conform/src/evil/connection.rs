//! One connection of an evil target: command order, data transfer, and the rest of full feature phase.

use super::behaviour::{Act, Incoming, Scene};
use super::kept::Kept;
use super::session::{EvilSession, counts};
use super::task::Tasks;
use super::watch::Watch;
use super::{POLL, Shared, lock};
use crate::PeerError;
use crate::frame::{Frame, Received};
use crate::link::Link;
use crate::login::{text_of, value_of};
use crate::peer::RawPeer;
use crate::transcript::Side;
use iscsi_wire::{
    AsyncEvent, AsyncMessage, Cid, CmdSn, DataSn, LogoutReason, LogoutRequest, LogoutResponse,
    LogoutResponseCode, Lun, NopIn, NopOut, Opcode, Pdu, Reject, RejectReason, ResponseNumbers, StatSn,
    TaskManagementRequest, TaskManagementResponse, TextRequest, TextResponse, TmfFunction, TmfResponse, Ttt,
    keys,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long sending may take; a peer that does not read for this long loses its connection.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End;

pub(super) struct Connection<'a> {
    pub(super) shared: &'a Shared,
    pub(super) peer: RawPeer,
    pub(super) watch: Watch,
    pub(super) session: Arc<EvilSession>,
    pub(super) level: u64,
    pub(super) kept: Kept,
    pub(super) discovery: bool,
    pub(super) initiator_cid: Cid,
    pub(super) initiator_max_recv: usize,
    pub(super) results: HashMap<String, String>,
    pub(super) stat_sn: StatSn,
    full_feature: bool,
    after: Vec<Act>,
    /// A logout ended the connection, so nothing waits for its return.
    parted: bool,
    /// Data of commands whose turn has not come yet.
    early: Vec<Received>,
    pub(super) tasks: Tasks,
    text: Vec<u8>,
    text_rest: Vec<u8>,
}

/// Serves a connection to its end.
pub(super) fn serve(link: Box<dyn Link>, shared: &Shared) {
    let peer = RawPeer::over(link, Side::Target, SEND_TIMEOUT, &shared.transcript);
    let mut connection = Connection {
        shared,
        peer,
        watch: Watch::default(),
        session: Arc::new(EvilSession::new(shared.config.window)),
        level: 0,
        kept: Kept::default(),
        discovery: false,
        initiator_cid: Cid(0),
        initiator_max_recv: 8192,
        results: HashMap::new(),
        stat_sn: StatSn(shared.config.first_stat_sn),
        full_feature: false,
        after: Vec::new(),
        parted: false,
        early: Vec::new(),
        tasks: Tasks::new(),
        text: Vec::new(),
        text_rest: Vec::new(),
    };
    if connection.login().is_ok() {
        connection.full_feature = true;
        connection
            .watch
            .negotiated(&connection.results, shared.config.keys.get(keys::MAX_RECV_DATA_SEGMENT_LENGTH));
        while connection.step().is_ok() {}
        connection.leave();
    }
    connection.peer.close_write();
    // Data that the initiator is still sending is read, so that it sees FIN and not RST.
    let _ = connection.peer.recv_within(POLL);
    lock(&shared.findings).append(&mut connection.watch.findings);
}

impl Connection<'_> {
    fn scene(&self) -> Scene {
        Scene {
            cid: self.initiator_cid,
            connection: self.peer.connection(),
            full_feature: self.full_feature,
            numbers: self.numbers(),
            initiator_max_recv: self.initiator_max_recv,
        }
    }

    /// The connection has ended. If it was lost, the initiator is notified on another one and its tasks
    /// wait.
    fn leave(&mut self) {
        let mut orphans = self.kept.orphans();
        for (itt, task) in self.tasks.drain() {
            orphans.entry(itt).or_default().task = Some(task);
        }
        let lost = !self.parted;
        let others = self.session.leave(self.initiator_cid, self.peer.connection(), lost, orphans);
        if !others && (self.parted || self.level < 2) {
            self.shared.unregister(&self.session);
        }
    }

    /// What the next PDU says of the numbers.
    pub(super) fn numbers(&self) -> ResponseNumbers {
        ResponseNumbers {
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.session.exp_cmd_sn(),
            max_cmd_sn: self.session.max_cmd_sn(),
        }
    }

    /// The same of one that takes a StatSN.
    pub(super) fn take_numbers(&mut self) -> ResponseNumbers {
        let numbers = self.numbers();
        self.stat_sn = numbers.stat_sn.next();
        numbers
    }

    /// Sends what a good target would send, or what the hook replaces it with.
    pub(super) fn emit(&mut self, frame: Frame) -> Result<(), End> {
        if self.level > 0 {
            self.kept.keep(&frame);
        }
        self.emit_as_is(frame)
    }

    /// Like [`Connection::emit`], for PDUs that are not kept.
    pub(super) fn emit_as_is(&mut self, frame: Frame) -> Result<(), End> {
        let scene = self.scene();
        let acts = lock(&self.shared.behaviour).send(&scene, frame);
        self.perform(acts)
    }

    fn perform(&mut self, acts: Vec<Act>) -> Result<(), End> {
        for act in acts {
            let sent = match act {
                Act::Send(frame) => self.send(&frame, usize::MAX),
                Act::Pieces(frame, size) => self.send(&frame, size),
                Act::Store(offset, data) => {
                    lock(&self.shared.disk).store(offset, &data);
                    Ok(())
                }
                Act::Forget => {
                    self.tasks.clear();
                    Ok(())
                }
                Act::Answer(frame) => {
                    let frame = self.numbered(frame);
                    self.stat_sn = self.stat_sn.next();
                    if self.level > 0 {
                        self.kept.keep(&frame);
                    }
                    self.send(&frame, usize::MAX)
                }
                Act::Tell(frame) => {
                    let frame = self.numbered(frame);
                    self.send(&frame, usize::MAX)
                }
                Act::Bytes(bytes) => self.peer.send_bytes(&bytes).map_err(|_| End),
                Act::Pause(time) => {
                    std::thread::sleep(time);
                    Ok(())
                }
                Act::Close => Err(End),
                Act::Reset => {
                    self.peer.linger_zero();
                    Err(End)
                }
            };
            sent?;
        }
        Ok(())
    }

    fn numbered(&self, frame: Frame) -> Frame {
        let numbers = self.numbers();
        in_window(frame.patch(24, &numbers.stat_sn.0.to_be_bytes()), numbers)
    }

    fn send(&mut self, frame: &Frame, piece: usize) -> Result<(), End> {
        self.session.told(CmdSn(crate::frame::u32_at(&frame.bhs(), 32)));
        self.peer.send_pieces(frame, piece).map_err(|_| End)
    }

    /// The next PDU; an error when the connection or the target ends.
    pub(super) fn next(&mut self) -> Result<Received, End> {
        let after = std::mem::take(&mut self.after);
        self.perform(after)?;
        loop {
            let several = self.full_feature && self.session.is_several();
            match self.peer.recv_within(if several { POLL / 8 } else { POLL }) {
                Ok(rx) => return Ok(rx),
                Err(PeerError::Timeout(_)) if !self.shared.stop.load(Ordering::Relaxed) => self.idle()?,
                Err(PeerError::HeaderDigest { .. }) => {
                    self.watch.find("DIG-03", "the initiator sent a wrong header digest");
                    return Err(End);
                }
                Err(PeerError::DataDigest { .. }) => {
                    self.watch.find("DIG-03", "the initiator sent a wrong data digest");
                    return Err(End);
                }
                Err(_) => return Err(End),
            }
        }
    }

    /// Nothing arrived for a while: handles commands whose turn has come through another connection, and
    /// lost-connection messages.
    fn idle(&mut self) -> Result<(), End> {
        if !self.full_feature {
            return Ok(());
        }
        if !self.session.is_current(self.initiator_cid, self.peer.connection()) {
            return Err(End);
        }
        if let Some(cid) = self.session.news() {
            let time = |key: &str| self.results.get(key).and_then(|value| value.parse().ok()).unwrap_or(0);
            let message = AsyncMessage {
                lun: Lun(0),
                numbers: self.numbers(),
                event: AsyncEvent::ConnectionDrop,
                vcode: 0,
                parameter1: cid.0,
                parameter2: time(keys::DEFAULT_TIME2WAIT),
                parameter3: time(keys::DEFAULT_TIME2RETAIN),
            };
            self.take_numbers();
            self.emit(Frame::of(message))?;
        }
        self.drain()
    }

    /// Asks the hook; true when the hook handled the PDU.
    pub(super) fn served_by_hook(&mut self, rx: &Received) -> Result<bool, End> {
        let scene = self.scene();
        let incoming = lock(&self.shared.behaviour).receive(&scene, rx);
        match incoming {
            Incoming::Serve => Ok(false),
            Incoming::Before(acts) => self.perform(acts).map(|()| false),
            Incoming::After(acts) => {
                self.after = acts;
                Ok(false)
            }
            Incoming::Lost(acts) => self.perform(acts).map(|()| true),
            Incoming::Instead(acts) => {
                if counts(rx) {
                    self.session.plug(rx.bhs.cmd_sn());
                }
                self.perform(acts).map(|()| true)
            }
        }
    }

    /// Handles one PDU of full feature phase, and the commands that it makes ready.
    fn step(&mut self) -> Result<(), End> {
        let rx = self.next()?;
        if !self.session.is_current(self.initiator_cid, self.peer.connection()) {
            // Logged out or reinstated from another connection: further PDUs are not for the session.
            return Err(End);
        }
        self.watch.received(&rx, &self.session);
        if self.level > 0 {
            for itt in self.kept.acknowledged(rx.bhs.exp_stat_sn()) {
                self.session.forget(itt);
            }
        }
        if self.served_by_hook(&rx)? {
            return self.drain();
        }
        if !counts(&rx) {
            let early = rx.bhs.opcode() == Opcode::DataOut.code()
                && self.session.awaits(rx.bhs.itt(), self.peer.connection());
            if early {
                // Its command waits for PDUs on another connection.
                self.early.push(rx);
                return Ok(());
            }
            return self.serve(&rx);
        }
        self.session.wait(self.peer.connection(), rx);
        self.drain()
    }

    fn drain(&mut self) -> Result<(), End> {
        let session = self.session.clone();
        loop {
            let turn = lock(&session.turn);
            let Some(rx) = session.take(self.peer.connection()) else { return Ok(()) };
            self.serve(&rx)?;
            drop(turn);
            let itt = rx.bhs.itt();
            let (now, later) =
                std::mem::take(&mut self.early).into_iter().partition(|rx| rx.bhs.itt() == itt);
            self.early = later;
            let now: Vec<Received> = now;
            now.iter().try_for_each(|rx| self.serve(rx))?;
        }
    }

    fn serve(&mut self, rx: &Received) -> Result<(), End> {
        let Ok(pdu) = rx.pdu() else { return self.reject(rx, RejectReason::CommandNotSupported) };
        match pdu {
            Pdu::NopOut(nop) => self.nop(&nop, rx),
            Pdu::TextRequest(request) => self.text(&request, rx),
            Pdu::LogoutRequest(request) => self.logout(&request),
            _ if self.discovery => self.reject(rx, RejectReason::ProtocolError),
            Pdu::ScsiCommand(command) => self.command(&command, rx),
            Pdu::DataOut(data) => self.data_out(&data, rx),
            Pdu::TaskManagementRequest(request) => self.manage(&request),
            Pdu::SnackRequest(request) => self.snack(&request, rx),
            _ => self.reject(rx, RejectReason::ProtocolError),
        }
    }

    pub(super) fn reject(&mut self, rx: &Received, reason: RejectReason) -> Result<(), End> {
        self.reject_at(rx, reason, DataSn(0))
    }

    /// Like [`Connection::reject`], naming the DataSN or R2TSN expected next.
    pub(super) fn reject_at(
        &mut self,
        rx: &Received,
        reason: RejectReason,
        data_sn: DataSn,
    ) -> Result<(), End> {
        let reject = Reject { reason, numbers: self.take_numbers(), data_sn };
        self.emit(Frame::of(reject).data(*rx.bhs.as_bytes()))
    }

    fn nop(&mut self, nop: &NopOut, rx: &Received) -> Result<(), End> {
        if nop.itt.is_reserved() {
            return Ok(());
        }
        let answer = NopIn { lun: Lun(0), itt: nop.itt, ttt: Ttt::RESERVED, numbers: self.take_numbers() };
        let length = rx.data.len().min(self.initiator_max_recv);
        self.emit(Frame::of(answer).data(&rx.data[..length]))
    }

    fn logout(&mut self, request: &LogoutRequest) -> Result<(), End> {
        use LogoutReason::{CloseConnection, CloseSession, RemoveConnectionForRecovery};
        let own = request.cid == self.initiator_cid;
        let response = match request.reason {
            RemoveConnectionForRecovery if self.level < 2 => LogoutResponseCode::RecoveryNotSupported,
            CloseSession => LogoutResponseCode::Success,
            CloseConnection | RemoveConnectionForRecovery if own || self.session.remove(request.cid) => {
                LogoutResponseCode::Success
            }
            _ => LogoutResponseCode::CidNotFound,
        };
        let over = response == LogoutResponseCode::Success && (own || request.reason == CloseSession);
        self.parted = over && request.reason != RemoveConnectionForRecovery;
        if response == LogoutResponseCode::Success && request.reason == CloseSession {
            self.session.end();
        }
        let time = |key: &str| self.results.get(key).and_then(|value| value.parse().ok()).unwrap_or(0);
        let (time2wait, time2retain) = (time(keys::DEFAULT_TIME2WAIT), time(keys::DEFAULT_TIME2RETAIN));
        let answer = LogoutResponse {
            response,
            itt: request.itt,
            numbers: self.take_numbers(),
            time2wait,
            time2retain,
        };
        self.emit(Frame::of(answer))?;
        if over { Err(End) } else { Ok(()) }
    }

    fn manage(&mut self, request: &TaskManagementRequest) -> Result<(), End> {
        use TmfFunction::{AbortTask, AbortTaskSet, ClearTaskSet, LogicalUnitReset, TaskReassign};
        let mut taken_over = None;
        let response = match request.function {
            AbortTask if self.tasks.remove(request.referenced_task_tag.0).is_some() => {
                TmfResponse::FunctionComplete
            }
            AbortTask => {
                let hole = request.ref_cmd_sn.lt(request.cmd_sn) && self.session.plug(request.ref_cmd_sn);
                if hole { TmfResponse::FunctionComplete } else { TmfResponse::TaskDoesNotExist }
            }
            AbortTaskSet | ClearTaskSet | LogicalUnitReset if request.lun.to_index() != Some(0) => {
                TmfResponse::LunDoesNotExist
            }
            AbortTaskSet | ClearTaskSet | LogicalUnitReset => {
                self.tasks.clear();
                TmfResponse::FunctionComplete
            }
            TaskReassign => {
                let (response, orphan) = self.reassign(request);
                taken_over = orphan;
                response
            }
            _ => TmfResponse::FunctionNotSupported,
        };
        let answer = TaskManagementResponse {
            response,
            itt: request.itt,
            numbers: self.take_numbers(),
            additional: [0; 3],
        };
        self.emit(Frame::of(answer))?;
        if let Some(orphan) = taken_over {
            return self.take_over(request.referenced_task_tag, request.exp_data_sn.0, *orphan);
        }
        // A numbered request is served in CmdSN order, and the code that serves it drains what follows.
        if request.immediate { self.drain() } else { Ok(()) }
    }

    fn text(&mut self, request: &TextRequest, rx: &Received) -> Result<(), End> {
        if request.ttt.is_reserved() {
            self.text_rest.clear();
            self.text.clear();
        }
        self.text.extend_from_slice(&rx.data);
        if self.text.len() > 1 << 16 {
            return Err(End);
        }
        let mut reply = std::mem::take(&mut self.text_rest);
        if !request.continue_bit {
            let pairs = Received { data: std::mem::take(&mut self.text), ..rx.clone() }.text();
            reply.extend(self.text_answer(&pairs));
        }
        let size = self.initiator_max_recv.min(self.shared.config.texts.part_bytes).min(reply.len());
        self.text_rest = reply.split_off(size);
        let more = !self.text_rest.is_empty() || !request.final_bit;
        let response = TextResponse {
            final_bit: !more,
            continue_bit: !self.text_rest.is_empty(),
            lun: Lun(0),
            itt: request.itt,
            ttt: if more { Ttt(0x7e47) } else { Ttt::RESERVED },
            numbers: self.take_numbers(),
        };
        self.emit(Frame::of(response).data(reply))
    }

    fn text_answer(&mut self, pairs: &[(String, String)]) -> Vec<u8> {
        let mut answer = Vec::new();
        let config = self.shared.config.clone();
        if let Some(value) = value_of(pairs, keys::SEND_TARGETS) {
            let mut names = vec![config.target_name.clone()];
            names.extend(config.more_names.iter().cloned());
            let own = value.is_empty() && !self.discovery;
            names.retain(|name| {
                (value == "All" && self.discovery) || name == value || (own && *name == config.target_name)
            });
            for name in names {
                answer.push((keys::TARGET_NAME.to_owned(), name));
                answer.push((
                    keys::TARGET_ADDRESS.to_owned(),
                    format!("{},{}", self.shared.address, config.portal_group_tag),
                ));
            }
        }
        for (key, value) in pairs.iter().filter(|(key, _)| key != keys::SEND_TARGETS) {
            if let Some(result) = self.negotiate(key, value) {
                answer.push((key.clone(), result));
            }
        }
        text_of(&answer)
    }
}

/// With the command window as it is.
pub(super) fn in_window(frame: Frame, numbers: ResponseNumbers) -> Frame {
    frame.patch(28, &numbers.exp_cmd_sn.0.to_be_bytes()).patch(32, &numbers.max_cmd_sn.0.to_be_bytes())
}
