//! Random events for a target session of several connections at every recovery level: PDUs that are lost, damaged, repeated or on
//! the wrong connection, SNACKs, connections that break and come back, tasks that are reassigned.
//!
//! What is checked:
//! * nothing is sent on a connection that does not exist, and StatSN has no gap; PDUs sent again are unchanged;
//! * the window never goes back; a command is started once, and receives exactly the data that was sent for it, once;
//! * R2Ts and Data-In stay within what the initiator expects, on the connection to which the task belongs;
//! * what a session holds is bounded, and nothing is left when it has ended.

#[path = "support/policy.rs"]
#[allow(dead_code, reason = "shared with the transcripts")]
mod policy;

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use iscsi_core::Time;
use iscsi_core::params::{Bounds, TaskReporting};
use iscsi_core::pdu_reader::RxPdu;
use iscsi_core::target::actions::{Action, CloseReason, Completion, Payload};
use iscsi_core::target::session::{Holdings, SessionConfig, TargetSession};
use iscsi_core::target::task::TaskId;
use iscsi_core::target::task_management::AbortScope;
use iscsi_core::wire::{
    Bhs, Cid, CmdSn, DataOut, DataSn, Itt, LogoutReason, LogoutRequest, Lun, NopOut, Pdu, ResponseNumbers,
    ScsiCommand, SnackRequest, SnackType, StatSn, TaskAttribute, TaskManagementRequest, TmfFunction,
    TmfResponse, Tsih, Ttt,
};
use policy::{Policy, establish, login_request, rx};
use proptest::prelude::*;

const CONNECTIONS: u16 = 3;

fn pattern(itt: Itt, offset: u32, len: u32) -> Bytes {
    (offset..offset + len)
        .map(|i| (i.wrapping_mul(31) ^ i >> 8 ^ itt.0.wrapping_mul(7)) as u8)
        .collect::<Vec<_>>()
        .into()
}

struct Line {
    next: StatSn,
    acknowledged: StatSn,
    sent: HashMap<u32, [u8; 48]>,
}

struct Command {
    cid: Cid,
    write: bool,
    edtl: u32,
}

struct Owed {
    cid: Cid,
    itt: Itt,
    ttt: Ttt,
    next: u32,
    end: u32,
    data_sn: u32,
}

struct Device {
    itt: Itt,
    collecting: bool,
    abandoned: bool,
}

struct Run<'a> {
    dice: &'a [u8],
    session: TargetSession,
    policy: Policy,
    now: Time,
    lines: HashMap<Cid, Line>,
    commands: HashMap<Itt, Command>,
    owed: Vec<Owed>,
    device: HashMap<TaskId, Device>,
    started: usize,
    managing: Vec<iscsi_core::target::actions::ManagementRequest>,
    waits: HashMap<u64, iscsi_core::target::actions::ManagementId>,
    /// TASK REASSIGN requests, and the commands that they are for.
    reassigning: HashMap<Itt, Itt>,
    cmd_sn: CmdSn,
    window: (CmdSn, CmdSn),
    next_itt: u32,
    ended: bool,
    trace: bool,
}

impl Run<'_> {
    fn byte(&mut self) -> u32 {
        let (first, rest) = self.dice.split_first().unwrap_or((&0, &[]));
        self.dice = rest;
        u32::from(*first)
    }

    fn below(&mut self, n: u32) -> u32 {
        if n > 256 { (self.byte() << 8 | self.byte()) % n } else { self.byte() % n.max(1) }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 1
    }

    fn itt(&mut self) -> Itt {
        self.next_itt += 1;
        Itt(self.next_itt)
    }

    fn known(&mut self) -> Itt {
        let n = self.next_itt;
        Itt(1 + self.below(n.max(1)))
    }

    fn some_cid(&mut self) -> Option<Cid> {
        let mut cids: Vec<Cid> = self.lines.keys().copied().collect();
        cids.sort_by_key(|cid| cid.0);
        let n = cids.len() as u32;
        (n > 0).then(|| cids[self.below(n) as usize])
    }

    /// Usually everything that has arrived, sometimes less.
    fn exp_stat_sn(&mut self, cid: Cid) -> StatSn {
        let lag = if self.one_in(3) { self.below(6) } else { 0 };
        let Some(line) = self.lines.get_mut(&cid) else { return StatSn(0) };
        let wanted = StatSn(line.next.0.wrapping_sub(lag));
        if wanted.gt(line.acknowledged) {
            line.acknowledged = wanted;
        }
        line.acknowledged
    }

    fn feed(&mut self, cid: Cid, bhs: Bhs, data: Bytes, damaged: bool) {
        let mut pdu: RxPdu = rx(bhs, data);
        pdu.data_digest_ok = !damaged;
        if self.trace {
            eprintln!("I{cid}> {}", iscsi_core::wire::one_line(&pdu.bhs, &[]));
        }
        self.session.handle_pdu(self.now, cid, &pdu);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(action) = self.session.poll_action() {
            assert!(!self.ended, "after the end: {action:?}");
            match action {
                Action::Send { cid, pdu } => self.sent(cid, &pdu.bhs, &pdu.data.bytes()),
                Action::Start(command) => {
                    let itt = Itt(u32::from_be_bytes(command.cdb[2..6].try_into().unwrap()));
                    self.started += 1;
                    let device = Device { itt, collecting: false, abandoned: false };
                    assert!(self.device.insert(command.task, device).is_none(), "started twice");
                }
                Action::DataOut { task, data } => {
                    let device = self.device.get_mut(&task).expect("of a command that was started");
                    assert!(device.collecting && !device.abandoned, "data twice, or too late");
                    device.collecting = false;
                    let whole: Vec<u8> = data.iter().flatten().copied().collect();
                    assert_eq!(whole, pattern(device.itt, 0, whole.len() as u32), "data of {:?}", device.itt);
                }
                Action::Abandon { task } => {
                    let device = self.device.get_mut(&task).expect("holds it");
                    assert!(!std::mem::replace(&mut device.abandoned, true), "abandoned twice");
                }
                Action::Refused { .. } => {}
                Action::Manage(request) => self.managing.push(request),
                Action::TasksGone { token } => {
                    if let Some(id) = self.waits.remove(&token) {
                        self.session.management_done(id, TmfResponse::FunctionComplete);
                    }
                }
                Action::SendTargets { .. } => {}
                Action::Close { cid, .. } => {
                    assert!(self.lines.remove(&cid).is_some(), "closes what is gone");
                    self.owed.retain(|owed| owed.cid != cid);
                }
                Action::Ended => {
                    self.ended = true;
                    assert_eq!(self.session.holdings(), Holdings::default());
                    assert!(self.device.is_empty());
                }
            }
        }
    }

    fn sent(&mut self, cid: Cid, bhs: &Bhs, data: &Bytes) {
        if self.trace {
            eprintln!("T{cid}< {}", iscsi_core::wire::one_line(bhs, &[]));
        }
        let parsed = Pdu::parse(bhs).expect("well formed");
        let (ResponseNumbers { stat_sn, exp_cmd_sn: exp, max_cmd_sn: max }, counts) = match parsed {
            Pdu::LoginResponse(p) => {
                let line = Line {
                    next: p.numbers.stat_sn,
                    acknowledged: p.numbers.stat_sn.next(),
                    sent: HashMap::new(),
                };
                assert!(self.lines.insert(cid, line).is_none(), "a login on a connection that is there");
                (p.numbers, true)
            }
            Pdu::NopIn(p) => (p.numbers, !p.itt.is_reserved()),
            Pdu::ScsiResponse(p) => (p.numbers, true),
            Pdu::TaskManagementResponse(p) => {
                if let Some(moved) = self.reassigning.remove(&p.itt)
                    && p.response == TmfResponse::FunctionComplete
                {
                    self.commands.get_mut(&moved).expect("a command").cid = cid;
                }
                (p.numbers, true)
            }
            Pdu::DataIn(p) => {
                let command = &self.commands[&p.itt];
                assert!(command.cid == cid && !command.write, "on another connection");
                let end = p.buffer_offset as usize + data.len();
                assert!(!data.is_empty() && data.len() <= 512 && end <= command.edtl as usize);
                assert_eq!(*data, pattern(p.itt, p.buffer_offset, data.len() as u32));
                assert!(!p.acknowledge || self.session.params().error_recovery_level > 0);
                (p.numbers, p.status_bit)
            }
            Pdu::R2t(p) => {
                let command = &self.commands[&p.itt];
                assert!(command.cid == cid && command.write, "on another connection");
                let end = p.buffer_offset + p.desired_data_transfer_length;
                assert!(p.desired_data_transfer_length > 0 && end <= command.edtl);
                if !self.owed.iter().any(|owed| owed.ttt == p.ttt) {
                    let (itt, ttt, next) = (p.itt, p.ttt, p.buffer_offset);
                    self.owed.push(Owed { cid, itt, ttt, next, end, data_sn: 0 });
                }
                (p.numbers, false)
            }
            Pdu::LogoutResponse(p) => (p.numbers, true),
            Pdu::AsyncMessage(p) => (p.numbers, true),
            Pdu::Reject(p) => (p.numbers, true),
            other => panic!("not expected: {other:?}"),
        };
        assert!(
            exp.ge(self.window.0) && max.ge(self.window.1) && max.next().ge(exp),
            "the window: {parsed:?}"
        );
        self.window = (exp, max);
        let Some(line) = self.lines.get_mut(&cid) else { panic!("sent on {cid}, which is gone: {parsed:?}") };
        let mut header = *bhs.as_bytes();
        header[28..36].fill(0);
        if counts && stat_sn.lt(line.next) {
            let tagged = matches!(parsed, Pdu::ScsiResponse(p) if p.snack_tag != 0);
            assert!(tagged || line.sent[&stat_sn.0] == header, "no replica: {parsed:?}");
            line.sent.insert(stat_sn.0, header);
        } else if counts {
            assert_eq!(stat_sn, line.next, "{parsed:?}");
            line.next = stat_sn.next();
            line.sent.insert(stat_sn.0, header);
        }
    }

    fn command(&mut self, cid: Cid) {
        let (write, edtl) = (self.one_in(2), self.below(2600));
        let immediate = self.one_in(8);
        if !immediate && !self.cmd_sn.le(self.window.1) {
            return;
        }
        let itt = self.itt();
        let mut cdb = [0; 16];
        cdb[2..6].copy_from_slice(&itt.0.to_be_bytes());
        let cmd_sn = self.cmd_sn;
        if !immediate {
            self.cmd_sn = cmd_sn.next();
        }
        let exp_stat_sn = self.exp_stat_sn(cid);
        let command = ScsiCommand {
            immediate,
            final_bit: true,
            read: !write,
            write,
            attr: TaskAttribute::Simple,
            priority: 0,
            lun: Lun::from_index(self.below(2) as u16),
            itt,
            expected_data_transfer_length: edtl,
            cmd_sn,
            exp_stat_sn,
            cdb,
        };
        self.commands.insert(itt, Command { cid, write, edtl });
        if !self.one_in(16) {
            self.feed(cid, command.to_bhs(), Bytes::new(), false);
        }
    }

    fn data(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        let front = self.below(4) != 1;
        let n = self.owed.len() as u32;
        let index = if front { 0 } else { self.below(n) as usize };
        let (lost, damaged, repeated) = (self.one_in(8), self.one_in(8), self.one_in(8));
        let wrong = self.one_in(32);
        let owed = &mut self.owed[index];
        let len = (owed.end - owed.next).min(500);
        let final_bit = owed.next + len == owed.end;
        let (cid, itt) = (owed.cid, owed.itt);
        let exp_stat_sn = StatSn(0);
        let pdu = DataOut {
            final_bit,
            lun: Lun(0),
            itt,
            ttt: owed.ttt,
            exp_stat_sn,
            data_sn: DataSn(owed.data_sn),
            buffer_offset: owed.next,
        };
        let data = pattern(itt, owed.next, len);
        owed.next += len;
        owed.data_sn += 1;
        if final_bit {
            self.owed.remove(index);
        }
        let mut bhs = pdu.to_bhs();
        // The logical unit of the command is not recorded: both are tried.
        for lun in 0..2u8 {
            let mut header = *bhs.as_bytes();
            header[9] = lun;
            bhs = Bhs::from_bytes(header);
            let at = if wrong { self.some_cid().unwrap_or(cid) } else { cid };
            if !lost && self.lines.contains_key(&at) {
                self.feed(at, bhs, data.clone(), damaged);
                if repeated && self.lines.contains_key(&at) {
                    self.feed(at, bhs, data.clone(), false);
                }
            }
        }
    }

    fn device_step(&mut self) {
        let mut ids: Vec<TaskId> = self.device.keys().copied().collect();
        ids.sort();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.below(ids.len() as u32) as usize];
        let device = self.device.get_mut(&id).unwrap();
        if device.abandoned {
            self.device.remove(&id);
            self.session.task_gone(id);
        } else if self.commands[&device.itt].write && !device.collecting && self.dice.len().is_multiple_of(2)
        {
            device.collecting = true;
            self.session.need_data_out(id, 2000);
        } else if !device.collecting || self.dice.len().is_multiple_of(8) {
            let itt = device.itt;
            self.device.remove(&id);
            let status = if self.one_in(6) { 2 } else { 0 };
            let len = if self.commands[&itt].write || status == 2 { 0 } else { self.below(2600) };
            let completion = Completion {
                status,
                sense: if status == 2 {
                    Bytes::from_static(&[0x70, 0, 5, 0, 0, 0, 0, 0])
                } else {
                    Bytes::new()
                },
                data_in: Payload { bytes: pattern(itt, 0, len), ..Payload::default() },
                transfer_bytes: u64::from(len),
                ..Completion::default()
            };
            self.session.complete(id, completion);
        }
        self.drain();
    }

    fn snack(&mut self, cid: Cid) {
        let snack_type = SnackType::ALL[self.below(4) as usize];
        let itt = if snack_type == SnackType::DataOrR2t || snack_type == SnackType::RData {
            self.known()
        } else {
            Itt::RESERVED
        };
        let ttt = match snack_type {
            SnackType::RData => Ttt(1 + self.below(9)),
            SnackType::DataAck => Ttt(self.below(40)),
            _ => Ttt::RESERVED,
        };
        let exp_stat_sn = self.exp_stat_sn(cid);
        let base = if snack_type == SnackType::Status { self.lines[&cid].next.0.wrapping_sub(4) } else { 0 };
        let (beg_run, run_length) = match snack_type {
            SnackType::RData => (0, 0),
            _ => (base.wrapping_add(self.below(6)), self.below(4)),
        };
        let lun = Lun::from_index(self.below(2) as u16);
        let snack = SnackRequest { snack_type, lun, itt, ttt, exp_stat_sn, beg_run, run_length };
        self.feed(cid, snack.to_bhs(), Bytes::new(), false);
    }

    fn manage(&mut self, cid: Cid) {
        let function = match self.below(4) {
            0 => TmfFunction::ALL[self.below(12) as usize],
            1 => TmfFunction::AbortTask,
            _ => TmfFunction::TaskReassign,
        };
        if function == TmfFunction::ITNexusReset && !self.one_in(4) {
            return;
        }
        let referenced_task_tag = self.known();
        let itt = self.itt();
        if function == TmfFunction::TaskReassign {
            self.reassigning.insert(itt, referenced_task_tag);
        }
        let request = TaskManagementRequest {
            immediate: true,
            function,
            lun: Lun::from_index(self.below(2) as u16),
            itt,
            referenced_task_tag,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn(cid),
            ref_cmd_sn: CmdSn(self.window.0.0.wrapping_add(self.below(4))),
            exp_data_sn: DataSn(self.below(4)),
        };
        self.commands.entry(itt).or_insert(Command { cid, write: false, edtl: 0 });
        self.feed(cid, request.to_bhs(), Bytes::new(), false);
    }

    fn log_out(&mut self, cid: Cid) {
        let reason = LogoutReason::ALL[self.below(8).clamp(1, 2) as usize];
        let request = LogoutRequest {
            immediate: true,
            reason,
            itt: self.itt(),
            cid: Cid(1 + self.below(u32::from(CONNECTIONS)) as u16),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn(cid),
        };
        self.feed(cid, request.to_bhs(), Bytes::new(), false);
    }

    fn lose(&mut self, cid: Cid) {
        self.lines.remove(&cid);
        self.owed.retain(|owed| owed.cid != cid);
        self.session.handle_connection_lost(self.now, cid);
        self.drain();
    }

    fn join(&mut self) {
        let cid = Cid(1 + self.below(u32::from(CONNECTIONS)) as u16);
        if self.ended || self.session.is_ending() || !self.session.has_room_for(cid) {
            return;
        }
        self.policy.joins = Some(self.session.params().clone());
        let request =
            iscsi_core::wire::LoginRequest { tsih: Tsih(1), cid, cmd_sn: self.cmd_sn, ..login_request() };
        let established = establish(&mut self.policy, request, &[("MaxRecvDataSegmentLength", "512")]);
        self.session.join(established, self.now);
        self.drain();
    }

    fn acknowledge(&mut self, cid: Cid) {
        let nop = NopOut {
            immediate: true,
            lun: Lun::from_index(self.below(2) as u16),
            itt: if self.one_in(2) { self.itt() } else { Itt::RESERVED },
            ttt: Ttt::RESERVED,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn(cid),
        };
        self.feed(cid, nop.to_bhs(), Bytes::new(), false);
    }

    fn event(&mut self) {
        let Some(cid) = self.some_cid() else {
            if self.one_in(3) {
                let seconds = 1 + self.below(12);
                self.now += Duration::from_secs(seconds.into());
                self.session.handle_timeout(self.now);
                self.drain();
            }
            self.device_step();
            return self.join();
        };
        match self.below(32) {
            0..=7 => self.command(cid),
            8..=15 => self.data(),
            16..=20 => self.device_step(),
            21..=23 => self.snack(cid),
            24 | 25 => self.manage(cid),
            26 if self.one_in(3) => self.log_out(cid),
            27 if self.one_in(2) => self.lose(cid),
            28 => self.join(),
            29 => {
                if let Some(request) = self.managing.pop() {
                    let token = request_token(self.started, self.next_itt);
                    self.waits.insert(token, request.id);
                    let scope = AbortScope {
                        lun: Some(request.lun),
                        request: Some(request.id),
                        task_aborted_status: false,
                    };
                    self.session.abort_tasks(scope, token);
                    self.drain();
                }
            }
            30 => {
                let seconds = self.below(11);
                self.now += Duration::from_secs(seconds.into());
                self.session.handle_timeout(self.now);
                self.drain();
            }
            _ => self.acknowledge(cid),
        }
        let held = self.session.holdings();
        assert!(held.tasks <= 80 && held.drains <= 1024 && held.held_back <= 80, "{held:?}");
        assert!(held.retained <= 4096 && held.retained_bytes <= 20_000, "{held:?}");
    }

    fn finish(&mut self) {
        self.session.terminate(self.now, CloseReason::Ended);
        self.drain();
        let mut ids: Vec<TaskId> = self.device.keys().copied().collect();
        ids.sort();
        for id in ids {
            self.device.remove(&id);
            self.session.task_gone(id);
            self.drain();
        }
        assert!(self.ended, "it did not end: {:?}", self.session.holdings());
    }
}

fn request_token(started: usize, itt: u32) -> u64 {
    (started as u64) << 32 | u64::from(itt)
}

fn play(bytes: &[u8]) {
    let level = bytes.first().copied().unwrap_or(0) % 3;
    let reporting = [TaskReporting::Rfc3720, TaskReporting::ResponseFence, TaskReporting::FastAbort]
        [usize::from(bytes.get(1).copied().unwrap_or(0) % 3)];
    let bounds = Bounds {
        max_connections: CONNECTIONS,
        error_recovery_level: level,
        task_reporting: reporting,
        protocol_level: 2,
        ..Bounds::default()
    };
    let config = SessionConfig {
        queue_depth: 16,
        retained_bytes_max: 20_000,
        solicited_bytes_max: 6000,
        bounds: bounds.clone(),
        ..SessionConfig::default()
    };
    let mut policy = Policy { bounds, ..Policy::default() };
    let keys = [
        ("MaxConnections", "3"),
        ("ErrorRecoveryLevel", "2"),
        ("TaskReporting", reporting.as_str()),
        ("iSCSIProtocolLevel", "2"),
        ("InitialR2T", "Yes"),
        ("ImmediateData", "No"),
        ("MaxBurstLength", "1024"),
        ("FirstBurstLength", "512"),
        ("MaxOutstandingR2T", "3"),
        ("MaxRecvDataSegmentLength", "512"),
    ];
    let established = establish(&mut policy, login_request(), &keys);
    let session = TargetSession::new(established, Tsih(1), config, Time::ZERO);
    let mut run = Run {
        dice: bytes,
        session,
        policy,
        now: Time::ZERO,
        lines: HashMap::new(),
        commands: HashMap::new(),
        owed: Vec::new(),
        device: HashMap::new(),
        started: 0,
        managing: Vec::new(),
        waits: HashMap::new(),
        reassigning: HashMap::new(),
        cmd_sn: CmdSn(1),
        window: (CmdSn(1), CmdSn(0)),
        next_itt: 0,
        ended: false,
        trace: std::env::var_os("TRACE").is_some(),
    };
    run.drain();
    run.join();
    while !run.dice.is_empty() && !run.ended {
        run.event();
    }
    if !run.ended {
        run.finish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    // covers: MCS-02, MCS-08, NUM-09, SNK-01, SNK-02, ERL-03, ERL-06, ERL-10, FAB-04
    #[test]
    fn no_run_breaks_a_rule(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        play(&bytes);
    }
}
