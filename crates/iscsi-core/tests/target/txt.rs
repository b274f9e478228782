//! Text format and negotiation.

use iscsi_core::limits::{MAX_NEGOTIATION_KEYS, MAX_TEXT_BYTES, MAX_TEXT_EXCHANGES};
use iscsi_core::negotiation::{Negotiator, Phase, Received, Role};
use iscsi_core::params::{Bounds, Bursts, Params};
use iscsi_core::wire::LoginStatus;

use crate::pdus::build;
use crate::play::{Peer, text_bytes};

/// The text of the answer to one operational login request without T.
fn answer_to(keys: &str) -> String {
    let mut peer = Peer::new();
    peer.play(&format!("I> LoginRequest csg=1 | @names {keys}"));
    let line = peer.output.pop_front().expect("an answer").line;
    assert!(line.contains("status=Success"), "{keys}: {line}");
    line.split_once(" | ").expect("text").1.to_owned()
}

/// The status with which a login that sends `keys` ends.
fn refusal_of(keys: &str) -> LoginStatus {
    let mut peer = Peer::new();
    peer.play(&format!("I> LoginRequest T csg=1 nsg=3 | @names {keys}"));
    peer.refusal.take().unwrap_or_else(|| panic!("{keys} was accepted")).status
}

/// A negotiation in which we are the initiator and have offered everything.
fn offered() -> Negotiator {
    let mut negotiator = Negotiator::new(Role::Initiator, Bounds::default(), Params::default());
    negotiator.offer_all();
    negotiator
}

#[test]
fn txt_01_pairs_end_with_nul_and_split_at_the_first_equals_sign() {
    let mut peer = Peer::new();
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | @names X-a=b\\
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
    assert!(answer_to("X-a=b=c=d").contains("X-a=NotUnderstood"));
    assert!(answer_to("maxburstlength=4096").contains("maxburstlength=NotUnderstood"));
    assert_eq!(refusal_of("novalue"), LoginStatus::InitiatorError);
}

#[test]
fn txt_02_lengths_of_names_and_values() {
    let (fits, too_long) = (format!("X{}", "a".repeat(62)), format!("X{}", "a".repeat(63)));
    assert!(answer_to(&format!("{fits}=1")).contains(&format!("{fits}=NotUnderstood")));
    assert_eq!(refusal_of(&format!("{too_long}=1")), LoginStatus::InitiatorError);
    assert!(answer_to(&format!("X-v={}", "v".repeat(255))).contains("X-v=NotUnderstood"));
    assert_eq!(refusal_of(&format!("X-v={}", "v".repeat(256))), LoginStatus::InitiatorError);
    assert_eq!(refusal_of("1abc=1"), LoginStatus::InitiatorError);
}

// covers: TXT-03, TXT-12
#[test]
fn txt_03_numbers_decimal_and_hexadecimal() {
    for (value, answer) in [
        ("131072", "131072"),
        ("0x20000", "131072"),
        ("0X20000", "131072"),
        ("0000131072", "131072"),
        ("0x0020000", "131072"),
        ("-1", "Reject"),
        ("+4096", "Reject"),
        ("0x", "Reject"),
        ("", "Reject"),
        ("4096,8192", "Reject"),
        ("18446744073709551616", "Reject"),
        ("18446744073709555712", "Reject"),
        ("010", "Reject"),
    ] {
        let text = answer_to(&format!("MaxBurstLength={value}"));
        assert!(text.contains(&format!("MaxBurstLength={answer}")), "{value}: {text}");
    }
}

// covers: TXT-04, TXT-05
#[test]
fn txt_04_long_texts_over_many_pdus() {
    let keys: String = (0..120).map(|i| format!("X-key.{i:057}={} ", "v".repeat(255))).collect();
    let text = text_bytes(&format!("@names {keys}"));
    assert!(text.len() > 35_000);
    let mut peer = Peer::new();
    let mut pieces = text.chunks(8000).peekable();
    while let Some(piece) = pieces.next() {
        let more = pieces.peek().is_some();
        let line = if more { "LoginRequest C csg=1" } else { "LoginRequest T csg=1 nsg=3" };
        let (request, ahs) = build(line, &mut peer);
        peer.feed(request.to_bhs(), ahs, piece.to_vec().into(), None);
        if more {
            peer.play("T< LoginResponse status=Success !T !C | ");
        }
    }
    // The answer is longer than one PDU too; each piece is fetched by an empty request.
    let mut answers = 0;
    loop {
        let reply = peer.output.pop_front().expect("an answer");
        answers += String::from_utf8_lossy(&reply.data).matches("=NotUnderstood").count();
        if !reply.line.contains(" C csg") {
            assert!(reply.line.contains("T csg=1 nsg=3 "), "{}", reply.line);
            break;
        }
        assert!(!reply.line.contains(" T csg"));
        peer.play("I> LoginRequest T csg=1 nsg=3");
    }
    assert!((119..=120).contains(&answers), "one may be cut in two: {answers}");
    // Beyond the limit the login ends cleanly.
    let mut peer = Peer::new();
    for _ in 0..9 {
        let (request, ahs) = build("LoginRequest C csg=1", &mut peer);
        peer.feed(request.to_bhs(), ahs, vec![b'a'; 8000].into(), None);
        if peer.refusal.is_some() {
            break;
        }
        peer.output.clear();
    }
    assert_eq!(peer.refusal.expect("more than 64 KiB").status, LoginStatus::InitiatorError);
}

#[test]
fn txt_05_a_text_may_be_cut_at_any_byte() {
    let text = text_bytes("@names InitialR2T=No MaxBurstLength=4096 FirstBurstLength=2048");
    for at in 1..text.len() {
        let mut peer = Peer::new();
        let (first, _) = build("LoginRequest C csg=1", &mut peer);
        peer.feed(first.to_bhs(), Default::default(), text.slice(..at), None);
        peer.play("T< LoginResponse status=Success !T !C !data | ");
        let (second, _) = build("LoginRequest T csg=1 nsg=3", &mut peer);
        peer.feed(second.to_bhs(), Default::default(), text.slice(at..), None);
        peer.play("T< LoginResponse status=Success T nsg=3");
        assert_eq!(
            (peer.params.bursts.max_burst_length, peer.params.bursts.first_burst_length),
            (4096, 2048),
            "cut at {at}"
        );
    }
}

/// A stage move requested with the first piece is granted only to a request that asks for it again.
// covers: TXT-05, LGN-08
#[test]
fn txt_05_the_last_piece_moves_the_stage_only_when_asked() {
    let keys: String = (0..115).map(|i| format!("X-key.{i:057}=v ")).collect();
    let mut peer = Peer::new();
    peer.play(&format!("I> LoginRequest T csg=1 nsg=3 | @names {keys}"));
    let mut reply = peer.output.pop_front().expect("an answer").line;
    while reply.contains(" C csg") {
        peer.play("I> LoginRequest csg=1");
        reply = peer.output.pop_front().expect("an answer").line;
    }
    assert!(reply.contains("status=Success csg=1"), "{reply}");
    peer.play(
        "I> LoginRequest T csg=1 nsg=3
         T< LoginResponse status=Success T nsg=3 | ",
    );
    // New text while our answer is not yet complete breaks the rule.
    let mut peer = Peer::new();
    peer.play(&format!("I> LoginRequest T csg=1 nsg=3 | @names {keys}"));
    peer.output.clear();
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | X-more=1
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
}

#[test]
fn txt_06_c_with_f_or_t_is_an_error() {
    let mut peer = Peer::new();
    peer.play(
        "I> LoginRequest C T csg=1 nsg=3 | @names
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> TextRequest itt=1 C F | SendTargets=
         T< Reject reason=ProtocolError of_opcode=0x04 of_itt=1
         I> TextRequest itt=2 F
         T< TextResponse itt=2 F",
    );
}

#[test]
fn txt_07_one_text_exchange_at_a_time() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> TextRequest itt=1 C | Send\\
         T< TextResponse itt=1 ttt=0 !F !C | 
         I> TextRequest itt=2 F | SendTargets=
         T< Reject reason=ProtocolError of_opcode=0x04 of_itt=2
         # Both are over; the next one starts afresh.
         I> TextRequest itt=3 F | SendTargets=
         D< SendTargets Own
         D> targets iqn.2025-01.org.example:disk=192.0.2.1:3260,1
         T< TextResponse itt=3 F | TargetName=iqn.2025-01.org.example:disk TargetAddress=192.0.2.1:3260,1",
    );
}

#[test]
fn txt_08_every_key_of_the_standard_is_understood() {
    let keys = "HeaderDigest=None DataDigest=None MaxConnections=1 InitiatorAlias=a InitialR2T=Yes ImmediateData=Yes \
                MaxRecvDataSegmentLength=8192 MaxBurstLength=262144 FirstBurstLength=65536 DefaultTime2Wait=2 \
                DefaultTime2Retain=20 MaxOutstandingR2T=1 DataPDUInOrder=Yes DataSequenceInOrder=Yes \
                ErrorRecoveryLevel=0 TaskReporting=RFC3720 iSCSIProtocolLevel=1 X#NodeArchitecture=a IFMarker=No \
                OFMarker=No IFMarkInt=2048~8192 OFMarkInt=2048 SessionType=Normal";
    let text = answer_to(keys);
    assert!(!text.contains("NotUnderstood"), "{text}");
    let strange =
        answer_to("X-com.example.a=1 Y-b=2 RDMAExtensions=Yes TargetRecvDataSegmentLength=8192 Nonsense=1");
    assert_eq!(strange.matches("=NotUnderstood").count(), 5, "{strange}");
}

#[test]
fn txt_09_answers_are_not_proposals() {
    for value in ["Irrelevant", "Reject", "NotUnderstood"] {
        assert_eq!(refusal_of(&format!("MaxBurstLength={value}")), LoginStatus::InitiatorError);
        assert_eq!(refusal_of(&format!("HeaderDigest={value}")), LoginStatus::InitiatorError);
        assert_eq!(refusal_of(&format!("InitialR2T={value}")), LoginStatus::InitiatorError);
    }
}

#[test]
fn txt_10_reject_and_irrelevant_leave_the_default() {
    let defaults = Params::default();
    for answer in ["Reject", "Irrelevant", "NotUnderstood"] {
        for key in [
            "HeaderDigest",
            "DataDigest",
            "MaxConnections",
            "InitialR2T",
            "ImmediateData",
            "MaxBurstLength",
            "FirstBurstLength",
            "DefaultTime2Wait",
            "DefaultTime2Retain",
            "MaxOutstandingR2T",
            "DataPDUInOrder",
            "DataSequenceInOrder",
            "ErrorRecoveryLevel",
        ] {
            let mut negotiator = offered();
            let before = negotiator.params().clone();
            assert_eq!(
                negotiator.receive(Phase::Operational, key, answer),
                Ok(Received::Done),
                "{key}={answer}"
            );
            assert_eq!(*negotiator.params(), before, "{key}={answer}");
            negotiator.check().expect("the negotiation has not failed");
        }
    }
    assert_eq!(offered().params().bursts.max_burst_length, defaults.bursts.max_burst_length);
}

#[test]
fn txt_11_a_key_comes_once() {
    assert_eq!(refusal_of("MaxBurstLength=4096 MaxBurstLength=4096"), LoginStatus::InitiatorError);
    assert_eq!(refusal_of("X-a=1 X-a=1"), LoginStatus::InitiatorError);
    assert_eq!(refusal_of("InitiatorName=iqn.2025-01.org.example:other"), LoginStatus::InitiatorError);
    assert_eq!(
        refusal_of("MaxRecvDataSegmentLength=8192 MaxRecvDataSegmentLength=4096"),
        LoginStatus::InitiatorError
    );
    for key in [
        "MaxBurstLength=4096",
        "X-a=1",
        "InitiatorName=iqn.2025-01.org.example:other",
        "TargetName=eui.02004567A425678D",
    ] {
        let mut peer = Peer::new();
        peer.play("I> LoginRequest csg=1 | @names MaxBurstLength=4096 X-a=1");
        peer.output.clear();
        peer.play(&format!(
            "I> LoginRequest T csg=1 nsg=3 | {key}
             T< LoginResponse status=InitiatorError
             D< Close Refused"
        ));
    }
    // Some initiators repeat their names in every request: as long as they are the same, nothing is negotiated twice.
    let mut peer = Peer::new();
    peer.play("I> LoginRequest T csg=0 nsg=1 | @names SessionType=Normal");
    peer.output.clear();
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | @names SessionType=Normal
         T< LoginResponse status=Success T nsg=3",
    );
    let mut negotiator = offered();
    negotiator.receive(Phase::Operational, "MaxBurstLength", "4096").unwrap();
    assert!(negotiator.receive(Phase::Operational, "MaxBurstLength", "4096").is_err());
}

#[test]
fn txt_12_out_of_range_and_inadmissible() {
    for (key, low, high) in [
        ("MaxBurstLength", "511", "16777216"),
        ("FirstBurstLength", "511", "16777216"),
        ("MaxOutstandingR2T", "0", "65536"),
        ("MaxConnections", "0", "65536"),
        ("DefaultTime2Wait", "-1", "3601"),
        ("DefaultTime2Retain", "-1", "3601"),
        ("ErrorRecoveryLevel", "-1", "3"),
        ("iSCSIProtocolLevel", "-1", "32"),
        ("InitialR2T", "yes", "1"),
        ("ImmediateData", "YES", ""),
    ] {
        for value in [low, high] {
            let text = answer_to(&format!("{key}={value}"));
            assert!(text.contains(&format!("{key}=Reject")), "{key}={value}: {text}");
        }
    }
    // As the originator: an answer that the rules of the key do not allow.
    let bounds = Bounds {
        bursts: Bursts { initial_r2t: true, immediate_data: false, ..Bounds::default().bursts },
        ..Bounds::default()
    };
    for (key, bad) in [
        ("MaxBurstLength", "16777215"),
        ("MaxBurstLength", "0"),
        ("FirstBurstLength", "x"),
        ("DefaultTime2Wait", "0"),
        ("DefaultTime2Retain", "3600"),
        ("ErrorRecoveryLevel", "1"),
        ("HeaderDigest", "CRC32"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("ImmediateData", "Maybe"),
    ] {
        let mut negotiator = Negotiator::new(Role::Initiator, bounds.clone(), Params::default());
        negotiator.offer_all();
        assert!(negotiator.receive(Phase::Operational, key, bad).is_err(), "{key}={bad}");
    }
}

#[test]
fn txt_13_settled_booleans_need_no_answer() {
    let settled = Bounds {
        bursts: Bursts { initial_r2t: true, immediate_data: false, ..Bounds::default().bursts },
        ..Bounds::default()
    };
    let open = Bounds {
        bursts: Bursts { initial_r2t: false, immediate_data: true, ..Bounds::default().bursts },
        ..Bounds::default()
    };
    for (bounds, silent_keys_matter) in [(settled, false), (open, true)] {
        let mut negotiator = Negotiator::new(Role::Initiator, bounds, Params::default());
        let offers = negotiator.offer_all();
        for (key, value) in offers {
            if !matches!(key, "InitialR2T" | "ImmediateData" | "MaxRecvDataSegmentLength") {
                let value = if key.ends_with("Digest") { "None".to_owned() } else { value };
                negotiator.receive(Phase::Operational, key, &value).unwrap();
            }
        }
        assert_eq!(negotiator.awaits_answers(), silent_keys_matter);
        if !silent_keys_matter {
            assert!(negotiator.params().bursts.initial_r2t && !negotiator.params().bursts.immediate_data);
        }
    }
    // And as the responder every boolean is answered.
    let text = answer_to("InitialR2T=Yes ImmediateData=No");
    assert!(text.contains("InitialR2T=Yes") && text.contains("ImmediateData=No"), "{text}");
}

// covers: TXT-14, TXT-18
#[test]
fn txt_14_a_failed_negotiation_changes_nothing() {
    let mut peer = Peer::logged_in("MaxRecvDataSegmentLength=1024");
    peer.play(
        "I> TextRequest itt=1 F | MaxRecvDataSegmentLength=512 MaxBurstLength=512
         T< Reject reason=ProtocolError of_opcode=0x04
         I> NopOut itt=2 data=2000
         T< NopIn itt=2 data=1024
         I> TextRequest itt=3 | MaxRecvDataSegmentLength=512
         T< TextResponse itt=3 ttt=0 !F
         I> TextRequest itt=3 ttt=0 F | InitiatorName=iqn.2025-01.org.example:x
         T< Reject reason=ProtocolError
         I> NopOut itt=4 data=2000
         T< NopIn itt=4 data=1024",
    );
}

#[test]
fn txt_18_a_new_receive_length_rules_from_then_on() {
    let mut peer = Peer::logged_in("MaxRecvDataSegmentLength=1024");
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=2048
         D< Start itt=1
         I> TextRequest itt=2 I F | MaxRecvDataSegmentLength=512
         T< TextResponse itt=2 F | 
         D> complete itt=1 data=2048
         T< DataIn itt=1 offset=0 data=512
         T< DataIn itt=1 offset=512 data=512
         T< DataIn itt=1 offset=1024 data=512
         T< DataIn itt=1 offset=1536 data=512 F status=0x00
         I> NopOut itt=3 data=2000
         T< NopIn itt=3 data=512",
    );
    // During a login the limit is 8192, whatever is declared.
    assert_eq!(Params::default().max_send_data_segment_length, 8192);
}

#[test]
fn txt_15_first_burst_within_max_burst() {
    // In whichever order they are sent in one request.
    for keys in [
        "InitialR2T=No MaxBurstLength=4096 FirstBurstLength=65536",
        "FirstBurstLength=65536 InitialR2T=No MaxBurstLength=4096",
    ] {
        let peer = Peer::logged_in(keys);
        assert_eq!(
            (peer.params.bursts.max_burst_length, peer.params.bursts.first_burst_length),
            (4096, 4096),
            "{keys}"
        );
    }
    // Our own limit on MaxBurstLength counts, even if it is not negotiated.
    let peer = Peer::logged_in_with("FirstBurstLength=1048576", |peer| {
        peer.policy.bounds.bursts.first_burst_length = 1 << 20
    });
    assert_eq!(
        (peer.params.bursts.max_burst_length, peer.params.bursts.first_burst_length),
        (262144, 262144)
    );
    // The default of FirstBurstLength no longer fits: the target proposes a value.
    let mut peer = Peer::new();
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | @names InitialR2T=No MaxBurstLength=4096
         T< LoginResponse status=Success !T | InitialR2T=No MaxBurstLength=4096 \
            TargetPortalGroupTag=1 MaxRecvDataSegmentLength=262144 FirstBurstLength=4096
         I> LoginRequest T csg=1 nsg=3 | FirstBurstLength=2048
         T< LoginResponse status=Success T nsg=3",
    );
    assert_eq!(peer.params.bursts.first_burst_length, 2048);
    // Without unsolicited data it has no meaning.
    Peer::logged_in("InitialR2T=Yes ImmediateData=No MaxBurstLength=4096");
    // A contradiction that the initiator insists on ends the login.
    let mut peer = Peer::new();
    peer.play("I> LoginRequest csg=1 | @names FirstBurstLength=65536");
    peer.output.clear();
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | MaxBurstLength=4096
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
}

#[test]
fn txt_16_many_small_exchanges() {
    let mut peer = Peer::new();
    peer.play("I> LoginRequest csg=1 | @names");
    peer.output.clear();
    for i in 0..40 {
        peer.play(&format!(
            "I> LoginRequest csg=1 | X-key.{i}=1
             T< LoginResponse status=Success !T | X-key.{i}=NotUnderstood"
        ));
    }
    peer.play("I> LoginRequest T csg=1 nsg=3\nT< LoginResponse status=Success T nsg=3");
    let mut peer = Peer::new();
    peer.play("I> LoginRequest csg=1 | @names");
    peer.output.clear();
    let mut exchanges = 1;
    while peer.refusal.is_none() {
        peer.play("I> LoginRequest csg=1");
        peer.output.clear();
        exchanges += 1;
        assert!(exchanges < 1000, "an endless login");
    }
    assert!(exchanges > 6);
}

#[test]
fn txt_17_keys_in_the_wrong_place() {
    for key in ["MaxBurstLength=4096", "HeaderDigest=None", "InitialR2T=Yes", "ErrorRecoveryLevel=0"] {
        let mut peer = Peer::new();
        peer.play(&format!(
            "I> LoginRequest T csg=0 nsg=1 | @names AuthMethod=None {key}
             T< LoginResponse status=InitiatorError
             D< Close Refused"
        ));
    }
    assert_eq!(refusal_of("AuthMethod=None"), LoginStatus::InitiatorError);
    assert_eq!(refusal_of("CHAP_A=5"), LoginStatus::InitiatorError);
    assert_eq!(refusal_of("SendTargets=All"), LoginStatus::InitiatorError);
    assert_eq!(refusal_of("TargetPortalGroupTag=1"), LoginStatus::InitiatorError);
    assert_eq!(refusal_of("TargetAlias=x"), LoginStatus::InitiatorError);
    let mut peer = Peer::logged_in("");
    let keys = [
        "MaxBurstLength=512",
        "DataDigest=None",
        "AuthMethod=None",
        "InitiatorName=iqn.2025-01.org.example:x",
        "MaxConnections=1",
    ];
    for (itt, key) in keys.iter().enumerate() {
        peer.play(&format!(
            "I> TextRequest itt={itt} F | {key}
             T< Reject reason=ProtocolError of_opcode=0x04 of_itt={itt}"
        ));
    }
}

/// `count` unknown keys, from number `from` on; none of them is answered.
fn unknown_keys(from: usize, count: usize) -> String {
    (from..from + count).map(|n| format!("X-{n}=Reject ")).collect()
}

#[test]
fn keys_and_exchanges_of_a_negotiation_are_bounded() {
    let login = |keys: usize| {
        let mut peer = Peer::new();
        peer.play(&format!("I> LoginRequest csg=1 | @names {}", unknown_keys(0, keys - 2)));
        peer.refusal.map(|refusal| refusal.status)
    };
    assert_eq!(login(MAX_NEGOTIATION_KEYS), None);
    assert_eq!(login(MAX_NEGOTIATION_KEYS + 1), Some(LoginStatus::InitiatorError));

    let mut peer = Peer::logged_in("");
    let mut ttt = String::new();
    for n in 0..MAX_TEXT_EXCHANGES as usize {
        peer.play(&format!("I> TextRequest itt=1{ttt} | X-{n}=Reject"));
        let line = peer.output.pop_front().expect("an answer").line;
        let tag = line.split_once(" ttt=").expect("it goes on").1;
        ttt = format!(" ttt={}", tag.split(' ').next().expect("a number"));
    }
    peer.play(&format!(
        "I> TextRequest itt=1{ttt} | X-more=Reject
         T< Reject reason=ProtocolError of_opcode=0x04 of_itt=1
         # It is over, and the next one begins from nothing.
         I> TextRequest itt=2 F | X-0=Reject
         T< TextResponse itt=2 F"
    ));
}

#[test]
fn the_text_of_a_negotiation_is_bounded_over_all_its_exchanges() {
    let mut peer = Peer::new();
    peer.play("I> LoginRequest csg=1 | @names");
    let mut said = 0;
    for n in 0.. {
        peer.output.clear();
        let (request, ahs) = build("LoginRequest csg=1", &mut peer);
        let text: Vec<u8> =
            (0..10).flat_map(|i| format!("X-{n}-{i}={}\0", "v".repeat(250)).into_bytes()).collect();
        said += text.len();
        peer.feed(request.to_bhs(), ahs, text.into(), None);
        if peer.refusal.is_some() {
            break;
        }
    }
    assert!(said <= MAX_TEXT_BYTES, "{said} bytes");
}
