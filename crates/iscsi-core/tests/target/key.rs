//! The keys, one by one.

use iscsi_core::params::{Bounds, Bursts, Params};
use iscsi_core::wire::LoginStatus;

use crate::play::Peer;

/// The result of one key.
struct Key {
    offer: &'static str,
    /// The value of the answer; empty for a declaration, which has none.
    answer: &'static str,
    result: fn(&Params) -> u64,
    value: u64,
}

fn bounds() -> Bounds {
    Bounds {
        bursts: Bursts {
            max_burst_length: 65536,
            first_burst_length: 16384,
            initial_r2t: false,
            immediate_data: true,
            max_outstanding_r2t: 4,
        },
        max_connections: 1,
        default_time2wait_s: 2,
        default_time2retain_s: 20,
        max_recv_data_segment_length: 32768,
        ..Bounds::default()
    }
}

fn check(keys: &[Key]) {
    for Key { offer, answer, result, value } in keys {
        let name = offer.split('=').next().unwrap();
        let mut peer = Peer::new();
        peer.policy.bounds = bounds();
        peer.play(&format!("I> LoginRequest T csg=1 nsg=3 | @names InitialR2T=Yes ImmediateData=No {offer}"));
        let line = match peer.output.pop_front() {
            Some(reply) if name == "InitialR2T" || name == "ImmediateData" => panic!("{}", reply.line),
            Some(reply) => reply.line,
            None => panic!("no answer to {offer}"),
        };
        let text = line.split_once(" | ").expect("text").1;
        let told: Vec<&str> = text.split(' ').filter(|pair| pair.split('=').next() == Some(name)).collect();
        match *answer {
            // Our own declaration of the same key is no answer to theirs.
            "" => assert!(told.is_empty() || name == "MaxRecvDataSegmentLength", "{offer}: {text}"),
            answer => assert_eq!(told, [format!("{name}={answer}")], "{offer}"),
        }
        assert!(line.contains("nsg=3"), "{offer}: {line}");
        assert_eq!(result(&peer.params), *value, "{offer}");
    }
}

macro_rules! keys {
    ($(#[$doc:meta])* $name:ident: $($offer:literal => $answer:literal, $result:expr, $value:expr;)*) => {
        $(#[$doc])*
        #[test]
        fn $name() {
            check(&[$(Key { offer: $offer, answer: $answer, result: $result, value: $value as u64 }),*]);
        }
    };
}

keys!(key_01_digests:
    "HeaderDigest=CRC32C,None" => "CRC32C", |p| p.digests.header.into(), 1;
    "DataDigest=None,CRC32C" => "None", |p| p.digests.data.into(), 0;
    "DataDigest=CRC32C" => "CRC32C", |p| p.digests.data.into(), 1;
);
keys!(key_02_max_connections:
    "MaxConnections=1" => "1", |p| p.max_connections.into(), 1;
    "MaxConnections=8" => "1", |p| p.max_connections.into(), 1;
);
keys!(key_11_max_recv_data_segment_length_of_the_peer_bounds_what_we_send:
    "MaxRecvDataSegmentLength=512" => "", |p| p.max_send_data_segment_length.into(), 512;
    "MaxRecvDataSegmentLength=16777215" => "", |p| p.max_send_data_segment_length.into(), 16777215;
    "MaxRecvDataSegmentLength=16384" => "", |p| p.max_recv_data_segment_length.into(), 32768;
    "X-none=1" => "NotUnderstood", |p| p.max_send_data_segment_length.into(), 8192;
);
keys!(key_12_max_burst_length_is_the_smaller:
    "MaxBurstLength=512" => "512", |p| p.bursts.max_burst_length.into(), 512;
    "MaxBurstLength=16777215" => "65536", |p| p.bursts.max_burst_length.into(), 65536;
    "X-none=1" => "NotUnderstood", |p| p.bursts.max_burst_length.into(), 262144;
);
keys!(key_13_first_burst_length_is_the_smaller:
    "FirstBurstLength=512" => "512", |p| p.bursts.first_burst_length.into(), 512;
    "FirstBurstLength=16777215" => "16384", |p| p.bursts.first_burst_length.into(), 16384;
    "X-none=1" => "NotUnderstood", |p| p.bursts.first_burst_length.into(), 65536;
);
keys!(key_14_time2wait_is_the_larger:
    "DefaultTime2Wait=0" => "2", |p| p.default_time2wait_s.into(), 2;
    "DefaultTime2Wait=3600" => "3600", |p| p.default_time2wait_s.into(), 3600;
);
keys!(key_15_time2retain_is_the_smaller:
    "DefaultTime2Retain=0" => "0", |p| p.default_time2retain_s.into(), 0;
    "DefaultTime2Retain=3600" => "20", |p| p.default_time2retain_s.into(), 20;
);
keys!(key_16_max_outstanding_r2t_is_the_smaller:
    "MaxOutstandingR2T=1" => "1", |p| p.bursts.max_outstanding_r2t.into(), 1;
    "MaxOutstandingR2T=65535" => "4", |p| p.bursts.max_outstanding_r2t.into(), 4;
    "X-none=1" => "NotUnderstood", |p| p.bursts.max_outstanding_r2t.into(), 1;
);
keys!(key_17_data_pdu_in_order_stays_yes:
    "DataPDUInOrder=No" => "Yes", |p| p.data_in_order.pdus.into(), 1;
    "DataPDUInOrder=Yes" => "Yes", |p| p.data_in_order.pdus.into(), 1;
);
keys!(key_18_data_sequence_in_order_stays_yes:
    "DataSequenceInOrder=No" => "Yes", |p| p.data_in_order.sequences.into(), 1;
    "DataSequenceInOrder=Yes" => "Yes", |p| p.data_in_order.sequences.into(), 1;
);
keys!(key_19_error_recovery_level_is_what_we_have:
    "ErrorRecoveryLevel=0" => "0", |p| p.error_recovery_level.into(), 0;
    "ErrorRecoveryLevel=2" => "0", |p| p.error_recovery_level.into(), 0;
);
keys!(key_21_task_reporting:
    "TaskReporting=RFC3720" => "RFC3720", |_| 0, 0;
    "TaskReporting=RFC3720,ResponseFence,FastAbort" => "RFC3720", |_| 0, 0;
    "TaskReporting=FastAbort,RFC3720" => "RFC3720", |_| 0, 0;
);
keys!(key_22_protocol_level_is_the_smaller:
    "iSCSIProtocolLevel=0" => "0", |p| p.protocol_level.into(), 0;
    "iSCSIProtocolLevel=1" => "1", |p| p.protocol_level.into(), 1;
    "iSCSIProtocolLevel=2" => "1", |p| p.protocol_level.into(), 1;
    "iSCSIProtocolLevel=31" => "1", |p| p.protocol_level.into(), 1;
);
keys!(key_23_node_architecture_changes_nothing:
    "X#NodeArchitecture=ExampleOS/v1.2" => "", |p| u64::from(*p == expected_with_architecture()), 1;
);
keys!(key_24_markers_are_refused:
    "IFMarker=Yes" => "No", |_| 0, 0;
    "OFMarker=No" => "No", |_| 0, 0;
);
keys!(key_25_marker_intervals_are_refused:
    "IFMarkInt=2048~8192" => "Reject", |_| 0, 0;
    "OFMarkInt=2048" => "Reject", |_| 0, 0;
);
keys!(key_26_private_keys_are_not_understood:
    "X-com.example.key=1" => "NotUnderstood", |_| 0, 0;
    "Y-com.example.digest=1" => "NotUnderstood", |_| 0, 0;
    "Z-com.example.auth=1" => "NotUnderstood", |_| 0, 0;
);
keys!(key_28_keys_of_iser_are_not_understood:
    "RDMAExtensions=Yes" => "NotUnderstood", |_| 0, 0;
    "InitiatorRecvDataSegmentLength=8192" => "NotUnderstood", |_| 0, 0;
    "MaxOutstandingUnexpectedPDUs=4" => "NotUnderstood", |_| 0, 0;
);

fn expected_with_architecture() -> Params {
    let mut peer = Peer::new();
    peer.policy.bounds = bounds();
    peer.play("I> LoginRequest T csg=1 nsg=3 | @names InitialR2T=Yes ImmediateData=No");
    peer.params.clone()
}

#[test]
fn key_03_send_targets_belongs_to_full_feature() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> TextRequest itt=1 F | SendTargets=
         D< SendTargets Own
         D> targets iqn.2025-01.org.example:disk=192.0.2.1:3260,1
         T< TextResponse itt=1 F | TargetName=iqn.2025-01.org.example:disk TargetAddress=192.0.2.1:3260,1",
    );
}

// covers: KEY-04, KEY-05, LGN-05, NAM-01, NAM-02
#[test]
fn key_04_names_are_normalised() {
    let mut peer = Peer::new();
    peer.play("I> LoginRequest T csg=1 nsg=3 | InitiatorName=IQN.2025-01.ORG.Example:Host TargetName=eui.02004567A425678D");
    assert!(peer.output.pop_front().expect("an answer").line.contains("nsg=3"));
    let names = &peer.policy.admitted[0];
    assert_eq!(names.initiator.as_str(), "iqn.2025-01.org.example:host");
    assert_eq!(names.target.as_ref().expect("named").as_str(), "eui.02004567a425678d");
    for bad in ["iqn.2025-01.org.example:a_b", "host", "iqn.2025-13.org", "eui.1234"] {
        let mut peer = Peer::new();
        peer.play(&format!(
            "I> LoginRequest T csg=1 nsg=3 | InitiatorName={bad} TargetName=iqn.2025-01.org.example:disk
             T< LoginResponse status=InitiatorError
             D< Close Refused"
        ));
    }
}

#[test]
fn key_05_the_initiator_name_comes_on_every_connection() {
    let mut peer = Peer::new();
    peer.policy.joins = Some(Params::default());
    peer.tsih = iscsi_core::wire::Tsih(7);
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | TargetName=iqn.2025-01.org.example:disk
         T< LoginResponse status=MissingParameter
         D< Close Refused",
    );
}

#[test]
fn key_06_aliases() {
    let mut peer = Peer::new();
    peer.policy.target_alias = Some("Disk 1".into());
    peer.play("I> LoginRequest T csg=1 nsg=3 | @names InitiatorAlias=my-host");
    let line = peer.output.pop_front().expect("an answer").line;
    assert!(line.contains("TargetAlias=Disk 1") && !line.contains("InitiatorAlias"), "{line}");
}

#[test]
fn key_07_target_address_is_not_for_initiators() {
    let mut peer = Peer::new();
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | @names TargetAddress=192.0.2.1:3260,1
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
}

#[test]
fn key_08_the_portal_group_tag_is_told_first_and_once() {
    for (tag, session) in [(0, ""), (65535, ""), (1, "SessionType=Discovery")] {
        let mut peer = Peer::new();
        peer.policy.portal_group_tag = tag;
        peer.play(&format!(
            "I> LoginRequest C csg=0 | @initiator {session}
             T< LoginResponse status=Success !T | 
             I> LoginRequest T csg=0 nsg=1 | TargetName=iqn.2025-01.org.example:disk
             T< LoginResponse status=Success T nsg=1 | TargetPortalGroupTag={tag}
             I> LoginRequest T csg=1 nsg=3
             T< LoginResponse status=Success T nsg=3 | MaxRecvDataSegmentLength=262144"
        ));
    }
}

/// The two booleans in all combinations of both sides.
// covers: KEY-09, KEY-10, TXT-13
#[test]
fn key_09_initial_r2t_and_immediate_data() {
    for ours in [false, true] {
        for theirs in [false, true] {
            let word = |yes| if yes { "Yes" } else { "No" };
            let mut peer = Peer::new();
            (peer.policy.bounds.bursts.initial_r2t, peer.policy.bounds.bursts.immediate_data) = (ours, ours);
            let keys = format!("InitialR2T={0} ImmediateData={0}", word(theirs));
            peer.play(&format!("I> LoginRequest T csg=1 nsg=3 | @names {keys}"));
            let line = peer.output.pop_front().expect("an answer").line;
            assert!(line.contains(&format!("InitialR2T={}", word(ours || theirs))), "{line}");
            assert!(line.contains(&format!("ImmediateData={}", word(ours && theirs))), "{line}");
            assert_eq!(peer.params.bursts.initial_r2t, ours || theirs);
            assert_eq!(peer.params.bursts.immediate_data, ours && theirs);
        }
    }
    let peer = Peer::logged_in("");
    assert!(
        peer.params.bursts.initial_r2t && peer.params.bursts.immediate_data,
        "the defaults of the standard"
    );
}

// covers: KEY-11, TXT-12
#[test]
fn key_11_out_of_range_declarations_are_refused() {
    for bad in ["511", "16777216", "0", "x"] {
        let mut peer = Peer::new();
        peer.play(&format!("I> LoginRequest csg=1 | @names MaxRecvDataSegmentLength={bad}"));
        let line = peer.output.pop_front().expect("an answer").line;
        assert!(
            line.contains("MaxRecvDataSegmentLength=Reject") || line.contains("InitiatorError"),
            "{bad}: {line}"
        );
    }
}

#[test]
fn key_20_session_type_is_said_first() {
    for (keys, status) in [
        ("SessionType=Foo", LoginStatus::SessionTypeNotSupported),
        ("SessionType=discovery", LoginStatus::SessionTypeNotSupported),
    ] {
        let mut peer = Peer::new();
        peer.play(&format!("I> LoginRequest T csg=1 nsg=3 | @names {keys}"));
        assert_eq!(peer.refusal.expect("refused").status, status);
    }
    let mut peer = Peer::new();
    peer.play("I> LoginRequest csg=1 | @names");
    peer.output.clear();
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | SessionType=Discovery
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
}

#[test]
fn key_27_auth_method() {
    for (offer, status) in [("None", "Success"), ("CHAP,None", "Success"), ("KRB5,None", "Success")] {
        let mut peer = Peer::new();
        peer.play(&format!(
            "I> LoginRequest T csg=0 nsg=1 | @names AuthMethod={offer}
             T< LoginResponse status={status} T nsg=1 | AuthMethod=None TargetPortalGroupTag=1"
        ));
    }
    for offer in ["CHAP", "KRB5,SRP", "none", ""] {
        let mut peer = Peer::new();
        peer.play(&format!(
            "I> LoginRequest T csg=0 nsg=1 | @names AuthMethod={offer}
             T< LoginResponse status=AuthenticationFailure
             D< Close Refused"
        ));
    }
}

#[test]
fn key_29_leading_only_keys_on_a_later_connection() {
    for key in [
        "MaxConnections=1",
        "InitialR2T=Yes",
        "ImmediateData=Yes",
        "MaxBurstLength=4096",
        "FirstBurstLength=4096",
        "DefaultTime2Wait=2",
        "DefaultTime2Retain=2",
        "MaxOutstandingR2T=1",
        "DataPDUInOrder=Yes",
        "DataSequenceInOrder=Yes",
        "ErrorRecoveryLevel=0",
        "TaskReporting=RFC3720",
        "iSCSIProtocolLevel=1",
    ] {
        let mut peer = Peer::new();
        peer.policy.joins = Some(Params {
            bursts: Bursts { max_burst_length: 8192, ..Params::default().bursts },
            ..Params::default()
        });
        peer.play(&format!(
            "I> LoginRequest T csg=1 nsg=3 tsih=7 | @names {key}
             T< LoginResponse status=InitiatorError
             D< Close Refused"
        ));
    }
    // The parameters of the connection are its own; those of the session stay in effect.
    let session = Params {
        bursts: Bursts { max_burst_length: 8192, first_burst_length: 4096, ..Params::default().bursts },
        max_send_data_segment_length: 512,
        ..Params::default()
    };
    let mut peer = Peer::new();
    peer.policy.joins = Some(session);
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 tsih=7 | @names HeaderDigest=CRC32C MaxRecvDataSegmentLength=4096",
    );
    assert!(peer.output.pop_front().expect("an answer").line.contains("nsg=3"));
    assert_eq!((peer.params.bursts.max_burst_length, peer.params.max_send_data_segment_length), (8192, 4096));
    assert!(peer.params.digests.header);
}

/// SessionType is for the leading connection only. A host that repeats it on another one does no harm; no other value is
/// accepted.
// covers: KEY-29, KEY-20
#[test]
fn key_29_the_type_of_the_session_may_be_said_again() {
    let joining = || {
        let mut peer = Peer::new();
        peer.policy.joins = Some(Params::default());
        peer
    };
    joining().play(
        "I> LoginRequest csg=1 tsih=7 | @names SessionType=Normal
         T< LoginResponse status=Success
         I> LoginRequest csg=1 tsih=7 | SessionType=Normal HeaderDigest=None
         T< LoginResponse status=Success
         I> LoginRequest csg=1 tsih=7 | SessionType=Discovery
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
}

/// No key is assumed to have been answered, or offered.
#[test]
fn key_30_no_key_is_implied() {
    let peer = Peer::logged_in_with("", |peer| peer.policy.bounds = bounds());
    let expected = Params { max_recv_data_segment_length: 32768, ..Params::default() };
    assert_eq!(peer.params, expected);
}
