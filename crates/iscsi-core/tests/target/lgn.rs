//! Login.

use iscsi_core::target::login::{LoginReply, Refusal, TargetLogin};
use iscsi_core::wire::{
    Cid, CmdSn, LoginRequest, LoginResponse, LoginStage, LoginStatus, StatSn, TextBuilder, Tsih,
};

use crate::play::Peer;
use crate::policy::{INITIATOR, Policy, TARGET, login_request, rx};

fn refusing(status: LoginStatus) -> Refusal {
    Refusal::new(status, "RFC 7143 11.13.5", "refused for the test", "do nothing")
}

#[test]
fn lgn_01_anything_but_a_login_first_is_not_answered() {
    for line in [
        "NopOut itt=1",
        "ScsiCommand itt=1 F",
        "TextRequest itt=1 F",
        "LogoutRequest itt=1",
        "DataOut itt=1 F",
    ] {
        Peer::new().play(&format!("I> {line}\nD< Close Refused"));
    }
}

#[test]
fn lgn_02_other_pdus_during_a_login_end_it() {
    for line in ["NopOut itt=1", "ScsiCommand itt=1 F", "LogoutRequest itt=1"] {
        Peer::new().play(&format!(
            "I> LoginRequest csg=1 | @names
             T< LoginResponse status=Success !T
             I> {line}
             T< LoginResponse status=InvalidDuringLogin
             D< Close Refused"
        ));
    }
}

#[test]
fn lgn_02_a_login_that_is_complete_takes_nothing_more() {
    let (mut policy, mut login) = (Policy::default(), TargetLogin::new(StatSn(1)));
    let mut text = TextBuilder::new();
    text.push("InitiatorName", INITIATOR);
    text.push("TargetName", TARGET);
    let nsg = Some(LoginStage::FullFeature);
    let request = LoginRequest { transit: true, csg: LoginStage::Operational, nsg, ..login_request() };
    let pdu = rx(request.to_bhs(), text.finish());
    assert!(matches!(login.handle_pdu(&pdu, &mut policy), LoginReply::Complete(_)));
    assert!(matches!(login.handle_pdu(&pdu, &mut policy), LoginReply::Refuse { .. }));
}

/// The owner of the sessions decides which session it will be: it is given everything that the decision needs.
// covers: LGN-03, LGN-04, LGN-06, LGN-20, NAM-04
#[test]
fn lgn_03_the_policy_sees_the_names_and_tags_and_decides() {
    let mut peer = Peer::new();
    peer.play("I5> LoginRequest T csg=1 nsg=3 tsih=9 | @names");
    let names = &peer.policy.admitted[0];
    assert_eq!((names.tsih, names.cid, names.isid), (Tsih(9), Cid(5), peer.isid));
    assert!(!names.discovery && names.target.is_some());
    for status in [
        LoginStatus::NotFound,
        LoginStatus::AuthorizationFailure,
        LoginStatus::TargetRemoved,
        LoginStatus::SessionDoesNotExist,
        LoginStatus::CannotIncludeInSession,
        LoginStatus::TooManyConnections,
        LoginStatus::ServiceUnavailable,
        LoginStatus::OutOfResources,
    ] {
        let mut peer = Peer::new();
        peer.policy.refusal = Some(refusing(status));
        peer.play(&format!(
            "I> LoginRequest T csg=1 nsg=3 | @names
             T< LoginResponse status={status:?} !T tsih=0 |
             D< Close Refused"
        ));
    }
}

#[test]
fn lgn_05_names_come_in_the_first_request() {
    for text in ["TargetName=iqn.2025-01.org.example:disk", "@initiator", "X-a=b", "", "InitiatorAlias=a"] {
        let mut peer = Peer::new();
        peer.play(&format!(
            "I> LoginRequest T csg=1 nsg=3 | {text}
             T< LoginResponse status=MissingParameter
             D< Close Refused"
        ));
    }
    // A discovery session names no target; one named later would change the request.
    let mut peer = Peer::new();
    peer.play("I> LoginRequest csg=1 | @initiator SessionType=Discovery");
    peer.output.clear();
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | TargetName=iqn.2025-01.org.example:disk
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
}

#[test]
fn lgn_07_versions() {
    Peer::new().play(
        "I> LoginRequest T csg=1 nsg=3 version_max=1 version_min=1 | @names
         T< LoginResponse status=UnsupportedVersion
         D< Close Refused",
    );
    // A newer initiator that also supports our version; the answer says 0, which the audit checks in every response.
    Peer::new().play(
        "I> LoginRequest T csg=1 nsg=3 version_max=9 version_min=0 | @names
         T< LoginResponse status=Success T",
    );
}

#[test]
fn lgn_08_stage_moves() {
    for (csg, nsg) in [(0, 1), (0, 3), (1, 3)] {
        Peer::new().play(&format!(
            "I> LoginRequest T csg={csg} nsg={nsg} | @names
             T< LoginResponse status=Success T csg={csg} nsg={nsg}"
        ));
    }
    for (csg, nsg) in [(0, 0), (1, 1), (1, 0), (3, 3), (3, 1)] {
        Peer::new().play(&format!(
            "I> LoginRequest T csg={csg} nsg={nsg} | @names
             T< LoginResponse status=InitiatorError
             D< Close Refused"
        ));
    }
    // Without T the stage does not change, and the next request must have the same stage.
    Peer::new().play(
        "I> LoginRequest csg=0 | @names
         T< LoginResponse status=Success csg=0 !T !nsg
         I> LoginRequest T csg=1 nsg=3
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
    Peer::new().play(
        "I> LoginRequest T csg=0 nsg=1 | @names
         T< LoginResponse status=Success T nsg=1
         I> LoginRequest T csg=0 nsg=1
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
}

/// The reserved stage 2, in either place.
// covers: LGN-08, PDU-03
#[test]
fn lgn_08_stage_two_is_reserved() {
    for (at, xor) in [(1, 0b0000_1100), (1, 0b0000_0001)] {
        let mut peer = Peer::new();
        let (request, _) = crate::pdus::build("LoginRequest T csg=1 nsg=3", &mut peer);
        let text = crate::play::text_bytes("@names");
        peer.feed(crate::pdus::mutated(request.to_bhs(), at, xor), Default::default(), text, None);
        peer.play(
            "T< LoginResponse status=InitiatorError
             D< Close Refused",
        );
    }
}

/// A proposal of the target keeps the stage open until it is answered.
#[test]
fn lgn_09_no_transit_with_unanswered_proposals() {
    let mut peer = Peer::new();
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | @names InitialR2T=No MaxBurstLength=4096
         T< LoginResponse status=Success !T
         # The initiator does not answer, and asks again.
         I> LoginRequest T csg=1 nsg=3
         T< LoginResponse status=Success !T |
         I> LoginRequest T csg=1 nsg=3 | FirstBurstLength=1024
         T< LoginResponse status=Success T nsg=3",
    );
}

// covers: LGN-10, LGN-18
#[test]
fn lgn_10_the_tsih_comes_with_the_last_response() {
    Peer::new().play(
        "I> LoginRequest T csg=0 nsg=1 | @names
         T< LoginResponse status=Success T csg=0 nsg=1 tsih=0 isid=0x800102030405
         I> LoginRequest csg=1 | InitialR2T=No
         T< LoginResponse status=Success csg=1 !T tsih=0
         I> LoginRequest T csg=1 nsg=3
         T< LoginResponse status=Success T csg=1 nsg=3 tsih=7 isid=0x800102030405",
    );
    // Everything by default, in one round trip.
    Peer::new().play(
        "I> LoginRequest T csg=1 nsg=3 | @names
         T< LoginResponse status=Success T csg=1 nsg=3 tsih=7",
    );
}

#[test]
fn lgn_11_what_must_not_change_does_not() {
    for change in ["isid=77", "tsih=3", "cid=2", "itt=9", "version_min=1"] {
        let mut peer = Peer::new();
        peer.play("I> LoginRequest csg=1 | @names");
        peer.output.clear();
        peer.play(&format!("I> LoginRequest T csg=1 nsg=3 {change}"));
        let refusal = peer.refusal.as_ref().unwrap_or_else(|| panic!("{change} was accepted"));
        assert_eq!(refusal.status.class(), 2, "{change}");
    }
}

#[test]
fn lgn_12_the_first_command_has_the_cmd_sn_of_the_login() {
    for first in [0u32, 123, 0xffff_ffff] {
        let mut peer = Peer::logged_in_with("", |peer| peer.cmd_sn = CmdSn(first));
        let after = first.wrapping_add(1);
        peer.play(&format!(
            "I> NopOut itt=1 cmd_sn={first}
             T< NopIn itt=1 exp_cmd_sn={after}
             I> NopOut itt=2 cmd_sn={after}
             T< NopIn itt=2"
        ));
    }
}

/// StatSN begins at 0xfffffffe in these tests and wraps in the third response; the audit checks that each response takes one.
#[test]
fn lgn_13_stat_sn_counts_login_responses() {
    Peer::new().play(
        "I> LoginRequest csg=1 | @names
         T< LoginResponse stat_sn=4294967294
         I> LoginRequest csg=1
         T< LoginResponse stat_sn=4294967295
         I> LoginRequest T csg=1 nsg=3
         T< LoginResponse stat_sn=0
         I> NopOut itt=1
         T< NopIn itt=1 stat_sn=1",
    );
}

#[test]
fn lgn_14_a_refusal_closes_and_belongs_to_the_request() {
    let mut peer = Peer::new();
    peer.policy.refusal = Some(refusing(LoginStatus::NotFound));
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 itt=0x1234 | @names
         T< LoginResponse itt=4660 status=NotFound isid=0x800102030405 !T
         D< Close Refused",
    );
    let told = peer.refusal.expect("for the log").to_string();
    assert!(
        told.contains("refused for the test") && told.contains("RFC 7143") && told.contains("do nothing")
    );
    // Even when the header itself cannot be accepted.
    Peer::new().play(
        "I> LoginRequest T csg=3 nsg=3 itt=0x1234 | @names
         T< LoginResponse itt=4660 status=InitiatorError isid=0x800102030405
         D< Close Refused",
    );
}

#[test]
fn lgn_15_redirections_carry_addresses() {
    for status in [LoginStatus::TargetMovedTemporarily, LoginStatus::TargetMovedPermanently] {
        let mut refusal = refusing(status);
        refusal.redirect = vec!["192.0.2.1:3260".into(), "[2001:db8::1]:3260".into()];
        let mut peer = Peer::new();
        peer.policy.refusal = Some(refusal);
        peer.play(&format!(
            "I> LoginRequest T csg=1 nsg=3 | @names
             T< LoginResponse status={status:?} | TargetAddress=192.0.2.1:3260 TargetAddress=[2001:db8::1]:3260
             D< Close Refused"
        ));
    }
}

#[test]
fn lgn_17_an_empty_security_stage() {
    Peer::new().play(
        "I> LoginRequest T csg=0 nsg=1 | @names
         T< LoginResponse status=Success T nsg=1
         I> LoginRequest T csg=1 nsg=3
         T< LoginResponse status=Success T nsg=3 tsih=7",
    );
    Peer::new().play(
        "I> LoginRequest T csg=0 nsg=3 | @names
         T< LoginResponse status=Success T csg=0 nsg=3 tsih=7",
    );
}

/// A login that does not progress is dropped by the owner of the connection; it holds little until then.
// covers: LGN-19
#[test]
fn lgn_19_an_idle_login_is_small() {
    let mut peer = Peer::new();
    peer.play("I> LoginRequest C csg=1 | @initiator\nT< LoginResponse status=Success |");
    assert!(peer.policy.admitted.is_empty(), "nothing is asked of anybody before the names are complete");
}

// covers: LGN-21, LGN-02
#[test]
fn lgn_21_logins_and_logouts_out_of_place() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | @names
         T< Reject reason=ProtocolError of_opcode=0x03
         I> NopOut itt=1
         T< NopIn itt=1",
    );
    Peer::new().play(
        "I> LoginRequest csg=1 | @names
         T< LoginResponse status=Success !T
         I> LogoutRequest itt=1
         T< LoginResponse status=InvalidDuringLogin
         D< Close Refused",
    );
}

/// A refusal after the login was complete, because the session cannot be created: it has the same form.
#[test]
fn lgn_20_late_refusal() {
    let mut policy = crate::policy::Policy::default();
    let established = crate::policy::establish(&mut policy, crate::policy::login_request(), &[]);
    let pdu = established.refuse(&refusing(LoginStatus::OutOfResources));
    let response = LoginResponse::parse(&pdu.bhs).expect("parses");
    assert_eq!(
        (response.status, response.transit, response.tsih),
        (LoginStatus::OutOfResources, false, Tsih(0))
    );
}
