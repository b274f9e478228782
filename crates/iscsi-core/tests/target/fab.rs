//! FastAbort and response fences.

use crate::play::{Peer, SOLICITED as KEYS};

fn session(reporting: &str) -> Peer {
    let mut peer = Peer::with_connections(3, &format!("{KEYS} TaskReporting={reporting}"));
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=512
         D< Start itt=1
         I2> ScsiCommand itt=2 F W edtl=512
         D< Start itt=2
         I2> ScsiCommand itt=3 F W edtl=512
         D< Start itt=3
         I3> ScsiCommand itt=4 F R edtl=512 lun=1
         D< Start itt=4
         D> need itt=1 bytes=512
         T< R2t itt=1 ttt=0
         D> need itt=2 bytes=512
         T2< R2t itt=2 ttt=1",
    );
    peer
}

/// Every connection except that of the request receives one message for the unit, the answer waits for no data, and the tags are
/// free once the initiator has acknowledged.
// covers: FAB-01, FAB-02
#[test]
fn fab_01_the_initiator_is_told_to_stop() {
    let mut peer = session("FastAbort");
    peer.play(
        "I> TaskManagementRequest I itt=9 function=AbortTaskSet
         D< Manage AbortTaskSet lun=0
         D> abort lun=0 own token=5
         T2< AsyncMessage event=TaskTermination lun=0
         D< Abandon itt=1
         D< Abandon itt=2
         D< Abandon itt=3
         D> gone itt=1
         D> gone itt=2
         D> gone itt=3
         D< TasksGone token=5
         D> managed FunctionComplete
         T< TaskManagementResponse itt=9 response=FunctionComplete
         T< NopIn
         # What was on its way is swallowed until the initiator says that no more comes.
         I2> DataOut itt=2 ttt=1 data=256 exp_stat_sn=4294967295",
    );
    assert_eq!(peer.session().holdings().drains, 2);
    peer.play("I2> NopOut I lun=0 exp_stat_sn=4294967295\n#");
    assert_eq!(peer.session().holdings().drains, 2, "it was under way when the message was sent");
    peer.play("I2> NopOut I lun=1\n#");
    assert_eq!(peer.session().holdings().drains, 2, "another unit's acknowledgement");
    peer.play("I2> NopOut I lun=0");
    assert_eq!(peer.session().holdings().drains, 1, "that of the connection of the request is left");
    peer.play("I2> DataOut itt=2 ttt=1 F offset=256 data=256\nT2< Reject reason=InvalidPduField\n@ 2s");
    assert_eq!(peer.session().holdings().drains, 0);
}

/// A request of another session reaches all connections.
// covers: FAB-01, FAB-03
#[test]
fn fab_01_third_parties_are_told_on_each_connection() {
    let mut peer = session("FastAbort");
    peer.play(
        "D> abort token=5
         T< AsyncMessage event=TaskTermination lun=0
         T2< AsyncMessage event=TaskTermination lun=0
         T3< AsyncMessage event=TaskTermination lun=1
         D< Abandon itt=1
         D< Abandon itt=2
         D< Abandon itt=3
         D< Abandon itt=4
         D> gone itt=4
         D> gone itt=3
         D> gone itt=2
         D> gone itt=1
         D< TasksGone token=5",
    );
}

#[test]
fn fab_03_who_did_not_ask_for_it_is_not_told() {
    for reporting in ["RFC3720", "ResponseFence"] {
        let mut peer = session(reporting);
        peer.play(
            "D> abort lun=0 token=5
             D< Abandon itt=1
             D< Abandon itt=2
             D< Abandon itt=3
             D> gone itt=3
             D> gone itt=2
             D> gone itt=1
             # It is still waited for what was asked for.
             I> DataOut itt=1 ttt=0 F data=512
             I2> DataOut itt=2 ttt=1 F data=512
             D< TasksGone token=5",
        );
    }
}

/// After the answer, responses on the other connections wait until the answer is acknowledged.
// covers: FAB-04, MCS-06
#[test]
fn fab_04_nothing_overtakes_the_answer() {
    let mut peer = session("ResponseFence");
    peer.respond_on(2);
    peer.play(
        "I> TaskManagementRequest I itt=9 function=LogicalUnitReset lun=5
         D< Manage LogicalUnitReset
         D> managed FunctionComplete
         T2< NopIn
         # Before it goes, nothing of the SCSI layer follows.
         D> complete itt=4 data=512
         I2> NopOut I
         T< TaskManagementResponse itt=9 response=FunctionComplete
         T< NopIn",
    );
    assert_eq!(peer.session().holdings().held_back, 1);
    peer.play(
        "# On its own connection the order is there already.
         I> DataOut itt=1 ttt=0 F data=512 exp_stat_sn=4294967295
         D< DataOut itt=1
         D> complete itt=1
         T< ScsiResponse itt=1
         I> NopOut I exp_stat_sn=0
         T3< DataIn itt=4 status=0x00",
    );
    // Its connection is lost: the fence goes with it.
    let mut peer = session("ResponseFence");
    peer.answer_with_fence();
    peer.play(
        "D> complete itt=4 data=512
         X
         D< Abandon itt=1
         T3< DataIn itt=4 status=0x00
         T2< AsyncMessage event=ConnectionDrop parameters=1,2,20",
    );
    // Two fences in a row.
    let mut peer = session("ResponseFence");
    peer.answer_with_fence();
    peer.play(
        "I2> TaskManagementRequest I itt=8 function=LogicalUnitReset lun=5
         D< Manage LogicalUnitReset
         D> managed FunctionComplete
         D> complete itt=4 data=512
         I> NopOut I
         T2< TaskManagementResponse itt=8
         T2< NopIn
         I2> NopOut I
         T3< DataIn itt=4",
    );
    // A session with one connection has no fences.
    let mut peer = Peer::with_connections(1, &format!("{KEYS} TaskReporting=FastAbort"));
    peer.play(
        "I> NopOut I itt=1
         T< NopIn itt=1
         I> TaskManagementRequest I itt=9 function=LogicalUnitReset exp_stat_sn=4294967295
         D< Manage LogicalUnitReset
         D> managed FunctionComplete
         T< TaskManagementResponse itt=9",
    );
}

/// Before the answer is sent, no response of the SCSI layer passes it on its own connection either, and what was not sent yet
/// cannot be acknowledged.
// covers: FAB-04, NUM-09
#[test]
fn fab_04_nothing_passes_the_answer_on_its_own_connection() {
    let mut peer = session("ResponseFence");
    peer.respond_on(2);
    peer.play(
        "I> TaskManagementRequest I itt=9 function=LogicalUnitReset lun=5
         D< Manage LogicalUnitReset
         D> managed FunctionComplete
         T2< NopIn
         I> DataOut itt=1 ttt=0 F data=512
         D< DataOut itt=1
         D> complete itt=1
         I2> NopOut I exp_stat_sn=1000",
    );
    assert_eq!(peer.session().holdings().held_back, 1);
    peer.play(
        "I2> NopOut I
         T< TaskManagementResponse itt=9
         T< NopIn
         D> complete itt=4 data=512
         I> NopOut I exp_stat_sn=1000",
    );
    assert_eq!(peer.session().holdings().held_back, 2);
    peer.play("I> NopOut I\nT< ScsiResponse itt=1\nT3< DataIn itt=4 status=0x00");
}

/// Answers that end single tasks wait for a fence, before and after it, as statuses do; those of TASK REASSIGN do not.
// covers: FAB-04, MCS-06
#[test]
fn fab_04_other_answers_do_not_overtake_it_either() {
    let mut peer = session("ResponseFence");
    peer.respond_on(2);
    peer.play(
        "I> TaskManagementRequest I itt=9 function=LogicalUnitReset lun=5
         D< Manage LogicalUnitReset
         D> managed FunctionComplete
         T2< NopIn
         I3> TaskManagementRequest I itt=10 function=AbortTask referenced_task_tag=99 ref_cmd_sn=5
         I2> NopOut I
         T< TaskManagementResponse itt=9 response=FunctionComplete
         T< NopIn
         I2> TaskManagementRequest I itt=11 function=AbortTask referenced_task_tag=2
         D< Abandon itt=2
         D> gone itt=2
         I> TaskManagementRequest I itt=12 function=AbortTask referenced_task_tag=98 ref_cmd_sn=5 exp_stat_sn=0
         T3< TaskManagementResponse itt=10 response=TaskDoesNotExist
         T2< TaskManagementResponse itt=11 response=FunctionComplete
         T< TaskManagementResponse itt=12 response=TaskDoesNotExist",
    );
    assert_eq!(peer.session().holdings().held_back, 0);
    // A peer cannot fill memory with them.
    let mut peer = session("ResponseFence");
    peer.answer_with_fence();
    for itt in 100..164 {
        peer.play(&format!(
            "I2> TaskManagementRequest I itt={itt} function=AbortTask referenced_task_tag=99"
        ));
    }
    assert_eq!(peer.session().holdings().held_back, 64);
    peer.play(
        "I2> TaskManagementRequest I itt=50 function=AbortTask referenced_task_tag=99
         T2< TaskManagementResponse itt=50",
    );
    assert_eq!(peer.session().holdings().held_back, 64);
}

/// A connection that joins after an answer waits until the initiator has acknowledged it.
// covers: FAB-04
#[test]
fn fab_04_who_joins_behind_an_answer_does_not_overtake_it() {
    for acknowledges in [false, true] {
        let mut peer = Peer::with_connections(2, &format!("{KEYS} TaskReporting=ResponseFence"));
        peer.play(
            "X2
             T< AsyncMessage event=ConnectionDrop
             I> TaskManagementRequest I itt=9 function=LogicalUnitReset lun=5
             D< Manage LogicalUnitReset
             D> managed FunctionComplete
             T< TaskManagementResponse itt=9",
        );
        if acknowledges {
            peer.play("I> NopOut I");
        }
        peer.join_open(2, "");
        peer.play(if acknowledges { "" } else { "T< NopIn" });
        let read = "I2> ScsiCommand itt=1 F R edtl=8
             D< Start itt=1
             D> complete itt=1 data=8";
        if acknowledges {
            peer.play(&format!("{read}\nT2< DataIn itt=1 status=0x00"));
        } else {
            peer.play(read);
            peer.play("I> NopOut I\nT2< DataIn itt=1 status=0x00");
        }
    }
}

/// A connection that does not acknowledge the answer is declared dead, and the others continue.
// covers: FAB-04, MCS-07
#[test]
fn fab_04_fences_do_not_stand_for_ever() {
    let mut peer = session("ResponseFence");
    peer.answer_with_fence();
    peer.play(
        "D> complete itt=4 data=512
         @ 9s
         @ 1s
         D< Close Silent cid=1
         D< Abandon itt=1
         T3< DataIn itt=4 status=0x00
         T2< AsyncMessage event=ConnectionDrop",
    );
}

/// At level 2 a response that waits for a fence also waits to be reassigned when its connection breaks.
// covers: FAB-04, ERL-06
#[test]
fn fab_04_held_responses_survive_their_connection() {
    let mut peer =
        Peer::with_connections(3, &format!("{KEYS} TaskReporting=ResponseFence ErrorRecoveryLevel=2"));
    peer.play(
        "I3> ScsiCommand itt=4 F R edtl=512
         D< Start itt=4
         I2> ScsiCommand itt=5 F edtl=0
         D< Start itt=5",
    );
    peer.answer_with_fence();
    // Another response waits before it, on a connection that stays.
    peer.play("D> complete itt=5\nD> complete itt=4 data=512");
    peer.lose_for_recovery(3, 2);
    peer.play(
        "I2> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=4
         T2< TaskManagementResponse itt=8 response=FunctionComplete
         I> NopOut I
         T2< ScsiResponse itt=5
         T2< DataIn itt=4 data=512 status=0x00",
    );
    assert_eq!(peer.session().holdings().orphans, 0);
}

/// The first response that tells a third party of a reset follows all earlier responses and precedes all later ones.
#[test]
fn fab_04_a_unit_attention_has_a_fence() {
    for how in ["status=2 sense=6/29/03", "status=0 fenced"] {
        let mut peer = session("FastAbort");
        peer.respond_on(2);
        peer.play(&format!(
            "I3> ScsiCommand itt=5 F edtl=0
             D< Start itt=5
             I> ScsiCommand itt=6 F edtl=0
             D< Start itt=6
             D> complete itt=5 {how}
             T2< NopIn
             D> complete itt=6
             I2> NopOut I
             T3< ScsiResponse itt=5
             T3< NopIn
             I3> NopOut I
             T< ScsiResponse itt=6"
        ));
    }
    // Its connection breaks before it is sent: at level 2 it is sent on another one, unless the command was immediate.
    for (immediate, answer) in
        [("", "FunctionComplete\nT2< ScsiResponse itt=5 sense=6/29/03"), ("I", "TaskDoesNotExist")]
    {
        let mut peer =
            Peer::with_connections(3, &format!("{KEYS} TaskReporting=FastAbort ErrorRecoveryLevel=2"));
        peer.respond_on(2);
        peer.play(&format!(
            "I3> ScsiCommand {immediate} itt=5 F edtl=0
             D< Start itt=5
             D> complete itt=5 status=2 sense=6/29/03
             T2< NopIn"
        ));
        peer.lose_for_recovery(3, 2);
        peer.play(&format!(
            "I2> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=5
             T2< TaskManagementResponse itt=8 response={answer}"
        ));
        assert_eq!(peer.session().holdings().orphans, 0);
    }
    // What cannot be reassigned is lost with its connection, data that level 1 keeps for SNACKs included.
    let read = ("F R edtl=8", "data=8 fenced");
    for (level, immediate, (command, how)) in
        [(0, "", ("F edtl=0", "status=2 sense=6/29/03")), (0, "", read), (1, "", read), (2, "I", read)]
    {
        let keys = format!("{KEYS} TaskReporting=FastAbort ErrorRecoveryLevel={level}");
        let mut peer = Peer::with_connections(3, &keys);
        peer.respond_on(2);
        peer.play(&format!(
            "I3> ScsiCommand {immediate} itt=5 {command}
             D< Start itt=5
             D> complete itt=5 {how}
             T2< NopIn"
        ));
        peer.outcome_of("X3");
        assert_eq!(peer.session().holdings().orphans, 0, "level {level}");
        peer.play(
            "I2> ScsiCommand itt=5 F edtl=0
             D< Start itt=5",
        );
    }
}

/// Resets requested while a fence is in effect are rejected once too many answers wait.
// covers: FAB-04, NUM-08
#[test]
fn fab_04_answers_with_a_fence_are_bounded_too() {
    let mut peer = session("ResponseFence");
    peer.answer_with_fence();
    for itt in 100..116 {
        peer.play(&format!(
            "I2> TaskManagementRequest I itt={itt} function=LogicalUnitReset lun=5
             D< Manage LogicalUnitReset
             D> managed FunctionComplete"
        ));
    }
    assert_eq!(peer.session().holdings().held_back, 16);
    peer.play(
        "I2> TaskManagementRequest I itt=116 function=LogicalUnitReset lun=5
         T2< Reject reason=TooManyImmediateCommands",
    );
}
