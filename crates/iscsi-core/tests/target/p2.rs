//! iSCSIProtocolLevel 2 (RFC 7144).

use crate::play::Peer;

const KEYS: &str = "InitialR2T=Yes ImmediateData=No iSCSIProtocolLevel=2";

#[test]
fn p2_01_the_lower_level_is_spoken() {
    for (ours, theirs, result) in [(2, 0, 0), (2, 1, 1), (2, 2, 2), (2, 31, 2), (1, 2, 1)] {
        let mut peer = Peer::new();
        peer.policy.bounds.protocol_level = ours;
        peer.play(&format!("I> LoginRequest T csg=1 nsg=3 | @names iSCSIProtocolLevel={theirs}"));
        let line = peer.output.pop_front().expect("an answer").line;
        assert!(line.contains(&format!("iSCSIProtocolLevel={result}")), "{line}");
        assert_eq!(peer.session().params().protocol_level, result);
    }
}

#[test]
fn p2_02_functions_of_level_2() {
    for level in [0, 1] {
        let mut peer = Peer::with_connections(1, &format!("iSCSIProtocolLevel={level}"));
        for function in ["QueryTask", "QueryTaskSet", "ITNexusReset", "QueryAsyncEvent"] {
            peer.play(&format!(
                "I> TaskManagementRequest I itt=9 function={function}
                 T< TaskManagementResponse itt=9 response=FunctionNotSupported"
            ));
        }
    }
    let mut peer = Peer::with_connections(1, KEYS);
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I> TaskManagementRequest I itt=9 function=QueryTask referenced_task_tag=1 ref_cmd_sn=1
         T< TaskManagementResponse itt=9 response=FunctionSucceeded
         I> TaskManagementRequest I itt=9 function=QueryTask referenced_task_tag=1 ref_cmd_sn=1 lun=1
         T< TaskManagementResponse itt=9 response=FunctionComplete
         I> TaskManagementRequest itt=9 function=QueryTask referenced_task_tag=2 ref_cmd_sn=1
         T< TaskManagementResponse itt=9 response=FunctionComplete
         I> TaskManagementRequest I itt=9 function=QueryTaskSet
         D< Manage QueryTaskSet lun=0
         D> managed FunctionSucceeded
         T< TaskManagementResponse itt=9 response=FunctionSucceeded",
    );
    assert!(peer.session().has_tasks(Default::default()));
    assert!(!peer.session().has_tasks(iscsi_core::wire::Lun::from_index(1)));
    // None is rejected, however many there are.
    for itt in 100..140 {
        peer.play(&format!(
            "I> TaskManagementRequest I itt={itt} function=QueryTaskSet\nD< Manage QueryTaskSet"
        ));
    }
}

#[test]
fn p2_03_query_task_follows_the_rules_of_abort_task() {
    let mut peer = Peer::with_connections(2, KEYS);
    peer.play(
        "I> TaskManagementRequest I itt=5 function=LogicalUnitReset
         D< Manage LogicalUnitReset
         I> TaskManagementRequest I itt=9 function=QueryTask referenced_task_tag=5
         T< TaskManagementResponse itt=9 response=FunctionRejected
         I> TaskManagementRequest I itt=9 function=QueryTask referenced_task_tag=9
         T< TaskManagementResponse itt=9 response=FunctionRejected
         I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I2> TaskManagementRequest I itt=9 function=QueryTask referenced_task_tag=1
         T2< TaskManagementResponse itt=9 response=FunctionComplete",
    );
}

#[test]
fn p2_04_what_is_pending_comes_with_the_answer() {
    let mut peer = Peer::with_connections(1, KEYS);
    peer.play(
        "I> TaskManagementRequest I itt=9 function=QueryAsyncEvent
         D< Manage QueryAsyncEvent lun=0
         D> managed FunctionSucceeded additional=0x162900
         T< TaskManagementResponse itt=9 response=FunctionSucceeded additional=162900",
    );
}

/// Everything ends at once, even at recovery level 2: no connection can come back.
#[test]
fn p2_05_the_loss_of_the_nexus() {
    let mut peer = Peer::with_connections(2, &format!("{KEYS} ErrorRecoveryLevel=2"));
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I2> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         X2
         T< AsyncMessage event=ConnectionDrop
         I> ScsiCommand itt=3 F R edtl=8 cmd_sn=9
         I> TaskManagementRequest I itt=9 function=ITNexusReset
         D< Abandon itt=1
         D< Abandon itt=2
         D> gone itt=1
         D> complete itt=2 data=8
         T< TaskManagementResponse itt=9 response=FunctionComplete
         D< Close NexusReset cid=1
         D< Ended",
    );
    assert_eq!(peer.session().holdings(), Default::default());
}

/// A response that waits for a fence is lost with the nexus: the answer is the last PDU sent.
// covers: P2-05, FAB-04
#[test]
fn p2_05_nothing_follows_the_loss_of_the_nexus() {
    let mut peer = Peer::with_connections(2, &format!("{KEYS} TaskReporting=ResponseFence"));
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1",
    );
    peer.answer_with_fence();
    peer.play(
        "D> complete itt=1 status=2 sense=6/29/03
         I> TaskManagementRequest I itt=10 function=ITNexusReset exp_stat_sn=4294967295
         T< TaskManagementResponse itt=10 response=FunctionComplete
         D< Close NexusReset cid=1
         D< Close NexusReset cid=2
         D< Ended",
    );
}

/// Functions under way are over as well: the device server may still execute them, and no answer follows.
// covers: P2-05, FAB-04
#[test]
fn p2_05_functions_are_lost_with_the_nexus() {
    let mut peer = Peer::with_connections(2, &format!("{KEYS} TaskReporting=ResponseFence"));
    peer.respond_on(2);
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I> ScsiCommand itt=2 F R edtl=8 lun=1
         D< Start itt=2
         I> TaskManagementRequest I itt=7 function=AbortTask referenced_task_tag=2 ref_cmd_sn=3
         D< Abandon itt=2
         I> TaskManagementRequest I itt=8 function=AbortTaskSet
         D< Manage AbortTaskSet
         D> abort lun=0 own token=5
         D< Abandon itt=1
         I> TaskManagementRequest I itt=9 function=ITNexusReset
         D> gone itt=1
         D< TasksGone token=5
         D> managed FunctionComplete
         # The connection with the status that is not acknowledged waits for nothing, nor does the other one.
         D> gone itt=2
         T< TaskManagementResponse itt=9 response=FunctionComplete
         D< Close NexusReset cid=1
         D< Close NexusReset cid=2
         D< Ended",
    );
}

#[test]
fn p2_06_priority_and_qualifier_at_level_2_only() {
    for level in [1, 2] {
        let mut peer = Peer::with_connections(1, &format!("iSCSIProtocolLevel={level}"));
        let (priority, qualifier) = if level == 2 { (7, 0x1234) } else { (0, 0) };
        peer.play(&format!(
            "I> ScsiCommand itt=1 F edtl=0 priority=7
             D< Start itt=1 priority={priority}"
        ));
        peer.play_open("D> complete itt=1 status=8 qualifier=4660 sense=6/29/00");
        let output = peer.output.pop_front().expect("a response");
        assert_eq!(peer.qualifier, qualifier);
        assert_eq!(output.line.contains("sense=6/29/00"), level == 2, "{}", output.line);
    }
}
