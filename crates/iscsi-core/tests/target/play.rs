//! Plays readable transcripts against a login and the session that it creates.
//!
//! ```text
//! I> ScsiCommand itt=7 W F edtl=8192          the initiator sends; what is not said has a sensible value
//! T< R2t itt=7 ttt=0 offset=0 len=8192 !F     the target sends this next; fields not named are not looked at, `!` means absent
//! D< Start itt=7                              the session asks this of the device server next
//! D> need itt=7 bytes=8192                    the device server answers
//! @ 30s                                       time passes
//! X                                           the connection breaks
//! ```
//! A number may be a name: its first use in a `T<` or `D<` line binds it.
//! A digit names a connection other than the first of the session: `I2>`, `T2<`, `X2`; such a connection is added by a login.
//! Every PDU passes through a [`PduWriter`] and a [`PduReader`] with the digests in effect, and everything that the target sends
//! is checked by [`Audit`]. No output may remain unread.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_core::Time;
use iscsi_core::digest::DigestScope;
use iscsi_core::params::{Asymmetric, Params, TaskReporting};
use iscsi_core::pdu_reader::{PduReader, RxPdu};
use iscsi_core::pdu_writer::{PduWriter, TxPdu};
use iscsi_core::target::actions::{
    Action, CloseReason, Completion, ManagementId, Payload, Selector, TargetRecord,
};
use iscsi_core::target::login::{LoginReply, Refusal, TargetLogin};
use iscsi_core::target::session::{SessionConfig, TargetSession};
use iscsi_core::target::task::TaskId;
use iscsi_core::target::task_management::AbortScope;
use iscsi_core::wire::{
    Bhs, Cid, CmdSn, Isid, Itt, Lun, MAX_DATA_SEGMENT_LENGTH, Names, Pdu, ScsiResponse, StatSn, TmfResponse,
    Tsih, one_line,
};

use crate::audit::Audit;
use crate::pdus::{made, number, parse};
use crate::policy::{INITIATOR, Policy, TARGET};

/// State of a connection.
enum Stage {
    Login(Box<TargetLogin>),
    FullFeature,
    Closed,
}

/// One connection, as both ends see it.
struct Line {
    stage: Stage,
    to_target: Wire,
    to_peer: Wire,
    digests: DigestScope,
    audit: Audit,
}

impl Line {
    fn new() -> Self {
        Self {
            stage: Stage::Login(Box::new(TargetLogin::new(StatSn(0xffff_fffe)))),
            to_target: Wire::new(),
            to_peer: Wire::new(),
            digests: DigestScope::NONE,
            audit: Audit::default(),
        }
    }
}

/// One direction of a connection.
struct Wire {
    writer: PduWriter,
    reader: PduReader,
    buffer: BytesMut,
}

impl Wire {
    fn new() -> Self {
        Self {
            writer: PduWriter::new(),
            reader: PduReader::new(MAX_DATA_SEGMENT_LENGTH),
            buffer: BytesMut::new(),
        }
    }

    fn set_digests(&mut self, digests: DigestScope) {
        self.writer.set_digests(digests);
        self.reader.set_digests(digests);
    }

    /// Carries one PDU over; `flip` changes the byte at this offset of its data on the way.
    fn carry(&mut self, pdu: TxPdu, digests: DigestScope, flip: Option<usize>) -> RxPdu {
        let data_start = Bhs::SIZE + pdu.ahs.len() + if digests.header { 4 } else { 0 };
        self.writer.push(pdu);
        let mut segments = Vec::new();
        self.writer.take(usize::MAX, &mut segments);
        let mut bytes: Vec<u8> = segments.iter().flatten().copied().collect();
        if let Some(at) = flip {
            bytes[data_start + at] ^= 0x40;
        }
        self.buffer.extend_from_slice(&bytes);
        let pdu = self.reader.next(&mut self.buffer).expect("follows the framing").expect("is whole");
        assert!(self.buffer.is_empty());
        pdu
    }
}

/// One output: a line to compare with, and details that a test may check.
pub struct Output {
    pub line: String,
    pub data: Bytes,
}

/// The other side of a target: initiator, device server and clock.
pub struct Peer {
    pub policy: Policy,
    pub config: SessionConfig,
    session: Option<Box<TargetSession>>,
    lines: HashMap<Cid, Line>,
    /// The connection that the script uses.
    pub at: Cid,
    pub now: Time,
    pub cmd_sn: CmdSn,
    pub isid: Isid,
    pub tsih: Tsih,
    pub output: VecDeque<Output>,
    itt_of_cdb: HashMap<[u8; 16], Itt>,
    task_of: HashMap<Itt, TaskId>,
    itt_of: HashMap<TaskId, Itt>,
    managing: Option<ManagementId>,
    /// What the names in the lines stand for.
    pub names: Names,
    /// Status qualifier of the last response.
    pub qualifier: u16,
    /// Why the login ended without a session.
    pub refusal: Option<Refusal>,
    pub params: Params,
}

/// Keys of sessions without unsolicited data.
pub const SOLICITED: &str = "InitialR2T=Yes ImmediateData=No MaxBurstLength=1024 FirstBurstLength=512";

/// How a transcript names a connection: the first of a session has no digit.
fn digits(cid: Cid) -> String {
    if cid == Cid(1) { String::new() } else { cid.to_string() }
}

/// The byte of test data at `offset`.
pub fn pattern(offset: usize) -> u8 {
    (offset ^ offset >> 8).wrapping_mul(31) as u8
}

pub fn pattern_bytes(offset: usize, len: usize) -> Bytes {
    (offset..offset + len).map(pattern).collect::<Vec<_>>().into()
}

impl Peer {
    /// A connection on which nothing has been sent yet.
    pub fn new() -> Self {
        Self {
            policy: Policy::default(),
            config: SessionConfig { queue_depth: 8, ..SessionConfig::default() },
            session: None,
            lines: HashMap::from([(Cid(1), Line::new())]),
            at: Cid(1),
            now: Time::ZERO,
            cmd_sn: CmdSn(1),
            isid: Isid([0x80, 1, 2, 3, 4, 5]),
            tsih: Tsih(0),
            output: VecDeque::new(),
            itt_of_cdb: HashMap::new(),
            task_of: HashMap::new(),
            itt_of: HashMap::new(),
            managing: None,
            names: Names::default(),
            qualifier: 0,
            refusal: None,
            params: Params::default(),
        }
    }

    /// A session logged in to with `keys` in addition to the names.
    pub fn logged_in(keys: &str) -> Self {
        let mut peer = Self::new();
        peer.log_in(keys);
        peer
    }

    /// As [`Peer::logged_in`], with other settings at the target.
    pub fn logged_in_with(keys: &str, set: impl FnOnce(&mut Peer)) -> Self {
        let mut peer = Self::new();
        set(&mut peer);
        peer.log_in(keys);
        peer
    }

    fn log_in(&mut self, keys: &str) {
        self.play(&format!("I> LoginRequest T csg=1 nsg=3 | @names {keys}"));
        let output = self.output.pop_front().expect("an answer");
        assert!(output.line.contains("status=Success T csg=1 nsg=3"), "{}", output.line);
        self.check_nothing_left();
    }

    /// A session of `connections` connections in which everything that `keys` request may be negotiated.
    pub fn with_connections(connections: u16, keys: &str) -> Self {
        let mut peer = Self::logged_in_with(&format!("MaxConnections={connections} {keys}"), |peer| {
            let bounds = &mut peer.policy.bounds;
            (bounds.max_connections, bounds.error_recovery_level) = (8, 2);
            (bounds.task_reporting, bounds.protocol_level) = (TaskReporting::FastAbort, 2);
            bounds.asymmetric = Asymmetric::Pairs;
        });
        let of_each = ["HeaderDigest=", "DataDigest=", "MaxRecvDataSegmentLength="];
        let words = keys.split_whitespace().filter(|word| of_each.iter().any(|key| word.starts_with(key)));
        let of_each = words.collect::<Vec<_>>().join(" ");
        for cid in 2..=connections {
            peer.join(cid, &of_each);
        }
        peer
    }

    /// Logs in one more connection.
    pub fn join(&mut self, cid: u16, keys: &str) {
        self.join_open(cid, keys);
        self.check_nothing_left();
    }

    /// As [`Peer::join`], if it has further effects.
    pub fn join_open(&mut self, cid: u16, keys: &str) {
        self.lines.insert(Cid(cid), Line::new());
        self.at = Cid(cid);
        self.send_line(&format!("LoginRequest T csg=1 nsg=3 tsih=7 | @names {keys}"));
        let output = self.output.pop_front().expect("an answer");
        assert!(output.line.contains("LoginResponse"), "{}", output.line);
        assert!(output.line.contains("status=Success T csg=1 nsg=3"), "{}", output.line);
    }

    /// As [`Peer::join`], replacing a connection that may be up.
    pub fn replace(&mut self, cid: u16, keys: &str) {
        let was_up = self.lines.contains_key(&Cid(cid));
        self.lines.insert(Cid(cid), Line::new());
        self.at = Cid(cid);
        let mut fields = String::from("LoginRequest T csg=1 nsg=3 tsih=7 | @names ");
        fields.push_str(keys);
        self.send_line(&fields);
        if was_up {
            let output = self.output.pop_front().expect("the old one is closed");
            assert_eq!(output.line, format!("D< Close Replaced cid={cid}"));
        }
        let output = self.output.pop_front().expect("an answer");
        assert!(output.line.contains("LoginResponse") && output.line.contains("nsg=3"), "{}", output.line);
        self.check_nothing_left();
    }

    /// Plays a transcript.
    #[track_caller]
    pub fn play(&mut self, script: &str) {
        let pushes_only = script.lines().all(|line| line.trim().starts_with('I'));
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            self.play_line(line);
        }
        // The caller may check the effects of a single push.
        if !pushes_only {
            self.check_nothing_left();
        }
    }

    /// Plays one line, and returns all that follows from it.
    #[track_caller]
    pub fn outcome_of(&mut self, line: &str) -> Vec<String> {
        self.play_line(line);
        self.output.drain(..).map(|output| output.line).collect()
    }

    #[track_caller]
    fn play_line(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let digits: String = word.chars().filter(char::is_ascii_digit).collect();
        let kind = word.replace(&digits, "");
        self.at = Cid(digits.parse().unwrap_or(1));
        if matches!(kind.as_str(), "T<" | "D<") {
            return self.expect(line);
        }
        self.check_nothing_left();
        match kind.as_str() {
            "I>" => self.send_line(rest),
            "D>" => self.device(rest),
            "@" => {
                let seconds: u64 = rest.trim_end_matches('s').parse().expect("seconds");
                self.now += Duration::from_secs(seconds);
                let now = self.now;
                self.session().handle_timeout(now);
            }
            "X" => {
                let (now, at) = (self.now, self.at);
                self.lines.remove(&at);
                self.session().handle_connection_lost(now, at);
            }
            other => panic!("no such line: {other}"),
        }
        self.drain();
    }

    /// A response is sent on connection `cid` that nothing depends on: a fence waits until it is acknowledged.
    #[track_caller]
    pub fn respond_on(&mut self, cid: u16) {
        let on = digits(Cid(cid));
        self.play(&format!(
            "I{on}> ScsiCommand itt=20 F edtl=0 lun=3
             D< Start itt=20
             D> complete itt=20
             T{on}< ScsiResponse itt=20"
        ));
    }

    /// A fence is in effect: on the first of several connections ITT 9, the reset of a unit without tasks, is answered.
    #[track_caller]
    pub fn answer_with_fence(&mut self) {
        self.play(
            "I> TaskManagementRequest I itt=9 function=LogicalUnitReset lun=5
             D< Manage LogicalUnitReset
             D> managed FunctionComplete
             T< TaskManagementResponse itt=9 response=FunctionComplete
             T< NopIn",
        );
    }

    /// Connection `lost` breaks and is logged out on connection `via`: its tasks may be reassigned.
    #[track_caller]
    pub fn lose_for_recovery(&mut self, lost: u16, via: u16) {
        let via = digits(Cid(via));
        self.play(&format!(
            "X{lost}
             T< AsyncMessage event=ConnectionDrop
             I{via}> LogoutRequest I itt=7 reason=RemoveConnectionForRecovery cid={lost}
             T{via}< LogoutResponse itt=7 response=Success"
        ));
    }

    /// Plays one line of the device server; the caller checks its effects.
    pub fn play_open(&mut self, line: &str) {
        self.device(line.strip_prefix("D> ").expect("a line of the device server"));
    }

    #[track_caller]
    pub fn check_nothing_left(&self) {
        let left: Vec<&str> = self.output.iter().map(|o| o.line.as_str()).collect();
        assert!(left.is_empty(), "came out unasked: {left:#?}");
    }

    #[track_caller]
    fn expect(&mut self, expected: &str) {
        let Some(actual) = self.output.pop_front() else { panic!("nothing came, expected: {expected}") };
        let ((at, want, want_text), (came_at, have, have_text)) = (parts(expected), parts(&actual.line));
        assert_eq!(at, came_at, "\nexpected: {expected}\n     got: {}", actual.line);
        let want = parse(want);
        if expected.starts_with('T') {
            want.check().unwrap_or_else(|error| panic!("{error}: {expected}"));
        }
        if let Some(at) = want.differs(have, &mut self.names) {
            panic!("\nexpected: {expected}\n     got: {}\n  at `{at}`", actual.line);
        }
        if let Some(want_text) = want_text {
            assert_eq!(have_text.unwrap_or_default(), want_text, "text of {}", actual.line);
        }
    }

    /// The session; a login that is not complete has none.
    pub fn session(&mut self) -> &mut TargetSession {
        self.session.as_mut().expect("there is a session")
    }

    fn send_line(&mut self, line: &str) {
        let (head, text) = line.split_once('|').map_or((line, None), |(a, b)| (a, Some(b.trim())));
        let fields = parse(head);
        let (pdu, ahs) = made(&fields, self);
        let data: Bytes = match text {
            Some(text) => text_bytes(text),
            None => {
                let number = |field: &str| number(&fields, &self.names, field).unwrap_or(0) as usize;
                pattern_bytes(number("offset"), number("data"))
            }
        };
        self.remember(&pdu);
        let flip = fields.flag("bad_digest").then(|| data.len() / 2);
        self.feed(pdu.to_bhs(), ahs, data, flip);
    }

    /// Records the tag of a command, to name it when the device server receives it.
    pub fn remember(&mut self, pdu: &Pdu) {
        if let Pdu::ScsiCommand(command) = pdu {
            self.itt_of_cdb.insert(command.cdb, command.itt);
        }
    }

    /// Sends a PDU unchanged.
    pub fn feed(&mut self, bhs: Bhs, ahs: Bytes, data: Bytes, flip: Option<usize>) {
        let tx = TxPdu { bhs, ahs, data: data.into() };
        let (at, now) = (self.at, self.now);
        let line = self.lines.entry(at).or_insert_with(Line::new);
        let pdu = line.to_target.carry(tx, line.digests, flip);
        match &mut line.stage {
            Stage::Login(login) => {
                if let Some(session) = &self.session {
                    self.policy.joins = Some(session.params().clone());
                }
                let reply = login.handle_pdu(&pdu, &mut self.policy);
                self.login_reply(reply);
            }
            Stage::FullFeature => self.session().handle_pdu(now, at, &pdu),
            Stage::Closed => panic!("the connection is closed"),
        }
        self.drain();
    }

    fn login_reply(&mut self, reply: LoginReply) {
        let at = self.at;
        match reply {
            LoginReply::Send(pdu) => self.received(at, pdu),
            LoginReply::Refuse { response, refusal } => {
                if let Some(pdu) = response {
                    self.received(at, pdu);
                }
                self.lines.get_mut(&at).expect("there").stage = Stage::Closed;
                self.refusal = Some(refusal);
                self.push("D< Close Refused".to_owned(), Bytes::new());
            }
            LoginReply::Complete(established) => {
                let params = established.params.clone();
                let now = self.now;
                match &mut self.session {
                    Some(session) => session.join(*established, now),
                    None => {
                        self.params = params.clone();
                        let session = TargetSession::new(*established, Tsih(7), self.config.clone(), now);
                        self.session = Some(Box::new(session));
                    }
                }
                // The final response is still sent without digests; everything after it with them.
                self.drain();
                let line = self.lines.entry(at).or_insert_with(Line::new);
                line.stage = Stage::FullFeature;
                line.audit.error_recovery_level = params.error_recovery_level;
                line.audit.protocol_level = params.protocol_level;
                line.digests = params.digests;
                line.to_target.set_digests(params.digests);
                line.to_peer.set_digests(params.digests);
                line.to_target.reader.set_max_data_bytes(params.max_recv_data_segment_length as usize);
            }
        }
    }

    fn drain(&mut self) {
        while let Some(action) = self.session.as_mut().and_then(|session| session.poll_action()) {
            let line = match action {
                Action::Send { cid, pdu } => {
                    self.received(cid, pdu);
                    continue;
                }
                Action::Start(command) => {
                    let head: [u8; 16] = command.cdb[..16].try_into().expect("16 bytes at least");
                    let itt = self.itt_of_cdb[&head];
                    self.task_of.insert(itt, command.task);
                    self.itt_of.insert(command.task, itt);
                    format!(
                        "Start itt={itt} lun={} read={} write={} cdb_len={} attr={:?} priority={}",
                        command.lun,
                        command.read_length,
                        command.write_length,
                        command.cdb.len(),
                        command.attribute,
                        command.priority,
                    )
                }
                Action::DataOut { task, data } => {
                    let whole: Vec<u8> = data.iter().flatten().copied().collect();
                    assert!(whole.iter().enumerate().all(|(i, b)| *b == pattern(i)), "not what was sent");
                    format!("DataOut itt={} bytes={}", self.itt_of[&task], whole.len())
                }
                Action::Abandon { task } => format!("Abandon itt={}", self.itt_of[&task]),
                Action::Refused { lun, shortage } => format!("Refused {shortage:?} lun={lun}"),
                Action::Manage(request) => {
                    self.managing = Some(request.id);
                    format!("Manage {:?} lun={}", request.function, request.lun)
                }
                Action::TasksGone { token } => format!("TasksGone token={token}"),
                Action::SendTargets { selector, .. } => match selector {
                    Selector::Name(name) => format!("SendTargets name={name}"),
                    other => format!("SendTargets {other:?}"),
                },
                Action::Close { cid, reason } => {
                    // If a connection is replaced, the new one exists already.
                    if reason != CloseReason::Replaced {
                        self.closed(cid);
                    }
                    match reason {
                        CloseReason::Violation(_) => format!("Close Violation cid={cid}"),
                        other => format!("Close {other:?} cid={cid}"),
                    }
                }
                Action::Ended => "Ended".to_owned(),
            };
            self.push(format!("D< {line}"), Bytes::new());
        }
    }

    /// The target closes a connection of a session that continues: nothing may be sent on it any more.
    fn closed(&mut self, cid: Cid) {
        if self.lines.len() > 1 {
            self.lines.remove(&cid);
        }
    }

    /// How the initiator sees a PDU of the target.
    fn received(&mut self, cid: Cid, pdu: TxPdu) {
        assert!(pdu.ahs.is_empty(), "no PDU of a target has an AHS");
        let Some(line) = self.lines.get_mut(&cid) else {
            panic!("sent on connection {cid}, which is gone: {pdu:?}")
        };
        let rx = line.to_peer.carry(pdu, line.digests, None);
        assert!(rx.data_digest_ok);
        let parsed = line.audit.check(&rx);
        if let Pdu::ScsiResponse(_) = parsed {
            self.qualifier = ScsiResponse::status_qualifier(&rx.bhs);
        }
        let mut line = format!("T{}< {}", digits(cid), one_line(&rx.bhs, &rx.ahs));
        match parsed {
            Pdu::LoginResponse(_) | Pdu::TextResponse(_) => {
                let text = String::from_utf8(rx.data.to_vec()).expect("text");
                line.push_str(" | ");
                line.push_str(text.trim_end_matches('\0').replace('\0', " ").as_str());
            }
            Pdu::ScsiResponse(_) if !rx.data.is_empty() => {
                let len = usize::from(u16::from_be_bytes([rx.data[0], rx.data[1]]));
                assert_eq!(rx.data.len(), 2 + len, "SenseLength counts the sense data");
                let sense = &rx.data[2..];
                line.push_str(&format!(" sense={:x}/{:02x}/{:02x}", sense[2] & 0xf, sense[12], sense[13]));
            }
            Pdu::Reject(_) => {
                let header: &[u8; 48] = rx.data.as_ref().try_into().expect("the header that was refused");
                line.push_str(&format!(
                    " of_opcode={:#04x} of_itt={}",
                    header[0] & 0x3f,
                    Bhs::from_bytes(*header).itt()
                ));
            }
            Pdu::DataIn(p) => {
                let at = p.buffer_offset as usize;
                assert_eq!(rx.data, pattern_bytes(at, rx.data.len()), "not what was read");
            }
            _ => {}
        }
        self.push(line, rx.data);
    }

    fn push(&mut self, line: String, data: Bytes) {
        self.output.push_back(Output { line, data });
    }

    fn device(&mut self, line: &str) {
        match line.strip_prefix("targets") {
            Some(targets) => self.answer_send_targets(targets),
            None => self.device_server(line),
        }
        self.drain();
    }

    /// `NAME=ADDRESS;ADDRESS NAME=ADDRESS`
    fn answer_send_targets(&mut self, targets: &str) {
        let record = |(name, list): (&str, &str)| TargetRecord {
            name: name.to_owned(),
            addresses: list.split(';').map(str::to_owned).collect(),
        };
        let records: Vec<TargetRecord> =
            targets.split_whitespace().filter_map(|word| word.split_once('=')).map(record).collect();
        self.session().answer_send_targets(Cid(1), &records);
    }

    fn device_server(&mut self, line: &str) {
        let fields = parse(line);
        let names = self.names.clone();
        let number = |field: &str| number(&fields, &names, field);
        let now = self.now;
        let task = number("itt").map(|itt| self.task_of[&Itt(itt)]);
        let lun = number("lun").map(|lun| Lun::from_index(lun as u16));
        let managing = self.managing;
        let session = self.session();
        match fields.name() {
            "need" => session.need_data_out(task.unwrap(), number("bytes").unwrap().into()),
            "complete" => {
                let data = number("data").unwrap_or(0) as usize;
                let sense = fields.text("sense").map_or(Bytes::new(), sense_bytes);
                let completion = Completion {
                    status: number("status").unwrap_or(0) as u8,
                    sense,
                    data_in: Payload { bytes: pattern_bytes(0, data), ..Payload::default() },
                    transfer_bytes: number("transfer").map_or(data as u64, u64::from),
                    status_qualifier: number("qualifier").unwrap_or(0) as u16,
                    fenced: fields.flag("fenced"),
                };
                session.complete(task.unwrap(), completion);
            }
            "gone" => session.task_gone(task.unwrap()),
            "abort" => {
                let scope = AbortScope {
                    lun,
                    request: if fields.flag("own") { managing } else { None },
                    task_aborted_status: fields.flag("tas"),
                };
                session.abort_tasks(scope, number("token").unwrap().into());
            }
            "managed" => {
                let response = TmfResponse::ALL.iter().find(|r| fields.flag(&format!("{r:?}"))).unwrap();
                match number("additional") {
                    None => session.management_done(managing.unwrap(), *response),
                    Some(bytes) => {
                        let [_, a, b, c] = bytes.to_be_bytes();
                        session.management_done_with(managing.unwrap(), *response, [a, b, c]);
                    }
                }
            }
            "event" => {
                session.report_scsi_event(now, lun.unwrap(), &sense_bytes(fields.text("sense").unwrap()))
            }
            "request_logout" => {
                let grace = Duration::from_secs(number("seconds").unwrap().into());
                session.request_logout(now, grace);
            }
            "terminate" => session.terminate(now, CloseReason::Ended),
            other => panic!("the device server does not know {other}"),
        }
    }

    /// StatSN that the initiator expects next.
    pub fn exp_stat_sn(&self) -> StatSn {
        self.lines.get(&self.at).and_then(|line| line.audit.stat_sn).unwrap_or_default()
    }
}

/// Where a line was seen, what it says of the PDU, and its text.
fn parts(line: &str) -> (&str, &str, Option<&str>) {
    let (line, text) = line.split_once(" |").map_or((line, None), |(line, text)| (line, Some(text.trim())));
    let (at, pdu) = line.split_once(' ').unwrap_or((line, ""));
    (at, pdu, text)
}

/// Text of `key=value` words; `@names` stands for the names of both ends, `\` at the end for no final NUL.
pub fn text_bytes(text: &str) -> Bytes {
    let (text, open) = text.strip_suffix('\\').map_or((text, false), |text| (text, true));
    let text = text.replace("@names", &format!("InitiatorName={INITIATOR} TargetName={TARGET}"));
    let text = text.replace("@initiator", &format!("InitiatorName={INITIATOR}"));
    let mut bytes = text.split_whitespace().collect::<Vec<_>>().join("\0").into_bytes();
    if !open && !bytes.is_empty() {
        bytes.push(0);
    }
    bytes.into()
}

/// Fixed format sense from `key/asc/ascq`.
pub fn sense_bytes(text: &str) -> Bytes {
    let parts: Vec<u8> = text.split('/').map(|part| u8::from_str_radix(part, 16).expect("hex")).collect();
    let mut sense = vec![0u8; 18];
    (sense[0], sense[2], sense[7], sense[12], sense[13]) = (0x70, parts[0], 10, parts[1], parts[2]);
    sense.into()
}
