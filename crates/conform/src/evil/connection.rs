//! One connection of an evil target: order of commands, data transfer, and the rest of full feature phase.

use super::behaviour::{Act, Incoming, Scene};
use super::transfer::Task;
use super::watch::Watch;
use super::{POLL, Shared, lock};
use crate::PeerError;
use crate::frame::{Frame, Received};
use crate::login::{text_of, value_of};
use crate::peer::RawPeer;
use iscsi_wire::{
    Cid, CmdSn, DataSn, LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode, Lun, NopIn, NopOut,
    Opcode, Pdu, Reject, RejectReason, StatSn, TaskManagementRequest, TaskManagementResponse, TextRequest,
    TextResponse, TmfFunction, TmfResponse, Ttt, keys,
};
use std::collections::{BTreeMap, HashMap};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long sending may take; who does not read for so long is let go.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct End;

pub(super) struct Connection<'a> {
    pub(super) shared: &'a Shared,
    pub(super) peer: RawPeer,
    pub(super) watch: Watch,
    pub(super) exp_cmd_sn: CmdSn,
    pub(super) discovery: bool,
    pub(super) initiator_cid: Cid,
    pub(super) initiator_max_recv: usize,
    pub(super) results: HashMap<String, String>,
    pub(super) stat_sn: StatSn,
    full_feature: bool,
    after: Vec<Act>,
    waiting: BTreeMap<u32, Received>,
    pub(super) tasks: HashMap<u32, Task>,
    pub(super) next_ttt: u32,
    text: Vec<u8>,
    text_rest: Vec<u8>,
}

/// Serves a connection to its end.
pub(super) fn serve(stream: TcpStream, shared: &Shared) {
    let Ok(peer) = RawPeer::accept(stream, SEND_TIMEOUT, &shared.transcript) else { return };
    let mut connection = Connection {
        shared,
        peer,
        watch: Watch::default(),
        exp_cmd_sn: CmdSn(0),
        discovery: false,
        initiator_cid: Cid(0),
        initiator_max_recv: 8192,
        results: HashMap::new(),
        stat_sn: StatSn(shared.config.first_stat_sn),
        full_feature: false,
        after: Vec::new(),
        waiting: BTreeMap::new(),
        tasks: HashMap::new(),
        next_ttt: 0x1000,
        text: Vec::new(),
        text_rest: Vec::new(),
    };
    if connection.login().is_ok() {
        connection.full_feature = true;
        connection
            .watch
            .negotiated(&connection.results, shared.config.keys.get(keys::MAX_RECV_DATA_SEGMENT_LENGTH));
        while connection.step().is_ok() {}
    }
    connection.peer.close_write();
    // What the initiator still had under way is read, so that it sees FIN and not RST.
    let _ = connection.peer.recv_within(POLL);
    lock(&shared.findings).append(&mut connection.watch.findings);
}

impl Connection<'_> {
    fn scene(&self) -> Scene {
        Scene {
            connection: self.peer.connection(),
            full_feature: self.full_feature,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            initiator_max_recv: self.initiator_max_recv,
        }
    }

    pub(super) fn max_cmd_sn(&self) -> CmdSn {
        CmdSn(self.exp_cmd_sn.0.wrapping_add(self.shared.config.window).wrapping_sub(1))
    }

    pub(super) fn take_stat_sn(&mut self) -> StatSn {
        let now = self.stat_sn;
        self.stat_sn = now.next();
        now
    }

    /// Sends what a good target would, or what the hook makes of it.
    pub(super) fn emit(&mut self, frame: Frame) -> Result<(), End> {
        let scene = self.scene();
        let acts = lock(&self.shared.behaviour).send(&scene, frame);
        self.perform(acts)
    }

    fn perform(&mut self, acts: Vec<Act>) -> Result<(), End> {
        for act in acts {
            let sent = match act {
                Act::Send(frame) => self.send(&frame, usize::MAX),
                Act::Pieces(frame, size) => self.send(&frame, size),
                Act::Answer(frame) => {
                    let frame = self.numbered(frame);
                    self.stat_sn = self.stat_sn.next();
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
        frame
            .patch(24, &self.stat_sn.0.to_be_bytes())
            .patch(28, &self.exp_cmd_sn.0.to_be_bytes())
            .patch(32, &self.max_cmd_sn().0.to_be_bytes())
    }

    fn send(&mut self, frame: &Frame, piece: usize) -> Result<(), End> {
        self.watch.told(crate::frame::u32_at(&frame.bhs(), 32));
        self.peer.send_pieces(frame, piece).map_err(|_| End)
    }

    /// The next PDU; ends with the connection, or with the target.
    pub(super) fn next(&mut self) -> Result<Received, End> {
        let after = std::mem::take(&mut self.after);
        self.perform(after)?;
        loop {
            match self.peer.recv_within(POLL) {
                Ok(rx) => return Ok(rx),
                Err(PeerError::Timeout(_)) if !self.shared.stop.load(Ordering::Relaxed) => {}
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

    /// Asks the hook; true when the PDU was dealt with.
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
                if counts(rx) && rx.bhs.cmd_sn() == self.exp_cmd_sn {
                    self.exp_cmd_sn = self.exp_cmd_sn.next();
                }
                self.perform(acts).map(|()| true)
            }
        }
    }

    /// One PDU of full feature phase, and what became ready by it.
    fn step(&mut self) -> Result<(), End> {
        let rx = self.next()?;
        self.watch.received(&rx);
        if self.served_by_hook(&rx)? {
            return self.drain();
        }
        if !counts(&rx) {
            return self.serve(&rx);
        }
        let cmd_sn = rx.bhs.cmd_sn();
        let max = self.watch.highest_told().unwrap_or_else(|| self.max_cmd_sn());
        if self.exp_cmd_sn.le(cmd_sn) && cmd_sn.le(max) {
            self.waiting.entry(cmd_sn.0).or_insert(rx);
        }
        self.drain()
    }

    fn drain(&mut self) -> Result<(), End> {
        while let Some(rx) = self.waiting.remove(&self.exp_cmd_sn.0) {
            self.exp_cmd_sn = self.exp_cmd_sn.next();
            self.serve(&rx)?;
        }
        Ok(())
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
            _ => self.reject(rx, RejectReason::ProtocolError),
        }
    }

    pub(super) fn reject(&mut self, rx: &Received, reason: RejectReason) -> Result<(), End> {
        let reject = Reject {
            reason,
            stat_sn: self.take_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            data_sn: DataSn(0),
        };
        self.emit(Frame::of(reject).data(*rx.bhs.as_bytes()))
    }

    fn nop(&mut self, nop: &NopOut, rx: &Received) -> Result<(), End> {
        if nop.itt.is_reserved() {
            return Ok(());
        }
        let answer = NopIn {
            lun: Lun(0),
            itt: nop.itt,
            ttt: Ttt::RESERVED,
            stat_sn: self.take_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
        };
        let length = rx.data.len().min(self.initiator_max_recv);
        self.emit(Frame::of(answer).data(&rx.data[..length]))
    }

    fn logout(&mut self, request: &LogoutRequest) -> Result<(), End> {
        let ours = request.reason == LogoutReason::CloseSession || request.cid == self.initiator_cid;
        let response = match (ours, request.reason) {
            (_, LogoutReason::RemoveConnectionForRecovery) => LogoutResponseCode::RecoveryNotSupported,
            (false, _) => LogoutResponseCode::CidNotFound,
            (true, _) => LogoutResponseCode::Success,
        };
        let answer = LogoutResponse {
            response,
            itt: request.itt,
            stat_sn: self.take_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            time2wait: 0,
            time2retain: 0,
        };
        self.emit(Frame::of(answer))?;
        if response == LogoutResponseCode::Success { Err(End) } else { Ok(()) }
    }

    fn manage(&mut self, request: &TaskManagementRequest) -> Result<(), End> {
        use TmfFunction::{AbortTask, AbortTaskSet, ClearTaskSet, LogicalUnitReset};
        let response = match request.function {
            AbortTask if self.tasks.remove(&request.referenced_task_tag.0).is_some() => {
                TmfResponse::FunctionComplete
            }
            AbortTask => {
                let hole = request.ref_cmd_sn == self.exp_cmd_sn && request.ref_cmd_sn.lt(request.cmd_sn);
                if hole {
                    self.exp_cmd_sn = self.exp_cmd_sn.next();
                    TmfResponse::FunctionComplete
                } else {
                    TmfResponse::TaskDoesNotExist
                }
            }
            AbortTaskSet | ClearTaskSet | LogicalUnitReset if request.lun.to_index() != Some(0) => {
                TmfResponse::LunDoesNotExist
            }
            AbortTaskSet | ClearTaskSet | LogicalUnitReset => {
                self.tasks.clear();
                TmfResponse::FunctionComplete
            }
            _ => TmfResponse::FunctionNotSupported,
        };
        let answer = TaskManagementResponse {
            response,
            itt: request.itt,
            stat_sn: self.take_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            additional: [0; 3],
        };
        self.emit(Frame::of(answer))?;
        self.drain()
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
        let size = self.initiator_max_recv.min(self.shared.config.text_part_bytes).min(reply.len());
        self.text_rest = reply.split_off(size);
        let more = !self.text_rest.is_empty() || !request.final_bit;
        let response = TextResponse {
            final_bit: !more,
            continue_bit: !self.text_rest.is_empty(),
            lun: Lun(0),
            itt: request.itt,
            ttt: if more { Ttt(0x7e47) } else { Ttt::RESERVED },
            stat_sn: self.take_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
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

/// Does the PDU have a CmdSN that counts?
fn counts(rx: &Received) -> bool {
    let numbered = [
        Opcode::NopOut,
        Opcode::ScsiCommand,
        Opcode::TaskManagementRequest,
        Opcode::TextRequest,
        Opcode::LogoutRequest,
    ];
    !rx.bhs.immediate() && Opcode::try_from(rx.bhs.opcode()).is_ok_and(|opcode| numbered.contains(&opcode))
}
