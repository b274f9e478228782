//! Drives a target session by decisions read from bytes, and checks it against rules that no run may break.
//!
//! The bytes come from proptest or from a fuzzer. The driver plays the initiator (legal and illegal PDUs), the device server
//! (requests data, completes, releases, in any order), the operator and the clock. What it checks:
//!
//! * nothing panics, and every PDU sent is well formed;
//! * StatSN advances by the rule of RFC 7143 4.2.2.2, ExpCmdSN and MaxCmdSN never go back, MaxCmdSN >= ExpCmdSN - 1;
//! * the device server sees each command once, receives only data that the initiator sent for it, and has released a command
//!   before its status is sent;
//! * R2Ts and Data-In keep the negotiated limits;
//! * every request to the surroundings is answered once, and nothing is held when the session has ended.

mod checks;
mod initiator;
mod surroundings;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use iscsi_core::Time;
use iscsi_core::params::{Bounds, Bursts};
use iscsi_core::pdu_reader::RxPdu;
use iscsi_core::pdu_writer::TxPdu;
use iscsi_core::target::actions::{
    Action, CloseReason, Command, Completion, ManagementId, ManagementRequest, Payload, TargetRecord,
};
use iscsi_core::target::session::{Holdings, SessionConfig, TargetSession};
use iscsi_core::target::task::TaskId;
use iscsi_core::target::task_management::AbortScope;
use iscsi_core::wire::{
    Bhs, Cid, CmdSn, DataOut, DataSn, Itt, LogoutReason, LogoutRequest, Lun, NopOut, Pdu, ResponseNumbers,
    ScsiCommand, StatSn, TaskAttribute, TaskManagementRequest, TextRequest, TmfFunction, TmfResponse, Tsih,
    Ttt, one_line,
};

use crate::policy::{Policy, establish, login_request, rx};

const CID: Cid = Cid(1);
const TAGS: u32 = 24;

/// Decisions, until the bytes run out.
struct Dice<'a>(&'a [u8]);

impl Dice<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, n: u32) -> u32 {
        match n {
            0..=256 => u32::from(self.byte()) % n.max(1),
            _ => (u32::from(self.byte()) << 8 | u32::from(self.byte())) % n,
        }
    }

    /// True about once in `n`.
    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 1
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}

/// The byte at `offset` of everything that is ever written for `itt`.
fn pattern(itt: Itt, offset: u32) -> u8 {
    (offset.wrapping_mul(31) ^ offset >> 8).wrapping_add(itt.0.wrapping_mul(89)) as u8
}

fn pattern_bytes(itt: Itt, offset: u32, len: u32) -> Bytes {
    (0..len).map(|i| pattern(itt, offset.wrapping_add(i))).collect::<Vec<_>>().into()
}

/// Data that the initiator thinks it owes.
#[derive(Debug)]
struct Owed {
    ttt: Ttt,
    next: u32,
    end: u32,
    data_sn: u32,
}

/// A command as the initiator sees it.
#[derive(Debug)]
struct Sent {
    lun: Lun,
    edtl: u32,
    owed: VecDeque<Owed>,
    next_r2t: Option<u32>,
    data_in: u32,
    data_sn: u32,
    since_final: u32,
    /// The initiator broke the rules for it: from here on the target's requests for it are not checked.
    tainted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Offered,
    Collecting,
    Executing,
}

#[derive(Debug)]
struct DeviceTask {
    itt: Itt,
    stage: Stage,
    abandoned: bool,
    read_length: u32,
    write_length: u32,
    wanted: u64,
}

struct Run<'a> {
    dice: Dice<'a>,
    session: TargetSession,
    policy: Policy,
    now: Time,
    up: bool,
    ended: bool,
    queue_depth: usize,
    // The initiator's numbers.
    cmd_sn: u32,
    skipped: Vec<u32>,
    stat_sn: Option<StatSn>,
    exp: CmdSn,
    max: CmdSn,
    // The initiator's commands, and how often a command PDU with a tag was sent and not answered.
    sent: HashMap<Itt, Sent>,
    unanswered: HashMap<Itt, u32>,
    /// Task management without an answer: the command that an ABORT TASK names, and which PDU it was.
    unanswered_tmf: HashMap<Itt, VecDeque<(Option<Itt>, u64)>>,
    /// Which PDU, counted from the first, was the last command with a tag.
    commanded_at: HashMap<Itt, u64>,
    pdus: u64,
    tmf_tag: u32,
    headers: HashSet<[u8; 48]>,
    // The device server.
    device: HashMap<TaskId, DeviceTask>,
    started: HashSet<TaskId>,
    running: HashMap<Itt, TaskId>,
    // The surroundings.
    managing: Vec<ManagementRequest>,
    tokens: HashMap<u64, Option<ManagementId>>,
    next_token: u64,
    send_targets: u32,
    /// Set by the environment variable TRACE: the run is traced on stderr.
    trace: bool,
}

/// Plays one run.
pub fn play(bytes: &[u8]) {
    let mut dice = Dice(bytes);
    let bounds = Bounds {
        max_recv_data_segment_length: dice.pick(&[512, 1024, 65536]),
        bursts: Bursts {
            max_burst_length: dice.pick(&[512, 1024, 2048]),
            first_burst_length: dice.pick(&[512, 1024, 2048]),
            initial_r2t: dice.one_in(2),
            immediate_data: !dice.one_in(3),
            max_outstanding_r2t: dice.pick(&[1, 2, 8]),
        },
        ..Bounds::default()
    };
    let keys = [
        ("InitialR2T", if dice.one_in(3) { "Yes" } else { "No" }),
        ("ImmediateData", "Yes"),
        ("MaxBurstLength", "2048"),
        ("FirstBurstLength", "2048"),
        ("MaxOutstandingR2T", "8"),
        ("MaxRecvDataSegmentLength", "512"),
        ("DataDigest", if dice.one_in(2) { "CRC32C" } else { "None" }),
    ];
    let config = SessionConfig {
        queue_depth: dice.pick(&[1, 2, 4, 8]),
        solicited_bytes_max: dice.pick(&[1, 700, 4096, 1 << 20]),
        bounds: bounds.clone(),
        ..SessionConfig::default()
    };
    let cmd_sn = dice.pick(&[1, 0xffff_fffe, 0x7fff_ffff]);
    let mut policy = Policy { bounds, ..Policy::default() };
    let established = establish(&mut policy, login_request_at(cmd_sn), &keys);
    let queue_depth = config.queue_depth as usize;
    let session = TargetSession::new(established, Tsih(1), config, Time::ZERO);
    let mut run = Run {
        dice,
        session,
        policy,
        now: Time::ZERO,
        up: true,
        ended: false,
        queue_depth,
        cmd_sn,
        skipped: Vec::new(),
        stat_sn: None,
        exp: CmdSn(cmd_sn),
        max: CmdSn(cmd_sn.wrapping_sub(1)),
        sent: HashMap::new(),
        unanswered: HashMap::new(),
        unanswered_tmf: HashMap::new(),
        commanded_at: HashMap::new(),
        pdus: 0,
        tmf_tag: 1000,
        headers: HashSet::new(),
        device: HashMap::new(),
        started: HashSet::new(),
        running: HashMap::new(),
        managing: Vec::new(),
        tokens: HashMap::new(),
        next_token: 1,
        send_targets: 0,
        trace: std::env::var_os("TRACE").is_some(),
    };
    run.drain();
    while !run.dice.0.is_empty() && !run.ended {
        run.event();
        run.drain();
        run.check_bounds();
    }
    run.finish();
}

fn login_request_at(cmd_sn: u32) -> iscsi_core::wire::LoginRequest {
    iscsi_core::wire::LoginRequest { cmd_sn: CmdSn(cmd_sn), cid: CID, ..login_request() }
}

impl Run<'_> {
    fn event(&mut self) {
        if !self.up {
            return self.while_down();
        }
        match self.dice.below(32) {
            0..=8 => self.legal_command(),
            9..=15 => self.legal_data(),
            16..=20 => self.device_step(),
            21 => self.task_management(),
            22 => self.nop_out(),
            23 => self.text(),
            24 | 25 => self.garbage(),
            26 => self.duplicate_or_far_command(),
            27 => self.manage_step(),
            28 => self.pass_time(),
            29 => self.fill_hole(),
            30 => match self.dice.below(8) {
                0 => self.lose_connection(),
                1 => self.logout(),
                2 => self.session.report_scsi_event(self.now, Lun(0), &[0x70, 0, 6, 0, 0, 0, 0, 10]),
                3 => self.session.request_logout(self.now, Duration::from_secs(5)),
                _ => self.third_party_abort(),
            },
            _ => {
                if self.send_targets > 0 {
                    self.send_targets -= 1;
                    let records = vec![
                        TargetRecord {
                            name: "iqn.2025-01.org.example:a".into(),
                            addresses: vec!["[::1]:3260,1".into()]
                        };
                        self.dice.below(40) as usize
                    ];
                    self.session.answer_send_targets(CID, &records);
                } else {
                    self.device_step();
                }
            }
        }
    }

    fn while_down(&mut self) {
        match self.dice.below(6) {
            0 | 1 => self.device_step(),
            2 => self.manage_step(),
            3 => self.pass_time(),
            4 => self.rejoin(),
            _ => self.third_party_abort(),
        }
    }

    /// The initiator logs in again to the session that lost its connection.
    fn rejoin(&mut self) {
        self.policy.joins = Some(self.session.params().clone());
        let request = iscsi_core::wire::LoginRequest { tsih: Tsih(1), ..login_request_at(self.cmd_sn) };
        let established = establish(&mut self.policy, request, &[("MaxRecvDataSegmentLength", "512")]);
        // A session that is over cannot be joined: its owner has dropped it.
        if !self.ended && self.session.poll_timeout().is_some() {
            self.session.join(established, self.now);
            self.up = true;
            self.stat_sn = None;
        }
    }

    fn next_cmd_sn(&mut self) -> CmdSn {
        if self.dice.one_in(16) && self.skipped.len() < 4 {
            self.skipped.push(self.cmd_sn);
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
        let cmd_sn = CmdSn(self.cmd_sn);
        // An initiator that respects the window; the other kind is played elsewhere.
        if cmd_sn.le(self.max) {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
        cmd_sn
    }

    /// Fills every hole by aborting the missing command: then no command may still wait for its turn.
    fn fill_all_holes(&mut self) {
        for _ in 0..200 {
            if !self.up || self.session.holdings().held == 0 {
                return;
            }
            let before = self.stat_sn;
            self.abort_missing(self.exp);
            self.drain();
            if self.stat_sn == before {
                // The initiator has logged out: no answers follow.
                return;
            }
        }
        panic!("a command waits for a turn that never comes: {:?}", self.session.holdings());
    }

    /// The device server and the surroundings finish their work; then the session is ended.
    fn finish(&mut self) {
        self.fill_all_holes();
        for _ in 0..4 {
            let mut ids: Vec<TaskId> = self.device.keys().copied().collect();
            ids.sort();
            for id in ids {
                match self.device.get(&id).is_some_and(|task| task.abandoned) {
                    true => {
                        self.device.remove(&id);
                        self.session.task_gone(id);
                    }
                    false => self.complete(id),
                }
                self.drain();
            }
            while !self.managing.is_empty() {
                self.manage_step();
                self.drain();
            }
        }
        self.now += Duration::from_secs(3);
        self.session.handle_timeout(self.now);
        self.drain();
        if !self.ended {
            assert_eq!(self.session.holdings().leaving, 0);
            assert!(self.device.is_empty());
            self.session.terminate(self.now, CloseReason::Ended);
            self.drain();
        }
        assert!(self.ended, "the session did not end: {:?}", self.session.holdings());
    }
}
