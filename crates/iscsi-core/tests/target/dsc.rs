//! Discovery sessions and Text in full feature phase.

use crate::play::Peer;

fn discovery(keys: &str) -> Peer {
    let mut peer = Peer::new();
    peer.play(&format!("I> LoginRequest T csg=1 nsg=3 | @initiator SessionType=Discovery {keys}"));
    let line = peer.output.pop_front().expect("an answer").line;
    assert!(line.contains("status=Success T"), "{line}");
    peer
}

#[test]
fn dsc_01_only_send_targets_and_logout() {
    let mut peer = discovery("");
    for (line, opcode) in [
        ("ScsiCommand itt=1 F R edtl=36", "0x01"),
        ("TaskManagementRequest I itt=1 function=LogicalUnitReset", "0x02"),
        ("SnackRequest itt=1 type=Status", "0x10"),
        ("DataOut itt=1 F", "0x05"),
        ("LogoutRequest itt=1 reason=CloseConnection", "0x06"),
        ("LogoutRequest itt=1 reason=RemoveConnectionForRecovery", "0x06"),
    ] {
        let cmd_sn = if matches!(opcode, "0x05" | "0x10") { "" } else { "cmd_sn=1" };
        peer.play(&format!(
            "I> {line} {cmd_sn}\nT< Reject reason=ProtocolError of_opcode={opcode} exp_cmd_sn=1"
        ));
    }
    peer.play(
        "I> TextRequest itt=2 F cmd_sn=1 | TargetName=iqn.2025-01.org.example:disk
         T< Reject reason=ProtocolError of_opcode=0x04
         # Pings are tolerated.
         I> NopOut itt=3 cmd_sn=2
         T< NopIn itt=3
         I> LogoutRequest itt=4 cmd_sn=3
         T< LogoutResponse itt=4 response=Success
         D< Close Logout
         D< Ended",
    );
}

#[test]
fn dsc_02_all_targets_with_all_addresses() {
    let mut peer = discovery("");
    peer.play(
        "I> TextRequest itt=1 F | SendTargets=All
         D< SendTargets All
         D> targets iqn.2025-01.org.example:a=192.0.2.1:3260,1;[2001:db8::1]:3260,2 iqn.2025-01.org.example:b=192.0.2.1:3260,1
         T< TextResponse itt=1 F | TargetName=iqn.2025-01.org.example:a TargetAddress=192.0.2.1:3260,1 \
            TargetAddress=[2001:db8::1]:3260,2 TargetName=iqn.2025-01.org.example:b TargetAddress=192.0.2.1:3260,1
         # Nothing to see: nothing is said.
         I> TextRequest itt=2 F | SendTargets=All
         D< SendTargets All
         D> targets
         T< TextResponse itt=2 F |",
    );
}

#[test]
fn dsc_03_one_target_by_name() {
    let mut peer = discovery("");
    peer.play(
        "I> TextRequest itt=1 F | SendTargets=iqn.2025-01.org.example:a
         D< SendTargets name=iqn.2025-01.org.example:a
         D> targets iqn.2025-01.org.example:a=192.0.2.1:3260,1
         T< TextResponse itt=1 F | TargetName=iqn.2025-01.org.example:a TargetAddress=192.0.2.1:3260,1
         I> TextRequest itt=2 F | SendTargets=iqn.2025-01.org.example:unknown
         D< SendTargets name=iqn.2025-01.org.example:unknown
         D> targets
         T< TextResponse itt=2 F |
         I> NopOut itt=3
         T< NopIn itt=3",
    );
}

// covers: DSC-04, KEY-03
#[test]
fn dsc_04_normal_sessions_ask_for_their_own_target() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> TextRequest itt=1 F | SendTargets=
         D< SendTargets Own
         D> targets iqn.2025-01.org.example:disk=192.0.2.1:3260,1
         T< TextResponse itt=1 F | TargetName=iqn.2025-01.org.example:disk TargetAddress=192.0.2.1:3260,1
         I> TextRequest itt=2 F | SendTargets=All
         T< TextResponse itt=2 F | SendTargets=Reject
         # Whether a foreign name gives anything is for the owner of the targets to say.
         I> TextRequest itt=3 F | SendTargets=iqn.2025-01.org.example:other
         D< SendTargets name=iqn.2025-01.org.example:other
         D> targets
         T< TextResponse itt=3 F |",
    );
    let mut peer = discovery("");
    peer.play(
        "I> TextRequest itt=1 F | SendTargets=
         T< Reject reason=ProtocolError of_opcode=0x04",
    );
}

// covers: DSC-05, DSC-06, TXR-01, TXT-05
#[test]
fn dsc_05_long_answers_come_in_pieces() {
    let mut peer = discovery("MaxRecvDataSegmentLength=512");
    let records: Vec<String> = (0..500)
        .map(|i| format!("iqn.2025-01.org.example:disk.{i}=192.0.2.1:3260,1;[2001:db8::1]:3260,1"))
        .collect();
    peer.play("I> TextRequest itt=1 F lun=3 | SendTargets=All\nD< SendTargets All");
    peer.play_open(&format!("D> targets {}", records.join(" ")));
    let mut text = Vec::new();
    let mut last_ttt = None;
    loop {
        let reply = peer.output.pop_front().expect("a piece");
        assert!(reply.data.len() <= 512);
        text.extend_from_slice(&reply.data);
        if reply.line.contains(" F ") {
            assert!(!reply.line.contains("ttt="), "{}", reply.line);
            break;
        }
        assert!(reply.line.contains(" C "), "{}", reply.line);
        let ttt = reply.line.split(' ').find_map(|word| word.strip_prefix("ttt=")).expect("a tag").to_owned();
        assert_ne!(last_ttt.as_ref(), Some(&ttt));
        peer.play(&format!("I> TextRequest itt=1 F lun=3 ttt={ttt}"));
        last_ttt = Some(ttt);
    }
    let text = String::from_utf8(text).expect("UTF-8");
    let pairs: Vec<&str> = text.split_terminator('\0').collect();
    assert_eq!(pairs.len(), 1500);
    for (i, record) in pairs.chunks(3).enumerate() {
        assert_eq!(record[0], format!("TargetName=iqn.2025-01.org.example:disk.{i}"));
        assert_eq!(record[1..], ["TargetAddress=192.0.2.1:3260,1", "TargetAddress=[2001:db8::1]:3260,1"]);
    }
}

#[test]
fn dsc_07_discovery_has_one_connection_and_no_recovery() {
    let mut peer = Peer::new();
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | @initiator SessionType=Discovery ErrorRecoveryLevel=2 MaxConnections=8 InitialR2T=No \
            MaxBurstLength=4096 TaskReporting=RFC3720 iSCSIProtocolLevel=2 DefaultTime2Wait=5
         T< LoginResponse status=Success T | ErrorRecoveryLevel=0 MaxConnections=Irrelevant InitialR2T=Irrelevant \
            MaxBurstLength=Irrelevant TaskReporting=Irrelevant iSCSIProtocolLevel=Irrelevant DefaultTime2Wait=5 \
            TargetPortalGroupTag=1 MaxRecvDataSegmentLength=262144",
    );
    assert_eq!((peer.params.error_recovery_level, peer.params.max_connections), (0, 1));
    // A discovery session whose connection is gone does not wait for it to return.
    peer.play("X\nD< Ended");
}

/// The policy is asked about a discovery session with initiator, ISID and no target.
#[test]
fn dsc_08_unnamed_discovery() {
    let peer = discovery("");
    let names = &peer.policy.admitted[0];
    assert!(names.discovery && names.target.is_none());
    assert_eq!(names.isid, peer.isid);
}

#[test]
fn txr_01_tags_of_a_text_sequence() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> TextRequest itt=1 | X-a=1
         T< TextResponse itt=1 ttt=0 !F !C | X-a=NotUnderstood
         I> TextRequest itt=1 ttt=0 | X-b=1
         T< TextResponse itt=1 ttt=1 !F | X-b=NotUnderstood
         I> TextRequest itt=1 ttt=1 F
         T< TextResponse itt=1 F !ttt |
         # An unknown or outdated tag, and a tag of another sequence.
         I> TextRequest itt=2 ttt=9 F | X-c=1
         T< Reject reason=InvalidPduField of_opcode=0x04 of_itt=2
         I> TextRequest itt=3 | X-d=1
         T< TextResponse itt=3 ttt=3 !F
         I> TextRequest itt=4 ttt=3 F
         T< Reject reason=InvalidPduField of_itt=4",
    );
}

#[test]
fn txr_02_f_is_not_answered_before_it_is_asked() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> TextRequest itt=1 | SendTargets=
         D< SendTargets Own
         D> targets iqn.2025-01.org.example:disk=192.0.2.1:3260,1
         T< TextResponse itt=1 ttt=0 !F | TargetName=iqn.2025-01.org.example:disk TargetAddress=192.0.2.1:3260,1
         I> TextRequest itt=1 ttt=0 F
         T< TextResponse itt=1 F |",
    );
}

// covers: TXR-03, TXT-11
#[test]
fn txr_03_a_sequence_can_be_reset() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> TextRequest itt=1 | X-a=1
         T< TextResponse itt=1 ttt=0 !F
         # From the beginning: what was said before does not count.
         I> TextRequest itt=1 F | X-a=1
         T< TextResponse itt=1 F | X-a=NotUnderstood
         I> TextRequest itt=2 | MaxRecvDataSegmentLength=1024
         T< TextResponse itt=2 ttt=2 !F
         I> TextRequest itt=2 ttt=2 F | MaxRecvDataSegmentLength=2048
         T< Reject reason=ProtocolError of_opcode=0x04
         I> TextRequest itt=2 ttt=2 F
         T< Reject reason=InvalidPduField",
    );
}
