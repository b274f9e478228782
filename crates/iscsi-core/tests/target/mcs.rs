//! Several connections in one session.

use crate::play::{Peer, SOLICITED as KEYS};
use iscsi_core::params::Asymmetric;
use iscsi_core::wire::{Cid, Lun};

/// The window and the TSIH belong to the session, StatSN to the connection.
// covers: MCS-01, LGN-03, NUM-09
#[test]
fn mcs_01_connections_join_and_share_the_window() {
    let mut peer = Peer::with_connections(3, KEYS);
    assert_eq!(peer.session().connection_count(), 3);
    peer.play(
        "I> NopOut I itt=1
         T< NopIn itt=1 stat_sn=4294967295 exp_cmd_sn=1
         I3> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         I2> NopOut itt=3
         T2< NopIn itt=3 stat_sn=4294967295 exp_cmd_sn=3
         D> complete itt=2 data=8
         T3< DataIn itt=2 status=0x00 stat_sn=4294967295 exp_cmd_sn=3
         I3> NopOut I itt=4
         T3< NopIn itt=4 stat_sn=0",
    );
    assert!(!peer.session().has_room_for(Cid(4)) && peer.session().has_room_for(Cid(3)));
}

// covers: NUM-02, MCS-03
#[test]
fn num_02_commands_run_in_order_over_all_connections() {
    let mut peer = Peer::with_connections(2, "InitialR2T=No ImmediateData=No FirstBurstLength=512");
    peer.play(
        "I2> ScsiCommand itt=2 W edtl=512 cmd_sn=2
         I2> DataOut itt=2 F data=512
         I2> NopOut itt=3 cmd_sn=3
         I> ScsiCommand itt=1 F R edtl=8 cmd_sn=1
         D< Start itt=1
         D< Start itt=2
         T2< NopIn itt=3 exp_cmd_sn=4
         D> need itt=2 bytes=512
         D< DataOut itt=2 bytes=512",
    );
}

// covers: MCS-02
#[test]
fn mcs_02_everything_of_a_command_stays_on_its_connection() {
    let mut peer = Peer::with_connections(2, KEYS);
    peer.play(
        "I2> ScsiCommand itt=1 F W edtl=512
         D< Start itt=1
         D> need itt=1 bytes=512
         T2< R2t itt=1 ttt=0 len=512
         I> DataOut itt=1 ttt=0 F data=512
         T< Reject reason=InvalidPduField
         I2> DataOut itt=1 ttt=0 F data=512
         D< DataOut itt=1 bytes=512
         D> complete itt=1
         T2< ScsiResponse itt=1",
    );
}

// covers: MCS-04, LGO-01, LGO-02
#[test]
fn mcs_04_a_connection_is_logged_out_from_another_one() {
    let mut peer = Peer::with_connections(3, KEYS);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8 lun=3
         D< Start itt=1
         I> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         I> LogoutRequest I itt=9 reason=CloseConnection cid=2
         D< Abandon itt=1
         D> gone itt=1
         T< LogoutResponse itt=9 response=Success
         D< Close Logout cid=2
         D> complete itt=2 data=8
         T< DataIn itt=2 status=0x00",
    );
    assert_eq!(peer.session().take_cleared_luns().len(), 0, "the initiator killed them itself");
    peer.play(
        "I> LogoutRequest I itt=9 reason=CloseConnection cid=2
         T< LogoutResponse itt=9 response=CidNotFound
         I3> LogoutRequest I itt=9 reason=CloseConnection cid=3
         T3< LogoutResponse itt=9 response=Success
         D< Close Logout cid=3",
    );
    // The last one closes the session.
    peer.play(
        "I> LogoutRequest I itt=9 reason=CloseConnection cid=1
         T< LogoutResponse itt=9 response=Success
         D< Close Logout cid=1
         D< Ended",
    );
}

/// In asymmetric use a command dies with either of its connections, and its place in the window becomes free.
// covers: MCS-05, LGO-04
#[test]
fn mcs_05_a_command_dies_with_the_connection_that_it_came_on() {
    for (lost, other) in [("", "2"), ("2", "")] {
        let mut peer = Peer::with_connections(2, &format!("{KEYS} X-com.intact.AllegianceFree=Yes"));
        peer.play(&format!(
            "I2> ScsiCommand itt=1 F R edtl=8
             D< Start itt=1
             X{lost}
             D< Abandon itt=1
             T{other}< AsyncMessage event=ConnectionDrop
             D> gone itt=1"
        ));
        assert_eq!(peer.session().holdings().tasks, 0);
    }
}

/// The connection that sent the request is gone before the device server has released the commands: the other is closed
/// nevertheless.
// covers: MCS-04, LGO-01
#[test]
fn mcs_04_a_logout_outlives_the_connection_that_asked_for_it() {
    let mut peer = Peer::with_connections(3, KEYS);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I> LogoutRequest I itt=9 reason=CloseConnection cid=2
         D< Abandon itt=1
         X
         T3< AsyncMessage event=ConnectionDrop parameters=1,2,20
         D> gone itt=1
         D< Close Logout cid=2
         I3> NopOut itt=4
         T3< NopIn itt=4",
    );
    // The same for the session, even if the connection has come back meanwhile; the new one has requested nothing.
    let mut peer = Peer::with_connections(2, KEYS);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I2> LogoutRequest I itt=9 reason=CloseSession
         D< Abandon itt=1
         X2",
    );
    peer.join(2, "");
    peer.play(
        "D> gone itt=1
         D< Close Logout cid=1
         D< Close Logout cid=2
         D< Ended",
    );
}

/// Two requests wait for the same command, and both close its connection: it is closed once.
// covers: MCS-04, LGO-01
#[test]
fn mcs_04_a_connection_that_two_logouts_are_for_is_closed_once() {
    let mut peer = Peer::with_connections(2, KEYS);
    peer.play(
        "I2> ScsiCommand itt=1 F W edtl=512
         D< Start itt=1
         D> need itt=1 bytes=512
         T2< R2t itt=1 ttt=0 len=512
         I> LogoutRequest I itt=8 reason=CloseConnection cid=2
         D< Abandon itt=1
         I> LogoutRequest I itt=9 reason=CloseSession
         D> gone itt=1
         T< LogoutResponse itt=8 response=Success
         D< Close Logout cid=2
         T< LogoutResponse itt=9 response=Success
         D< Close Logout cid=1
         D< Ended",
    );
}

/// A second logout of a connection is not answered before the first: its commands may still reach the medium.
// covers: MCS-04, LGO-01
#[test]
fn mcs_04_a_logout_that_is_asked_for_twice_waits_twice() {
    let mut peer = Peer::with_connections(2, KEYS);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I> LogoutRequest I itt=8 reason=CloseConnection cid=2
         D< Abandon itt=1
         I> LogoutRequest I itt=9 reason=CloseConnection cid=2
         D> gone itt=1
         T< LogoutResponse itt=8 response=Success
         D< Close Logout cid=2
         T< LogoutResponse itt=9 response=Success",
    );
}

/// A login has replaced the connection that is being logged out: the new one stays.
// covers: MCS-04, SES-03
#[test]
fn mcs_04_a_logout_spares_the_successor_of_its_connection() {
    let mut peer = Peer::with_connections(2, KEYS);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I> LogoutRequest I itt=9 reason=CloseConnection cid=2
         D< Abandon itt=1",
    );
    peer.replace(2, "");
    peer.play(
        "D> gone itt=1
         T< LogoutResponse itt=9 response=Success
         I2> NopOut itt=4
         T2< NopIn itt=4",
    );
}

// covers: MCS-04
#[test]
fn mcs_04_one_logout_closes_all() {
    let mut peer = Peer::with_connections(3, KEYS);
    peer.play(
        "I2> LogoutRequest I itt=9 reason=CloseSession
         T2< LogoutResponse itt=9 response=Success
         D< Close Logout cid=1
         D< Close Logout cid=2
         D< Close Logout cid=3
         D< Ended",
    );
}

// covers: MCS-05, LGO-04
#[test]
fn mcs_05_the_others_go_on_and_hear_of_it() {
    let mut peer = Peer::with_connections(3, KEYS);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8 lun=3
         D< Start itt=1
         I3> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         X2
         D< Abandon itt=1
         T< AsyncMessage event=ConnectionDrop parameters=2,2,20
         D> complete itt=2 data=8
         T3< DataIn itt=2 status=0x00
         D> gone itt=1
         I3> NopOut itt=4
         T3< NopIn itt=4",
    );
    assert_eq!(peer.session().take_cleared_luns()[..], [Lun::from_index(3)]);
    assert_eq!(peer.session().recovery_counts().connections_lost, 1);
    // It comes back.
    peer.join(2, "");
    peer.play("I2> NopOut itt=5\nT2< NopIn itt=5");
}

/// Commands lost with their connection leave holes, and an ABORT TASK on another connection fills them.
#[test]
fn mcs_07_holes_of_a_lost_connection_are_filled() {
    let mut peer = Peer::with_connections(2, KEYS);
    peer.play(
        "I> ScsiCommand itt=3 F R edtl=8 cmd_sn=3
         I2> ScsiCommand itt=2 F R edtl=8 cmd_sn=2
         X2
         T< AsyncMessage event=ConnectionDrop
         I> TaskManagementRequest I itt=9 function=AbortTask referenced_task_tag=1 ref_cmd_sn=1 cmd_sn=4
         T< TaskManagementResponse itt=9 response=FunctionComplete
         D< Start itt=3",
    );
    // Or the command itself, with its old number.
    let mut peer = Peer::with_connections(2, KEYS);
    peer.play(
        "I> ScsiCommand itt=2 F R edtl=8 cmd_sn=2
         X2
         T< AsyncMessage event=ConnectionDrop
         I> ScsiCommand itt=1 F R edtl=8 cmd_sn=1
         D< Start itt=1
         D< Start itt=2",
    );
}

/// The answer to a function that reaches tasks of all connections waits until earlier statuses have arrived.
#[test]
fn mcs_06_the_answer_waits_for_earlier_statuses() {
    let mut peer = Peer::with_connections(3, KEYS);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I3> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         D> complete itt=1 data=8
         T2< DataIn itt=1 status=0x00 stat_sn=4294967295
         I> TaskManagementRequest I itt=9 function=LogicalUnitReset
         D< Manage LogicalUnitReset lun=0
         D> abort lun=0 own token=5
         D< Abandon itt=2
         D> gone itt=2
         D< TasksGone token=5
         D> managed FunctionComplete
         T2< NopIn
         I3> NopOut I itt=4
         T3< NopIn itt=4
         I2> NopOut I exp_stat_sn=4294967295 itt=5
         T2< NopIn itt=5
         # Of what is no response of a command nobody waits to hear that it came.
         I2> NopOut I exp_stat_sn=0
         T< TaskManagementResponse itt=9 response=FunctionComplete",
    );
    // Nothing waits for a connection that is gone, or that does not answer.
    let ends = [
        "X2
         T< TaskManagementResponse itt=9
         T< AsyncMessage parameters=2,2,20",
        "@ 10s
         D< Close Silent cid=2
         T< TaskManagementResponse itt=9
         T< AsyncMessage parameters=2,2,20",
    ];
    for end in ends {
        let mut peer = Peer::with_connections(2, KEYS);
        peer.play(
            "I2> ScsiCommand itt=1 F edtl=0
             D< Start itt=1
             D> complete itt=1
             T2< ScsiResponse itt=1
             I> TaskManagementRequest I itt=9 function=ClearTaskSet
             D< Manage ClearTaskSet lun=0
             D> abort lun=0 own token=5
             D< TasksGone token=5
             D> managed FunctionComplete
             T2< NopIn",
        );
        peer.play(end);
    }
}

/// There is only one window: a command refused for its number on one connection is refused on the other.
// covers: NUM-03, NUM-05
#[test]
fn num_05_the_window_is_one() {
    let mut peer = Peer::with_connections(2, KEYS);
    let mut script = String::new();
    for itt in 1..=8 {
        let cid = if itt % 2 == 0 { "2" } else { "" };
        script += &format!("I{cid}> ScsiCommand itt={itt} F R edtl=8\nD< Start itt={itt}\n");
    }
    // The ninth finds the window closed on either connection.
    script += "I> ScsiCommand itt=9 F R edtl=8 cmd_sn=9\nI2> ScsiCommand itt=9 F R edtl=8 cmd_sn=9\n";
    script += "D> complete itt=2 data=8\nT2< DataIn itt=2 status=0x00 exp_cmd_sn=9 max_cmd_sn=9\n";
    script += "I> ScsiCommand itt=9 F R edtl=8 cmd_sn=9\nD< Start itt=9";
    peer.play(&script);
}

const ASYMMETRIC: &str = "InitialR2T=No ImmediateData=Yes FirstBurstLength=1024 MaxBurstLength=1024 \
                          MaxRecvDataSegmentLength=512 X-com.intact.AllegianceFree=Yes";

/// Commands travel on even connections; the PDUs that belong to them on odd ones, one for each even one.
// covers: MCS-02
#[test]
fn mcs_02_asymmetric_use() {
    let mut peer = Peer::with_connections(4, ASYMMETRIC);
    assert_eq!(peer.session().params().asymmetric, Asymmetric::Pairs);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I4> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         D> complete itt=1 data=8
         T3< DataIn itt=1 status=0x00 stat_sn=4294967295
         D> complete itt=2 data=8
         T< DataIn itt=2 status=0x00 stat_sn=4294967295
         # Data that nobody asked for follows the command; what is asked for goes where it was asked for.
         I2> ScsiCommand itt=3 W edtl=2048 data=256
         D< Start itt=3
         I2> DataOut itt=3 F offset=256 data=768
         D> need itt=3 bytes=2048
         T3< R2t itt=3 ttt=0 offset=1024 len=1024
         I2> DataOut itt=3 ttt=0 F offset=1024 data=1024
         T2< Reject reason=InvalidPduField
         I3> DataOut itt=3 ttt=0 F offset=1024 data=1024
         D< DataOut itt=3 bytes=2048
         D> complete itt=3
         T3< ScsiResponse itt=3
         # What comes on an odd one stays there, and so does task management wherever it comes.
         I> ScsiCommand itt=4 F R edtl=8
         D< Start itt=4
         D> complete itt=4 data=8
         T< DataIn itt=4
         I2> ScsiCommand itt=5 F R edtl=8
         D< Start itt=5
         I2> TaskManagementRequest I itt=9 function=AbortTask referenced_task_tag=5 ref_cmd_sn=5
         D< Abandon itt=5
         D> gone itt=5
         T2< TaskManagementResponse itt=9 response=FunctionComplete",
    );
    // If no odd one is left, everything stays on the connection of the command.
    peer.play(
        "I2> LogoutRequest I itt=9 reason=CloseConnection cid=1
         T2< LogoutResponse itt=9
         D< Close Logout cid=1
         X3
         T2< AsyncMessage event=ConnectionDrop
         I2> ScsiCommand itt=6 F R edtl=8
         D< Start itt=6
         D> complete itt=6 data=8
         T2< DataIn itt=6",
    );
}

const HALVES: &str = "InitialR2T=No ImmediateData=Yes FirstBurstLength=1024 MaxBurstLength=1024 \
                      MaxRecvDataSegmentLength=512 X-com.intact.AllegianceFree=Halves";

/// Commands and all their data travel on even connections, answers on the odd ones in turn, whichever carried the command.
// covers: MCS-02
#[test]
fn mcs_02_halves() {
    let mut peer = Peer::with_connections(4, HALVES);
    assert_eq!(peer.session().params().asymmetric, Asymmetric::Halves);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I2> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         I4> ScsiCommand itt=3 F R edtl=8
         D< Start itt=3
         D> complete itt=1 data=8
         T3< DataIn itt=1 status=0x00
         D> complete itt=2 data=8
         T< DataIn itt=2 status=0x00
         D> complete itt=3 data=8
         T3< DataIn itt=3 status=0x00
         # Data is asked for on one half and comes on the other, on any connection of it.
         I2> ScsiCommand itt=4 F W edtl=2048
         D< Start itt=4
         D> need itt=4 bytes=2048
         T< R2t itt=4 ttt=0 offset=0 len=1024
         I3> DataOut itt=4 ttt=0 F offset=0 data=1024
         T3< Reject reason=InvalidPduField
         I4> DataOut itt=4 ttt=0 F offset=0 data=1024
         T< R2t itt=4 ttt=1 offset=1024 len=1024
         I2> DataOut itt=4 ttt=1 F offset=1024 data=1024
         D< DataOut itt=4 bytes=2048
         D> complete itt=4
         T< ScsiResponse itt=4",
    );
}

/// The connection on which data was coming is lost: at level 2 it is asked for again at once, and what comes late is discarded.
// covers: ERL-06, MCS-02, ERL-04
#[test]
fn erl_06_data_that_is_lost_with_its_half_is_asked_for_again() {
    let mut peer = Peer::with_connections(4, &format!("{HALVES} ErrorRecoveryLevel=2"));
    peer.play(
        "I2> ScsiCommand itt=1 F W edtl=2048
         D< Start itt=1
         D> need itt=1 bytes=2048
         T3< R2t itt=1 ttt=0 offset=0 len=1024
         I2> DataOut itt=1 ttt=0 offset=0 data=512
         X2
         T3< R2t itt=1 ttt=1 offset=512 len=512
         T< AsyncMessage event=ConnectionDrop
         I4> DataOut itt=1 ttt=0 F data_sn=1 offset=512 data=512
         I4> DataOut itt=1 ttt=1 F offset=512 data=512
         T3< R2t itt=1 ttt=2 offset=1024 len=1024
         I4> DataOut itt=1 ttt=2 F offset=1024 data=1024
         D< DataOut itt=1 bytes=2048
         D> complete itt=1
         T3< ScsiResponse itt=1",
    );
}

/// The data connection is lost: at level 2 the command continues elsewhere.
// covers: ERL-06, MCS-02
#[test]
fn erl_06_asymmetric_commands_are_reassigned() {
    let mut peer = Peer::with_connections(3, &format!("{ASYMMETRIC} ErrorRecoveryLevel=2"));
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1",
    );
    peer.lose_for_recovery(3, 2);
    peer.play(
        "D> complete itt=1 data=8
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1
         T< TaskManagementResponse itt=8 response=FunctionComplete
         T< DataIn itt=1 status=0x00",
    );
}

/// Data does not travel on the connection of its command: it continues when that one is lost, and a function that names the
/// command may arrive on any other.
// covers: TMF-04, ERL-06, MCS-02, P2-03
#[test]
fn tmf_04_asymmetric_commands_are_named_on_any_connection() {
    let mut peer =
        Peer::with_connections(4, &format!("{ASYMMETRIC} ErrorRecoveryLevel=2 iSCSIProtocolLevel=2"));
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I2> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2",
    );
    peer.lose_for_recovery(2, 4);
    peer.play(
        "I4> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1
         T4< TaskManagementResponse itt=8 response=TaskStillAllegiant
         D> complete itt=1 data=8
         T3< DataIn itt=1 status=0x00
         I4> TaskManagementRequest I itt=8 function=QueryTask referenced_task_tag=2 ref_cmd_sn=2
         T4< TaskManagementResponse itt=8 response=FunctionSucceeded
         I4> TaskManagementRequest I itt=8 function=AbortTask referenced_task_tag=2 ref_cmd_sn=2
         D< Abandon itt=2
         D> gone itt=2
         T4< TaskManagementResponse itt=8 response=FunctionComplete",
    );
}

/// Both ends must know it and want it; any other initiator gets a plain answer.
// covers: KEY-26
#[test]
fn key_26_asymmetric_use_is_agreed_on() {
    for (ours, theirs, answer) in [
        (true, "Yes", "Yes"),
        (true, "Yes,Halves,No", "Yes"),
        (true, "Halves,Yes,No", "Halves"),
        (true, "Thirds,Halves", "Halves"),
        (true, "No", "No"),
        (false, "Yes", "Reject"),
        (false, "Halves,Yes,No", "No"),
        (true, "Thirds", "Reject"),
    ] {
        let mut peer = Peer::new();
        peer.policy.bounds.asymmetric = if ours { Asymmetric::Pairs } else { Asymmetric::No };
        peer.play(&format!("I> LoginRequest T csg=1 nsg=3 | @names X-com.intact.AllegianceFree={theirs}"));
        let line = peer.output.pop_front().expect("an answer").line;
        assert!(line.contains(&format!("X-com.intact.AllegianceFree={answer}")), "{line}");
        assert_eq!(peer.session().params().asymmetric, Asymmetric::from_value(answer));
    }
}
