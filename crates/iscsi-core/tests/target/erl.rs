//! Error recovery levels 1 and 2.

use std::time::Duration;

use crate::play::Peer;
use iscsi_core::params::TaskReporting;
use iscsi_core::wire::{Cid, Lun};

const LEVEL_1: &str = "ErrorRecoveryLevel=1 InitialR2T=Yes ImmediateData=No MaxBurstLength=2048 FirstBurstLength=512 \
                       MaxOutstandingR2T=4 DataDigest=CRC32C";
const LEVEL_2: &str = "ErrorRecoveryLevel=2 InitialR2T=Yes ImmediateData=No MaxBurstLength=1024 FirstBurstLength=512 \
                       MaxRecvDataSegmentLength=512 MaxOutstandingR2T=2";

// covers: ERL-01, KEY-19
#[test]
fn erl_01_the_lower_level_is_granted() {
    for (ours, theirs, result) in [(0, 2, 0), (1, 2, 1), (2, 2, 2), (2, 1, 1), (2, 0, 0)] {
        let mut peer = Peer::new();
        peer.policy.bounds.error_recovery_level = ours;
        peer.play(&format!("I> LoginRequest T csg=1 nsg=3 | @names ErrorRecoveryLevel={theirs}"));
        let line = peer.output.pop_front().expect("an answer").line;
        assert!(line.contains(&format!("ErrorRecoveryLevel={result}")), "{line}");
        assert_eq!(peer.session().params().error_recovery_level, result);
    }
}

/// Every PDU of a sequence is lost once, and damaged once: exactly its bytes are requested again.
// covers: ERL-03, ERL-04, DIG-09, R2T-05
#[test]
fn erl_04_lost_and_damaged_data_is_asked_for_again() {
    for position in 0..4u32 {
        // A timer may be late.
        for (lost, rest) in [(true, "1s"), (true, "3s"), (false, "")] {
            // That the last one is missing only shows when nothing arrives for a while.
            let timed = lost && position == 3;
            let mut peer = Peer::with_connections(1, LEVEL_1);
            peer.play(
                "I> ScsiCommand itt=1 F W edtl=2048
                 D< Start itt=1
                 D> need itt=1 bytes=2048
                 T< R2t itt=1 ttt=0 r2t_sn=0 offset=0 len=2048",
            );
            let recovery = format!("T< R2t itt=1 ttt=1 r2t_sn=1 offset={} len=512", position * 512);
            let mut recovered = false;
            for sn in 0..4u32 {
                let final_bit = if sn == 3 { "F" } else { "" };
                let data =
                    format!("I> DataOut itt=1 ttt=0 {final_bit} data_sn={sn} offset={} data=512", sn * 512);
                match (sn == position, lost) {
                    (true, true) => continue,
                    (true, false) => {
                        peer.play(&format!(
                            "{data} bad_digest\nT< Reject reason=DataDigestError\n{recovery}"
                        ));
                        recovered = true;
                    }
                    (false, _) if lost && sn > position && !recovered => {
                        peer.play(&format!("{data}\n{recovery}"));
                        recovered = true;
                    }
                    (false, _) => peer.play(&format!("{data}\n# taken")),
                }
            }
            if timed {
                peer.play(&format!("@ 9s\n@ {rest}\n{recovery}"));
                // A PDU that was only late is discarded.
                peer.play("I> DataOut itt=1 ttt=0 F data_sn=3 offset=1536 data=512\n#");
            }
            peer.play(&format!(
                "I> DataOut itt=1 ttt=1 F data_sn=0 offset={} data=512
                 D< DataOut itt=1 bytes=2048
                 D> complete itt=1
                 T< ScsiResponse itt=1 status=0x00 exp_data_sn=2",
                position * 512
            ));
            assert_eq!(peer.session().recovery_counts().r2ts_recovered, 1);
            assert_eq!(peer.session().rejects(), u64::from(!lost));
        }
    }
}

/// The unsolicited data of a command is recovered as well, once its turn has come.
// covers: ERL-04, R2T-05
#[test]
fn erl_04_unsolicited_data_is_recovered() {
    let keys = LEVEL_1
        .replace("InitialR2T=Yes", "InitialR2T=No")
        .replace("FirstBurstLength=512", "FirstBurstLength=1024");
    let mut peer = Peer::with_connections(1, &keys);
    peer.play(
        "I> ScsiCommand itt=1 W edtl=2048
         D< Start itt=1
         I> DataOut itt=1 data_sn=1 offset=256 data=256
         I> DataOut itt=1 F data_sn=2 offset=512 data=512
         D> need itt=1 bytes=2048
         T< R2t itt=1 ttt=0 r2t_sn=0 offset=0 len=256
         T< R2t itt=1 ttt=1 r2t_sn=1 offset=1024 len=1024
         I> DataOut itt=1 ttt=0 F offset=0 data=256
         I> DataOut itt=1 ttt=1 F offset=1024 data=1024
         D< DataOut itt=1 bytes=2048",
    );
}

/// Answers to R2Ts arrive in order, so one that is skipped is lost. A damaged recovery is recovered too.
// covers: ERL-03, ERL-04
#[test]
fn erl_04_whole_answers_and_recoveries_are_lost() {
    let keys = LEVEL_1.replace("MaxBurstLength=2048", "MaxBurstLength=512");
    let mut peer = Peer::with_connections(1, &keys);
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=1536
         D< Start itt=1
         D> need itt=1 bytes=1536
         T< R2t itt=1 ttt=0 r2t_sn=0 offset=0 len=512
         T< R2t itt=1 ttt=1 r2t_sn=1 offset=512 len=512
         T< R2t itt=1 ttt=2 r2t_sn=2 offset=1024 len=512
         I> DataOut itt=1 ttt=1 F offset=512 data=512
         T< R2t itt=1 ttt=3 r2t_sn=3 offset=0 len=512
         I> DataOut itt=1 ttt=0 F offset=0 data=512
         I> DataOut itt=1 ttt=2 F offset=1024 data=512
         I> DataOut itt=1 ttt=3 offset=0 data=256
         I> DataOut itt=1 ttt=3 F data_sn=1 offset=256 data=256 bad_digest
         T< Reject reason=DataDigestError
         T< R2t itt=1 ttt=4 r2t_sn=4 offset=256 len=256
         I> DataOut itt=1 ttt=4 F offset=256 data=256
         D< DataOut itt=1 bytes=1536",
    );
}

/// Duplicates, and PDUs that contradict themselves.
// covers: ERL-03
#[test]
fn erl_03_duplicates_are_dropped() {
    let mut peer = Peer::with_connections(1, LEVEL_1);
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=2048
         D< Start itt=1
         D> need itt=1 bytes=2048
         T< R2t itt=1 ttt=0
         I> DataOut itt=1 ttt=0 data_sn=0 offset=0 data=512
         I> DataOut itt=1 ttt=0 data_sn=0 offset=0 data=512
         I> DataOut itt=1 ttt=0 F data_sn=1 offset=512 data=1536
         D< DataOut itt=1 bytes=2048",
    );
    for wrong in ["data_sn=1 offset=0", "data_sn=0 offset=512", "data_sn=5 offset=2000"] {
        let mut peer = Peer::with_connections(1, LEVEL_1);
        peer.play(&format!(
            "I> ScsiCommand itt=1 F W edtl=2048
             D< Start itt=1
             D> need itt=1 bytes=2048
             T< R2t itt=1 ttt=0
             I> DataOut itt=1 ttt=0 F {wrong} data=512
             T< Reject reason=InvalidPduField
             D< Abandon itt=1
             D> gone itt=1
             T< ScsiResponse itt=1 status=0x02 sense=b/0c/0d"
        ));
    }
}

/// A peer whose data is damaged every time does not keep a task alive for ever.
// covers: ERL-04
#[test]
fn erl_04_recovery_is_bounded() {
    let mut peer = Peer::with_connections(1, LEVEL_1);
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=2048
         D< Start itt=1
         D> need itt=1 bytes=2048
         T< R2t itt=1 ttt=0",
    );
    for ttt in 0..64 {
        peer.play(&format!(
            "I> DataOut itt=1 ttt={ttt} F offset=0 data=2048 bad_digest
             T< Reject reason=DataDigestError
             T< R2t itt=1 ttt={} offset=0 len=2048",
            ttt + 1
        ));
    }
    peer.play(
        "I> DataOut itt=1 ttt=64 F offset=0 data=2048 bad_digest
         T< Reject reason=DataDigestError
         D< Abandon itt=1
         D> gone itt=1
         T< ScsiResponse itt=1 status=0x02 sense=b/47/05",
    );
}

/// DefaultTime2Retain=0: nothing is retained, so there is nothing to reassign.
// covers: ERL-05
#[test]
fn erl_05_without_time2retain_tasks_end_with_their_connection() {
    let mut peer = Peer::with_connections(2, &format!("{LEVEL_2} DefaultTime2Retain=0"));
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=1000
         D< Start itt=1
         X2
         D< Abandon itt=1
         T< AsyncMessage event=ConnectionDrop parameters=2,0,0
         D> gone itt=1
         I> LogoutRequest I itt=9 reason=RemoveConnectionForRecovery cid=2
         T< LogoutResponse itt=9 response=CidNotFound
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1
         T< TaskManagementResponse itt=8 response=TaskDoesNotExist",
    );
}

/// Recovery of one task at level 2, from one connection to another, with a command in each state when its connection breaks.
// covers: ERL-05, ERL-06, ERL-10, LGO-01
#[test]
fn erl_06_tasks_go_on_elsewhere() {
    // A read that the device server has not answered.
    let mut peer = Peer::with_connections(2, LEVEL_2);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=1000
         D< Start itt=1
         X2
         T< AsyncMessage event=ConnectionDrop parameters=2,0,20
         # Not yet logged out.
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1
         T< TaskManagementResponse itt=8 response=TaskStillAllegiant
         I> LogoutRequest I itt=9 reason=RemoveConnectionForRecovery cid=2
         T< LogoutResponse itt=9 response=Success time2wait=0 time2retain=20
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1
         T< TaskManagementResponse itt=8 response=FunctionComplete
         D> complete itt=1 data=1000
         T< DataIn itt=1 data_sn=0
         T< DataIn itt=1 data_sn=1 status=0x00
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1
         T< TaskManagementResponse itt=8 response=TaskDoesNotExist",
    );
    assert_eq!(peer.session().recovery_counts().tasks_reassigned, 1);
    assert_eq!(peer.session().take_cleared_luns().len(), 0);

    // A write before its R2T, halfway, and executed: it reaches the device server once.
    let mut peer = Peer::with_connections(2, LEVEL_2);
    peer.play(
        "I2> ScsiCommand itt=1 F W edtl=2048
         D< Start itt=1
         I2> ScsiCommand itt=2 F W edtl=2048
         D< Start itt=2
         I2> ScsiCommand itt=3 F W edtl=512
         D< Start itt=3
         D> need itt=2 bytes=2048
         T2< R2t itt=2 ttt=0 r2t_sn=0 offset=0 len=1024
         T2< R2t itt=2 ttt=1 r2t_sn=1 offset=1024 len=1024
         I2> DataOut itt=2 ttt=0 offset=0 data=512
         D> need itt=3 bytes=512
         T2< R2t itt=3 ttt=2
         I2> DataOut itt=3 ttt=2 F data=512
         D< DataOut itt=3 bytes=512",
    );
    peer.lose_for_recovery(2, 1);
    peer.play(
        "D> complete itt=3
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=3
         T< TaskManagementResponse itt=8 response=FunctionComplete
         T< ScsiResponse itt=3 status=0x00
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=2 exp_data_sn=2
         T< TaskManagementResponse itt=8 response=FunctionComplete
         T< R2t itt=2 ttt=3 r2t_sn=2 offset=512 len=512
         T< R2t itt=2 ttt=4 r2t_sn=3 offset=1024 len=1024
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1
         T< TaskManagementResponse itt=8 response=FunctionComplete
         I> DataOut itt=2 ttt=3 F offset=512 data=512
         I> DataOut itt=2 ttt=4 F offset=1024 data=1024
         D< DataOut itt=2 bytes=2048
         D> complete itt=2
         T< ScsiResponse itt=2 status=0x00
         D> need itt=1 bytes=2048
         T< R2t itt=1 r2t_sn=0 offset=0 len=1024
         T< R2t itt=1 r2t_sn=1 offset=1024 len=1024",
    );
    let held = peer.session().holdings();
    assert_eq!((held.orphans, held.tasks), (0, 1));
}

/// Data and status that were sent and not acknowledged are sent again, from the number that the initiator names and in the
/// lengths that the new connection accepts.
// covers: ERL-06, SNK-04
#[test]
fn erl_06_data_and_status_are_sent_again() {
    for (exp_data_sn, from) in [(0, 0), (1, 512), (2, 1024), (3, 1536), (4, 2048), (5, 0), (77, 0)] {
        let mut peer = Peer::with_connections(2, LEVEL_2);
        peer.join(3, "MaxRecvDataSegmentLength=4096");
        peer.play(
            "I2> ScsiCommand itt=1 F R edtl=2048
             D< Start itt=1
             D> complete itt=1 data=2048
             T2< DataIn itt=1 data_sn=0
             T2< DataIn itt=1 data_sn=1 F A
             T2< DataIn itt=1 data_sn=2
             T2< DataIn itt=1 data_sn=3 F status=0x00",
        );
        peer.lose_for_recovery(2, 1);
        assert_eq!(peer.session().holdings().orphans, 1);
        let mut expected = String::new();
        let (mut offset, mut sn) = (from, if exp_data_sn <= 4 { exp_data_sn } else { 0 });
        while offset < 2048 {
            let end = (offset + 1024).min(2048);
            let status = if end == 2048 { "status=0x00" } else { "!status" };
            expected +=
                &format!("T3< DataIn itt=1 data_sn={sn} offset={offset} data={} {status}\n", end - offset);
            (offset, sn) = (end, sn + 1);
        }
        if from == 2048 {
            expected = "T3< ScsiResponse itt=1 status=0x00 exp_data_sn=4".into();
        }
        peer.play(&format!(
            "I3> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1 exp_data_sn={exp_data_sn}
             T3< TaskManagementResponse itt=8 response=FunctionComplete
             {expected}"
        ));
    }
}

/// Data that was dropped for lack of memory cannot be sent again: the status reports it, whether or not more data follows.
// covers: ERL-06, SNK-06
#[test]
fn erl_06_what_was_forgotten_is_told_by_its_status() {
    let mut peer = Peer::with_connections(2, LEVEL_2);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=1024
         D< Start itt=1
         D> complete itt=1 data=1024
         T2< DataIn itt=1 data_sn=0
         T2< DataIn itt=1 data_sn=1 status=0x00",
    );
    peer.session().set_retained_bytes_max(1000);
    assert_eq!(peer.session().retained_bytes(), 0);
    peer.lose_for_recovery(2, 1);
    peer.play(
        "I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1 exp_data_sn=1
         T< TaskManagementResponse itt=8 response=FunctionComplete
         T< ScsiResponse itt=1 status=0x02 sense=b/11/13",
    );
    assert_eq!(peer.session().retained_bytes(), 0);
}

/// A write that is reassigned continues its R2TSNs after the last one that the initiator has seen; 0 says nothing about that.
// covers: ERL-06, R2T-01
#[test]
fn erl_06_r2t_numbers_go_on() {
    for (exp_data_sn, next) in [(0, 2), (1, 1), (2, 2), (3, 2)] {
        let mut peer = Peer::with_connections(2, LEVEL_2);
        peer.play(
            "I2> ScsiCommand itt=1 F W edtl=3072
             D< Start itt=1
             D> need itt=1 bytes=3072
             T2< R2t itt=1 ttt=0 r2t_sn=0 offset=0 len=1024
             T2< R2t itt=1 ttt=1 r2t_sn=1 offset=1024 len=1024",
        );
        peer.lose_for_recovery(2, 1);
        let last = next + 1;
        peer.play(&format!(
            "I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1 exp_data_sn={exp_data_sn}
             T< TaskManagementResponse itt=8 response=FunctionComplete
             T< R2t itt=1 ttt=2 r2t_sn={next} offset=0 len=1024
             T< R2t itt=1 ttt=3 r2t_sn={last} offset=1024 len=1024"
        ));
    }
}

// covers: ERL-06, ERL-07
#[test]
fn erl_07_what_cannot_be_reassigned() {
    let mut peer = Peer::with_connections(2, LEVEL_2);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I2> TaskManagementRequest I itt=2 function=LogicalUnitReset
         D< Manage LogicalUnitReset
         I2> TextRequest I itt=3 | X-a=b
         T2< TextResponse itt=3
         I2> LogoutRequest itt=4 reason=CloseConnection cid=2 cmd_sn=5",
    );
    peer.lose_for_recovery(2, 1);
    peer.play(
        "I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=2
         T< TaskManagementResponse itt=8 response=FunctionRejected
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=3
         T< TaskManagementResponse itt=8 response=FunctionRejected
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=4
         T< TaskManagementResponse itt=8 response=FunctionRejected
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=8
         T< TaskManagementResponse itt=8 response=FunctionRejected
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=77
         T< TaskManagementResponse itt=8 response=TaskDoesNotExist
         # It must be immediate.
         I> TaskManagementRequest itt=8 function=TaskReassign referenced_task_tag=1 cmd_sn=2
         T< TaskManagementResponse itt=8 response=FunctionRejected
         # A task of a connection that lives is nobody else's.
         I> ScsiCommand itt=5 F R edtl=8 cmd_sn=3
         D< Start itt=5
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=5
         T< TaskManagementResponse itt=8 response=TaskStillAllegiant",
    );
    for level in [0, 1] {
        let mut peer = Peer::with_connections(2, &format!("ErrorRecoveryLevel={level}"));
        peer.play(
            "I> ScsiCommand itt=1 F R edtl=8
             D< Start itt=1
             I2> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1
             T2< TaskManagementResponse itt=8 response=TaskReassignNotSupported
             I2> LogoutRequest I itt=9 reason=RemoveConnectionForRecovery cid=1
             T2< LogoutResponse itt=9 response=RecoveryNotSupported
             D> complete itt=1 data=8
             T< DataIn itt=1 status=0x00",
        );
    }
}

/// A working connection is logged out for recovery, from another one and from itself.
#[test]
fn erl_05_logout_for_recovery_stops_data_and_status() {
    for from in ["", "2"] {
        let mut peer = Peer::with_connections(2, LEVEL_2);
        peer.play(
            "I2> ScsiCommand itt=1 F R edtl=8
             D< Start itt=1",
        );
        let response = format!("T{from}< LogoutResponse itt=9 response=Success time2wait=0 time2retain=20");
        let close = "D< Close Logout cid=2";
        let ends = if from.is_empty() { [close, &response] } else { [&response, close] };
        peer.play(&format!(
            "I{from}> LogoutRequest I itt=9 reason=RemoveConnectionForRecovery cid=2
             {}
             D> complete itt=1 data=8
             I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1
             T< TaskManagementResponse itt=8 response=FunctionComplete
             T< DataIn itt=1 status=0x00 data=8",
            ends.join("\n")
        ));
        peer.play(
            "I> LogoutRequest I itt=9 reason=RemoveConnectionForRecovery cid=7
             T< LogoutResponse itt=9 response=CidNotFound",
        );
    }
}

// covers: ERL-08, LGO-04
#[test]
fn erl_08_nobody_takes_over_in_time() {
    let mut peer = Peer::with_connections(2, LEVEL_2);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8 lun=3
         D< Start itt=1
         I2> ScsiCommand itt=2 F R edtl=8 lun=4
         D< Start itt=2
         D> complete itt=2 data=8
         T2< DataIn itt=2
         X2
         T< AsyncMessage event=ConnectionDrop",
    );
    assert_eq!(peer.session().poll_timeout(), Some(Duration::from_secs(22)));
    peer.play("@ 21s\nI> NopOut I itt=9\nT< NopIn itt=9\n@ 1s\nD< Abandon itt=1\nD> gone itt=1");
    let mut cleared = peer.session().take_cleared_luns();
    cleared.sort_by_key(|lun| lun.0);
    assert_eq!(cleared[..], [Lun::from_index(3), Lun::from_index(4)]);
    peer.play(
        "I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1
         T< TaskManagementResponse itt=8 response=TaskDoesNotExist
         I> LogoutRequest I itt=9 reason=RemoveConnectionForRecovery cid=2
         T< LogoutResponse itt=9 response=CidNotFound",
    );
    assert_eq!(peer.session().recovery_counts().tasks_expired, 2);
}

/// The logout restarts the time; a second logout, by which the initiator gives up, aborts at once.
// covers: ERL-08, MCS-04
#[test]
fn erl_08_the_time_begins_with_the_logout() {
    let mut peer = Peer::with_connections(2, LEVEL_2);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         X2
         T< AsyncMessage event=ConnectionDrop
         @ 20s
         I> LogoutRequest I itt=9 reason=RemoveConnectionForRecovery cid=2
         T< LogoutResponse itt=9 response=Success
         @ 21s
         I> NopOut I itt=5
         T< NopIn itt=5
         I> LogoutRequest I itt=9 reason=CloseConnection cid=2
         D< Abandon itt=1
         T< LogoutResponse itt=9 response=Success
         D> gone itt=1",
    );
}

#[test]
fn erl_09_immediate_commands_die_with_their_connection() {
    let mut peer = Peer::with_connections(2, LEVEL_2);
    peer.play(
        "I2> ScsiCommand I itt=1 F R edtl=8
         D< Start itt=1
         I2> ScsiCommand I itt=2 F R edtl=8
         D< Start itt=2
         D> complete itt=2 data=8
         T2< DataIn itt=2
         X2
         D< Abandon itt=1
         T< AsyncMessage event=ConnectionDrop
         D> gone itt=1
         I> LogoutRequest I itt=9 reason=RemoveConnectionForRecovery cid=2
         T< LogoutResponse itt=9 response=Success
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1
         T< TaskManagementResponse itt=8 response=TaskDoesNotExist
         I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=2
         T< TaskManagementResponse itt=8 response=TaskDoesNotExist",
    );
    assert_eq!(peer.session().take_cleared_luns().len(), 1);
}

/// A login with the CID of the only connection of a session replaces it: that is a logout for recovery as well.
// covers: SES-03, ERL-05, ERL-06
#[test]
fn ses_03_at_level_2_tasks_wait_to_be_reassigned() {
    for lost_first in [false, true] {
        let mut peer = Peer::with_connections(1, LEVEL_2);
        peer.play(
            "I> ScsiCommand itt=1 F W edtl=512
             D< Start itt=1
             D> need itt=1 bytes=512
             T< R2t itt=1 ttt=0",
        );
        if lost_first {
            peer.play("X");
            assert_eq!(peer.session().poll_timeout(), Some(Duration::from_secs(22)));
        }
        peer.replace(1, "");
        peer.play(
            "I> DataOut itt=1 ttt=0 F data=512
             T< Reject reason=InvalidPduField
             I> TaskManagementRequest I itt=8 function=TaskReassign referenced_task_tag=1 exp_data_sn=1
             T< TaskManagementResponse itt=8 response=FunctionComplete
             T< R2t itt=1 ttt=1 r2t_sn=1 offset=0 len=512
             I> DataOut itt=1 ttt=1 F data=512
             D< DataOut itt=1 bytes=512
             D> complete itt=1
             T< ScsiResponse itt=1 status=0x00",
        );
    }
}

/// No connection comes back: the session ends with everything it holds.
// covers: SES-04, ERL-08
#[test]
fn ses_04_a_session_at_level_2_ends_with_its_orphans() {
    let mut peer = Peer::with_connections(2, LEVEL_2);
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I2> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         D> complete itt=2 data=8
         T2< DataIn itt=2
         X2
         T< AsyncMessage event=ConnectionDrop
         X
         @ 22s
         D< Abandon itt=1
         D> gone itt=1
         D< Ended",
    );
    assert_eq!(peer.session().holdings(), Default::default());
}

/// ABORT TASK for an orphan is requested on another connection.
// covers: TMF-01, TMF-04
#[test]
fn tmf_04_orphans_are_aborted_from_anywhere() {
    let mut peer = Peer::with_connections(2, LEVEL_2);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I2> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         I> TaskManagementRequest I itt=8 function=AbortTask referenced_task_tag=1 ref_cmd_sn=1
         T< TaskManagementResponse itt=8 response=FunctionRejected
         D> complete itt=2 data=8
         T2< DataIn itt=2
         X2
         T< AsyncMessage event=ConnectionDrop
         I> TaskManagementRequest I itt=8 function=AbortTask referenced_task_tag=1 ref_cmd_sn=1
         D< Abandon itt=1
         D> gone itt=1
         T< TaskManagementResponse itt=8 response=FunctionComplete
         I> TaskManagementRequest I itt=8 function=AbortTask referenced_task_tag=2 ref_cmd_sn=2
         T< TaskManagementResponse itt=8 response=FunctionComplete",
    );
    assert_eq!(peer.session().holdings().orphans, 0);
}

/// A silent connection is declared dead, and its tasks wait.
#[test]
fn erl_11_silence_is_noticed() {
    let mut peer = Peer::with_connections(2, LEVEL_2);
    peer.play(
        "I2> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         @ 29s
         I> NopOut I itt=9
         T< NopIn itt=9
         @ 1s
         T2< NopIn
         @ 28s
         I> NopOut I itt=9
         T< NopIn itt=9
         @ 2s
         D< Close Silent cid=2
         T< AsyncMessage event=ConnectionDrop parameters=2,0,20",
    );
    assert_eq!(peer.session().holdings().orphans, 1);
}

/// A ping queued behind much data is not answered before that data is taken: taking it shows life too.
#[test]
fn erl_11_who_takes_what_it_is_sent_is_not_silent() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "@ 30s
               T< NopIn
               @ 29s",
    );
    let (now, cid) = (peer.now, Cid(1));
    peer.session().handle_taken(now, cid);
    peer.play(
        "@ 59s
               @ 1s
               D< Close Silent",
    );
}

/// A response waits for a fence when the time to reassign its command ends: it is dropped as well, and its tag is free.
// covers: ERL-08, FAB-04
#[test]
fn erl_08_what_waits_for_a_fence_expires_too() {
    let keys = format!("{LEVEL_2} TaskReporting=ResponseFence DefaultTime2Wait=0 DefaultTime2Retain=1");
    let mut peer = Peer::logged_in_with(&format!("MaxConnections=2 {keys}"), |peer| {
        let bounds = &mut peer.policy.bounds;
        (bounds.max_connections, bounds.error_recovery_level) = (2, 2);
        (bounds.task_reporting, bounds.default_time2wait_s) = (TaskReporting::FastAbort, 0);
    });
    peer.join(2, "");
    peer.play(
        "I2> ScsiCommand itt=4 F R edtl=8 lun=3
         D< Start itt=4",
    );
    peer.answer_with_fence();
    peer.play(
        "D> complete itt=4 data=8
         X2
         T< AsyncMessage event=ConnectionDrop
         @ 1s",
    );
    assert_eq!(peer.session().take_cleared_luns()[..], [Lun::from_index(3)]);
    assert_eq!(peer.session().recovery_counts().tasks_expired, 1);
    peer.play(
        "I> NopOut I
         I> ScsiCommand itt=4 F R edtl=8
         D< Start itt=4
         D> complete itt=4 data=8
         T< DataIn itt=4",
    );
    assert_eq!(peer.session().holdings().orphans, 0);
}
