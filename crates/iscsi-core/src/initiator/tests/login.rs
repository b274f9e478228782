//! Logins, response by response.

use bytes::Bytes;
use iscsi_wire::{
    Bhs, Cid, CmdSn, Isid, LoginRequest, LoginResponse, LoginStage, LoginStatus, ResponseNumbers, StatSn,
    TextBuilder, TextPairs, Tsih,
};

use crate::chap::{ChapAlgorithm, Credentials, PeerChallenge, Secret};
use crate::initiator::login::{
    Advice, ChapConfig, InitiatorLogin, LoggedIn, LoginConfig, LoginFailure, LoginSupport, Progress,
};
use crate::names::IscsiName;
use crate::params::{Bounds, Bursts, DigestPolicy};
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;

const ISID: Isid = Isid([0x80, 1, 2, 3, 0, 0]);

#[derive(Default)]
struct Support {
    counter: u8,
    issued: Vec<Vec<u8>>,
}

impl LoginSupport for Support {
    fn fill_random(&mut self, bytes: &mut [u8]) {
        self.counter += 1;
        bytes.fill(self.counter);
    }
    fn challenge_issued(&mut self, challenge: &[u8]) {
        self.issued.push(challenge.to_vec());
    }
    fn was_issued(&mut self, challenge: &[u8]) -> bool {
        self.issued.iter().any(|issued| issued == challenge)
    }
}

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.to_owned(), secret: Secret::new(secret) }
}

fn config() -> LoginConfig {
    LoginConfig {
        initiator: IscsiName::parse("iqn.2001-04.com.example:us").unwrap(),
        initiator_alias: None,
        target: Some(IscsiName::parse("iqn.2001-04.com.example:them").unwrap()),
        discovery: false,
        isid: ISID,
        cid: Cid(0),
        cmd_sn: CmdSn(123),
        chap: None,
        bounds: Bounds::default(),
        node_architecture: None,
        join: None,
    }
}

fn with_chap(target: Option<Credentials>) -> LoginConfig {
    let own = credentials("us", "our own secret");
    LoginConfig { chap: Some(ChapConfig { target, ..ChapConfig::one_way(own) }), ..config() }
}

/// A login and its surroundings.
struct Play {
    login: InitiatorLogin,
    support: Support,
    sent: TxPdu,
}

impl Play {
    fn new(config: LoginConfig) -> Self {
        let mut login = InitiatorLogin::new(config);
        let sent = login.start();
        Self { login, support: Support::default(), sent }
    }

    fn request(&self) -> LoginRequest {
        LoginRequest::parse(&self.sent.bhs).unwrap()
    }

    /// The value of a key in the last request.
    fn said(&self, key: &str) -> Option<String> {
        let bytes = self.sent.data.bytes();
        let pairs = TextPairs::parse(&bytes).unwrap();
        pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned())
    }

    /// The response that grants what the last request asks, before it is changed.
    fn granting(&self) -> LoginResponse {
        let request = self.request();
        LoginResponse {
            transit: request.transit,
            continue_bit: false,
            csg: request.csg,
            nsg: request.nsg,
            version_max: 0,
            version_active: 0,
            isid: ISID,
            tsih: Tsih(if request.nsg == Some(LoginStage::FullFeature) { 7 } else { 0 }),
            itt: request.itt,
            numbers: ResponseNumbers {
                stat_sn: StatSn(u32::MAX),
                exp_cmd_sn: request.cmd_sn,
                max_cmd_sn: request.cmd_sn.add(9),
            },
            status: LoginStatus::Success,
        }
    }

    fn receive_bhs(&mut self, bhs: Bhs, text: &[u8]) -> Result<Option<LoggedIn>, LoginFailure> {
        let rx = RxPdu { bhs, ahs: Bytes::new(), data: Bytes::copy_from_slice(text), data_digest_ok: true };
        match self.login.handle_pdu(&rx, &mut self.support)? {
            Progress::Send(pdu) => {
                self.sent = pdu;
                Ok(None)
            }
            Progress::Complete(logged_in) => Ok(Some(*logged_in)),
        }
    }

    fn receive(
        &mut self,
        change: impl FnOnce(&mut LoginResponse),
        text: &[u8],
    ) -> Result<Option<LoggedIn>, LoginFailure> {
        let mut response = self.granting();
        change(&mut response);
        self.receive_bhs(response.to_bhs(), text)
    }

    /// Answers the offers of the last request, each key with the offer itself (for a list, its first value).
    fn agree(&mut self, extra: &[(&str, &str)]) -> Result<Option<LoggedIn>, LoginFailure> {
        let text = self.agreement(extra);
        self.receive(|_| {}, &text)
    }

    fn agreement(&self, extra: &[(&str, &str)]) -> Vec<u8> {
        let declared =
            ["InitiatorName", "TargetName", "SessionType", "MaxRecvDataSegmentLength", "X#NodeArchitecture"];
        let mut text = TextBuilder::new();
        for (key, value) in TextPairs::parse(&self.sent.data.bytes()).unwrap() {
            if !declared.contains(&key) && !extra.iter().any(|(other, _)| *other == key) {
                text.push(key, value.split(',').next().unwrap());
            }
        }
        for (key, value) in extra {
            text.push(key, value);
        }
        text.finish()
    }
}

// covers: LGN-10 LGN-12 LGN-13 KEY-04 KEY-05 KEY-08 KEY-20 DIG-01
#[test]
fn lgn_18_one_round_trip_without_authentication() {
    let mut play = Play::new(config());
    let request = play.request();
    assert_eq!(
        (request.csg, request.nsg, request.transit),
        (LoginStage::Operational, Some(LoginStage::FullFeature), true)
    );
    assert_eq!((request.tsih, request.cmd_sn, request.isid), (Tsih(0), CmdSn(123), ISID));
    assert_eq!((request.version_max, request.version_min), (0, 0));
    assert_eq!(play.said("InitiatorName").unwrap(), "iqn.2001-04.com.example:us");
    assert_eq!(play.said("TargetName").unwrap(), "iqn.2001-04.com.example:them");
    assert_eq!(play.said("SessionType").unwrap(), "Normal");
    assert_eq!(play.said("HeaderDigest").unwrap(), "CRC32C,None");
    let session = play.agree(&[
        ("TargetPortalGroupTag", "1"),
        ("MaxRecvDataSegmentLength", "65536"),
        ("TargetAlias", "d"),
    ]);
    let session = session.unwrap().unwrap();
    assert_eq!(
        (session.tsih, session.numbers.cmd_sn, session.numbers.exp_stat_sn),
        (Tsih(7), CmdSn(123), StatSn(0))
    );
    assert_eq!((session.portal_group_tag, session.target_alias.as_deref()), (Some(1), Some("d")));
    assert!(session.params.digests.header && session.params.digests.data);
    assert_eq!(session.params.max_send_data_segment_length, 65536);
    assert_eq!(session.numbers.max_cmd_sn, CmdSn(132));
}

// covers: DSC-07 KEY-02
#[test]
fn a_discovery_login_offers_only_what_has_a_meaning_there() {
    let play = Play::new(LoginConfig { target: None, discovery: true, ..config() });
    assert_eq!(play.said("SessionType").unwrap(), "Discovery");
    assert_eq!(play.said("ErrorRecoveryLevel").unwrap(), "0");
    for absent in ["TargetName", "MaxConnections", "InitialR2T", "MaxBurstLength"] {
        assert_eq!(play.said(absent), None, "{absent}");
    }
}

#[test]
fn key_23_the_architecture_is_told_only_when_wanted() {
    assert_eq!(Play::new(config()).said("X#NodeArchitecture"), None);
    let mut play = Play::new(LoginConfig { node_architecture: Some("test".to_owned()), ..config() });
    assert_eq!(play.said("X#NodeArchitecture").unwrap(), "test");
    assert!(play.agree(&[("X#NodeArchitecture", "NotUnderstood")]).unwrap().is_some());
}

#[test]
fn dig_06_what_is_offered_follows_the_policy() {
    let offered = |policy| {
        let bounds = Bounds { data_digest: policy, ..Bounds::default() };
        Play::new(LoginConfig { bounds, ..config() }).said("DataDigest").unwrap()
    };
    assert_eq!(offered(DigestPolicy::Off), "None");
    assert_eq!(offered(DigestPolicy::Offered), "CRC32C,None");
    assert_eq!(offered(DigestPolicy::Required), "CRC32C");
    let bounds = Bounds { data_digest: DigestPolicy::Required, ..Bounds::default() };
    let mut play = Play::new(LoginConfig { bounds, ..config() });
    let failure = play.agree(&[("DataDigest", "Reject")]).unwrap_err();
    assert!(matches!(failure, LoginFailure::Unacceptable(_)), "{failure}");
}

fn refused(change: impl FnOnce(&mut LoginResponse)) -> String {
    let mut play = Play::new(config());
    let text = play.agreement(&[]);
    match play.receive(change, &text).unwrap_err() {
        LoginFailure::Violation(violation) => violation.to_string(),
        other => panic!("{other:?}"),
    }
}

// covers: LGN-07 LGN-08 LGN-10 TXT-06
#[test]
fn lgn_11_responses_that_contradict_the_login_end_it() {
    assert!(refused(|r| r.itt = iscsi_wire::Itt(9)).contains("task tag"));
    assert!(refused(|r| r.isid = Isid([0; 6])).contains("ISID"));
    assert!(refused(|r| r.version_active = 1).contains("version"));
    assert!(refused(|r| r.csg = LoginStage::Security).contains("stage"));
    assert!(refused(|r| r.nsg = Some(LoginStage::Operational)).contains("no move"));
    assert!(refused(|r| r.continue_bit = true).contains("both C and T"));
    assert!(refused(|r| r.tsih = Tsih(0)).contains("TSIH"));
}

#[test]
fn lgn_02_another_pdu_ends_the_login() {
    let mut play = Play::new(config());
    let nop = iscsi_wire::NopIn {
        lun: iscsi_wire::Lun(0),
        itt: iscsi_wire::Itt::RESERVED,
        ttt: iscsi_wire::Ttt(1),
        numbers: ResponseNumbers { stat_sn: StatSn(0), exp_cmd_sn: CmdSn(0), max_cmd_sn: CmdSn(0) },
    };
    assert!(matches!(play.receive_bhs(nop.to_bhs(), &[]), Err(LoginFailure::Violation(_))));
}

// covers: KEY-30 TXT-12 TXT-13 LGN-09
#[test]
fn answers_must_be_there_and_admissible() {
    let with =
        |extra: &[(&str, &str)]| Play::new(config()).agree(extra).map(|session| session.unwrap().params);
    assert!(with(&[]).is_ok());
    for bad in [
        ("MaxBurstLength", "16777215"),
        ("MaxBurstLength", "many"),
        ("DefaultTime2Wait", "1"),
        ("HeaderDigest", "MD5"),
        ("ErrorRecoveryLevel", "2"),
        ("SendTargets", "All"),
        ("AuthMethod", "None"),
        ("TargetPortalGroupTag", "65536"),
        // An offer of its own, in the response that ends the stage.
        ("X-com.example.new", "1"),
        ("iSCSIProtocolLevel", "1"),
    ] {
        assert!(with(&[bad]).is_err(), "{bad:?}");
    }
    // ImmediateData=Yes must be answered; InitialR2T=No too; FirstBurstLength as well.
    for key in ["ImmediateData", "InitialR2T", "FirstBurstLength", "HeaderDigest"] {
        let mut play = Play::new(config());
        let text = play.agreement(&[]);
        let without: Vec<u8> = text
            .split_inclusive(|&byte| byte == 0)
            .filter(|pair| !pair.starts_with(key.as_bytes()))
            .flatten()
            .copied()
            .collect();
        let failure = play.receive(|_| {}, &without).unwrap_err();
        assert!(failure.to_string().contains("unanswered"), "{key}: {failure}");
    }
    // An offer that decides the result alone may stay unanswered.
    let bounds = Bounds {
        bursts: Bursts { initial_r2t: true, immediate_data: false, ..Bounds::default().bursts },
        ..Bounds::default()
    };
    let mut play = Play::new(LoginConfig { bounds, ..config() });
    let text = play.agreement(&[]);
    let silent: Vec<u8> = text
        .split_inclusive(|&byte| byte == 0)
        .filter(|pair| !pair.starts_with(b"InitialR2T") && !pair.starts_with(b"ImmediateData"))
        .flatten()
        .copied()
        .collect();
    let params = play.receive(|_| {}, &silent).unwrap().unwrap().params;
    assert!(params.bursts.initial_r2t && !params.bursts.immediate_data);
}

// covers: TXT-05 TXT-08 TXT-16
#[test]
fn a_target_that_takes_its_time_is_followed() {
    let mut play = Play::new(config());
    let text = play.agreement(&[]);
    // The answer arrives in three pieces.
    for piece in [&text[..10], &text[10..57]] {
        let went_on = |r: &mut LoginResponse| (r.transit, r.nsg, r.continue_bit) = (false, None, true);
        assert!(play.receive(went_on, piece).unwrap().is_none());
        assert!(play.sent.data.is_empty() && !play.request().transit, "an empty request fetches the rest");
    }
    let waits = |r: &mut LoginResponse| (r.transit, r.nsg) = (false, None);
    assert!(play.receive(waits, &text[57..]).unwrap().is_none());
    assert!(play.request().transit);
    // It proposes keys of its own, one at a time.
    assert!(play.receive(waits, b"X-com.example.what=1\0").unwrap().is_none());
    assert_eq!(play.said("X-com.example.what").unwrap(), "NotUnderstood");
    assert!(play.receive(waits, b"iSCSIProtocolLevel=2\0").unwrap().is_none());
    assert_eq!(play.said("iSCSIProtocolLevel").unwrap(), "1");
    for _ in 0..10 {
        assert!(play.receive(waits, b"").unwrap().is_none());
    }
    assert!(play.receive(|_| {}, b"").unwrap().is_some());
    // But not for ever.
    let mut play = Play::new(config());
    let failure = (0..100).find_map(|_| play.receive(waits, b"").err()).unwrap();
    assert!(failure.to_string().contains("exchanges"), "{failure}");
}

#[test]
fn lgn_14_each_class_of_refusal_has_its_advice() {
    for status in
        LoginStatus::ALL.iter().copied().chain([LoginStatus::Other(0x02ff), LoginStatus::Other(0x0399)])
    {
        let mut play = Play::new(config());
        // The other fields have no meaning then.
        let change = |r: &mut LoginResponse| {
            (r.status, r.transit, r.nsg, r.isid) = (status, false, None, Isid([9; 6]));
        };
        match status.class() {
            0 => continue,
            1 => {
                let failure = play.receive(change, b"TargetAddress=10.0.0.2:3261\0").unwrap_err();
                assert_eq!(failure.advice(), Advice::Follow);
            }
            class => {
                let failure = play.receive(change, b"").unwrap_err();
                let expected = if class == 3 { Advice::Retry } else { Advice::Stop };
                assert_eq!(failure.advice(), expected, "{failure}");
                assert!(!failure.remedy().is_empty() && failure.rule().starts_with("RFC"));
            }
        }
    }
}

#[test]
fn lgn_15_a_redirection_says_where() {
    let redirect = |text: &[u8]| {
        let mut play = Play::new(config());
        play.receive(
            |r| (r.status, r.transit, r.nsg) = (LoginStatus::TargetMovedPermanently, false, None),
            text,
        )
        .unwrap_err()
    };
    match redirect(b"TargetAddress=10.0.0.2:3261\0TargetAddress=[fe80::1]\0") {
        LoginFailure::Redirected { permanently: true, addresses } => {
            assert_eq!(
                addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
                ["10.0.0.2:3261", "[fe80::1]:3260"]
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(redirect(b""), LoginFailure::Violation(_)));
    assert!(matches!(redirect(b"TargetAddress=:x\0"), LoginFailure::Violation(_)));
}

/// The target's challenge, and a login that has answered it.
fn challenged(config: LoginConfig, algorithm: &str) -> Play {
    let mut play = Play::new(config);
    let waits = |r: &mut LoginResponse| (r.transit, r.nsg) = (false, None);
    assert!(!play.request().transit);
    assert!(play.receive(waits, b"AuthMethod=CHAP\0").unwrap().is_none());
    assert_eq!(play.said("CHAP_A").unwrap(), "8,7,6,5");
    let challenge = format!("CHAP_A={algorithm}\0CHAP_I=9\0CHAP_C=0x0102030405060708\0");
    play.receive(waits, challenge.as_bytes()).unwrap();
    play
}

// covers: SEC-01 SEC-02 SEC-03 SEC-04
#[test]
fn one_way_chap_answers_by_the_algorithm_that_the_target_picks() {
    for algorithm in ChapAlgorithm::ALL {
        let mut play = challenged(with_chap(None), &(algorithm as u8).to_string());
        let peer = PeerChallenge::parse("9", "0x0102030405060708").unwrap();
        let expected = peer.answer(algorithm, &Secret::new("our own secret"));
        assert_eq!(play.said("CHAP_R").unwrap(), expected);
        assert_eq!((play.said("CHAP_N").unwrap().as_str(), play.said("CHAP_C")), ("us", None));
        assert!(play.request().transit);
        assert!(play.receive(|_| {}, b"").unwrap().is_none());
        assert_eq!(play.request().csg, LoginStage::Operational);
        let session = play.agree(&[]).unwrap().unwrap();
        assert_eq!(session.chap, Some(algorithm));
        // covers: SEC-15
        let shown = session.keys.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(!shown.contains(&expected) && shown.contains("CHAP_N=us"), "{shown}");
    }
}

// covers: SEC-02 SEC-05 KEY-27
#[test]
fn chap_keys_that_are_missing_wrong_or_early_end_the_login() {
    let waits = |r: &mut LoginResponse| (r.transit, r.nsg) = (false, None);
    for bad in ["AuthMethod=KRB5\0", "AuthMethod=Reject\0", "CHAP_A=5\0", "", "AuthMethod=CHAP\0CHAP_A=5\0"] {
        let mut play = Play::new(with_chap(None));
        assert!(play.receive(waits, bad.as_bytes()).is_err(), "{bad:?}");
    }
    let long = format!("CHAP_A=5\0CHAP_I=1\0CHAP_C=0x{}\0", "00".repeat(1025));
    for bad in [
        "CHAP_A=5\0CHAP_I=1\0",
        "CHAP_A=5\0CHAP_C=0x00\0",
        "CHAP_I=1\0CHAP_C=0x00\0",
        "CHAP_A=9\0CHAP_I=1\0CHAP_C=0x00\0",
        "CHAP_A=5\0CHAP_I=256\0CHAP_C=0x00\0",
        "CHAP_A=5\0CHAP_I=1\0CHAP_C=zz\0",
        "CHAP_A=5\0CHAP_I=1\0CHAP_C=0x00\0CHAP_N=x\0",
        &long,
    ] {
        let mut play = Play::new(with_chap(None));
        play.receive(waits, b"AuthMethod=CHAP\0").unwrap();
        assert!(play.receive(waits, bad.as_bytes()).is_err(), "{bad:?}");
    }
    // A target that chooses no authentication is accepted, unless CHAP is required or mutual.
    let mut play = Play::new(with_chap(None));
    assert_eq!(play.said("AuthMethod").unwrap(), "CHAP,None");
    assert!(play.receive(waits, b"AuthMethod=None\0").unwrap().is_none());
    assert!(play.request().transit);
    for required in [true, false] {
        let mut config = with_chap((!required).then(|| credentials("them", "their own secret")));
        config.chap.as_mut().unwrap().required = required;
        let mut play = Play::new(config);
        assert_eq!(play.said("AuthMethod").unwrap(), "CHAP");
        assert!(matches!(
            play.receive(waits, b"AuthMethod=None\0"),
            Err(LoginFailure::NoCommonMethod { .. })
        ));
    }
}

/// A mutual login with our challenge sent, and the target's correct answer to it.
fn mutual() -> (Play, String) {
    let play = challenged(with_chap(Some(credentials("them", "their own secret"))), "7");
    let ours = PeerChallenge::parse(&play.said("CHAP_I").unwrap(), &play.said("CHAP_C").unwrap()).unwrap();
    let answer = ours.answer(ChapAlgorithm::Sha256, &Secret::new("their own secret"));
    (play, answer)
}

#[test]
fn sec_12_a_target_that_must_prove_itself_does_or_the_login_ends() {
    let (mut play, answer) = mutual();
    assert!(play.receive(|_| {}, format!("CHAP_N=them\0CHAP_R={answer}\0").as_bytes()).unwrap().is_none());
    assert_eq!(play.request().csg, LoginStage::Operational);
    for bad in [
        String::new(),
        format!("CHAP_N=others\0CHAP_R={answer}\0"),
        "CHAP_N=them\0CHAP_R=0x00\0".to_owned(),
        "CHAP_N=them\0".to_owned(),
        format!("CHAP_R={answer}\0"),
    ] {
        let (mut play, _) = mutual();
        assert!(play.receive(|_| {}, bad.as_bytes()).is_err(), "{bad:?}");
    }
}

#[test]
fn sec_08_our_own_secret_proves_nothing() {
    let (mut play, _) = mutual();
    let ours = PeerChallenge::parse(&play.said("CHAP_I").unwrap(), &play.said("CHAP_C").unwrap()).unwrap();
    let mirrored = ours.answer(ChapAlgorithm::Sha256, &Secret::new("our own secret"));
    let failure = play.receive(|_| {}, format!("CHAP_N=them\0CHAP_R={mirrored}\0").as_bytes()).unwrap_err();
    assert!(failure.to_string().contains("our own secret:"), "{failure}");
    let same =
        ChapConfig { target: Some(credentials("them", "x")), ..ChapConfig::one_way(credentials("us", "x")) };
    assert!(same.check().is_err());
}

#[test]
fn sec_07_a_challenge_of_ours_is_not_answered() {
    let mut play = Play::new(with_chap(None));
    play.support.issued.push(vec![1, 2, 3, 4]);
    let waits = |r: &mut LoginResponse| (r.transit, r.nsg) = (false, None);
    play.receive(waits, b"AuthMethod=CHAP\0").unwrap();
    let failure = play.receive(waits, b"CHAP_A=5\0CHAP_I=1\0CHAP_C=0x01020304\0").unwrap_err();
    assert!(matches!(failure, LoginFailure::TargetNotProven { .. }), "{failure}");
}

// covers: SEC-09 SEC-10
#[test]
fn challenges_are_fresh_and_secrets_long_enough() {
    let (play, _) = mutual();
    assert_eq!(play.support.issued.len(), 1);
    let config = with_chap(None).chap.unwrap();
    assert!(config.secrets_are_long_enough());
    assert!(!ChapConfig::one_way(credentials("us", "11 bytes xx")).secrets_are_long_enough());
}
