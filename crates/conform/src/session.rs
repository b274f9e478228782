//! A logged-in initiator on one connection: commands, pings and text that keep the rules unless told otherwise.
//! It checks every rule that an initiator can observe during the exchange.

mod command;
mod outcome;
mod transfer;

pub use command::{Command, Unsolicited};
pub use outcome::{Outcome, Residual};
pub use transfer::Sent;
pub(crate) use transfer::Watch;

use crate::frame::{Frame, Received};
use crate::{LoggedIn, LoginScript, Params, PeerError, RawPeer};
use iscsi_wire::{
    Cid, CmdSn, DataSn, Itt, LogoutReason, LogoutRequest, Lun, NopIn, NopOut, Opcode, Pdu, RejectReason,
    SnackRequest, SnackType, TaskManagementRequest, TmfFunction, TmfResponse, Ttt,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Counts the connections that joined sessions.
static JOINED: AtomicU32 = AtomicU32::new(0);

/// Maximum number of PDUs kept for a later step.
const MAX_STASH: usize = 4096;

/// A target's reaction to a PDU.
#[derive(Clone, Debug)]
pub enum Reaction {
    /// It rejected the PDU.
    Rejected(RejectReason),
    /// It finished the command.
    Finished(Outcome),
    /// It answered with another PDU.
    Answered(Received),
    /// It closed the connection.
    Closed,
    /// It did nothing in the given time.
    Nothing,
}

impl Reaction {
    /// In words, for a failure.
    pub fn words(&self) -> String {
        match self {
            Reaction::Rejected(reason) => format!("Reject ({reason})"),
            Reaction::Finished(outcome) => outcome.words(),
            Reaction::Answered(rx) => rx.line(),
            Reaction::Closed => "a closed connection".to_owned(),
            Reaction::Nothing => "no answer".to_owned(),
        }
    }
}

/// A session in full feature phase.
pub struct Session {
    /// The connection.
    pub peer: RawPeer,
    /// Parameters in effect.
    pub params: Params,
    /// The script with which it logged in.
    pub script: LoginScript,
    /// The result of the login.
    pub logged_in: LoggedIn,
    /// CmdSN of the next non-immediate command.
    pub cmd_sn: CmdSn,
    /// The logical unit that commands address.
    pub lun: Lun,
    /// R2Ts may request data again that was already sent: the script loses data on purpose.
    pub recovering: bool,
    next_itt: u32,
    stash: Vec<Received>,
}

impl Session {
    /// Logs in over `peer`.
    pub fn log_in(mut peer: RawPeer, script: LoginScript, lun: Lun) -> Result<Self, PeerError> {
        let logged_in = peer.login(&script)?;
        let params = logged_in.params.clone();
        let cmd_sn = script.cmd_sn;
        let (next_itt, stash) = (0x100, Vec::new());
        Ok(Session { peer, params, script, logged_in, cmd_sn, lun, next_itt, recovering: false, stash })
    }

    /// Logs in over `peer` as another connection of this session, with this CID. The connection continues from
    /// this one's CmdSN; a caller that uses both must carry the CmdSN from one to the other.
    pub fn join(&self, mut peer: RawPeer, cid: Cid) -> Result<Self, PeerError> {
        let script = self.script.clone().joining(self.logged_in.tsih, cid).cmd_sn(self.cmd_sn.0);
        let logged_in = peer.login(&script)?;
        peer.ledger.error_recovery_level = self.params.error_recovery_level;
        let own = &logged_in.params;
        let mut params = self.params.clone();
        (params.header_digest, params.data_digest) = (own.header_digest, own.data_digest);
        params.max_send_data_segment_length = own.max_send_data_segment_length;
        params.max_recv_data_segment_length = own.max_recv_data_segment_length;
        // Task tags are unique in the session, even after a connection has ended.
        let next_itt = (1 << 28) + ((JOINED.fetch_add(1, Ordering::Relaxed) & 0xdfff) << 12);
        let (cmd_sn, lun, stash) = (self.cmd_sn, self.lun, Vec::new());
        Ok(Session { peer, params, script, logged_in, cmd_sn, lun, next_itt, recovering: false, stash })
    }

    /// An unused task tag.
    pub fn itt(&mut self) -> Itt {
        self.next_itt = self.next_itt.wrapping_add(1);
        Itt(self.next_itt)
    }

    /// The CmdSN to send now; it advances unless the PDU is immediate.
    pub fn take_cmd_sn(&mut self, immediate: bool) -> CmdSn {
        let now = self.cmd_sn;
        if !immediate {
            self.cmd_sn = now.next();
        }
        now
    }

    /// The next PDU that is relevant to a script: pings of the target are answered and not returned.
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: it waits, and may fail")]
    pub fn next(&mut self) -> Result<Received, PeerError> {
        self.next_within(self.peer.timeout())
    }

    /// Like [`Session::next`], waiting at most `timeout`.
    pub fn next_within(&mut self, timeout: Duration) -> Result<Received, PeerError> {
        if !self.stash.is_empty() {
            return Ok(self.stash.remove(0));
        }
        self.receive(Instant::now() + timeout)
    }

    fn receive(&mut self, deadline: Instant) -> Result<Received, PeerError> {
        loop {
            let rx = self.peer.recv_within(deadline.saturating_duration_since(Instant::now()))?;
            match rx.pdu() {
                Ok(Pdu::NopIn(ping)) if ping.itt.is_reserved() => self.answer_ping(&ping)?,
                _ => return Ok(rx),
            }
        }
    }

    fn answer_ping(&mut self, ping: &NopIn) -> Result<(), PeerError> {
        if ping.ttt.is_reserved() {
            return Ok(());
        }
        let pong = NopOut {
            immediate: true,
            lun: ping.lun,
            itt: Itt::RESERVED,
            ttt: ping.ttt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.peer.ledger.exp_stat_sn(),
        };
        self.peer.send(&Frame::of(pong))
    }

    /// The next PDU with this task tag; others are kept for later steps. A Reject or an asynchronous message
    /// that arrives instead is an error.
    pub fn next_for(&mut self, itt: Itt) -> Result<Received, PeerError> {
        if let Some(at) = self.stash.iter().position(|rx| rx.bhs.itt() == itt) {
            return Ok(self.stash.remove(at));
        }
        let deadline = Instant::now() + self.peer.timeout();
        loop {
            let rx = self.receive(deadline)?;
            let stray = rx.bhs.opcode() == Opcode::Reject.code();
            if rx.bhs.itt() == itt && !stray {
                return Ok(rx);
            }
            if stray || self.stash.len() >= MAX_STASH {
                return Err(PeerError::Unexpected {
                    wanted: format!("an answer to itt={itt}"),
                    got: rx.line(),
                });
            }
            self.stash.push(rx);
        }
    }

    /// A kept PDU with this task tag, as one line.
    pub fn stashed(&self, itt: Itt) -> Option<String> {
        self.stash.iter().find(|rx| rx.bhs.itt() == itt).map(Received::line)
    }

    /// Any kept PDU, as one line.
    pub(crate) fn any_stashed(&self) -> Option<String> {
        self.stash.first().map(Received::line)
    }

    /// Takes a kept PDU of this opcode.
    pub fn stashed_of(&mut self, opcode: Opcode) -> Option<Received> {
        let at = self.stash.iter().position(|rx| rx.bhs.opcode() == opcode.code())?;
        Some(self.stash.remove(at))
    }

    /// Puts a PDU back for a later step.
    pub fn keep(&mut self, rx: Received) {
        self.stash.push(rx);
    }

    /// The target's reaction to the PDU just sent with task tag `itt`, within `timeout`. Data and R2Ts are not
    /// served; they count as an answer.
    pub fn reaction_within(&mut self, itt: Itt, timeout: Duration) -> Result<Reaction, PeerError> {
        let deadline = Instant::now() + timeout;
        loop {
            let rx = match self.receive(deadline) {
                Ok(rx) => rx,
                Err(error) if error.is_closed() => return Ok(Reaction::Closed),
                Err(PeerError::Timeout(_)) => return Ok(Reaction::Nothing),
                Err(error) => return Err(error),
            };
            return Ok(match rx.pdu() {
                Ok(Pdu::Reject(reject)) => Reaction::Rejected(reject.reason),
                // A target that is about to drop the connection may announce it first.
                Ok(Pdu::AsyncMessage(_)) => continue,
                Ok(Pdu::ScsiResponse(_)) if rx.bhs.itt() == itt => {
                    Reaction::Finished(Outcome::of_response(&rx))
                }
                _ if rx.bhs.itt() == itt => Reaction::Answered(rx),
                _ => {
                    self.stash.push(rx);
                    continue;
                }
            });
        }
    }

    /// Like [`Session::reaction_within`], with the timeout of the connection.
    pub fn reaction(&mut self, itt: Itt) -> Result<Reaction, PeerError> {
        self.reaction_within(itt, self.peer.timeout())
    }

    /// Adds words to the transcript.
    pub fn note(&self, words: &str) {
        self.peer.note(words);
    }

    /// An immediate ping that must be answered with its data: the target is alive and has received everything
    /// that was sent before. Other PDUs are kept for later steps.
    pub fn ping(&mut self) -> Result<(), PeerError> {
        self.ping_with(b"conform").map(|_| ())
    }

    /// Like [`Session::ping`], with this data.
    pub fn ping_with(&mut self, data: &[u8]) -> Result<Received, PeerError> {
        let itt = self.itt();
        let nop = self.nop(itt, true);
        self.peer.send(&Frame::of(nop).data(data))?;
        let deadline = Instant::now() + self.peer.timeout();
        loop {
            let rx = self.receive(deadline)?;
            if rx.bhs.itt() != itt || rx.bhs.opcode() != Opcode::NopIn.code() {
                self.stash.push(rx);
                continue;
            }
            if rx.data != data {
                let wanted = format!("{} bytes of ping data back", data.len());
                return Err(PeerError::Unexpected { wanted, got: rx.line() });
            }
            return Ok(rx);
        }
    }

    /// A NOP-Out that requests an answer.
    pub fn nop(&mut self, itt: Itt, immediate: bool) -> NopOut {
        NopOut {
            immediate,
            lun: Lun(0),
            itt,
            ttt: Ttt::RESERVED,
            cmd_sn: self.take_cmd_sn(immediate),
            exp_stat_sn: self.peer.ledger.exp_stat_sn(),
        }
    }

    /// A NOP-Out that only carries ExpStatSN, for `lun`.
    pub fn acknowledgement(&self, lun: Lun) -> NopOut {
        NopOut {
            immediate: true,
            lun,
            itt: Itt::RESERVED,
            ttt: Ttt::RESERVED,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.peer.ledger.exp_stat_sn(),
        }
    }

    /// A SNACK Request for `itt`, with all other tags reserved.
    pub fn snack(&self, snack_type: SnackType, itt: Itt, beg_run: u32, run_length: u32) -> SnackRequest {
        let lun = if itt.is_reserved() { Lun(0) } else { self.lun };
        let exp_stat_sn = self.peer.ledger.exp_stat_sn();
        SnackRequest { snack_type, lun, itt, ttt: Ttt::RESERVED, exp_stat_sn, beg_run, run_length }
    }

    /// A task management request.
    pub fn tmf(&mut self, function: TmfFunction, immediate: bool) -> TaskManagementRequest {
        TaskManagementRequest {
            immediate,
            function,
            lun: self.lun,
            itt: self.itt(),
            referenced_task_tag: Itt::RESERVED,
            cmd_sn: self.take_cmd_sn(immediate),
            exp_stat_sn: self.peer.ledger.exp_stat_sn(),
            ref_cmd_sn: CmdSn(0),
            exp_data_sn: DataSn(0),
        }
    }

    /// Sends a task management request and returns its response code.
    pub fn manage(&mut self, request: TaskManagementRequest) -> Result<TmfResponse, PeerError> {
        self.peer.send(&Frame::of(request))?;
        let rx = self.next_for(request.itt)?;
        match rx.pdu()? {
            Pdu::TaskManagementResponse(response) => Ok(response.response),
            _ => Err(PeerError::Unexpected { wanted: "TaskManagementResponse".to_owned(), got: rx.line() }),
        }
    }

    /// ABORT TASK of `itt`, which was sent with `ref_cmd_sn`.
    pub fn abort(&mut self, itt: Itt, ref_cmd_sn: CmdSn) -> Result<TmfResponse, PeerError> {
        let mut request = self.tmf(TmfFunction::AbortTask, true);
        (request.referenced_task_tag, request.ref_cmd_sn) = (itt, ref_cmd_sn);
        self.manage(request)
    }

    /// A logout request for our own connection.
    pub fn logout_request(&mut self, reason: LogoutReason) -> LogoutRequest {
        LogoutRequest {
            immediate: true,
            reason,
            itt: self.itt(),
            cid: if reason == LogoutReason::CloseSession { Cid(0) } else { self.script.cid },
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.peer.ledger.exp_stat_sn(),
        }
    }

    /// Closes the session cleanly.
    pub fn log_out(mut self) -> Result<(), PeerError> {
        let request = self.logout_request(LogoutReason::CloseSession);
        self.peer.send(&Frame::of(request))?;
        self.next_for(request.itt)?;
        self.peer.close_write();
        match self.peer.until_closed() {
            Ok(_) => Ok(()),
            Err(error) if error.is_closed() || matches!(error, PeerError::Timeout(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
