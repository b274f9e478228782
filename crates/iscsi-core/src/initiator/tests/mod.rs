//! Scripted sessions and logins: their input and the output expected, PDU by PDU.

mod asymmetric;
mod connections;
mod data;
mod executed;
mod level_2;
mod login;
mod management;
mod messages;
mod read_order;
mod recovery;
mod roll_call;
mod snack;

use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{
    Bhs, Cid, CmdSn, DataIn, DataSn, Isid, Itt, Lun, Pdu, R2t, R2tSn, ResidualCount, ResponseNumbers,
    ScsiResponse, StatSn, Tsih, Ttt,
};

use super::command::{Command, Completion, Ending};
use super::login::{FirstNumbers, LoggedIn};
use super::session::{Action, CloseReason, InitiatorSession, Scheduling, SessionConfig};
use crate::Time;
use crate::params::{Bursts, Params};
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;

/// A session in full feature phase, and the target's numbers.
struct Script {
    session: InitiatorSession,
    now: Time,
    /// The connection that the target sends on.
    cid: Cid,
    stat_sn: StatSn,
    /// StatSN of the other connections.
    other_stat_sn: Vec<(Cid, StatSn)>,
    exp_cmd_sn: CmdSn,
    max_cmd_sn: CmdSn,
    /// Actions of the session other than PDUs, in order.
    said: Vec<Action>,
}

/// First CmdSN and StatSN: both wrap soon.
const FIRST: u32 = 0xffff_fffe;

fn params() -> Params {
    Params {
        max_send_data_segment_length: 4096,
        max_recv_data_segment_length: 4096,
        bursts: Bursts {
            max_burst_length: 16384,
            first_burst_length: 8192,
            initial_r2t: false,
            immediate_data: true,
            max_outstanding_r2t: 4,
        },
        default_time2wait_s: 2,
        ..Params::default()
    }
}

/// The same for several connections, of which one that is lost can be logged out at once.
fn several() -> Params {
    Params { default_time2wait_s: 0, ..params() }
}

/// U: so many bytes were not needed.
fn underflow(bytes: u32) -> ResidualCount {
    ResidualCount { underflow: true, bytes, ..ResidualCount::default() }
}

impl Script {
    fn new(params: Params) -> Self {
        Self::with_window(params, 8)
    }

    /// A session whose window admits `window` commands.
    fn with_window(params: Params, window: u32) -> Self {
        let login = logged_in(params, Cid(0), CmdSn(FIRST).add(window.wrapping_sub(1)));
        let config = SessionConfig {
            ping_interval: Duration::from_secs(100),
            ping_timeout: Duration::from_secs(10),
            management_timeout: Duration::from_secs(10),
            exchange_timeout: Duration::from_secs(20),
            // Most of these scripts let seconds pass on silent connections.
            starved_timeouts: 0,
            // Most of these scripts play at one moment, and need all connections to be used.
            scheduling: Scheduling::LeastOutstandingBytes,
            ..SessionConfig::default()
        };
        let now = Duration::from_secs(1000);
        Self {
            session: InitiatorSession::new(&login, config, now),
            now,
            cid: Cid(0),
            stat_sn: StatSn(FIRST),
            other_stat_sn: Vec::new(),
            exp_cmd_sn: CmdSn(FIRST),
            max_cmd_sn: login.numbers.max_cmd_sn,
            said: Vec::new(),
        }
    }

    /// A session at error recovery level `level` with `n` connections.
    fn with_connections(n: u16, level: u8) -> Self {
        let params = if n > 1 { several() } else { params() };
        Self::with_connections_and(n, Params { error_recovery_level: level, max_connections: n, ..params })
    }

    fn with_connections_and(n: u16, params: Params) -> Self {
        let mut script = Self::new(params);
        for cid in 1..n {
            script.join(cid);
        }
        script.sent_nothing();
        script
    }

    /// The connection `cid` logs in; the target sends on it from now on.
    fn join(&mut self, cid: u16) {
        let mut login = logged_in(self.session.params().clone(), Cid(cid), self.max_cmd_sn);
        login.numbers.exp_cmd_sn = self.exp_cmd_sn;
        self.session.join(self.now, &login).unwrap();
        self.other_stat_sn.retain(|(other, _)| *other != Cid(cid));
        self.other_stat_sn.push((Cid(cid), StatSn(FIRST)));
        if self.cid == Cid(cid) {
            self.stat_sn = StatSn(FIRST);
        }
    }

    /// The target sends on `cid` from now on.
    fn on(&mut self, cid: Cid) -> &mut Self {
        if self.cid != cid {
            let place = self.other_stat_sn.iter().position(|(other, _)| *other == cid).expect("it joined");
            let (_, stat_sn) = self.other_stat_sn.swap_remove(place);
            self.other_stat_sn.push((self.cid, self.stat_sn));
            (self.cid, self.stat_sn) = (cid, stat_sn);
        }
        self
    }

    /// PDUs that the session wants to send, with their connections.
    fn sent_on(&mut self) -> Vec<(Cid, Pdu)> {
        let mut sent = Vec::new();
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Send { cid, pdu } => sent.push((cid, Pdu::parse(&pdu.bhs).unwrap())),
                other => self.said.push(other),
            }
        }
        sent
    }

    /// Tags and connections of the commands that are sent now.
    fn commands(&mut self) -> Vec<(Cid, Itt)> {
        let sent = self.sent_on().into_iter();
        sent.map(|(cid, pdu)| match pdu {
            Pdu::ScsiCommand(command) => (cid, command.itt),
            other => panic!("no command: {other:?}"),
        })
        .collect()
    }

    /// Lets time pass.
    fn wait(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    /// The same for short times.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.session.handle_timeout(self.now);
    }

    /// PDUs that the session wants to send; everything else is kept in `said`.
    fn sent(&mut self) -> Vec<(Pdu, TxPdu)> {
        let mut sent = Vec::new();
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Send { pdu, .. } => sent.push((Pdu::parse(&pdu.bhs).unwrap(), pdu)),
                other => self.said.push(other),
            }
        }
        sent
    }

    /// The one PDU that the session wants to send.
    fn sent_one(&mut self) -> (Pdu, TxPdu) {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    fn sent_nothing(&mut self) {
        let sent = self.sent();
        assert!(sent.is_empty(), "{sent:?}");
    }

    fn read(&mut self, user: u64, length: u32) {
        let mut command = Command::new(Lun::from_index(1), &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        (command.user, command.read_length, command.idempotent) = (user, length, true);
        self.session.submit(self.now, command).unwrap();
    }

    fn write(&mut self, user: u64, length: usize) {
        let mut command = Command::new(Lun::from_index(1), &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        (command.user, command.write, command.idempotent) = (user, pattern(length).into(), true);
        self.session.submit(self.now, command).unwrap();
    }

    /// The tag of the command sent now.
    fn command(&mut self) -> (Itt, CmdSn) {
        match self.sent_one().0 {
            Pdu::ScsiCommand(command) => (command.itt, command.cmd_sn),
            other => panic!("no command: {other:?}"),
        }
    }

    fn receive(&mut self, bhs: Bhs, data: &[u8]) {
        self.receive_with(bhs, data, true);
    }

    fn receive_with(&mut self, bhs: Bhs, data: &[u8], data_digest_ok: bool) {
        let rx = RxPdu { bhs, ahs: Bytes::new(), data: Bytes::copy_from_slice(data), data_digest_ok };
        self.session.handle_pdu(self.now, self.cid, rx);
    }

    /// What the next PDU says of the numbers.
    fn numbers(&self) -> ResponseNumbers {
        ResponseNumbers { stat_sn: self.stat_sn, exp_cmd_sn: self.exp_cmd_sn, max_cmd_sn: self.max_cmd_sn }
    }

    /// The same of one that takes a StatSN.
    fn take_numbers(&mut self) -> ResponseNumbers {
        ResponseNumbers { stat_sn: self.stat(), ..self.numbers() }
    }

    /// Takes the next StatSN.
    fn stat(&mut self) -> StatSn {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.next();
        stat_sn
    }

    fn data_in(&self, itt: Itt, data_sn: u32, buffer_offset: u32) -> DataIn {
        DataIn {
            final_bit: true,
            acknowledge: false,
            status_bit: false,
            status: 0,
            lun: Lun(0),
            itt,
            ttt: Ttt::RESERVED,
            numbers: ResponseNumbers { stat_sn: StatSn(0), ..self.numbers() },
            data_sn: DataSn(data_sn),
            buffer_offset,
            residual_count: ResidualCount::default(),
        }
    }

    fn response(&mut self, itt: Itt) -> ScsiResponse {
        ScsiResponse {
            response: 0,
            status: 0,
            itt,
            snack_tag: 0,
            numbers: self.take_numbers(),
            exp_data_sn: DataSn(0),
            bidi_residual_count: ResidualCount::default(),
            residual_count: ResidualCount::default(),
        }
    }

    fn good(&mut self, itt: Itt) {
        let response = self.response(itt);
        self.receive(response.to_bhs(), &[]);
    }

    fn r2t(&self, itt: Itt, r2t_sn: u32, buffer_offset: u32, length: u32) -> R2t {
        R2t {
            lun: Lun::from_index(1),
            itt,
            ttt: Ttt(77 + r2t_sn),
            numbers: self.numbers(),
            r2t_sn: R2tSn(r2t_sn),
            buffer_offset,
            desired_data_transfer_length: length,
        }
    }

    /// How the one command that has completed ended.
    fn ended(&mut self) -> (u64, Ending) {
        let mut all = self.all_ended();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    fn all_ended(&mut self) -> Vec<(u64, Ending)> {
        self.sent_nothing();
        self.take_ended()
    }

    fn take_ended(&mut self) -> Vec<(u64, Ending)> {
        let mut ended = Vec::new();
        self.said.retain(|action| match action {
            Action::Completed(Completion { command, ending }) => {
                ended.push((command.user, ending.clone()));
                false
            }
            _ => true,
        });
        ended
    }

    /// Why the session was closed, and how long to wait; fails if it was not.
    fn closed(&mut self) -> (CloseReason, Duration) {
        let _ = self.sent();
        match self.said.pop() {
            Some(Action::Close { reason, wait }) => (reason, wait),
            other => panic!("not closed: {other:?}"),
        }
    }

    fn violated(&mut self) -> String {
        match self.closed().0 {
            CloseReason::Violation(violation) => violation.to_string(),
            other => panic!("closed for {other:?}"),
        }
    }
}

fn logged_in(params: Params, cid: Cid, max_cmd_sn: CmdSn) -> LoggedIn {
    LoggedIn {
        discovery: false,
        params,
        tsih: Tsih(1),
        isid: Isid([0x80, 1, 2, 3, 0, 0]),
        cid,
        numbers: FirstNumbers {
            cmd_sn: CmdSn(FIRST),
            exp_stat_sn: StatSn(FIRST),
            exp_cmd_sn: CmdSn(FIRST),
            max_cmd_sn,
        },
        portal_group_tag: Some(1),
        target_alias: None,
        chap: None,
        keys: Vec::new(),
    }
}

fn pattern(length: usize) -> Bytes {
    (0..length).map(|n| (n % 251) as u8).collect::<Vec<u8>>().into()
}

fn status(status: u8, data_in_bytes: u32) -> Ending {
    Ending::Status { status, sense: Bytes::new(), data_in_bytes, residual: super::command::Residual::None }
}
