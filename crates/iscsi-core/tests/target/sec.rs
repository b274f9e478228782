//! CHAP.

use std::collections::HashSet;

use iscsi_core::chap::{
    Challenge, ChapAlgorithm, Credentials, PeerChallenge, Secret, binary, choose_algorithm,
};
use iscsi_core::target::login::{AuthPolicy, LoginReply, TargetLogin};
use iscsi_core::wire::{
    LoginRequest, LoginStage, LoginStatus, StatSn, TextBuilder, encode_base64, encode_hex,
};

use crate::play::Peer;
use crate::policy::{INITIATOR, Policy, TARGET, login_request, rx};

const SECRET: &str = "initiator-secret-1";
const TARGET_SECRET: &str = "target-secret-0002";

/// A target that requires CHAP; `mutual` also gives it a secret of its own.
fn guarded(mutual: bool) -> Peer {
    let mut peer = Peer::new();
    let own = Credentials { name: "disk".into(), secret: Secret::new(TARGET_SECRET) };
    peer.policy.auth =
        AuthPolicy::Chap { algorithms: ChapAlgorithm::ALL.to_vec(), mutual: mutual.then_some(own) };
    peer.policy.secrets.push(("host".into(), Secret::new(SECRET)));
    peer
}

/// Goes up to the point where the challenge has arrived; returns the algorithm and CHAP_I, CHAP_C.
fn challenged(peer: &mut Peer, list: &str) -> (ChapAlgorithm, String, String) {
    peer.play("I> LoginRequest csg=0 | @names AuthMethod=CHAP,None");
    let line = peer.output.pop_front().expect("an answer").line;
    assert!(line.contains("AuthMethod=CHAP"), "{line}");
    peer.play(&format!("I> LoginRequest csg=0 | CHAP_A={list}"));
    let line = peer.output.pop_front().expect("a challenge").line;
    let get = |key: &str| {
        let pair = line.split(' ').find_map(|pair| pair.strip_prefix(&format!("{key}=")));
        pair.unwrap_or_else(|| panic!("no {key} in {line}")).to_owned()
    };
    let algorithm = ChapAlgorithm::from_number(get("CHAP_A").parse().unwrap()).expect("one of ours");
    (algorithm, get("CHAP_I"), get("CHAP_C"))
}

fn response(challenge: &(ChapAlgorithm, String, String), secret: &str) -> String {
    let (algorithm, identifier, bytes) = challenge;
    PeerChallenge::parse(identifier, bytes).expect("well formed").answer(*algorithm, &Secret::new(secret))
}

/// A refused login admits nobody, whatever is sent to it afterwards.
// covers: SEC-01, LGN-16
#[test]
fn sec_01_a_login_that_was_refused_stays_refused() {
    for wrong in [&[("CHAP_N", "host"), ("CHAP_R", "0x00")][..], &[("CHAP_N", "host")], &[("CHAP_A", "5")]] {
        let mut policy = Policy { auth: guarded(false).policy.auth, ..Policy::default() };
        policy.secrets.push(("host".into(), Secret::new(SECRET)));
        let mut login = TargetLogin::new(StatSn(1));
        let mut say = |transit: bool, keys: &[(&str, &str)]| {
            let mut text = TextBuilder::new();
            for (key, value) in keys {
                text.push(key, value);
            }
            let nsg = transit.then_some(LoginStage::FullFeature);
            let request = LoginRequest { transit, csg: LoginStage::Security, nsg, ..login_request() };
            login.handle_pdu(&rx(request.to_bhs(), text.finish()), &mut policy)
        };
        let names = [("InitiatorName", INITIATOR), ("TargetName", TARGET), ("AuthMethod", "CHAP")];
        assert!(matches!(say(false, &names), LoginReply::Send(_)));
        assert!(matches!(say(false, &[("CHAP_A", "5")]), LoginReply::Send(_)));
        assert!(matches!(say(true, wrong), LoginReply::Refuse { .. }), "{wrong:?}");
        assert!(matches!(say(true, &[]), LoginReply::Refuse { .. }), "{wrong:?} and nothing more");
    }
}

/// The target's administrator learns which of the two it was and which name was tried; the initiator gets the same answer for
/// both.
// covers: SEC-01
#[test]
fn sec_01_an_unknown_name_and_a_wrong_secret_differ_in_the_log_alone() {
    let refusal_of = |name: &str| {
        let mut policy = Policy { auth: guarded(false).policy.auth, ..Policy::default() };
        policy.secrets.push(("host".into(), Secret::new(SECRET)));
        let mut login = TargetLogin::new(StatSn(1));
        let mut say = |keys: &[(&str, &str)]| {
            let mut text = TextBuilder::new();
            for (key, value) in keys {
                text.push(key, value);
            }
            let request =
                LoginRequest { transit: false, csg: LoginStage::Security, nsg: None, ..login_request() };
            login.handle_pdu(&rx(request.to_bhs(), text.finish()), &mut policy)
        };
        say(&[("InitiatorName", INITIATOR), ("TargetName", TARGET), ("AuthMethod", "CHAP")]);
        say(&[("CHAP_A", "5")]);
        match say(&[("CHAP_N", name), ("CHAP_R", "0x00112233445566778899aabbccddeeff")]) {
            LoginReply::Refuse { response: Some(response), refusal } => (response, refusal),
            other => panic!("{other:?}"),
        }
    };
    let ((seen, unknown), (also_seen, wrong)) = (refusal_of("nobody"), refusal_of("host"));
    assert_eq!(seen.bhs, also_seen.bhs, "a prober learns nothing");
    assert_eq!((seen.data.len(), also_seen.data.len()), (0, 0));
    assert_eq!(unknown.status, LoginStatus::AuthenticationFailure);
    assert_eq!((unknown.chap_name.as_deref(), wrong.chap_name.as_deref()), (Some("nobody"), Some("host")));
    assert!(
        unknown.what.contains("no account") && wrong.what.contains("secret is wrong"),
        "{unknown} {wrong}"
    );
    assert_ne!(unknown.rule, wrong.rule, "counted apart");
}

fn refused_with(peer: &mut Peer, line: &str, status: LoginStatus) {
    peer.play(&format!("I> {line}\nT< LoginResponse status={status:?}\nD< Close Refused"));
}

// covers: SEC-01, SEC-02, SEC-03
#[test]
fn sec_01_one_way_with_every_algorithm() {
    for (list, chosen) in [
        ("5", ChapAlgorithm::Md5),
        ("6", ChapAlgorithm::Sha1),
        ("7", ChapAlgorithm::Sha256),
        ("8", ChapAlgorithm::Sha3_256),
        ("8,7,6,5", ChapAlgorithm::Sha3_256),
        ("5,8", ChapAlgorithm::Md5),
        ("99,7", ChapAlgorithm::Sha256),
    ] {
        let mut peer = guarded(false);
        let challenge = challenged(&mut peer, list);
        assert_eq!(challenge.0, chosen, "{list}");
        peer.play(&format!(
            "I> LoginRequest T csg=0 nsg=1 | CHAP_N=host CHAP_R={}
             T< LoginResponse status=Success T nsg=1 |
             I> LoginRequest T csg=1 nsg=3
             T< LoginResponse status=Success T nsg=3 tsih=7",
            response(&challenge, SECRET)
        ));
    }
}

// covers: SEC-01, SEC-02, SEC-04
#[test]
fn sec_01_mutual() {
    for (list, algorithm) in [("5", ChapAlgorithm::Md5), ("7", ChapAlgorithm::Sha256)] {
        let mut peer = guarded(true);
        let challenge = challenged(&mut peer, list);
        let ours = PeerChallenge::parse("200", "0x00112233445566778899aabbccddeeff").unwrap();
        let expected = ours.answer(algorithm, &Secret::new(TARGET_SECRET));
        peer.play(&format!(
            "I> LoginRequest T csg=0 nsg=1 | CHAP_N=host CHAP_R={} CHAP_I=200 CHAP_C=0x00112233445566778899aabbccddeeff
             T< LoginResponse status=Success T nsg=1 | CHAP_N=disk CHAP_R={expected}",
            response(&challenge, SECRET)
        ));
    }
}

#[test]
fn sec_02_keys_out_of_order_missing_or_twice() {
    use LoginStatus::{AuthenticationFailure, InitiatorError, MissingParameter};
    // Before the method is agreed on, or with it.
    refused_with(&mut guarded(false), "LoginRequest csg=0 | @names CHAP_A=5", InitiatorError);
    refused_with(&mut guarded(false), "LoginRequest csg=0 | @names AuthMethod=CHAP CHAP_A=5", InitiatorError);
    refused_with(&mut guarded(false), "LoginRequest csg=0 | @names CHAP_N=host CHAP_R=0x00", InitiatorError);
    // Before the algorithm.
    for early in ["CHAP_N=host CHAP_R=0x00", "CHAP_A=5 CHAP_I=1", "CHAP_I=1 CHAP_C=0x0011"] {
        let mut peer = guarded(false);
        peer.play("I> LoginRequest csg=0 | @names AuthMethod=CHAP");
        peer.output.clear();
        refused_with(&mut peer, &format!("LoginRequest csg=0 | {early}"), InitiatorError);
    }
    // In answer to the challenge.
    for (keys, status) in [
        ("CHAP_N=host", MissingParameter),
        ("CHAP_R=0x00112233445566778899aabbccddeeff", MissingParameter),
        ("CHAP_N=host CHAP_R=0x00112233445566778899aabbccddeeff CHAP_I=1", MissingParameter),
        ("CHAP_N=host CHAP_R=0x00112233445566778899aabbccddeeff CHAP_C=0x0011", MissingParameter),
        ("CHAP_A=5", InitiatorError),
        ("CHAP_N=host CHAP_N=host CHAP_R=0x00", InitiatorError),
        ("CHAP_N=host CHAP_R=zz", InitiatorError),
        ("CHAP_N=host CHAP_R=0x00 CHAP_I=256 CHAP_C=0x0011", InitiatorError),
        ("CHAP_N=host CHAP_R=0x00 CHAP_I=1 CHAP_C=0x", InitiatorError),
        ("CHAP_N=host CHAP_R=0x00112233445566778899aabbccddeeff", AuthenticationFailure),
    ] {
        let mut peer = guarded(true);
        challenged(&mut peer, "5");
        refused_with(&mut peer, &format!("LoginRequest T csg=0 nsg=1 | {keys}"), status);
    }
    // T does not help to get past an open question.
    let mut peer = guarded(false);
    peer.play(
        "I> LoginRequest T csg=0 nsg=1 | @names AuthMethod=CHAP
         T< LoginResponse status=Success !T | AuthMethod=CHAP TargetPortalGroupTag=1
         I> LoginRequest T csg=0 nsg=1
         T< LoginResponse status=Success !T |
         I> LoginRequest T csg=0 nsg=1 | CHAP_A=7
         T< LoginResponse status=Success !T
         I> LoginRequest T csg=0 nsg=3
         T< LoginResponse status=Success !T |",
    );
}

#[test]
fn sec_03_no_common_algorithm() {
    for list in ["99", "", "x,y", "5,", "0"] {
        let mut peer = guarded(false);
        peer.play("I> LoginRequest csg=0 | @names AuthMethod=CHAP");
        peer.output.clear();
        refused_with(
            &mut peer,
            &format!("LoginRequest csg=0 | CHAP_A={list}"),
            LoginStatus::AuthenticationFailure,
        );
    }
    // Only the algorithms that the configuration allows.
    assert_eq!(choose_algorithm("5,6,7", &[ChapAlgorithm::Sha256]), Some(ChapAlgorithm::Sha256));
    assert_eq!(choose_algorithm("5,6", &[ChapAlgorithm::Sha256]), None);
}

/// Digests computed with another implementation: identifier 27h, a secret of 24 bytes, a challenge of 16.
#[test]
fn sec_04_fixed_vectors() {
    let secret = Secret::new("secret-of-24-bytes-here!");
    let challenge: Vec<u8> = (0..16).collect();
    for (algorithm, expected) in [
        (ChapAlgorithm::Md5, "41d29fdb19d68b367e0c1bf9e0e9adc9"),
        (ChapAlgorithm::Sha1, "f63e0978366b2822f1b228ce79dd7b9151dced71"),
        (ChapAlgorithm::Sha256, "dffc04aaab0e9f829eb661de6a3b44fa04a6ce7f269b8fb309fba53f99dce543"),
        (ChapAlgorithm::Sha3_256, "e0ae52ac0efc6788a82beed640b0df0802b2a04189c82894393499c199b7bb7f"),
    ] {
        assert_eq!(encode_hex(&algorithm.response(0x27, &secret, &challenge)), format!("0x{expected}"));
    }
}

#[test]
fn sec_05_binary_items() {
    for len in [1usize, 16, 1023, 1024] {
        let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let hex = encode_hex(&bytes);
        for text in [hex.clone(), format!("0X{}", hex[2..].to_uppercase()), encode_base64(&bytes)] {
            assert_eq!(binary("CHAP_C", &text).as_ref(), Ok(&bytes), "{len}");
        }
        let base64 = encode_base64(&bytes);
        assert_eq!(binary("CHAP_C", &format!("0B{}", &base64[2..])), Ok(bytes));
    }
    for text in [encode_hex(&[7; 1025]), encode_base64(&[7; 1025])] {
        assert!(binary("CHAP_C", &text).is_err());
    }
    for text in ["", "0x", "0b", "12", "0xzz", "0b!", "0c00"] {
        assert!(binary("CHAP_R", text).is_err(), "{text}");
    }
    // As part of a login: a challenge of 1024 bytes is answered, a longer one is refused.
    for (len, status) in [(1024, "Success"), (1025, "InitiatorError")] {
        let mut peer = guarded(true);
        let challenge = challenged(&mut peer, "5");
        let theirs = encode_hex(&vec![0x42; len]);
        peer.play(&format!(
            "I> LoginRequest T csg=0 nsg=1 | CHAP_N=host CHAP_R={} CHAP_I=9 CHAP_C={theirs}",
            response(&challenge, SECRET)
        ));
        let line = peer.output.pop_front().expect("an answer").line;
        assert!(line.contains(&format!("status={status}")), "{len}: {line}");
    }
}

#[test]
fn sec_06_wrong_responses() {
    let mut sample = guarded(false);
    let right = response(&challenged(&mut sample, "5"), SECRET);
    let mut flipped = right.clone().into_bytes();
    flipped[5] = if flipped[5] == b'0' { b'1' } else { b'0' };
    for wrong in [
        String::from_utf8(flipped).unwrap(),
        right[..right.len() - 2].to_owned(),
        format!("{right}00"),
        "0x00".to_owned(),
    ] {
        let mut peer = guarded(false);
        challenged(&mut peer, "5");
        refused_with(
            &mut peer,
            &format!("LoginRequest T csg=0 nsg=1 | CHAP_N=host CHAP_R={wrong}"),
            LoginStatus::AuthenticationFailure,
        );
    }
    // An unknown name looks the same.
    let mut peer = guarded(false);
    let challenge = challenged(&mut peer, "5");
    let line = format!("LoginRequest T csg=0 nsg=1 | CHAP_N=nobody CHAP_R={}", response(&challenge, SECRET));
    refused_with(&mut peer, &line, LoginStatus::AuthenticationFailure);
    assert_eq!(peer.refusal.unwrap().chap_name.as_deref(), Some("nobody"));
}

#[test]
fn sec_07_our_own_challenge_is_not_answered() {
    let mut peer = guarded(true);
    let challenge = challenged(&mut peer, "5");
    let line = format!(
        "LoginRequest T csg=0 nsg=1 | CHAP_N=host CHAP_R={} CHAP_I=1 CHAP_C={}",
        response(&challenge, SECRET),
        challenge.2
    );
    refused_with(&mut peer, &line, LoginStatus::AuthenticationFailure);
    // Nor one that was issued on another connection.
    let mut peer = guarded(true);
    peer.policy.issued.push(vec![0x42; 32]);
    let challenge = challenged(&mut peer, "5");
    let line = format!(
        "LoginRequest T csg=0 nsg=1 | CHAP_N=host CHAP_R={} CHAP_I=1 CHAP_C={}",
        response(&challenge, SECRET),
        encode_hex(&[0x42; 32])
    );
    refused_with(&mut peer, &line, LoginStatus::AuthenticationFailure);
}

#[test]
fn sec_08_one_secret_for_both_directions_is_refused() {
    let mut peer = guarded(false);
    let own = Credentials { name: "disk".into(), secret: Secret::new(SECRET) };
    peer.policy.auth = AuthPolicy::Chap { algorithms: ChapAlgorithm::ALL.to_vec(), mutual: Some(own) };
    let challenge = challenged(&mut peer, "5");
    let line = format!(
        "LoginRequest T csg=0 nsg=1 | CHAP_N=host CHAP_R={} CHAP_I=1 CHAP_C=0x0011",
        response(&challenge, SECRET)
    );
    refused_with(&mut peer, &line, LoginStatus::AuthenticationFailure);
}

#[test]
fn sec_09_every_challenge_is_new() {
    let mut policy = crate::policy::Policy::default();
    let mut seen = HashSet::new();
    let mut identifiers = HashSet::new();
    for _ in 0..20_000 {
        use iscsi_core::target::login::LoginPolicy;
        let challenge = Challenge::draw(ChapAlgorithm::Md5, &mut |bytes| policy.fill_random(bytes));
        assert_eq!(challenge.bytes().len(), 32);
        assert!(seen.insert(challenge.bytes().to_vec()));
        identifiers.insert(challenge.keys()[0].1.clone());
    }
    assert_eq!(identifiers.len(), 256, "the identifier is drawn too");
}

#[test]
fn sec_10_short_secrets_are_told() {
    assert!(!Secret::new("11 byte sec").is_long_enough());
    assert!(Secret::new("12 byte secr").is_long_enough());
}

#[test]
fn sec_11_mutual_without_a_secret_is_refused() {
    let mut peer = guarded(false);
    let challenge = challenged(&mut peer, "5");
    let line = format!(
        "LoginRequest T csg=0 nsg=1 | CHAP_N=host CHAP_R={} CHAP_I=1 CHAP_C=0x0011",
        response(&challenge, SECRET)
    );
    refused_with(&mut peer, &line, LoginStatus::AuthenticationFailure);
}

/// The policy is asked for a secret by the CHAP name and by the iSCSI name that wants to use it.
// covers: SEC-13, SEC-14
#[test]
fn sec_14_the_secret_is_asked_for_a_name_and_its_owner() {
    let mut peer = guarded(false);
    peer.policy.secrets.push(("thief".into(), Secret::new("another-secret-3")));
    let challenge = challenged(&mut peer, "5");
    // The right name with the secret of another account.
    let line = format!(
        "LoginRequest T csg=0 nsg=1 | CHAP_N=host CHAP_R={}",
        response(&challenge, "another-secret-3")
    );
    refused_with(&mut peer, &line, LoginStatus::AuthenticationFailure);
}

#[test]
fn sec_15_secrets_are_never_shown() {
    let secret = Secret::new("do not print this");
    let credentials = Credentials { name: "disk".into(), secret: secret.clone() };
    for shown in
        [format!("{secret:?}"), format!("{credentials:?}"), format!("{:?}", guarded(true).policy.auth)]
    {
        assert!(!shown.contains("print") && !shown.contains(TARGET_SECRET), "{shown}");
    }
    let mut peer = guarded(false);
    challenged(&mut peer, "5");
    let line = "LoginRequest T csg=0 nsg=1 | CHAP_N=host CHAP_R=0x00";
    refused_with(&mut peer, line, LoginStatus::AuthenticationFailure);
    assert!(!format!("{:?}", peer.refusal).contains(SECRET));
}

// covers: LGN-16, SEC-16
#[test]
fn lgn_16_authentication_cannot_be_skipped() {
    use LoginStatus::AuthenticationFailure;
    for keys in ["", "SessionType=Discovery"] {
        refused_with(
            &mut guarded(false),
            &format!("LoginRequest T csg=1 nsg=3 | @names {keys}"),
            AuthenticationFailure,
        );
        refused_with(
            &mut guarded(false),
            &format!("LoginRequest T csg=0 nsg=1 | @names {keys}"),
            AuthenticationFailure,
        );
        refused_with(
            &mut guarded(false),
            &format!("LoginRequest T csg=0 nsg=3 | @names {keys}"),
            AuthenticationFailure,
        );
        let none = format!("LoginRequest T csg=0 nsg=1 | @names AuthMethod=None {keys}");
        refused_with(&mut guarded(false), &none, AuthenticationFailure);
    }
}
