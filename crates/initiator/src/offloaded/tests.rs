//! A session, the agent and the software engine in memory, and a target whose PDUs are written by hand.

use bytes::{Bytes, BytesMut};
use iscsi_core::digest::DigestScope;
use iscsi_core::initiator::command::{Command, Ending, WriteData};
use iscsi_core::initiator::login::FirstNumbers;
use iscsi_core::initiator::session::{Action, CloseReason};
use iscsi_core::params::{Bursts, Params};
use iscsi_core::pdu_reader::PduReader;
use iscsi_core::pdu_writer::{PduWriter, TxPdu};
use iscsi_core::wire::{
    Cid, DataIn, DataSn, Isid, Itt, Lun, NopIn, R2t, R2tSn, Reject, RejectReason, ResidualCount,
    ResponseNumbers, ScsiResponse, TaskManagementResponse, TextResponse, TmfResponse, Tsih, Ttt, one_line,
};
use offload::{Caps, SoftwareEngine};

use super::*;

const CID: Cid = Cid(0);
/// First CmdSN and StatSN of both sides: they wrap soon.
const FIRST: u32 = 0xffff_fffe;
const WINDOW: u32 = 300;
const SECOND: Duration = Duration::from_secs(1);
const BOTH: DigestScope = DigestScope { header: true, data: true };

/// A PDU of the initiator.
#[derive(Debug)]
struct Sent {
    itt: Itt,
    line: String,
    data: Bytes,
}

/// See the module.
struct Play {
    session: InitiatorSession,
    agent: Agent,
    now: Time,
    reader: PduReader,
    /// Bytes of the initiator that are no whole PDU yet.
    sent: BytesMut,
    stat_sn: StatSn,
    exp_cmd_sn: CmdSn,
    /// What the session wants, other than to send.
    actions: Vec<Action>,
    lost: Option<String>,
    /// Flips this byte of the next PDU of the target.
    flip: Option<usize>,
}

impl Play {
    fn at_level(error_recovery_level: u8) -> Self {
        let params = Params {
            digests: BOTH,
            error_recovery_level,
            max_send_data_segment_length: 4096,
            bursts: Bursts { initial_r2t: false, first_burst_length: 8192, ..Params::default().bursts },
            ..Params::default()
        };
        let login = LoggedIn {
            discovery: false,
            params,
            tsih: Tsih(1),
            isid: Isid::random([1, 2, 3], 4),
            cid: CID,
            numbers: FirstNumbers {
                cmd_sn: CmdSn(FIRST),
                exp_stat_sn: StatSn(FIRST),
                exp_cmd_sn: CmdSn(FIRST),
                max_cmd_sn: CmdSn(FIRST).add(WINDOW),
            },
            portal_group_tag: None,
            target_alias: None,
            chap: None,
            keys: Vec::new(),
        };
        let (config, now) = (SessionConfig::default(), 1000 * SECOND);
        let mut reader = PduReader::new(65536);
        reader.set_digests(BOTH);
        Self {
            session: InitiatorSession::new(
                &Agent::session_login(&login, &Caps::SOFTWARE),
                config.clone(),
                now,
            ),
            agent: Agent::open(Box::new(SoftwareEngine::new()), &login, &config, now).unwrap(),
            now,
            reader,
            sent: BytesMut::new(),
            stat_sn: StatSn(FIRST),
            exp_cmd_sn: CmdSn(FIRST),
            actions: Vec::new(),
            lost: None,
            flip: None,
        }
    }

    /// Carries out what the session and the agent want, until there is nothing more.
    fn settle(&mut self) {
        loop {
            while let Some(action) = self.session.poll_action() {
                match action {
                    Action::Send { pdu, .. } => self.agent.send(pdu, &self.session),
                    other => self.actions.push(other),
                }
            }
            self.agent.forget_ended(&self.session);
            match self.agent.poll() {
                Some(Event::Pdu(pdu)) => self.session.handle_pdu(self.now, CID, pdu),
                Some(Event::Executed { response, sense, data }) => {
                    self.session.executed(self.now, CID, &response, &sense, data);
                }
                Some(Event::Lost(why)) => return self.lost = Some(why),
                Some(Event::DigestError | Event::Snack) => {}
                None => return,
            }
        }
    }

    fn submit(&mut self, user: u64, read_length: u32, write: usize) {
        let mut command = Command::new(Lun(0), &[0x28; 10]);
        (command.user, command.read_length, command.timeout) = (user, read_length, 10 * SECOND);
        command.write = WriteData::from(Bytes::from(pattern(write)));
        self.session.submit(self.now, command).unwrap();
        self.settle();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.session.handle_timeout(self.now);
        self.agent.advance(self.now);
        self.settle();
    }

    /// What has been sent.
    fn sent(&mut self) -> Vec<Sent> {
        let mut chunk = [0; 1000];
        loop {
            let made = self.agent.tx(&mut chunk);
            self.sent.extend_from_slice(&chunk[..made]);
            if made == 0 {
                break;
            }
        }
        self.settle();
        let mut all = Vec::new();
        while let Some(pdu) = self.reader.next(&mut self.sent).unwrap() {
            assert!(pdu.data_digest_ok);
            if pdu.bhs.opcode() == 1 && !pdu.bhs.immediate() {
                self.exp_cmd_sn = self.exp_cmd_sn.next();
            }
            all.push(Sent { itt: pdu.bhs.itt(), line: one_line(&pdu.bhs, &pdu.ahs), data: pdu.data });
        }
        all
    }

    /// The tag of the one command that was sent.
    fn command(&mut self) -> Itt {
        self.sent()[0].itt
    }

    fn bytes(&mut self, bhs: Bhs, data: &[u8]) -> Vec<u8> {
        let mut writer = PduWriter::new();
        writer.set_digests(BOTH);
        writer.push(TxPdu::with_data(bhs, Bytes::copy_from_slice(data)));
        let mut segments = Vec::new();
        writer.take(usize::MAX, &mut segments);
        let mut bytes = segments.concat();
        if let Some(at) = self.flip.take() {
            bytes[at] ^= 1;
        }
        bytes
    }

    /// The target sends a PDU.
    fn receive(&mut self, bhs: Bhs, data: &[u8]) {
        let bytes = self.bytes(bhs, data);
        self.agent.rx(&bytes);
        self.settle();
    }

    fn status(&mut self) -> StatSn {
        let taken = self.stat_sn;
        self.stat_sn = taken.next();
        taken
    }

    fn window(&self) -> (CmdSn, CmdSn) {
        (self.exp_cmd_sn, self.exp_cmd_sn.add(WINDOW))
    }

    fn data_in(&mut self, itt: Itt, data_sn: u32, offset: u32, data: &[u8], last: bool) {
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let data_in = DataIn {
            final_bit: last,
            acknowledge: false,
            status_bit: last,
            status: 0,
            lun: Lun(0),
            itt,
            ttt: Ttt::RESERVED,
            numbers: ResponseNumbers {
                stat_sn: if last { self.status() } else { StatSn(0) },
                exp_cmd_sn,
                max_cmd_sn,
            },
            data_sn: DataSn(data_sn),
            buffer_offset: offset,
            residual_count: ResidualCount::default(),
        };
        self.receive(data_in.to_bhs(), data);
    }

    fn response(&mut self, itt: Itt, status: u8, data: &[u8]) {
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let response = ScsiResponse {
            response: 0,
            status,
            itt,
            snack_tag: 0,
            numbers: ResponseNumbers { stat_sn: self.status(), exp_cmd_sn, max_cmd_sn },
            exp_data_sn: DataSn(0),
            bidi_residual_count: ResidualCount::default(),
            residual_count: ResidualCount::default(),
        };
        self.receive(response.to_bhs(), data);
    }

    fn nop_in(&mut self, ttt: u32) -> Bhs {
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let (itt, ttt, stat_sn) = (Itt::RESERVED, Ttt(ttt), self.stat_sn);
        NopIn { lun: Lun(0), itt, ttt, numbers: ResponseNumbers { stat_sn, exp_cmd_sn, max_cmd_sn } }.to_bhs()
    }

    /// Status and number of bytes of the commands that have ended, by their names.
    fn ended(&mut self) -> Vec<(u64, Ending)> {
        let ended = self.actions.iter().filter_map(|action| match action {
            Action::Completed(completion) => Some((completion.command.user, completion.ending.clone())),
            _ => None,
        });
        ended.collect()
    }

    fn data(&self) -> Vec<u8> {
        let pieces = self.actions.iter().filter_map(|action| match action {
            Action::DataIn { data, .. } => Some(&data[..]),
            _ => None,
        });
        pieces.collect::<Vec<_>>().concat()
    }

    fn commands_of_engine(&self) -> usize {
        self.agent.engine.tables().commands.len()
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| ((n * 7) >> 3) as u8).collect()
}

fn good(bytes: u32) -> Ending {
    let (sense, residual) = (Bytes::new(), iscsi_core::initiator::command::Residual::None);
    Ending::Status { status: 0, sense, data_in_bytes: bytes, residual }
}

#[test]
fn session_and_engine_count_the_same_numbers() {
    let mut play = Play::at_level(0);
    play.submit(1, 512, 0);
    play.submit(2, 0, 0);
    assert!(play.session.ping(play.now, 9, Bytes::from_static(b"ping")));
    play.settle();
    play.submit(3, 512, 0);
    play.session.manage_task(play.now, iscsi_core::wire::TmfFunction::AbortTask, 3, 7);
    play.settle();
    let numbers: Vec<String> = play.sent().into_iter().map(|sent| sent.line).collect();
    let expected = [(FIRST, "ScsiCommand"), (FIRST + 1, "ScsiCommand"), (0, "NopOut I"), (0, "ScsiCommand")];
    for (line, (cmd_sn, name)) in numbers.iter().zip(expected) {
        let has = line.starts_with(name) && line.contains(&format!("cmd_sn={cmd_sn}"));
        assert!(has, "{line}: {name} {cmd_sn}");
    }
    assert!(numbers[4].contains("cmd_sn=1 ") && numbers[4].contains("ref_cmd_sn=0"), "{}", numbers[4]);
}

#[test]
fn a_read_in_pieces_is_one_piece_for_the_session_and_a_status_between_counts() {
    let mut play = Play::at_level(0);
    play.submit(1, 8192, 0);
    let itt = play.command();
    let data = pattern(8192);
    play.data_in(itt, 0, 0, &data[..4096], false);
    assert!(play.actions.is_empty());
    let nop = play.nop_in(5);
    play.receive(nop, b"");
    assert!(play.sent()[0].line.starts_with("NopOut"), "the session answers while the engine reads");
    play.data_in(itt, 1, 4096, &data[4096..], true);
    assert_eq!((play.ended(), play.data()), (vec![(1, good(8192))], data));
    play.submit(2, 0, 0);
    let Sent { line, .. } = play.sent().remove(0);
    assert!(line.contains(&format!("exp_stat_sn={}", play.stat_sn.0)), "{line}");
}

#[test]
fn a_write_sends_the_bytes_of_the_command() {
    let mut play = Play::at_level(0);
    let data = pattern(20_000);
    play.submit(1, 0, data.len());
    let sent = play.sent();
    let (itt, unsolicited) = (sent[0].itt, sent.iter().map(|sent| sent.data.len()).sum::<usize>());
    assert_eq!(unsolicited, 8192);
    let (exp_cmd_sn, max_cmd_sn) = play.window();
    let r2t = R2t {
        lun: Lun(0),
        itt,
        ttt: Ttt(3),
        numbers: ResponseNumbers { stat_sn: play.stat_sn, exp_cmd_sn, max_cmd_sn },
        r2t_sn: R2tSn(0),
        buffer_offset: 8192,
        desired_data_transfer_length: 20_000 - 8192,
    };
    play.receive(r2t.to_bhs(), b"");
    let pieces: Vec<Bytes> = sent.into_iter().chain(play.sent()).map(|sent| sent.data).collect();
    assert_eq!(pieces.concat(), data);
    play.response(itt, 0, b"");
    assert_eq!(play.ended(), [(1, good(0))]);
}

/// The area for sense data cuts off what is longer.
#[test]
fn sense_data_of_any_length_reaches_the_session() {
    for length in [18, 254, 300] {
        let mut play = Play::at_level(0);
        play.submit(1, 0, 0);
        let itt = play.command();
        let sense = [&(length as u16).to_be_bytes()[..], &pattern(length)].concat();
        play.response(itt, 2, &sense);
        let Ending::Status { status: 2, sense, .. } = &play.ended()[0].1 else { panic!() };
        assert!(sense[..] == pattern(length)[..sense.len()] && sense.len() >= length.min(252));
    }
}

// covers: SNK-03 ERL-03
#[test]
fn what_is_lost_is_requested_once_and_then_the_connection_given_up() {
    for arrives in [true, false] {
        let mut play = Play::at_level(1);
        play.submit(1, 8192, 0);
        let itt = play.command();
        let data = pattern(8192);
        play.flip = Some(100);
        play.data_in(itt, 0, 0, &data[..4096], false);
        play.data_in(itt, 1, 4096, &data[4096..], true);
        assert!(play.ended().is_empty() && play.sent().is_empty());
        play.pass(Duration::from_millis(2));
        let snack = play.sent();
        assert!(snack[0].line.starts_with("SnackRequest"), "{snack:?}");
        assert_eq!(play.agent.deadline(), Some(play.now + SECOND));
        if arrives {
            play.data_in(itt, 0, 0, &data[..4096], false);
            assert_eq!((play.ended(), play.data()), (vec![(1, good(8192))], data));
        }
        play.pass(SECOND);
        assert_eq!(play.lost.is_some(), !arrives, "{:?}", play.lost);
    }
}

/// The engine reports statuses as their tasks end, and a task whose data is missing ends later than others.
#[test]
fn statuses_that_wait_for_data_leave_no_gap_for_the_session() {
    let mut play = Play::at_level(1);
    play.submit(1, 1024, 0);
    let itt = play.command();
    let data = pattern(1024);
    play.flip = Some(100);
    play.data_in(itt, 0, 0, &data[..512], false);
    play.data_in(itt, 1, 512, &data[512..], true);
    assert!(play.session.ping(play.now, 9, Bytes::new()));
    play.settle();
    let ping = play.command();
    let (exp_cmd_sn, max_cmd_sn) = play.window();
    let (lun, ttt, stat_sn) = (Lun(0), Ttt::RESERVED, play.status());
    let pong = NopIn { lun, itt: ping, ttt, numbers: ResponseNumbers { stat_sn, exp_cmd_sn, max_cmd_sn } };
    play.receive(pong.to_bhs(), b"");
    assert!(matches!(play.actions[..], [Action::Pong { user: 9, intact: true, .. }]), "{:?}", play.actions);
    play.data_in(itt, 0, 0, &data[..512], false);
    assert_eq!((play.ended(), play.data()), (vec![(1, good(1024))], data));
}

// covers: DIG-07 DIG-11
#[test]
fn what_the_engine_gives_back_ends_the_connection() {
    type Fault = (&'static str, fn(&mut Play, Itt));
    let faults: [Fault; 4] = [
        ("RFC 7143 7.8", |play, itt| {
            play.flip = Some(9);
            play.data_in(itt, 0, 0, &[1; 512], false);
        }),
        ("a data digest", |play, itt| {
            play.flip = Some(60);
            play.data_in(itt, 0, 0, &[1; 512], false);
        }),
        ("missing", |play, itt| play.data_in(itt, 1, 512, &[1; 512], false)),
        ("breaks a rule", |play, itt| play.data_in(itt, 0, 8000, &[1; 512], false)),
    ];
    for (why, fault) in faults {
        let mut play = Play::at_level(0);
        play.submit(1, 8192, 0);
        let itt = play.command();
        fault(&mut play, itt);
        assert!(play.lost.as_ref().is_some_and(|lost| lost.contains(why)), "{why}: {:?}", play.lost);
        assert!(play.data().is_empty() && play.ended().is_empty());
        assert_eq!(play.agent.rx(&[0; 48]), 0, "nothing more is taken");
    }
}

/// A rejected command keeps its CmdSN, and an engine has given it to no other.
#[test]
fn a_command_that_would_be_sent_again_costs_the_connection() {
    let mut play = Play::at_level(0);
    play.submit(1, 512, 0);
    let itt = play.command();
    let mut command = [0; 48];
    command[0] = 1;
    command[16..20].copy_from_slice(&itt.0.to_be_bytes());
    let (exp_cmd_sn, max_cmd_sn) = play.window();
    let (reason, stat_sn) = (RejectReason::DataDigestError, play.status());
    let reject =
        Reject { reason, numbers: ResponseNumbers { stat_sn, exp_cmd_sn, max_cmd_sn }, data_sn: DataSn(0) };
    play.receive(reject.to_bhs(), &command);
    assert!(play.lost.as_ref().is_some_and(|lost| lost.contains("RFC 7143 4.2.2.1")), "{:?}", play.lost);
}

// covers: TMF-01
#[test]
fn an_aborted_command_leaves_the_engine() {
    let mut play = Play::at_level(0);
    play.submit(1, 512, 0);
    let itt = play.command();
    play.submit(2, 512, 0);
    let other = play.command();
    play.pass(10 * SECOND);
    let abort = play.sent().into_iter().find(|sent| sent.line.starts_with("TaskManagementRequest"));
    let (exp_cmd_sn, max_cmd_sn) = play.window();
    assert_eq!(play.commands_of_engine(), 2);
    let (response, stat_sn) = (TmfResponse::FunctionComplete, play.status());
    let complete = TaskManagementResponse {
        response,
        itt: abort.unwrap().itt,
        numbers: ResponseNumbers { stat_sn, exp_cmd_sn, max_cmd_sn },
        additional: [0; 3],
    };
    play.receive(complete.to_bhs(), b"");
    assert_eq!((play.ended(), play.commands_of_engine()), (vec![(1, Ending::TimedOut)], 1));
    play.data_in(other, 0, 0, &pattern(512), true);
    assert_eq!(play.ended()[1], (2, good(512)));
    // What comes for it now breaks a rule for the session, as it would without an engine.
    play.data_in(itt, 0, 0, &pattern(512), false);
    let last = play.actions.last();
    assert!(matches!(last, Some(Action::Close { reason: CloseReason::Violation(_), .. })), "{last:?}");
}

/// A target that asks and does not listen.
#[test]
fn pings_of_the_target_are_not_taken_while_answers_wait() {
    let mut play = Play::at_level(0);
    let ping = play.nop_in(5);
    let ping = play.bytes(ping, b"are you there?");
    let (many, mut at) = (ping.repeat(1000), 0);
    loop {
        let taken = play.agent.rx(&many[at..]);
        at += taken;
        play.settle();
        if taken == 0 {
            break;
        }
    }
    assert!(play.agent.is_full() && at < 100 * ping.len(), "{at} bytes");
    let mut answers = play.sent().len();
    while at < many.len() {
        at += play.agent.rx(&many[at..]);
        play.settle();
        answers += play.sent().len();
    }
    assert_eq!((answers, play.lost), (1000, None));
}

#[test]
fn a_shorter_data_segment_of_the_target_is_kept() {
    let mut play = Play::at_level(0);
    assert!(play.session.declare_max_recv(play.now, CID, 2048));
    play.settle();
    let Sent { itt, line, .. } = play.sent().remove(0);
    assert!(line.starts_with("TextRequest"), "{line}");
    let (exp_cmd_sn, max_cmd_sn) = play.window();
    let response = TextResponse {
        final_bit: true,
        continue_bit: false,
        lun: Lun(0),
        itt,
        ttt: Ttt::RESERVED,
        numbers: ResponseNumbers { stat_sn: play.status(), exp_cmd_sn, max_cmd_sn },
    };
    play.receive(response.to_bhs(), b"MaxRecvDataSegmentLength=1024\0");
    let declared = play.actions.iter().find_map(|action| match action {
        Action::Declared { max_recv_data_segment_length, .. } => Some(*max_recv_data_segment_length),
        _ => None,
    });
    play.agent.declared(declared.unwrap());
    let entry = play.agent.engine.session(CONN).unwrap();
    assert_eq!((entry.max_recv_data_segment_length, entry.max_send_data_segment_length), (2048, 1024));
    play.submit(1, 0, 4000);
    assert!(play.sent().iter().all(|sent| sent.data.len() <= 1024));
}

/// An engine that is wrong, or whose parameters are.
#[test]
fn parameters_that_an_engine_does_not_take_are_refused() {
    let play = Play::at_level(0);
    let params = Params { max_recv_data_segment_length: 1 << 20, ..play.session.params().clone() };
    let login = LoggedIn {
        discovery: false,
        params,
        tsih: Tsih(1),
        isid: Isid::random([1, 2, 3], 4),
        cid: CID,
        numbers: FirstNumbers {
            cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(1),
            exp_cmd_sn: CmdSn(1),
            max_cmd_sn: CmdSn(1),
        },
        portal_group_tag: None,
        target_alias: None,
        chap: None,
        keys: Vec::new(),
    };
    let config = SessionConfig::default();
    let open = |login: &LoggedIn| Agent::open(Box::new(SoftwareEngine::new()), login, &config, SECOND);
    assert_eq!(open(&login).unwrap_err(), TaskResult::INVALID);
    let large = Bounds { max_recv_data_segment_length: 1 << 20, ..Bounds::default() };
    let bounds = Agent::bounds(large, &Caps::SOFTWARE);
    let most = bounds.max_recv_data_segment_length;
    let params = Params { max_recv_data_segment_length: most, ..login.params.clone() };
    assert!(open(&LoggedIn { params, ..login }).is_ok());
}
