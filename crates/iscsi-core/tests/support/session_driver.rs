//! Drives a target session by decisions that are taken from bytes, and holds it against rules that no run may break.
//!
//! The bytes come from proptest or from a fuzzer. The driver plays the initiator (legal and illegal PDUs), the device server
//! (needs data, completes, lets go, in any order), the operator and the clock. What it checks:
//!
//! * nothing panics, and every PDU sent is well formed;
//! * StatSN advances by the rule of RFC 7143 4.2.2.2, ExpCmdSN and MaxCmdSN never go back, MaxCmdSN >= ExpCmdSN - 1;
//! * the device server sees each command once, gets only data that the initiator sent for it, and has let go of a command
//!   before its status leaves;
//! * R2Ts and Data-In keep the negotiated limits;
//! * every question asked of the surroundings is answered once, and nothing is held when the session has ended.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use iscsi_core::Time;
use iscsi_core::params::Bounds;
use iscsi_core::pdu_reader::RxPdu;
use iscsi_core::pdu_writer::TxPdu;
use iscsi_core::target::actions::{
    Action, CloseReason, Command, Completion, DataInPayload, ManagementId, ManagementRequest, TargetRecord,
};
use iscsi_core::target::session::{Holdings, SessionConfig, TargetSession};
use iscsi_core::target::task::TaskId;
use iscsi_core::target::task_management::AbortScope;
use iscsi_core::wire::{
    Bhs, Cid, CmdSn, DataOut, DataSn, Itt, LogoutReason, LogoutRequest, Lun, NopOut, Pdu, ScsiCommand,
    StatSn, TaskAttribute, TaskManagementRequest, TextRequest, TmfFunction, TmfResponse, Tsih, Ttt, one_line,
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

/// Data that the initiator believes to owe.
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
    /// The initiator broke the rules for it: what the target asks for from here on is not judged.
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
    /// Task management without an answer, and the command that an ABORT TASK names.
    unanswered_tmf: HashMap<Itt, Option<Itt>>,
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
    /// Set by the environment variable TRACE: the run is told on stderr.
    trace: bool,
}

/// Plays one run.
pub fn play(bytes: &[u8]) {
    let mut dice = Dice(bytes);
    let bounds = Bounds {
        max_recv_data_segment_length: dice.pick(&[512, 1024, 65536]),
        max_burst_length: dice.pick(&[512, 1024, 2048]),
        first_burst_length: dice.pick(&[512, 1024, 2048]),
        initial_r2t: dice.one_in(2),
        immediate_data: !dice.one_in(3),
        max_outstanding_r2t: dice.pick(&[1, 2, 8]),
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
        // A session that is over is not joined: its owner has forgotten it.
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
        // An initiator that keeps the window; the other kind is played elsewhere.
        if cmd_sn.le(self.max) {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
        cmd_sn
    }

    fn legal_command(&mut self) {
        let is_free = |itt: &Itt| {
            !self.sent.contains_key(itt) && self.unanswered.get(itt).is_none_or(|open| *open == 0)
        };
        // Tags of commands that were ignored stay in doubt, so there are more than are used elsewhere.
        let Some(itt) = (1..=8 * TAGS).map(Itt).find(is_free) else { return };
        let immediate = self.dice.one_in(6);
        if !immediate && !CmdSn(self.cmd_sn).le(self.max) {
            return;
        }
        let cmd_sn = if immediate { CmdSn(self.cmd_sn) } else { self.next_cmd_sn() };
        self.command_with(itt, cmd_sn, immediate);
    }

    fn command_with(&mut self, itt: Itt, cmd_sn: CmdSn, immediate: bool) {
        let write = !self.dice.one_in(3);
        let edtl = self.dice.below(3000);
        let params = self.session.params().clone();
        let first_burst = params.effective_first_burst().min(edtl);
        let limit = first_burst.min(params.max_recv_data_segment_length);
        let with_data = write && params.immediate_data && self.dice.one_in(2);
        let immediate_data = if with_data { self.dice.below(limit + 1) } else { 0 };
        let more = write && !params.initial_r2t && immediate_data < first_burst && self.dice.one_in(2);
        let lun = Lun::from_index(self.dice.below(2) as u16);
        let mut cdb = [0; 16];
        cdb[2..6].copy_from_slice(&itt.0.to_be_bytes());
        let command = ScsiCommand {
            immediate,
            final_bit: !more,
            read: !write,
            write,
            attr: TaskAttribute::Simple,
            priority: 0,
            lun,
            itt,
            expected_data_transfer_length: edtl,
            cmd_sn,
            exp_stat_sn: StatSn(0),
            cdb,
        };
        let mut owed = VecDeque::new();
        if more {
            owed.push_back(Owed { ttt: Ttt::RESERVED, next: immediate_data, end: first_burst, data_sn: 0 });
        }
        let fresh =
            Sent { lun, edtl, owed, next_r2t: None, data_in: 0, data_sn: 0, since_final: 0, tainted: false };
        if let Some(old) = self.sent.get_mut(&itt) {
            old.tainted = true;
        } else {
            self.sent.insert(itt, fresh);
        }
        let mut pdu = rx(command.to_bhs(), pattern_bytes(itt, 0, immediate_data));
        if immediate_data > 0 && self.dice.one_in(16) {
            pdu.data_digest_ok = false;
            self.skipped.push(cmd_sn.0);
            self.sent.remove(&itt);
        }
        self.feed(pdu);
    }

    fn legal_data(&mut self) {
        let mut tags: Vec<Itt> =
            self.sent.iter().filter(|(_, s)| !s.owed.is_empty()).map(|(itt, _)| *itt).collect();
        tags.sort_by_key(|itt| itt.0);
        if tags.is_empty() {
            return self.device_step();
        }
        let itt = self.dice.pick(&tags);
        let early_end = self.dice.one_in(24);
        let bad_digest = self.dice.one_in(24);
        let wanted = self.dice.pick(&[512, 100, 0, 1]);
        let sent = self.sent.get_mut(&itt).expect("picked from the map");
        let owed = sent.owed.front_mut().expect("filtered");
        let len = wanted.min(owed.end - owed.next);
        let final_bit = early_end || owed.next + len == owed.end;
        let pdu = DataOut {
            final_bit,
            lun: sent.lun,
            itt,
            ttt: owed.ttt,
            exp_stat_sn: StatSn(0),
            data_sn: DataSn(owed.data_sn),
            buffer_offset: owed.next,
        };
        let data = pattern_bytes(itt, owed.next, len);
        owed.next += len;
        owed.data_sn += 1;
        if final_bit {
            sent.owed.pop_front();
        }
        let mut pdu = rx(pdu.to_bhs(), data);
        pdu.data_digest_ok = !bad_digest;
        self.feed(pdu);
    }

    fn next_tmf_tag(&mut self) -> Itt {
        self.tmf_tag += 1;
        Itt(self.tmf_tag)
    }

    fn fill_hole(&mut self) {
        let Some(cmd_sn) = self.skipped.pop() else { return };
        if self.dice.one_in(2) {
            let itt = Itt(100 + self.dice.below(4));
            return self.command_with(itt, CmdSn(cmd_sn), false);
        }
        self.abort_missing(CmdSn(cmd_sn));
    }

    /// Says that the command with `cmd_sn` will not come.
    fn abort_missing(&mut self, cmd_sn: CmdSn) {
        let request = TaskManagementRequest {
            immediate: true,
            function: TmfFunction::AbortTask,
            lun: Lun(0),
            itt: self.next_tmf_tag(),
            referenced_task_tag: Itt(3000),
            cmd_sn: self.max.next(),
            exp_stat_sn: StatSn(0),
            ref_cmd_sn: cmd_sn,
            exp_data_sn: DataSn(0),
        };
        self.feed(rx(request.to_bhs(), Bytes::new()));
    }

    fn duplicate_or_far_command(&mut self) {
        let far = self.dice.pick(&[0, 1, 2, 1 << 31, 0x7fff_ffff, 0xffff_ffff, 64]);
        let itt = Itt(1 + self.dice.below(TAGS));
        let cmd_sn = self.exp.add(far);
        // What comes for it may reach a command that the driver does not know of.
        if cmd_sn.0.wrapping_sub(self.cmd_sn) < 1 << 16 {
            self.cmd_sn = cmd_sn.0.wrapping_add(1);
        }
        self.command_with(itt, cmd_sn, false);
        self.taint(itt);
    }

    fn task_management(&mut self) {
        let function = self.dice.pick(TmfFunction::ALL);
        let immediate = !self.dice.one_in(3);
        let cmd_sn = if immediate { CmdSn(self.cmd_sn) } else { self.next_cmd_sn() };
        let referenced_task_tag = Itt(1 + self.dice.below(TAGS));
        let request = TaskManagementRequest {
            immediate,
            function,
            lun: Lun::from_index(self.dice.below(2) as u16),
            itt: self.next_tmf_tag(),
            referenced_task_tag,
            cmd_sn,
            exp_stat_sn: StatSn(0),
            ref_cmd_sn: self.exp.add(self.dice.below(4)),
            exp_data_sn: DataSn(0),
        };
        self.feed(rx(request.to_bhs(), Bytes::new()));
        // Nothing more may come for what it reaches, or everything, if it was ignored.
        for sent in self.sent.values_mut() {
            sent.tainted = true;
        }
    }

    fn nop_out(&mut self) {
        let immediate = self.dice.one_in(2);
        let answer = self.dice.one_in(4);
        let cmd_sn = if immediate || answer { CmdSn(self.cmd_sn) } else { self.next_cmd_sn() };
        let nop = NopOut {
            immediate: immediate || answer,
            lun: Lun(0),
            itt: if answer { Itt::RESERVED } else { Itt(400) },
            ttt: if answer { Ttt(self.dice.below(16)) } else { Ttt::RESERVED },
            cmd_sn,
            exp_stat_sn: StatSn(0),
        };
        let len = self.dice.below(700);
        self.feed(rx(nop.to_bhs(), pattern_bytes(Itt(400), 0, len)));
    }

    fn text(&mut self) {
        let final_bit = !self.dice.one_in(3);
        let immediate = self.dice.one_in(2);
        let cmd_sn = if immediate { CmdSn(self.cmd_sn) } else { self.next_cmd_sn() };
        let request = TextRequest {
            immediate,
            final_bit,
            continue_bit: self.dice.one_in(4),
            lun: Lun(0),
            itt: Itt(500 + self.dice.below(2)),
            ttt: if self.dice.one_in(2) { Ttt(self.dice.below(32)) } else { Ttt::RESERVED },
            cmd_sn,
            exp_stat_sn: StatSn(0),
        };
        let text: &[u8] = self.dice.pick(&[
            b"SendTargets=\0".as_slice(),
            b"SendTargets=All\0",
            b"SendTargets=iqn.2025-01.org.example:a\0",
            b"MaxRecvDataSegmentLength=512\0",
            b"X-a=b\0X-c=d\0",
            b"MaxBurstLength=512\0",
            b"SendTar",
            b"",
        ]);
        self.feed(rx(request.to_bhs(), Bytes::from_static(text)));
    }

    fn logout(&mut self) {
        let request = LogoutRequest {
            immediate: true,
            reason: self.dice.pick(LogoutReason::ALL),
            itt: Itt(600),
            cid: Cid(self.dice.below(3) as u16),
            cmd_sn: CmdSn(self.cmd_sn),
            exp_stat_sn: StatSn(0),
        };
        self.feed(rx(request.to_bhs(), Bytes::new()));
    }

    /// Any header, near enough to the truth to get past the first check now and then.
    fn garbage(&mut self) {
        let mut header = [0u8; 48];
        header[0] = self.dice.pick(&[0, 1, 2, 3, 4, 5, 5, 5, 6, 0x10, 0x1f, 0x20, 0x21, 0x25, 0x31, 0x3f])
            | self.dice.pick(&[0, 0x40, 0x80]);
        header[1] = self.dice.byte();
        if header[0] & 0x3f == 6 && self.dice.one_in(2) {
            header[0] ^= 6;
        }
        header[9] = self.dice.below(2) as u8;
        let itt = Itt(1 + self.dice.below(TAGS));
        header[16..20].copy_from_slice(&itt.0.to_be_bytes());
        let ttt = if self.dice.one_in(2) { self.dice.below(32) } else { u32::MAX };
        header[20..24].copy_from_slice(&ttt.to_be_bytes());
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        header[36..40].copy_from_slice(&self.dice.below(3).to_be_bytes());
        header[40..44].copy_from_slice(&self.dice.pick(&[0u32, 512, 1024, 0xffff_ffff]).to_be_bytes());
        for _ in 0..self.dice.below(3) {
            let at = self.dice.below(48) as usize;
            header[at] = self.dice.byte();
        }
        // Garbage must not look like a command of another tag than its CDB says.
        let tag: [u8; 4] = header[16..20].try_into().expect("four bytes");
        if header[0] & 0x3f == 1 {
            header[34..38].copy_from_slice(&tag);
        }
        let itt = Itt(u32::from_be_bytes(tag));
        let offset = u32::from_be_bytes(header[40..44].try_into().expect("four bytes"));
        let (len, start) = (self.dice.pick(&[0, 0, 512, 3]), if header[0] & 0x3f == 5 { offset } else { 0 });
        let mut bhs = Bhs::from_bytes(header);
        let ahs: &'static [u8] = self.dice.pick(&[
            b"".as_slice(),
            b"",
            &[0, 5, 2, 0, 0, 0, 4, 0],
            &[0, 1, 1, 0],
            &[0, 9, 0x3e, 0, 1, 2, 3, 4],
        ]);
        bhs.set_total_ahs_length(ahs.len());
        let mut pdu = rx(bhs, pattern_bytes(itt, start, len));
        pdu.ahs = Bytes::from_static(ahs);
        pdu.data_digest_ok = !self.dice.one_in(8);
        self.taint(itt);
        self.feed(pdu);
        // It may have taken a number.
        if CmdSn(self.cmd_sn).lt(self.exp) {
            self.cmd_sn = self.exp.0;
        }
    }

    fn taint(&mut self, itt: Itt) {
        if let Some(sent) = self.sent.get_mut(&itt) {
            sent.tainted = true;
        }
    }

    fn feed(&mut self, mut pdu: RxPdu) {
        pdu.bhs.set_total_ahs_length(pdu.ahs.len());
        match Pdu::parse(&pdu.bhs) {
            Ok(Pdu::ScsiCommand(command)) => {
                *self.unanswered.entry(command.itt).or_default() += 1;
                // The one before may have vanished: others can abort it without a word.
                if self
                    .running
                    .get(&command.itt)
                    .is_some_and(|id| self.device.get(id).is_none_or(|t| t.abandoned))
                {
                    self.running.remove(&command.itt);
                }
            }
            Ok(Pdu::TaskManagementRequest(request)) => {
                let of = (request.function == TmfFunction::AbortTask).then_some(request.referenced_task_tag);
                self.unanswered_tmf.insert(request.itt, of);
            }
            _ => {}
        }
        self.headers.insert(*pdu.bhs.as_bytes());
        if self.trace {
            eprintln!("I> {} digest_ok={}", one_line(&pdu.bhs, &pdu.ahs), pdu.data_digest_ok);
        }
        self.session.handle_pdu(self.now, CID, &pdu);
    }

    fn device_step(&mut self) {
        let mut ids: Vec<TaskId> = self.device.keys().copied().collect();
        ids.sort();
        if ids.is_empty() {
            return;
        }
        let id = self.dice.pick(&ids);
        let early = self.dice.one_in(8);
        let task = self.device.get_mut(&id).expect("picked from the map");
        if task.abandoned && !early {
            self.device.remove(&id);
            return self.session.task_gone(id);
        }
        match task.stage {
            Stage::Offered if task.write_length > 0 && !early => {
                task.stage = Stage::Collecting;
                task.wanted = u64::from(self.dice.below(2)) * 10_000 + u64::from(self.dice.below(2000));
                let wanted = task.wanted;
                self.session.need_data_out(id, wanted);
            }
            Stage::Collecting if !early => {}
            _ => self.complete(id),
        }
    }

    fn complete(&mut self, id: TaskId) {
        let Some(task) = self.device.remove(&id) else { return };
        if self.trace {
            eprintln!("   completes {task:?}");
        }
        let status = self.dice.pick(&[0u8, 0, 0, 2, 8, 0x18]);
        let data = if status == 0 && task.read_length > 0 { self.dice.below(3000) } else { 0 };
        let completion = Completion {
            status,
            sense: if status == 2 { Bytes::from_static(&[0x70, 0, 5, 0, 0, 0, 0, 0]) } else { Bytes::new() },
            data_in: DataInPayload { bytes: pattern_bytes(task.itt, 0, data), ..DataInPayload::default() },
            transfer_bytes: u64::from(data),
        };
        self.session.complete(id, completion);
    }

    fn manage_step(&mut self) {
        if let Some(request) = self.managing.pop() {
            let lun = match request.function {
                TmfFunction::TargetWarmReset | TmfFunction::TargetColdReset => None,
                _ => Some(request.lun),
            };
            let scope = AbortScope { lun, request: Some(request.id), task_aborted_status: false };
            self.abort(scope, Some(request.id));
        }
    }

    fn third_party_abort(&mut self) {
        let lun = if self.dice.one_in(2) { None } else { Some(Lun::from_index(self.dice.below(2) as u16)) };
        let scope = AbortScope { lun, request: None, task_aborted_status: self.dice.one_in(2) };
        for sent in self.sent.values_mut() {
            sent.tainted = true;
        }
        self.abort(scope, None);
    }

    fn abort(&mut self, scope: AbortScope, request: Option<ManagementId>) {
        let token = self.next_token;
        self.next_token += 1;
        self.tokens.insert(token, request);
        self.session.abort_tasks(scope, token);
    }

    fn pass_time(&mut self) {
        self.now += Duration::from_secs(self.dice.pick(&[1, 2, 3, 30]));
        self.session.handle_timeout(self.now);
    }

    fn lose_connection(&mut self) {
        self.session.handle_connection_lost(self.now, CID);
        self.forget_connection();
    }

    fn forget_connection(&mut self) {
        self.up = false;
        self.sent.clear();
        self.unanswered.clear();
        self.unanswered_tmf.clear();
        self.managing.clear();
        self.running.clear();
        self.send_targets = 0;
    }

    fn drain(&mut self) {
        while let Some(action) = self.session.poll_action() {
            assert!(!self.ended, "an action after the end: {action:?}");
            if self.trace {
                match &action {
                    Action::Send { pdu, .. } => eprintln!("T< {}", one_line(&pdu.bhs, &pdu.ahs)),
                    other => eprintln!("   {other:?}"),
                }
            }
            match action {
                Action::Send { cid, pdu } => {
                    assert!(self.up && cid == CID, "a PDU for a connection that is gone: {pdu:?}");
                    self.check_sent(pdu);
                }
                Action::Start(command) => self.check_start(command),
                Action::DataOut { task, data } => {
                    let known = self.device.get_mut(&task).expect("data for a task that was never started");
                    assert!(known.stage == Stage::Collecting && !known.abandoned, "data nobody asked for");
                    known.stage = Stage::Executing;
                    let whole: Vec<u8> = data.iter().flatten().copied().collect();
                    let due = known.wanted.min(u64::from(known.write_length));
                    assert_eq!(whole.len() as u64, due, "length of the data of {known:?}");
                    for (offset, byte) in whole.iter().enumerate() {
                        assert_eq!(*byte, pattern(known.itt, offset as u32), "byte {offset} of {known:?}");
                    }
                }
                Action::Abandon { task } => {
                    let known = self.device.get_mut(&task).expect("abandons what the device server holds");
                    assert!(!known.abandoned, "abandoned twice: {known:?}");
                    known.abandoned = true;
                }
                Action::Manage(request) => self.managing.push(request),
                Action::TasksGone { token } => {
                    let request = self.tokens.remove(&token).expect("one TasksGone for each call");
                    if let Some(id) = request {
                        self.session.management_done(id, TmfResponse::FunctionComplete);
                    }
                }
                Action::SendTargets { .. } => self.send_targets += 1,
                Action::Close { cid, reason } => {
                    assert!(self.up && cid == CID, "closes a connection twice: {reason:?}");
                    self.forget_connection();
                }
                Action::Ended => {
                    self.ended = true;
                    assert!(!self.up, "ended with a connection");
                    assert_eq!(self.session.holdings(), Holdings::default());
                    assert!(self.device.is_empty(), "the device server still holds {:?}", self.device);
                    assert!(self.tokens.is_empty(), "never heard of {:?}", self.tokens);
                }
            }
        }
    }

    fn check_start(&mut self, command: Command) {
        assert!(self.started.insert(command.task), "started twice: {command:?}");
        let itt = Itt(u32::from_be_bytes(command.cdb[2..6].try_into().expect("four bytes")));
        if self.up {
            self.running.insert(itt, command.task);
        }
        self.device.insert(
            command.task,
            DeviceTask {
                itt,
                stage: Stage::Offered,
                abandoned: false,
                read_length: command.read_length,
                write_length: command.write_length,
                wanted: 0,
            },
        );
    }

    fn check_sent(&mut self, pdu: TxPdu) {
        let mut bhs = pdu.bhs;
        assert_eq!((bhs.data_segment_length(), bhs.total_ahs_length()), (0, 0), "set by the writer");
        let parsed = Pdu::parse(&bhs).expect("we send what parses");
        assert_eq!(parsed.to_bhs(), bhs, "no reserved bit is set");
        bhs.set_data_segment_length(pdu.data.bytes.len());
        assert!(pdu.ahs.is_empty());
        let data = &pdu.data.bytes;
        let (stat_sn, exp, max, counts) = match parsed {
            Pdu::LoginResponse(p) => {
                self.stat_sn = Some(p.stat_sn);
                (p.stat_sn, p.exp_cmd_sn, p.max_cmd_sn, true)
            }
            Pdu::NopIn(p) => (p.stat_sn, p.exp_cmd_sn, p.max_cmd_sn, !p.itt.is_reserved()),
            Pdu::ScsiResponse(p) => {
                assert_eq!(p.status == 2, !data.is_empty(), "sense with CHECK CONDITION only: {p:?}");
                self.check_end(p.itt);
                (p.stat_sn, p.exp_cmd_sn, p.max_cmd_sn, true)
            }
            Pdu::TaskManagementResponse(p) => {
                let of = self.unanswered_tmf.remove(&p.itt).expect("answers one request once");
                // The tag of an aborted command is free again.
                if let Some(tag) = of.filter(|_| p.response == TmfResponse::FunctionComplete) {
                    self.sent.remove(&tag);
                    self.running.remove(&tag);
                    // Another command may have taken it in the meantime, so it is not simply forgotten.
                    let open = self.unanswered.entry(tag).or_default();
                    *open = open.saturating_sub(1);
                }
                (p.stat_sn, p.exp_cmd_sn, p.max_cmd_sn, true)
            }
            Pdu::TextResponse(p) => {
                assert!(!(p.final_bit && p.continue_bit));
                assert_eq!(p.final_bit, p.ttt.is_reserved());
                assert!(data.len() <= 512);
                (p.stat_sn, p.exp_cmd_sn, p.max_cmd_sn, true)
            }
            Pdu::DataIn(p) => {
                assert!(!data.is_empty() && data.len() <= 512);
                assert!(p.final_bit || !p.status_bit);
                let max_burst = self.session.params().max_burst_length;
                if let Some(sent) = self.sent.get_mut(&p.itt).filter(|sent| !sent.tainted) {
                    assert_eq!((p.buffer_offset, p.data_sn.0), (sent.data_in, sent.data_sn));
                    sent.data_in += data.len() as u32;
                    sent.data_sn += 1;
                    sent.since_final += data.len() as u32;
                    assert!(sent.data_in <= sent.edtl, "more data than expected");
                    assert!(sent.since_final <= max_burst, "a sequence longer than MaxBurstLength");
                    if p.final_bit {
                        sent.since_final = 0;
                    }
                }
                for (i, byte) in data.iter().enumerate() {
                    assert_eq!(*byte, pattern(p.itt, p.buffer_offset + i as u32));
                }
                if p.status_bit {
                    self.check_end(p.itt);
                }
                let stat_sn = if p.status_bit { p.stat_sn } else { self.stat_sn.unwrap_or_default() };
                (stat_sn, p.exp_cmd_sn, p.max_cmd_sn, p.status_bit)
            }
            Pdu::LogoutResponse(p) => (p.stat_sn, p.exp_cmd_sn, p.max_cmd_sn, true),
            Pdu::R2t(p) => {
                self.check_r2t(&p);
                (p.stat_sn, p.exp_cmd_sn, p.max_cmd_sn, false)
            }
            Pdu::AsyncMessage(p) => (p.stat_sn, p.exp_cmd_sn, p.max_cmd_sn, true),
            Pdu::Reject(p) => {
                let header: &[u8; 48] = data.as_ref().try_into().expect("the rejected header");
                assert!(self.headers.contains(header), "rejects what was never sent");
                (p.stat_sn, p.exp_cmd_sn, p.max_cmd_sn, true)
            }
            initiator => panic!("a target does not send {initiator:?}"),
        };
        assert_eq!(Some(stat_sn), self.stat_sn, "StatSN of {parsed:?}");
        if counts {
            self.stat_sn = Some(stat_sn.next());
        }
        assert!(exp.ge(self.exp), "ExpCmdSN goes back: {parsed:?}");
        assert!(max.ge(self.max), "MaxCmdSN goes back: {parsed:?}");
        assert!(max.next().ge(exp), "MaxCmdSN below ExpCmdSN - 1: {parsed:?}");
        (self.exp, self.max) = (exp, max);
    }

    fn check_end(&mut self, itt: Itt) {
        let open = self.unanswered.entry(itt).or_default();
        assert!(*open > 0, "a status that no command asked for: {itt:?}");
        *open -= 1;
        self.sent.remove(&itt);
        if let Some(task) = self.running.remove(&itt) {
            assert!(!self.device.contains_key(&task), "status before the device server let go of {itt:?}");
        }
    }

    fn check_r2t(&mut self, p: &iscsi_core::wire::R2t) {
        let params = self.session.params();
        assert!(!p.ttt.is_reserved());
        assert!((1..=params.max_burst_length).contains(&p.desired_data_transfer_length), "{p:?}");
        let ttt_in_use = self.sent.values().flat_map(|s| &s.owed).any(|owed| owed.ttt == p.ttt);
        assert!(!ttt_in_use, "a TTT that is in use: {p:?}");
        let end = p.buffer_offset.checked_add(p.desired_data_transfer_length).expect("ends below 2^32");
        let Some(sent) = self.sent.get_mut(&p.itt) else { return };
        if !sent.tainted {
            assert_eq!(p.lun, sent.lun);
            assert!(end <= sent.edtl, "beyond the expected length: {p:?}");
            assert!(sent.next_r2t.is_none_or(|next| next == p.buffer_offset), "not contiguous: {p:?}");
            let outstanding = sent.owed.iter().filter(|owed| !owed.ttt.is_reserved()).count();
            assert!(outstanding < usize::from(params.max_outstanding_r2t), "too many R2Ts: {p:?}");
        }
        sent.next_r2t = Some(end);
        sent.data_sn += 1;
        sent.owed.push_back(Owed { ttt: p.ttt, next: p.buffer_offset, end, data_sn: 0 });
    }

    fn check_bounds(&self) {
        let held = self.session.holdings();
        let most = self.queue_depth + 32;
        assert!(held.tasks <= most, "{held:?}");
        assert!(held.leaving <= 2 * most, "{held:?}");
        assert!(held.unsolicited <= held.tasks, "{held:?}");
        assert!(held.drains <= 1024, "{held:?}");
        if held.tasks == 0 {
            assert_eq!(held.solicited_bytes, 0, "{held:?}");
        }
    }

    /// Fills every hole by aborting what is missing: then no command may wait for its turn any more.
    fn fill_all_holes(&mut self) {
        for _ in 0..200 {
            if !self.up || self.session.holdings().held == 0 {
                return;
            }
            let before = self.stat_sn;
            self.abort_missing(self.exp);
            self.drain();
            if self.stat_sn == before {
                // The initiator has logged out: nothing is answered any more.
                return;
            }
        }
        panic!("a command waits for a turn that never comes: {:?}", self.session.holdings());
    }

    /// The device server and the surroundings finish what they have; then the session is ended.
    fn finish(&mut self) {
        self.fill_all_holes();
        for _ in 0..4 {
            let ids: Vec<TaskId> = self.device.keys().copied().collect();
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
