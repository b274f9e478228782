//! The rows for targets, tried on the good target of this crate and on its evil variants: rules that are kept pass,
//! rules broken on purpose fail.

use std::time::Duration;

use conform::evil::{Act, Behaviour, EvilConfig, EvilTarget, Incoming, Scene};
use conform::target::{Credentials, Options, rows, run};
use conform::{
    Command, DigestWish, Frame, LoginScript, RawPeer, Received, Report, RowReport, Session, Transcript,
    Verdict, text_of,
};
use iscsi_wire::{
    DataIn, DataOut, DataSn, Itt, Lun, Opcode, Pdu, R2t, R2tSn, Reject, RejectReason, ResidualCount,
    ResponseNumbers, ScsiResponse, StatSn, TextPairs, Ttt, keys,
};

/// Rows that the little target keeps.
const KEPT: &[&str] = &[
    "PDU-01", "PDU-02", "PDU-03", "PDU-04", "PDU-05", "PDU-09", "PDU-10", "AHS-01", "DIG-01", "DIG-02",
    "DIG-03", "DIG-04", "DIG-05", "DIG-07", "DIG-11", "DIG-13", "TXT-01", "TXT-02", "TXT-03", "TXT-04",
    "TXT-08", "TXT-11", "TXT-13", "TXT-16", "TXT-18", "KEY-01", "KEY-02", "KEY-08", "KEY-09", "KEY-10",
    "KEY-12", "KEY-14", "KEY-16", "LGN-02", "LGN-05", "LGN-06", "LGN-10", "LGN-12", "LGN-13", "LGN-14",
    "NUM-02", "NUM-04", "NUM-05", "NUM-08", "NUM-09", "NUM-11", "DAT-01", "DAT-02", "DAT-06", "DAT-07",
    "DAT-08", "R2T-01", "R2T-02", "R2T-05", "RES-01", "RES-02", "RSP-01", "RSP-02", "TMF-01", "LGO-01",
    "LGO-02", "NOP-01", "NOP-02", "NOP-04", "REJ-01", "REJ-03", "DSC-02", "DSC-03",
];

/// Rows about several connections and recovery that it keeps.
const KEPT_OF_RECOVERY: &[&str] = &[
    "MCS-01", "MCS-02", "MCS-03", "MCS-04", "MCS-05", "MCS-07", "MCS-08", "ERL-01", "ERL-02", "ERL-03",
    "ERL-04", "ERL-05", "ERL-06", "ERL-07", "ERL-10", "SNK-01", "SNK-02", "SNK-03", "SNK-04", "SNK-05",
    "SNK-07", "SNK-08", "NUM-02", "NUM-05", "NUM-09", "LGN-03", "LGN-20", "LGO-01", "SES-03", "R2T-05",
    "P2-01",
];

fn options(target: &EvilTarget, rows: &[&str]) -> Options {
    let mut options = Options::from_url(&target.url()).unwrap();
    options.filter = rows.iter().map(|row| (*row).to_owned()).collect();
    options
}

fn run_on(config: EvilConfig, behaviour: Behaviour, rows: &[&str]) -> Report {
    let target = EvilTarget::start(config, behaviour).unwrap();
    run(&options(&target, rows)).unwrap()
}

fn failures(report: &Report) -> Vec<&RowReport> {
    report.rows.iter().filter(|row| row.verdict.is_fail()).collect()
}

#[test]
fn a_good_target_passes() {
    let report = run_on(EvilConfig::default(), Behaviour::good(), KEPT);
    assert!(failures(&report).is_empty(), "{:#?}", failures(&report));
    assert!(report.passed() >= KEPT.len() - 2, "{report}");
}

/// A target that agrees to any order, at both or one of the keys, and one that agrees and then refuses it.
#[test]
fn the_order_of_data_is_judged_by_what_was_agreed_on() {
    let rows = ["KEY-17", "KEY-18", "DAT-05"];
    for (pdus, sequences) in [("Yes", "Yes"), ("Yes", "No"), ("No", "Yes"), ("No", "No")] {
        let config = EvilConfig::default()
            .key(keys::DATA_PDU_IN_ORDER, pdus)
            .key(keys::DATA_SEQUENCE_IN_ORDER, sequences);
        let report = run_on(config, Behaviour::good(), &rows);
        assert!(failures(&report).is_empty(), "{pdus} {sequences}: {report}");
        assert_eq!(report.not_applicable(), usize::from(pdus == "Yes"), "{report}");
    }
    let agrees = answering(|pairs| {
        for (key, value) in pairs {
            if key == keys::DATA_PDU_IN_ORDER && value == "Yes" {
                *value = "No".to_owned();
            }
        }
    });
    let report = run_on(EvilConfig::default(), agrees, &rows);
    assert_eq!(
        failures(&report).iter().map(|row| row.id.as_str()).collect::<Vec<_>>(),
        ["KEY-17", "KEY-18"],
        "{report}"
    );
}

/// The keys of every answer to a login are changed.
fn answering(change: impl Fn(&mut Vec<(String, String)>) + Send + 'static) -> Behaviour {
    Behaviour::good().every(Opcode::LoginResponse, move |_: &_, frame: Frame| {
        let given = TextPairs::parse(frame.data_bytes()).expect("the text of a good target");
        let mut pairs = given.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        change(&mut pairs);
        let text = text_of(&pairs);
        vec![Act::Send(frame.data(text))]
    })
}

/// Every answer to a login has this value of the key, or this key too.
fn answers(key: &'static str, value: &'static str) -> Behaviour {
    answering(move |pairs| {
        pairs.retain(|(name, _)| name != key);
        pairs.push((key.to_owned(), value.to_owned()));
    })
}

/// What is negotiated is rejected, but one key has this value.
fn rejects_but(key: &'static str, value: &'static str) -> Behaviour {
    let declared = [keys::TARGET_PORTAL_GROUP_TAG, keys::MAX_RECV_DATA_SEGMENT_LENGTH];
    answering(move |pairs| {
        for (name, given) in pairs {
            if !declared.contains(&name.as_str()) {
                *given = if name == key { value.to_owned() } else { keys::REJECT.to_owned() };
            }
        }
    })
}

/// No login is refused.
fn accepts_everything() -> Behaviour {
    Behaviour::good()
        .every(Opcode::LoginResponse, |_: &_, frame: Frame| vec![Act::Send(frame.patch(36, &[0, 0]))])
}

#[test]
fn a_wrong_answer_to_a_key_fails_its_row() {
    let answered = [
        ("KEY-01", keys::HEADER_DIGEST, "MD5"),
        ("KEY-02", keys::MAX_CONNECTIONS, "65536"),
        ("KEY-02", keys::MAX_CONNECTIONS, "NotUnderstood"),
        ("KEY-03", keys::TARGET_NAME, "iqn.2025-01.org.example:disk"),
        ("KEY-05", keys::INITIATOR_NAME, "iqn.2026-01.org.example:conform"),
        ("KEY-06", keys::INITIATOR_ALIAS, "plain"),
        ("KEY-09", keys::INITIAL_R2T, "No"),
        ("KEY-10", keys::IMMEDIATE_DATA, "Yes"),
        ("KEY-12", keys::MAX_BURST_LENGTH, "1024"),
        ("KEY-13", keys::FIRST_BURST_LENGTH, "1024"),
        ("KEY-14", keys::DEFAULT_TIME2WAIT, "99"),
        ("KEY-15", keys::DEFAULT_TIME2RETAIN, "21"),
        ("KEY-16", keys::MAX_OUTSTANDING_R2T, "9"),
        ("KEY-19", keys::ERROR_RECOVERY_LEVEL, "1"),
        ("KEY-21", keys::TASK_REPORTING, "FastAbort"),
        ("KEY-22", keys::ISCSI_PROTOCOL_LEVEL, "2"),
        ("KEY-24", keys::IF_MARKER, "NotUnderstood"),
        ("KEY-25", keys::OF_MARK_INT, "2048~8192"),
        ("KEY-26", "Y-org.example.two", "Reject"),
        ("KEY-28", "iSERHelloRequired", "No"),
        ("KEY-30", keys::ERROR_RECOVERY_LEVEL, "0"),
        ("TXT-08", keys::DEFAULT_TIME2WAIT, "NotUnderstood"),
        ("TXT-08", "Unheard", "1"),
        ("TXT-13", keys::IMMEDIATE_DATA, "Yes"),
        ("TXT-13", keys::DATA_PDU_IN_ORDER, "Reject"),
    ];
    // The answer is all that is wrong.
    let rows: Vec<&str> = answered.iter().map(|(row, ..)| *row).chain(["TXT-11", "TXT-16"]).collect();
    let report = run_on(EvilConfig::default(), Behaviour::good(), &rows);
    assert_eq!((report.failed(), report.not_applicable()), (0, 0), "{report}");
    for (row, key, value) in answered {
        let report = run_on(EvilConfig::default(), answers(key, value), &[row]);
        assert_eq!(report.failed(), 1, "{row} {key}={value}: {report}");
    }
    let goes_on = |_: &_, frame: Frame| vec![Act::Send(frame.set_bits(1, 0x83))];
    let goes_on = Behaviour::good().every(Opcode::LoginResponse, goes_on);
    for (row, behaviour) in [("TXT-11", accepts_everything()), ("TXT-16", goes_on)] {
        let report = run_on(EvilConfig::default(), behaviour, &[row]);
        assert_eq!(report.failed(), 1, "{row}: {report}");
    }
}

/// Rows about order, task management and several connections: a target that keeps them, but for one answer.
#[test]
fn a_wrong_answer_about_order_or_tasks_fails_its_row() {
    let function = |code: u8| changing(Opcode::TaskManagementResponse, move |frame| frame.patch(2, &[code]));
    let reject = || changing(Opcode::Reject, |frame| frame.patch(2, &[9]));
    let logout = || changing(Opcode::LogoutResponse, |frame| frame.patch(2, &[1]));
    let reads = || {
        changing(Opcode::DataIn, |frame| if frame.data_bytes().len() < 512 { frame } else { flipped(frame) })
    };
    // An INQUIRY ends with BUSY.
    let busy = || {
        changing(
            Opcode::DataIn,
            |frame| if frame.data_bytes().len() == 36 { frame.patch(3, &[8]) } else { frame },
        )
    };
    // A command is answered although its turn has not come.
    let early = || {
        Behaviour::good().incoming(|scene, rx| match rx.pdu() {
            Ok(Pdu::ScsiCommand(command)) if command.cmd_sn != scene.numbers.exp_cmd_sn => {
                Incoming::Instead(vec![Act::Answer(Frame::of(good(command.itt, scene)))])
            }
            _ => Incoming::Serve,
        })
    };
    // After the logout it answers a command, and then ends the connection.
    let talks_on = || {
        Behaviour::good().every(Opcode::LogoutResponse, |scene, frame| {
            vec![Act::Send(frame), Act::Send(Frame::of(good(Itt(0x7777), scene))), Act::Close]
        })
    };
    // A Reject returns another header than was sent.
    let other_header = || {
        changing(Opcode::Reject, |frame| {
            let mut header = frame.data_bytes().to_vec();
            header[40] ^= 1;
            frame.data(header)
        })
    };
    let one_connection = vec![
        ("LGO-03", talks_on()),
        ("RSP-04", other_header()),
        ("NUM-02", early()),
        ("NUM-03", early()),
        ("NUM-04", busy()),
        ("TMF-01", function(1)),
        ("TMF-02", early()),
        ("TMF-03", function(0)),
        ("TMF-07", function(0)),
        ("TMF-09", function(1)),
        ("RSP-04", reject()),
        ("DIG-11", reads()),
        ("LGO-03", logout()),
    ];
    let several = vec![
        ("NUM-02", early()),
        ("MCS-02", reads()),
        ("MCS-03", reads()),
        ("MCS-07", function(5)),
        ("ERL-05", logout()),
        ("ERL-07", function(0)),
    ];
    for (config, broken) in
        [(EvilConfig::default as fn() -> EvilConfig, one_connection), (recovering, several)]
    {
        let rows: Vec<&str> = broken.iter().map(|(row, _)| *row).collect();
        let report = run_on(config(), Behaviour::good(), &rows);
        assert_eq!((report.failed(), report.not_applicable()), (0, 0), "{report}");
        for (row, behaviour) in broken {
            let report = run_on(config(), behaviour, &[row]);
            assert_eq!(report.failed(), 1, "{row}: {report}");
        }
    }
}

/// The little target negotiates values that it should reject.
#[test]
fn a_value_that_should_be_rejected_and_is_not_fails_its_row() {
    let report = run_on(EvilConfig::default(), rejects_but("", ""), &["TXT-09", "TXT-12"]);
    assert_eq!((report.failed(), report.not_applicable()), (0, 0), "{report}");
    for (row, key, value) in [
        ("TXT-09", keys::MAX_BURST_LENGTH, "65536"),
        ("TXT-09", keys::INITIAL_R2T, "Yes"),
        ("TXT-09", keys::HEADER_DIGEST, "None"),
        ("TXT-12", keys::MAX_CONNECTIONS, "0"),
        ("TXT-12", keys::MAX_BURST_LENGTH, "511"),
        ("TXT-12", keys::FIRST_BURST_LENGTH, "16777216"),
        ("TXT-12", keys::MAX_OUTSTANDING_R2T, "65536"),
        ("TXT-12", keys::DEFAULT_TIME2WAIT, "3601"),
        ("TXT-12", keys::DEFAULT_TIME2RETAIN, "3601"),
        ("TXT-12", keys::ERROR_RECOVERY_LEVEL, "3"),
        ("TXT-12", keys::INITIAL_R2T, "Yes"),
        ("TXT-12", keys::IMMEDIATE_DATA, "Yes"),
        ("TXT-12", keys::DATA_PDU_IN_ORDER, "Yes"),
    ] {
        let report = run_on(EvilConfig::default(), rejects_but(key, value), &[row]);
        assert_eq!(report.failed(), 1, "{row} {key}={value}: {report}");
    }
}

/// Several connections and every level.
fn recovering() -> EvilConfig {
    EvilConfig { data_digest: vec!["None"], ..EvilConfig::default() }
        .key(keys::MAX_CONNECTIONS, "4")
        .key(keys::ERROR_RECOVERY_LEVEL, "2")
        .key(keys::DEFAULT_TIME2RETAIN, "20")
}

#[test]
fn a_good_target_with_several_connections_passes() {
    let report = run_on(recovering(), Behaviour::good(), KEPT_OF_RECOVERY);
    assert!(failures(&report).is_empty(), "{report}");
    assert_eq!(report.not_applicable(), 0, "{report}");
}

#[test]
fn a_good_target_with_mutual_chap_passes() {
    let own = Credentials { name: "alice".into(), secret: "wonderland-secret".into() };
    let theirs = Credentials { name: "queen".into(), secret: "of-hearts-secret".into() };
    let config = EvilConfig::authenticating(own.clone(), Some(theirs.clone()));
    let target = EvilTarget::start(config, Behaviour::good()).unwrap();
    let mut options =
        options(&target, &["SEC-01", "SEC-03", "SEC-04", "SEC-05", "SEC-06", "SEC-09", "SEC-15", "LGN-16"]);
    (options.chap, options.target_chap) = (Some(own), Some(theirs));
    let report = run(&options).unwrap();
    assert_eq!((report.failed(), report.passed()), (0, 8), "{report}");
}

/// GOOD for this task.
fn good(itt: Itt, scene: &Scene) -> ScsiResponse {
    ScsiResponse {
        response: ScsiResponse::COMPLETED_AT_TARGET,
        status: 0,
        itt,
        snack_tag: 0,
        numbers: scene.numbers,
        exp_data_sn: DataSn(0),
        bidi_residual_count: ResidualCount::default(),
        residual_count: ResidualCount::default(),
    }
}

/// Answers GOOD to every command and sends no data, after it has reported its size.
fn empty_handed() -> Behaviour {
    Behaviour::good().incoming(|scene, rx| {
        const TEST_UNIT_READY: u8 = 0x00;
        const READ_CAPACITY: u8 = 0x9e;
        let serve = matches!(rx.bhs.as_bytes()[32], TEST_UNIT_READY | READ_CAPACITY);
        if rx.bhs.opcode() != Opcode::ScsiCommand.code() || serve {
            return Incoming::Serve;
        }
        Incoming::Instead(vec![Act::Answer(Frame::of(good(rx.bhs.itt(), scene)))])
    })
}

/// Requests an acknowledgement of each Data-In, with impossible numbers.
fn miscounting() -> Behaviour {
    const A_BIT: u8 = 0x40;
    changing(Opcode::DataIn, |frame| frame.set_bits(1, A_BIT).patch(20, &[0; 4]).patch(36, &[0xff; 4]))
}

#[test]
fn no_row_ends_by_a_panic_whatever_the_target_brings() {
    let units = &[
        "CDB", "INQ", "VPD", "MOD", "SNS", "UA", "TSK", "PR", "ALU", "CAW", "HST", "RES", "DAT", "SNK", "ERL",
    ];
    let transfers = &["DAT", "RES", "SNK", "ERL"];
    for (behaviour, sections) in [(empty_handed(), &units[..]), (miscounting(), transfers)] {
        let target = EvilTarget::start(recovering(), behaviour).unwrap();
        let mut options = options(&target, sections);
        options.timeout = Duration::from_millis(500);
        let report = run(&options).unwrap();
        assert!(report.failed() > 5, "{report}");
    }
}

#[test]
fn a_little_target_outlives_an_initiator_that_negotiates_bursts_of_nothing() {
    let target = EvilTarget::start(EvilConfig::default(), Behaviour::good()).unwrap();
    let log = Transcript::new();
    let peer = RawPeer::connect(target.address(), Duration::from_secs(5), &log).unwrap();
    let name = EvilConfig::default().target_name;
    let script = LoginScript::new(Options::INITIATOR_NAME, Some(&name)).key(keys::MAX_BURST_LENGTH, "0");
    let mut session = Session::log_in(peer, script, Lun(0)).unwrap();
    session.run_good(&Command::write_16(0, vec![7; 1024], 512)).unwrap();
    assert_eq!(session.run_good(&Command::read_16(0, 2, 512)).unwrap().data, [7; 1024]);
}

/// The row must fail with a target that behaves like this.
#[track_caller]
fn caught(row: &str, config: EvilConfig, behaviour: Behaviour) {
    let report = run_on(config, behaviour, &[row]);
    assert!(report.rows[0].verdict.is_fail(), "{row} should have failed: {report}");
}

fn changing(opcode: Opcode, change: impl Fn(Frame) -> Frame + Send + 'static) -> Behaviour {
    Behaviour::good().every(opcode, move |_, frame| vec![Act::Send(change(frame))])
}

#[test]
fn broken_framing_and_digests_are_caught() {
    let plain = EvilConfig::default;
    caught("PDU-01", plain(), changing(Opcode::NopIn, |frame| frame.pad_with(0x5a)));
    caught("PDU-02", plain(), changing(Opcode::NopIn, |frame| frame.set_bits(47, 1)));
    caught("PDU-06", plain(), changing(Opcode::TaskManagementResponse, |frame| frame.data([0; 4])));
    caught("NOP-01", plain(), changing(Opcode::NopIn, |frame| frame.data(*b"other data")));
    caught("NOP-01", plain(), changing(Opcode::NopIn, flipped));
    let flip = |frame: Frame| frame.data_digest(DigestWish::Flip(1));
    caught("DIG-01", plain(), changing(Opcode::NopIn, flip));
    let off = EvilConfig { data_digest: vec!["None"], ..EvilConfig::default() };
    caught("DIG-01", off, Behaviour::good());
    caught(
        "NUM-09",
        plain(),
        Behaviour::good().every(Opcode::NopIn, |scene, frame| {
            vec![Act::Send(frame.patch(24, &scene.numbers.stat_sn.add(3).0.to_be_bytes()))]
        }),
    );
}

#[test]
fn broken_logins_are_caught() {
    let plain = EvilConfig::default;
    caught("LGN-10", plain(), changing(Opcode::LoginResponse, |frame| frame.patch(14, &[0, 7])));
    caught(
        "KEY-08",
        plain(),
        changing(Opcode::LoginResponse, |frame| {
            let text = String::from_utf8_lossy(frame.data_bytes()).replace("TargetPortalGroupTag=1\0", "");
            frame.data(text.into_bytes())
        }),
    );
    caught(
        "KEY-09",
        plain(),
        changing(Opcode::LoginResponse, |frame| {
            let text = String::from_utf8_lossy(frame.data_bytes()).replace("InitialR2T=Yes", "InitialR2T=No");
            frame.data(text.into_bytes())
        }),
    );
    caught(
        "LGN-05",
        plain(),
        changing(Opcode::LoginResponse, |frame| {
            if frame.bhs().as_bytes()[36] == 0 { frame } else { frame.patch(36, &[2, 0]) }
        }),
    );
}

#[test]
fn broken_transfers_are_caught() {
    let plain = EvilConfig::default;
    // A response that announces more or fewer PDUs than were sent.
    caught("RSP-02", plain(), changing(Opcode::ScsiResponse, |frame| frame.patch(36, &[0, 0, 0, 9])));
    caught("RSP-01", plain(), changing(Opcode::ScsiResponse, |frame| frame.data(Vec::new())));
    caught(
        "DAT-08",
        plain(),
        changing(Opcode::DataIn, |frame| {
            if frame.bhs().as_bytes()[1] & 1 == 0 {
                frame.patch(44, &[0, 0, 0, 8])
            } else {
                frame.clear_bits(1, 0x80)
            }
        }),
    );
    caught(
        "RES-02",
        plain(),
        changing(Opcode::DataIn, |frame| {
            if frame.bhs().as_bytes()[1] & 2 == 0 { frame } else { frame.patch(44, &[0, 0, 0, 8]) }
        }),
    );
    caught("R2T-01", plain(), changing(Opcode::R2t, |frame| frame.patch(20, &[0, 0, 0, 1])));
    caught(
        "NUM-11",
        plain(),
        Behaviour::good().every(Opcode::ScsiResponse, |scene, frame| {
            let early = scene.numbers.exp_cmd_sn.0.wrapping_sub(1);
            vec![Act::Send(frame.patch(28, &early.to_be_bytes()))]
        }),
    );
    let big = EvilConfig::default().key(keys::MAX_BURST_LENGTH, "16777215");
    caught(
        "DAT-01",
        big,
        changing(Opcode::LoginResponse, |frame| {
            // It declares 512 and ignores it.
            let text = String::from_utf8_lossy(frame.data_bytes())
                .replace("MaxBurstLength=4096", "MaxBurstLength=512");
            frame.data(text.into_bytes())
        }),
    );
}

/// Changes all of the data.
fn flipped(frame: Frame) -> Frame {
    let data: Vec<u8> = frame.data_bytes().iter().map(|byte| byte ^ 1).collect();
    frame.data(data)
}

/// Each Data-Out that a row sends though it does not fit: the row, and how to tell it by its header and length.
type WrongData = (&'static str, fn(&DataOut, usize) -> bool);

const WRONG_DATA: &[WrongData] = &[
    ("DAT-03", |data, _| data.buffer_offset == 4608),
    ("DAT-03", |data, _| data.buffer_offset == 3584),
    ("DAT-03", |data, _| data.buffer_offset == 65_536),
    ("DAT-03", |data, _| data.buffer_offset == 0xffff_fff0),
    ("DAT-03", |_, length| length == 4608),
    ("DAT-03", |data, _| data.data_sn.0 == 5),
    ("DAT-03", |data, _| data.data_sn.0 == 0 && data.buffer_offset == 4096),
    ("DAT-04", |data, _| data.itt.0 == 0x7eee_0001),
    ("DAT-04", |data, _| data.ttt.0 > 0x0f0f_0000 && !data.ttt.is_reserved()),
    ("DAT-04", |data, _| data.lun != Lun(0)),
    ("R2T-04", |data, length| data.final_bit && length == 4096 && !data.ttt.is_reserved()),
];

/// Closes the connection at each wrong Data-Out of the row, but does `instead` at the one with this place in the table.
fn strict(
    row: &'static str,
    at: Option<usize>,
    instead: fn(&Scene, &Received, Itt) -> Vec<Act>,
) -> Behaviour {
    Behaviour::good().incoming(move |scene, rx| {
        let Ok(Pdu::DataOut(data)) = rx.pdu() else { return Incoming::Serve };
        let found = WRONG_DATA.iter().position(|(of, is_it)| *of == row && is_it(&data, rx.data.len()));
        match found {
            Some(found) if at == Some(found) => Incoming::Instead(instead(scene, rx, data.itt)),
            Some(_) => Incoming::Instead(vec![Act::Close]),
            None => Incoming::Serve,
        }
    })
}

fn nothing(_: &Scene, _: &Received, _: Itt) -> Vec<Act> {
    Vec::new()
}

#[test]
fn wrong_data_may_be_refused_or_end_the_connection_but_is_not_accepted() {
    for row in ["DAT-03", "DAT-04", "R2T-04"] {
        let report = run_on(EvilConfig::default(), strict(row, None, nothing), &[row]);
        assert_eq!(report.passed(), 1, "{report}");
    }
    for (at, (row, _)) in WRONG_DATA.iter().enumerate() {
        let accepting = strict(row, Some(at), |scene, _, itt| vec![Act::Answer(Frame::of(good(itt, scene)))]);
        caught(row, EvilConfig::default(), accepting);
        // The reason that the table of rules has beside InvalidPduField.
        let refusing = strict(row, Some(at), |scene, rx, _| {
            vec![Act::Answer(refusal(scene, rx, RejectReason::ProtocolError))]
        });
        let report = run_on(EvilConfig::default(), refusing, &[row]);
        assert_eq!(report.passed(), 1, "{report}");
    }
    // A task that hangs after the Reject of what was not for it.
    let foreign = WRONG_DATA.iter().position(|(row, _)| *row == "DAT-04");
    let hanging = strict("DAT-04", foreign, |scene, rx, _| {
        vec![Act::Answer(refusal(scene, rx, RejectReason::InvalidPduField)), Act::Forget]
    });
    caught("DAT-04", EvilConfig::default(), hanging);
}

fn refusal(scene: &Scene, rx: &Received, reason: RejectReason) -> Frame {
    let reject = Reject { reason, numbers: scene.numbers, data_sn: DataSn(0) };
    Frame::of(reject).data(*rx.bhs.as_bytes())
}

/// Answers GOOD to Data-Out PDUs that are as described, whatever is wrong with them.
fn careless(is_bad: impl Fn(&DataOut, usize) -> bool + Send + 'static) -> Behaviour {
    Behaviour::good().incoming(move |scene, rx| match rx.pdu() {
        Ok(Pdu::DataOut(data)) if is_bad(&data, rx.data.len()) => {
            Incoming::Instead(vec![Act::Answer(Frame::of(good(data.itt, scene)))])
        }
        _ => Incoming::Serve,
    })
}

#[test]
fn broken_data_is_caught() {
    let plain = EvilConfig::default;
    // What is read of the medium; the unit must still report its size.
    let changing_reads = |change: fn(Frame) -> Frame| {
        changing(
            Opcode::DataIn,
            move |frame| if frame.data_bytes().len() < 512 { frame } else { change(frame) },
        )
    };
    caught("DAT-02", plain(), changing_reads(|frame| frame.patch(36, &[0, 0, 0, 7])));
    caught("DAT-02", plain(), changing_reads(|frame| frame.patch(40, &[0, 0, 2, 0])));
    // What should not have been written is read.
    for row in ["DAT-01", "DAT-02", "DAT-06", "DAT-08"] {
        caught(row, plain(), changing_reads(flipped));
    }
    for row in ["DAT-03", "DAT-04"] {
        let reads = |frame: Frame| if frame.data_bytes().len() < 512 { frame } else { flipped(frame) };
        caught(
            row,
            plain(),
            strict(row, None, nothing).every(Opcode::DataIn, move |_, frame| vec![Act::Send(reads(frame))]),
        );
    }
    // A GOOD that brings less than was written.
    caught("DAT-01", plain(), empty_handed());
    // A target that takes empty PDUs for the end of the data, and one that rejects them.
    caught("DAT-06", plain(), careless(|_, length| length == 0));
    let rejecting = Behaviour::good().incoming(|_, rx| match rx.pdu() {
        Ok(Pdu::DataOut(_)) if rx.data.is_empty() => Incoming::Instead(vec![Act::Close]),
        _ => Incoming::Serve,
    });
    caught("DAT-06", plain(), rejecting);
    // The status of a failure in a Data-In.
    let in_data = Behaviour::good().every(Opcode::ScsiResponse, |scene, frame| {
        let bhs = frame.bhs();
        if bhs.as_bytes()[3] != 2 {
            return vec![Act::Send(frame)];
        }
        let data_in = DataIn {
            final_bit: true,
            acknowledge: false,
            status_bit: true,
            status: 2,
            lun: Lun(0),
            itt: bhs.itt(),
            ttt: Ttt::RESERVED,
            numbers: ResponseNumbers {
                stat_sn: StatSn(scene.numbers.stat_sn.0.wrapping_sub(1)),
                ..scene.numbers
            },
            data_sn: DataSn(0),
            buffer_offset: 0,
            residual_count: ResidualCount::default(),
        };
        vec![Act::Send(Frame::of(data_in))]
    });
    caught("DAT-07", plain(), in_data);
}

#[test]
fn broken_requests_for_data_are_caught() {
    let plain = EvilConfig::default;
    caught("R2T-01", plain(), changing(Opcode::R2t, |frame| frame.patch(8, &[0, 1])));
    caught("R2T-01", plain(), changing(Opcode::R2t, |frame| frame.patch(20, &[0xff; 4])));
    caught("R2T-05", plain(), changing(Opcode::R2t, |frame| frame.patch(36, &[0, 0, 0, 9])));
    let one_more = |frame: Frame| {
        let Ok(r2t) = R2t::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
        let more = R2t {
            ttt: Ttt(r2t.ttt.0 + 1),
            r2t_sn: R2tSn(r2t.r2t_sn.0 + 1),
            buffer_offset: r2t.buffer_offset + r2t.desired_data_transfer_length,
            ..r2t
        };
        vec![Act::Send(frame), Act::Send(Frame::of(more))]
    };
    caught("R2T-02", plain(), Behaviour::good().every(Opcode::R2t, move |_, frame| one_more(frame)));
    // A limit of three is the target's own: a write of sixteen R2Ts keeps it, and the next one does not.
    let three = || plain().key(keys::MAX_OUTSTANDING_R2T, "3");
    let report = run_on(three(), Behaviour::good(), &["R2T-02"]);
    assert_eq!(report.passed(), 1, "{report}");
    let mut long = false;
    let fourth = Behaviour::good().every(Opcode::R2t, move |_, frame| {
        let number = R2t::parse(&frame.bhs()).map_or(0, |r2t| r2t.r2t_sn.0);
        long |= number == 15;
        if long && number == 2 { one_more(frame) } else { vec![Act::Send(frame)] }
    });
    caught("R2T-02", three(), fourth);
    // It takes unsolicited data as it comes.
    for row in ["UNS-02", "UNS-03", "UNS-04", "UNS-05"] {
        caught(row, plain(), Behaviour::good());
    }
}

#[test]
fn broken_answers_are_caught() {
    let plain = EvilConfig::default;
    caught(
        "RES-01",
        plain(),
        changing(Opcode::ScsiResponse, |frame| frame.clear_bits(1, 6).patch(44, &[0; 4])),
    );
    caught("RES-01", plain(), changing(Opcode::ScsiResponse, |frame| frame.patch(44, &[0, 0, 0, 1])));
    caught(
        "RES-01",
        plain(),
        changing(Opcode::ScsiResponse, |frame| {
            if frame.bhs().as_bytes()[3] == 2 { frame.clear_bits(1, 6).patch(44, &[0; 4]) } else { frame }
        }),
    );
    let uncalled = |frame: Frame| {
        if frame.bhs().as_bytes()[1] & 7 == 1 { frame.patch(44, &[0, 0, 0, 1]) } else { frame }
    };
    caught("RES-01", plain(), changing(Opcode::DataIn, uncalled));
    let wrong_end = |frame: Frame| {
        if frame.bhs().as_bytes()[1] & 6 == 0 { frame } else { frame.patch(44, &[0, 0, 0, 1]) }
    };
    caught("RES-01", plain(), changing(Opcode::DataIn, wrong_end));
    caught("NOP-01", plain(), changing(Opcode::NopIn, |frame| frame.patch(20, &[0, 0, 0, 1])));
    let cut = |frame: Frame| {
        let data = frame.data_bytes().get(..100).unwrap_or(frame.data_bytes()).to_vec();
        frame.data(data)
    };
    caught("NOP-01", plain(), changing(Opcode::NopIn, cut));
    let talkative = Behaviour::good().incoming(|scene, rx| {
        if rx.bhs.opcode() != Opcode::NopOut.code() || !rx.bhs.itt().is_reserved() {
            return Incoming::Serve;
        }
        Incoming::Instead(vec![Act::Answer(refusal(scene, rx, RejectReason::InvalidPduField))])
    });
    caught("NOP-02", plain(), talkative);
    caught("LGO-02", plain(), changing(Opcode::LogoutResponse, |frame| frame.patch(2, &[0])));
}

/// Changes the PDUs that are sent again for a SNACK.
fn changing_replays(change: impl Fn(Frame) -> Frame + Send + 'static) -> Behaviour {
    Behaviour::good().outgoing(move |_, frame| {
        let again = frame.remarks().contains("again");
        vec![Act::Send(if again { change(frame) } else { frame })]
    })
}

#[test]
fn broken_recovery_is_caught() {
    caught("SNK-01", recovering(), changing_replays(|frame| frame.patch(40, &[0, 0, 0, 4])));
    caught(
        "SNK-01",
        recovering(),
        changing_replays(|frame| {
            let mut data = frame.data_bytes().to_vec();
            data.iter_mut().for_each(|byte| *byte ^= 1);
            frame.data(data)
        }),
    );
    caught("SNK-02", recovering(), changing_replays(|frame| frame.patch(24, &[9, 9, 9, 9])));
    caught("SNK-04", recovering(), changing(Opcode::ScsiResponse, |frame| frame.patch(20, &[0; 4])));
    caught("SNK-05", recovering(), changing(Opcode::Reject, |frame| frame.patch(36, &[0, 0, 0, 77])));
    caught("SNK-07", EvilConfig::default(), Behaviour::good().every(Opcode::Reject, |_, _| vec![Act::Close]));
    caught("SNK-08", EvilConfig::default(), changing(Opcode::DataIn, |frame| frame.set_bits(1, 0x40)));
    // Recovery R2Ts that request the wrong offset, and reassignments that are reported as done and are not.
    let mut seen = 0;
    caught(
        "ERL-04",
        recovering(),
        Behaviour::good().every(Opcode::R2t, move |_, frame| {
            seen += 1;
            vec![Act::Send(if seen > 1 {
                frame.patch(40, &[0, 0, 0, 0]).patch(44, &[0, 0, 0, 4])
            } else {
                frame
            })]
        }),
    );
    caught("ERL-05", recovering(), changing(Opcode::LogoutResponse, |frame| frame.patch(2, &[1])));
    caught("ERL-06", recovering(), changing(Opcode::TaskManagementResponse, |frame| frame.patch(2, &[0])));
    caught("ERL-10", recovering(), changing(Opcode::TaskManagementResponse, |frame| frame.patch(2, &[1])));
}

#[test]
fn broken_sessions_of_several_connections_are_caught() {
    caught(
        "MCS-01",
        recovering(),
        Behaviour::good().every(Opcode::LoginResponse, |scene, frame| {
            let last = frame.bhs().as_bytes()[1] & 0x80 != 0;
            vec![Act::Send(if last && scene.cid.0 > 1 { frame.patch(14, &[7, 7]) } else { frame })]
        }),
    );
    let silent = || Behaviour::good().every(Opcode::AsyncMessage, |_, _| Vec::new());
    caught("MCS-05", recovering(), silent());
    caught("MCS-04", recovering(), changing(Opcode::LogoutResponse, |frame| frame.patch(2, &[1])));
    // It answers a reset at once, even if another connection has not acknowledged everything.
    caught("MCS-06", recovering(), Behaviour::good());
    caught(
        "P2-02",
        EvilConfig::default(),
        changing(Opcode::TaskManagementResponse, |frame| frame.patch(2, &[0])),
    );
    caught(
        "P2-01",
        EvilConfig::default(),
        changing(Opcode::LoginResponse, |frame| {
            let text = String::from_utf8_lossy(frame.data_bytes()).into_owned();
            frame.data(text.replace("iSCSIProtocolLevel=1", "iSCSIProtocolLevel=NotUnderstood").into_bytes())
        }),
    );
}

#[test]
fn reports_are_readable_and_can_be_stored() {
    let report = run_on(EvilConfig::default(), Behaviour::good(), &["NOP-01", "TMF-08"]);
    let text = report.to_string();
    assert!(text.contains("NOP-01  pass") && text.contains("TMF-08  n.a."), "{text}");
    assert!(text.ends_with("1 passed, 0 failed, 1 not applicable"), "{text}");
    let json = serde_json::to_string(&report).unwrap();
    let again: Report = serde_json::from_str(&json).unwrap();
    assert_eq!(again.rows, report.rows);
    assert!(again.rows.iter().any(|row| row.id == "NOP-01" && row.verdict == Verdict::Pass));
}

#[test]
fn who_is_not_there_and_what_is_no_row_are_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    assert!(run(&Options::new("127.0.0.1", port)).unwrap_err().contains("connecting"));
    let mut options = Options::new("127.0.0.1", port);
    options.filter = vec!["XYZ-99".to_owned()];
    assert!(run(&options).unwrap_err().contains("XYZ-99"));
}

#[test]
fn every_row_has_its_own_id() {
    let mut ids: Vec<&str> = rows().iter().map(|row| row.id).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}
