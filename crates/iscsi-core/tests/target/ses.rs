//! Sessions: reinstatement, loss of the connection, end.

use iscsi_core::Time;
use iscsi_core::target::actions::{Action, CloseReason};
use iscsi_core::target::session::{Holdings, SessionConfig, TargetSession};
use iscsi_core::wire::{Cid, LoginRequest, LoginResponse, Tsih};
use std::time::Duration;

use crate::play::Peer;
use crate::policy::{Policy, establish, login_request};

/// The session is ended because a login took its place: it closes, aborts its tasks, and holds nothing.
#[test]
fn ses_01_a_session_that_is_replaced_dies() {
    let mut peer = Peer::logged_in("InitialR2T=No");
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=512
         D< Start itt=1
         I> ScsiCommand itt=2 W edtl=512
         D< Start itt=2
         I> ScsiCommand itt=3 F R edtl=512 cmd_sn=9
         D> terminate
         D< Close Ended
         D< Abandon itt=1
         D< Abandon itt=2
         D> gone itt=2
         # The device server finishes the other one: nothing is sent, the session is over.
         D> complete itt=1 data=512
         D< Ended",
    );
    assert_eq!(peer.session().holdings(), Holdings::default());
    // PDUs that still arrive on the old connection have no effect.
    peer.play("I> NopOut itt=9");
    peer.check_nothing_left();
}

/// The command of this number, which reads so many bytes.
fn read(number: u32, bytes: u32) -> iscsi_core::wire::ScsiCommand {
    iscsi_core::wire::ScsiCommand {
        immediate: false,
        final_bit: true,
        read: true,
        write: false,
        attr: iscsi_core::wire::TaskAttribute::Simple,
        priority: 0,
        lun: Default::default(),
        itt: iscsi_core::wire::Itt(number),
        expected_data_transfer_length: bytes,
        cmd_sn: iscsi_core::wire::CmdSn(number),
        exp_stat_sn: Default::default(),
        cdb: [0; 16],
    }
}

#[test]
fn the_last_command_that_waits_to_start_is_known_before_it_starts() {
    let mut policy = Policy::default();
    let established = establish(&mut policy, login_request(), &[]);
    let mut session = TargetSession::new(established, Tsih(1), SessionConfig::default(), Time::ZERO);
    while session.poll_action().is_some() {}
    let mut receive = |number, length| {
        let pdu = crate::policy::rx(read(number, length).to_bhs(), bytes::Bytes::new());
        session.handle_pdu(Time::ZERO, Cid(1), &pdu);
        session.last_to_start().map(|last| last.read_length)
    };
    assert_eq!((receive(1, 512), receive(2, 1024)), (Some(512), Some(1024)));
    while session.poll_action().is_some() {}
    assert!(session.last_to_start().is_none());
}

// covers: SES-03, NUM-02
#[test]
fn ses_03_the_connection_is_replaced_and_its_tasks_die() {
    let mut policy = Policy::default();
    let established = establish(&mut policy, login_request(), &[]);
    let mut session = TargetSession::new(established, Tsih(1), SessionConfig::default(), Time::ZERO);
    let drain =
        |session: &mut TargetSession| std::iter::from_fn(|| session.poll_action()).collect::<Vec<_>>();
    drain(&mut session);
    let command = read(1, 512);
    session.handle_pdu(Time::ZERO, Cid(1), &crate::policy::rx(command.to_bhs(), bytes::Bytes::new()));
    assert!(matches!(drain(&mut session)[..], [Action::Start(_)]));
    // The same CID again, while the old connection seems to be up.
    policy.joins = Some(session.params().clone());
    let again = LoginRequest { tsih: Tsih(1), cmd_sn: iscsi_core::wire::CmdSn(2), ..login_request() };
    let established = establish(&mut policy, again, &[]);
    session.join(established, Time::ZERO);
    let actions = drain(&mut session);
    let [
        Action::Close { reason: CloseReason::Replaced, .. },
        Action::Abandon { .. },
        Action::Send { pdu, .. },
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    let response = LoginResponse::parse(&pdu.bhs).expect("parses");
    // The numbering of the session continues.
    assert_eq!((response.tsih, response.numbers.exp_cmd_sn.0), (Tsih(1), 2));
    assert_eq!(session.connection_count(), 1);
    assert_eq!(session.outstanding(), 0);
}

#[test]
fn ses_04_a_lost_session_waits_for_time2wait_and_time2retain() {
    for (wait, retain, total) in [(2, 20, 22), (2, 0, 2), (5, 1, 6)] {
        let mut peer = Peer::logged_in(&format!("DefaultTime2Wait={wait} DefaultTime2Retain={retain}"));
        peer.play(
            "I> ScsiCommand itt=1 F R edtl=512
             D< Start itt=1
             X
             D< Abandon itt=1
             D> gone itt=1",
        );
        assert_eq!(peer.session().poll_timeout(), Some(Duration::from_secs(total)));
        peer.play(&format!("@ {}s\n@ 1s\nD< Ended", total - 1));
        assert_eq!(peer.session().holdings(), Holdings::default());
    }
}

/// The end waits for the device server: nothing from a dead session may touch the medium later.
// covers: SES-01, SES-04
#[test]
fn ses_04_the_end_waits_for_the_device_server() {
    let mut peer = Peer::logged_in("DefaultTime2Retain=0");
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=512
         D< Start itt=1
         X
         D< Abandon itt=1
         @ 100s
         D> gone itt=1
         D< Ended",
    );
}

/// Another login with the same name and ISID: the core accepts it from any address, because an address does not identify the
/// initiator.
// covers: SES-05, NAM-02
#[test]
fn ses_05_equal_names_are_equal_wherever_they_come_from() {
    let mut first = Policy::default();
    let mut second = Policy::default();
    let a = establish(&mut first, login_request(), &[]);
    let b = establish(&mut second, login_request(), &[]);
    assert_eq!(a.names, b.names);
}

/// A session without connection is told to end.
#[test]
fn ses_04_terminated_while_it_waits() {
    let mut peer = Peer::logged_in("");
    peer.play("X");
    peer.play("D> terminate\nD< Ended");
}
