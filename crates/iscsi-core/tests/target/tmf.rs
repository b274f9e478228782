//! Task management.

use crate::play::Peer;

const KEYS: &str = "InitialR2T=Yes ImmediateData=No MaxBurstLength=1024 FirstBurstLength=512";

/// In every state of a task: no status is sent for it afterwards, and the answer follows when the device server has released it.
#[test]
fn tmf_01_abort_task_in_every_state() {
    // Waits for its turn.
    Peer::logged_in(KEYS).play(
        "I> ScsiCommand itt=2 F R edtl=8 cmd_sn=2
         I> TaskManagementRequest I itt=9 function=AbortTask referenced_task_tag=2 ref_cmd_sn=2 cmd_sn=3
         T< TaskManagementResponse itt=9 response=FunctionComplete exp_cmd_sn=1
         I> ScsiCommand itt=1 F R edtl=8 cmd_sn=1
         D< Start itt=1
         I> ScsiCommand itt=3 F R edtl=8 cmd_sn=3
         D< Start itt=3",
    );
    // Offered, collecting and executing.
    let collecting = "D> need itt=1 bytes=1024\nT< R2t itt=1 ttt=0 len=1024";
    let executing = format!("{collecting}\nI> DataOut itt=1 ttt=0 F data=1024\nD< DataOut itt=1");
    for state in ["", collecting, &executing] {
        let mut peer = Peer::logged_in(KEYS);
        peer.play("I> ScsiCommand itt=1 F W edtl=1024\nD< Start itt=1");
        peer.play(state);
        peer.play(
            "I> TaskManagementRequest I itt=9 function=AbortTask referenced_task_tag=1 ref_cmd_sn=1
             D< Abandon itt=1
             D> gone itt=1
             T< TaskManagementResponse itt=9 response=FunctionComplete",
        );
        assert_eq!(peer.session().outstanding(), 0);
    }
    // The device server completes it at the same moment.
    Peer::logged_in(KEYS).play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I> TaskManagementRequest I itt=9 function=AbortTask referenced_task_tag=1 ref_cmd_sn=1
         D< Abandon itt=1
         D> complete itt=1 data=8
         T< TaskManagementResponse itt=9 response=FunctionComplete",
    );
    // Completed, and only waiting for data that the initiator owes.
    Peer::logged_in(KEYS).play(
        "I> ScsiCommand itt=1 F W edtl=1024
         D< Start itt=1
         D> need itt=1 bytes=1024
         T< R2t itt=1 ttt=0
         D> complete itt=1 status=2 sense=3/0c/00
         I> TaskManagementRequest I itt=9 function=AbortTask referenced_task_tag=1 ref_cmd_sn=1
         T< TaskManagementResponse itt=9 response=FunctionComplete",
    );
}

/// Data for an aborted task is discarded, for a while.
// covers: TMF-01, TMF-05
#[test]
fn tmf_01_late_data_is_swallowed() {
    let mut peer = Peer::logged_in(KEYS);
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=1024
         D< Start itt=1
         D> need itt=1 bytes=1024
         T< R2t itt=1 ttt=0
         I> TaskManagementRequest I itt=9 function=AbortTask referenced_task_tag=1 ref_cmd_sn=1
         D< Abandon itt=1
         D> gone itt=1
         T< TaskManagementResponse itt=9
         I> DataOut itt=1 ttt=0 data=512
         I> DataOut itt=1 ttt=0 data_sn=1 offset=512 data=512 F
         # It is over now.
         I> DataOut itt=1 ttt=0 data=512
         T< Reject reason=InvalidPduField of_itt=1
         I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1",
    );
}

/// The wait for data that never arrives is bounded, however fast commands are aborted.
#[test]
fn tmf_01_late_data_is_bounded() {
    let mut peer = Peer::logged_in("InitialR2T=No");
    for itt in 1..=1100 {
        peer.play(&format!(
            "I> ScsiCommand itt={itt} W edtl=512
             D< Start itt={itt}
             I> TaskManagementRequest I itt=9000 function=AbortTask referenced_task_tag={itt}
             D< Abandon itt={itt}
             D> gone itt={itt}
             T< TaskManagementResponse itt=9000"
        ));
    }
    assert_eq!(peer.session().holdings().drains, 1024);
    // The oldest is no longer waited for, the latest is still discarded.
    peer.play(
        "I> DataOut itt=1100 F data=512
         I> DataOut itt=1 F data=512
         T< Reject reason=InvalidPduField of_itt=1
         @ 2s",
    );
    assert_eq!(peer.session().holdings().drains, 0);
}

/// One request that ends more tasks than data is awaited for is answered all the same.
#[test]
fn tmf_01_a_request_for_more_tasks_than_data_is_awaited_for() {
    const TASKS: u32 = 1030;
    let mut peer = Peer::logged_in_with("InitialR2T=No", |peer| peer.config.queue_depth = 2000);
    for itt in 1..=TASKS {
        peer.play(&format!("I> ScsiCommand itt={itt} W edtl=512\nD< Start itt={itt}"));
    }
    let each = |line: &str| (1..=TASKS).map(|itt| format!("{line} itt={itt}\n")).collect::<String>();
    peer.play(&format!(
        "I> TaskManagementRequest I itt=9000 function=AbortTaskSet
         D< Manage AbortTaskSet lun=0
         D> abort lun=0 own token=5
         {}{}",
        each("D< Abandon"),
        each("D> gone")
    ));
    assert_eq!(peer.session().holdings().drains, 1024);
    peer.play(
        "@ 2s
         D< TasksGone token=5
         D> managed FunctionComplete
         T< TaskManagementResponse itt=9000 response=FunctionComplete",
    );
    assert_eq!(peer.session().holdings().drains, 0);
}

#[test]
fn tmf_02_a_task_that_never_came_counts_as_received() {
    Peer::logged_in(KEYS).play(
        "I> ScsiCommand itt=2 F R edtl=8 cmd_sn=2
         I> TaskManagementRequest I itt=9 function=AbortTask referenced_task_tag=1 ref_cmd_sn=1 cmd_sn=3
         T< TaskManagementResponse itt=9 response=FunctionComplete exp_cmd_sn=2
         D< Start itt=2
         # Too late for it to come now.
         I> ScsiCommand itt=1 F R edtl=8 cmd_sn=1",
    );
}

#[test]
fn tmf_03_a_task_that_is_gone_or_cannot_be() {
    let mut peer = Peer::logged_in(KEYS);
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         D> complete itt=1
         T< ScsiResponse itt=1",
    );
    // Completed; beyond the window; not before this request; half the numbers away.
    for reference in [1, 100, 2, 0x8000_0002u32, 0] {
        peer.play(&format!(
            "I> TaskManagementRequest I itt=9 function=AbortTask referenced_task_tag=1 ref_cmd_sn={reference}
             T< TaskManagementResponse itt=9 response=TaskDoesNotExist exp_cmd_sn=2"
        ));
    }
}

#[test]
fn tmf_04_task_management_is_not_aborted() {
    Peer::logged_in(KEYS).play(
        "I> TaskManagementRequest I itt=1 function=LogicalUnitReset
         D< Manage LogicalUnitReset
         I> TaskManagementRequest I itt=2 function=AbortTask referenced_task_tag=1 ref_cmd_sn=1
         T< TaskManagementResponse itt=2 response=FunctionRejected
         I> TaskManagementRequest I itt=3 function=AbortTask referenced_task_tag=3 ref_cmd_sn=1
         T< TaskManagementResponse itt=3 response=FunctionRejected
         # Not one that waits for its turn either.
         I> TaskManagementRequest itt=4 function=ClearTaskSet cmd_sn=2
         I> TaskManagementRequest I itt=5 function=AbortTask referenced_task_tag=4 ref_cmd_sn=2 cmd_sn=3
         T< TaskManagementResponse itt=5 response=FunctionRejected
         D> managed FunctionComplete
         T< TaskManagementResponse itt=1 response=FunctionComplete",
    );
    // Nor is a logout that waits for its turn; what does not exist is no such request.
    Peer::logged_in(KEYS).play(
        "I> LogoutRequest itt=1 reason=CloseSession cmd_sn=2
         I> TaskManagementRequest I itt=2 function=AbortTask referenced_task_tag=1 ref_cmd_sn=2 cmd_sn=3
         T< TaskManagementResponse itt=2 response=FunctionRejected
         I> TaskManagementRequest I itt=3 function=AbortTask referenced_task_tag=77 ref_cmd_sn=0 cmd_sn=3
         T< TaskManagementResponse itt=3 response=TaskDoesNotExist",
    );
    // An immediate task is named with the CmdSN that it carried.
    Peer::logged_in(KEYS).play(
        "I> ScsiCommand I itt=1 F R edtl=8
         D< Start itt=1
         I> TaskManagementRequest I itt=2 function=AbortTask referenced_task_tag=1 ref_cmd_sn=1
         D< Abandon itt=1
         D> gone itt=1
         T< TaskManagementResponse itt=2 response=FunctionComplete",
    );
}

/// The response waits for the requested data, and for the device server; later commands are not touched.
#[test]
fn tmf_05_task_set_functions_wait_for_what_is_owed() {
    for function in ["AbortTaskSet", "ClearTaskSet", "LogicalUnitReset", "TargetWarmReset"] {
        let mut peer = Peer::logged_in(KEYS);
        peer.play(&format!(
            "I> ScsiCommand itt=1 F W edtl=1024
             D< Start itt=1
             D> need itt=1 bytes=1024
             T< R2t itt=1 ttt=0
             I> ScsiCommand itt=2 F R edtl=8
             D< Start itt=2
             I> TaskManagementRequest itt=9 function={function}
             D< Manage {function} lun=0
             I> ScsiCommand itt=3 F R edtl=8
             D< Start itt=3
             D> abort lun=0 own token=5
             D< Abandon itt=1
             D< Abandon itt=2
             D> gone itt=2
             I> DataOut itt=1 ttt=0 F data=100
             D> gone itt=1
             D< TasksGone token=5
             D> managed FunctionComplete
             T< TaskManagementResponse itt=9 response=FunctionComplete
             D> complete itt=3
             T< ScsiResponse itt=3"
        ));
    }
}

/// Some initiators stop sending: the wait for their data ends.
#[test]
fn tmf_05_the_wait_for_data_ends() {
    Peer::logged_in(KEYS).play(
        "I> ScsiCommand itt=1 F W edtl=1024
         D< Start itt=1
         D> need itt=1 bytes=1024
         T< R2t itt=1 ttt=0
         I> TaskManagementRequest I itt=9 function=LogicalUnitReset
         D< Manage LogicalUnitReset
         D> abort lun=0 own token=5
         D< Abandon itt=1
         D> gone itt=1
         @ 2s
         D< TasksGone token=5
         D> managed FunctionComplete
         T< TaskManagementResponse itt=9",
    );
}

/// An immediate function that overtook commands waits for them; a reset of the target does not.
#[test]
fn tmf_05_earlier_commands_are_waited_for() {
    Peer::logged_in(KEYS).play(
        "I> ScsiCommand itt=2 F R edtl=8 cmd_sn=2
         I> TaskManagementRequest I itt=9 function=AbortTaskSet cmd_sn=3
         I> ScsiCommand itt=1 F R edtl=8 cmd_sn=1
         D< Start itt=1
         D< Start itt=2
         D< Manage AbortTaskSet
         D> abort lun=0 own token=1
         D< Abandon itt=2
         D< Abandon itt=1
         D> gone itt=1
         D> gone itt=2
         D< TasksGone token=1
         D> managed FunctionComplete
         T< TaskManagementResponse itt=9 response=FunctionComplete",
    );
    Peer::logged_in(KEYS).play(
        "I> ScsiCommand itt=2 F R edtl=8 cmd_sn=2
         I> TaskManagementRequest I itt=9 function=TargetWarmReset cmd_sn=3
         D< Start itt=2
         D< Manage TargetWarmReset
         I> ScsiCommand itt=1 F R edtl=8 cmd_sn=1",
    );
    // This may bring a logout to its turn: then no connection is left for which to reset.
    let mut peer = Peer::logged_in(KEYS);
    peer.play(
        "I> LogoutRequest itt=2 cmd_sn=2
         I> TaskManagementRequest I itt=9 function=TargetWarmReset cmd_sn=3
         T< LogoutResponse itt=2 response=Success
         D< Close Logout
         D< Ended",
    );
    assert_eq!(peer.session().holdings(), Default::default());
    // The request does not wait for a number that no command can have.
    Peer::logged_in(KEYS).play(
        "I> TaskManagementRequest I itt=9 function=AbortTaskSet cmd_sn=100
         D< Manage AbortTaskSet",
    );
}

/// Tasks of another session: reported by status TASK ABORTED, or not at all.
#[test]
fn tmf_06_tasks_of_others() {
    let start = "I> ScsiCommand itt=1 F W edtl=1024 lun=1
                 D< Start itt=1
                 D> need itt=1 bytes=1024
                 T< R2t itt=1 ttt=0
                 I> ScsiCommand itt=2 F R edtl=8 lun=1
                 D< Start itt=2
                 I> ScsiCommand itt=3 F R edtl=8 lun=2
                 D< Start itt=3
                 I> ScsiCommand itt=5 F R edtl=8 lun=1 cmd_sn=5";
    let mut peer = Peer::logged_in(KEYS);
    peer.play(start);
    peer.play(
        "D> abort lun=1 token=7 tas
         D< Abandon itt=1
         D< Abandon itt=2
         T< ScsiResponse itt=5 status=0x40
         D> gone itt=1
         D> gone itt=2
         D< TasksGone token=7
         T< ScsiResponse itt=2 status=0x40 !sense
         # The status of the write does not overtake its data.
         I> DataOut itt=1 ttt=0 lun=1 F data=1024
         T< ScsiResponse itt=1 status=0x40
         D> complete itt=3
         T< ScsiResponse itt=3 status=0x00",
    );
    let mut peer = Peer::logged_in(KEYS);
    peer.play(start);
    peer.play(
        "D> abort lun=1 token=7
         D< Abandon itt=1
         D< Abandon itt=2
         D> gone itt=2
         D> gone itt=1
         I> DataOut itt=1 ttt=0 lun=1 F data=1024
         D< TasksGone token=7
         D> complete itt=3
         T< ScsiResponse itt=3 status=0x00",
    );
}

/// A reset also waits for tasks of an earlier ABORT TASK that are not gone yet.
// covers: TMF-05, TMF-06
#[test]
fn tmf_06_tasks_that_were_aborted_before() {
    Peer::logged_in(KEYS).play(
        "I> ScsiCommand itt=1 F R edtl=8 lun=1
         D< Start itt=1
         I> TaskManagementRequest I itt=8 function=AbortTask referenced_task_tag=1 ref_cmd_sn=1 lun=1
         D< Abandon itt=1
         D> abort lun=2 token=1
         D< TasksGone token=1
         D> abort lun=1 token=2
         D> gone itt=1
         T< TaskManagementResponse itt=8 response=FunctionComplete
         D< TasksGone token=2",
    );
}

/// What others wait for ends when the connection is lost: the data still owed will not arrive.
// covers: TMF-05, SES-04
#[test]
fn tmf_05_a_lost_connection_owes_nothing() {
    let mut peer = Peer::logged_in(KEYS);
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=1024
         D< Start itt=1
         D> need itt=1 bytes=1024
         T< R2t itt=1 ttt=0
         D> abort lun=0 token=7
         D< Abandon itt=1
         D> gone itt=1
         X
         D< TasksGone token=7",
    );
    assert_eq!(peer.session().holdings(), Default::default());
}

#[test]
fn tmf_07_answers_of_the_surroundings_and_of_the_core() {
    let mut peer = Peer::logged_in(KEYS);
    for response in
        ["LunDoesNotExist", "FunctionAuthorizationFailed", "FunctionNotSupported", "FunctionRejected"]
    {
        peer.play(&format!(
            "I> TaskManagementRequest I itt=1 function=LogicalUnitReset lun=9
             D< Manage LogicalUnitReset lun=9
             D> managed {response}
             T< TaskManagementResponse itt=1 response={response}"
        ));
    }
    for (function, response) in [
        ("ClearAca", "FunctionNotSupported"),
        ("TaskReassign", "TaskReassignNotSupported"),
        ("QueryTask", "FunctionNotSupported"),
        ("QueryTaskSet", "FunctionNotSupported"),
        ("ITNexusReset", "FunctionNotSupported"),
        ("QueryAsyncEvent", "FunctionNotSupported"),
    ] {
        peer.play(&format!(
            "I> TaskManagementRequest I itt=1 function={function}
             T< TaskManagementResponse itt=1 response={response}"
        ));
    }
}

#[test]
fn tmf_08_target_resets() {
    for function in ["TargetWarmReset", "TargetColdReset"] {
        Peer::logged_in(KEYS).play(&format!(
            "I> ScsiCommand itt=1 F R edtl=8 lun=1
             D< Start itt=1
             I> TaskManagementRequest I itt=2 function={function}
             D< Manage {function}
             D> abort own token=1
             D< Abandon itt=1
             D> gone itt=1
             D< TasksGone token=1
             D> managed FunctionComplete
             T< TaskManagementResponse itt=2 response=FunctionComplete
             # A cold reset ends the sessions after the response.
             D> terminate
             D< Close Ended
             D< Ended"
        ));
    }
}

#[test]
fn tmf_09_immediate_or_in_turn() {
    Peer::logged_in(KEYS).play(
        "I> TaskManagementRequest itt=1 function=LogicalUnitReset cmd_sn=2
         I> TaskManagementRequest I itt=2 function=LogicalUnitReset cmd_sn=1
         D< Manage LogicalUnitReset
         D> managed FunctionComplete
         T< TaskManagementResponse itt=2 exp_cmd_sn=1
         I> NopOut itt=3 cmd_sn=1
         T< NopIn itt=3
         D< Manage LogicalUnitReset
         D> managed FunctionComplete
         T< TaskManagementResponse itt=1 exp_cmd_sn=3",
    );
}
