//! SNACK.

use crate::play::Peer;

const KEYS: &str = "ErrorRecoveryLevel=1 InitialR2T=Yes ImmediateData=No MaxBurstLength=1024 FirstBurstLength=512 \
                    MaxRecvDataSegmentLength=512 MaxOutstandingR2T=4";

fn level_1() -> Peer {
    Peer::with_connections(1, KEYS)
}

/// A read of five PDUs in three sequences, none of it acknowledged.
fn read(peer: &mut Peer) {
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=2500
         D< Start itt=1
         D> complete itt=1 data=2500
         T< DataIn itt=1 !F data_sn=0 offset=0 data=512
         T< DataIn itt=1 F A ttt=0 data_sn=1 offset=512 data=512
         T< DataIn itt=1 !F data_sn=2 offset=1024 data=512
         T< DataIn itt=1 F A ttt=0 data_sn=3 offset=1536 data=512
         T< DataIn itt=1 F !A data_sn=4 offset=2048 status=0x00 stat_sn=4294967295 data=452",
    );
}

const PDUS: [&str; 5] = [
    "T< DataIn itt=1 !F data_sn=0 offset=0 data=512",
    "T< DataIn itt=1 F A ttt=0 data_sn=1 offset=512 data=512",
    "T< DataIn itt=1 !F data_sn=2 offset=1024 data=512",
    "T< DataIn itt=1 F A ttt=0 data_sn=3 offset=1536 data=512",
    "T< DataIn itt=1 F !A data_sn=4 offset=2048 status=0x00 stat_sn=4294967295 data=452",
];

/// The status is acknowledged only by an explicit ExpStatSN.
const OPEN: &str = "exp_stat_sn=4294967295";

// covers: SNK-01, SNK-08, ERL-02
#[test]
fn snk_01_data_is_sent_again_as_it_was() {
    for (beg_run, run_length, from, to) in
        [(0, 1, 0, 1), (2, 1, 2, 3), (4, 1, 4, 5), (1, 3, 1, 4), (0, 0, 0, 5), (3, 0, 3, 5), (0, 5, 0, 5)]
    {
        let mut peer = level_1();
        read(&mut peer);
        for _ in 0..2 {
            peer.play(&format!(
                "I> SnackRequest type=DataOrR2t itt=1 beg_run={beg_run} run_length={run_length} {OPEN}\n{}",
                PDUS[from..to].join("\n")
            ));
        }
        let counts = peer.session().recovery_counts();
        assert_eq!((counts.pdus_replayed, counts.snacks_answered), (2 * (to - from) as u64, 2));
        // They carry the current window.
        peer.play(&format!(
            "I> ScsiCommand itt=2 F R edtl=8 {OPEN}
             D< Start itt=2
             I> SnackRequest type=DataOrR2t itt=1 beg_run=0 run_length=1 {OPEN}
             T< DataIn data_sn=0 exp_cmd_sn=3"
        ));
        // With the status everything is acknowledged.
        peer.play("I> NopOut I itt=9\nT< NopIn itt=9");
        assert_eq!(peer.session().holdings().retained, 0);
        assert_eq!(peer.session().holdings().retained_bytes, 0);
    }
}

/// R2Ts that were not answered are sent again, with the current StatSN.
// covers: SNK-01
#[test]
fn snk_01_r2ts_are_sent_again() {
    let mut peer = level_1();
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=4096
         D< Start itt=1
         D> need itt=1 bytes=4096
         T< R2t itt=1 ttt=0 r2t_sn=0 offset=0 len=1024
         T< R2t itt=1 ttt=1 r2t_sn=1 offset=1024 len=1024
         T< R2t itt=1 ttt=2 r2t_sn=2 offset=2048 len=1024
         T< R2t itt=1 ttt=3 r2t_sn=3 offset=3072 len=1024
         I> NopOut I itt=9
         T< NopIn itt=9 stat_sn=4294967295
         I> SnackRequest type=DataOrR2t itt=1 beg_run=1 run_length=2
         T< R2t itt=1 ttt=1 r2t_sn=1 offset=1024 len=1024 stat_sn=0
         T< R2t itt=1 ttt=2 r2t_sn=2 offset=2048 len=1024 stat_sn=0
         I> DataOut itt=1 ttt=0 offset=0 data=512
         I> SnackRequest type=DataOrR2t itt=1 beg_run=0 run_length=1
         T< R2t itt=1 ttt=0 r2t_sn=0 offset=0 len=1024
         I> DataOut itt=1 ttt=0 F data_sn=1 offset=512 data=512
         # Answered is acknowledged.
         I> SnackRequest type=DataOrR2t itt=1 beg_run=0 run_length=1
         T< Reject reason=ProtocolError data_sn=4
         I> SnackRequest type=DataOrR2t itt=1
         T< R2t r2t_sn=1
         T< R2t r2t_sn=2
         T< R2t r2t_sn=3",
    );
}

#[test]
fn snk_02_statuses_are_sent_again() {
    let mut peer = level_1();
    peer.play(&format!(
        "I> ScsiCommand itt=1 F edtl=0
         D< Start itt=1
         D> complete itt=1 status=2 sense=5/20/00
         T< ScsiResponse itt=1 stat_sn=4294967295 sense=5/20/00
         I> TaskManagementRequest I itt=2 function=AbortTask referenced_task_tag=77 ref_cmd_sn=99 {OPEN}
         T< TaskManagementResponse itt=2 stat_sn=0
         I> TextRequest F itt=3 {OPEN} | X-a=b
         T< TextResponse itt=3 stat_sn=1 | X-a=NotUnderstood
         I> ScsiCommand itt=4 F R edtl=8 {OPEN}
         D< Start itt=4
         D> complete itt=4 data=8
         T< DataIn itt=4 stat_sn=2 status=0x00
         I> SnackRequest type=Status beg_run=4294967295 run_length=2 {OPEN}
         T< ScsiResponse itt=1 stat_sn=4294967295 sense=5/20/00 exp_cmd_sn=4
         T< TaskManagementResponse itt=2 stat_sn=0
         I> SnackRequest type=Status beg_run=1 {OPEN}
         T< TextResponse itt=3 stat_sn=1 | X-a=NotUnderstood
         T< DataIn itt=4 stat_sn=2 status=0x00 data=8
         I> SnackRequest type=Status exp_stat_sn=1
         T< TextResponse itt=3 stat_sn=1 | X-a=NotUnderstood
         T< DataIn itt=4 stat_sn=2
         # Acknowledged, not yet sent, and the fields that must be reserved.
         I> SnackRequest type=Status beg_run=4294967295 run_length=1 exp_stat_sn=1
         T< Reject reason=ProtocolError stat_sn=3
         I> SnackRequest type=Status beg_run=5 run_length=1 exp_stat_sn=1
         T< Reject reason=ProtocolError stat_sn=4
         I> SnackRequest type=Status itt=4 beg_run=1 run_length=1 exp_stat_sn=1
         T< Reject reason=InvalidPduField stat_sn=5
         I> SnackRequest type=Status beg_run=1 run_length=1 ttt=0 exp_stat_sn=1
         T< Reject reason=InvalidPduField stat_sn=6"
    ));
    assert_eq!(peer.session().recovery_counts().snacks_refused, 4);
}

#[test]
fn snk_03_data_ack_releases_early() {
    let mut peer = level_1();
    read(&mut peer);
    peer.play(&format!("I> SnackRequest type=DataAck ttt=0 beg_run=2 {OPEN}"));
    assert_eq!(peer.session().holdings().retained_bytes, 2500 - 1024);
    peer.play(&format!(
        "# The same again changes nothing; what is acknowledged is gone.
         I> SnackRequest type=DataAck ttt=0 beg_run=2 {OPEN}
         I> SnackRequest type=DataOrR2t itt=1 beg_run=1 run_length=1 {OPEN}
         T< Reject reason=ProtocolError data_sn=5
         I> SnackRequest type=DataOrR2t itt=1 {OPEN}
         {}
         # Backwards, beyond what was sent, with a run, for another unit, with a tag that is none.
         I> SnackRequest type=DataAck ttt=0 beg_run=1 {OPEN}
         T< Reject reason=InvalidDataAck
         I> SnackRequest type=DataAck ttt=0 beg_run=6 {OPEN}
         T< Reject reason=InvalidDataAck
         I> SnackRequest type=DataAck ttt=0 beg_run=3 run_length=1 {OPEN}
         T< Reject reason=InvalidDataAck
         I> SnackRequest type=DataAck ttt=0 lun=1 beg_run=4 {OPEN}
         T< Reject reason=InvalidDataAck
         I> SnackRequest type=DataAck ttt=7 beg_run=4 {OPEN}
         T< Reject reason=InvalidDataAck
         I> SnackRequest type=DataAck ttt=0 beg_run=5 {OPEN}",
        PDUS[2..].join("\n")
    ));
    assert_eq!(peer.session().holdings().retained_bytes, 0);
}

#[test]
fn snk_04_data_is_cut_anew_after_mrdsl_was_lowered() {
    let keys = KEYS.replace("MaxRecvDataSegmentLength=512", "MaxRecvDataSegmentLength=1024");
    let mut peer = Peer::with_connections(1, &keys);
    peer.play(&format!(
        "I> ScsiCommand itt=1 F R edtl=2048
         D< Start itt=1
         D> complete itt=1 data=2048
         T< DataIn itt=1 F A data_sn=0 offset=0 data=1024
         T< DataIn itt=1 F data_sn=1 offset=1024 data=1024 stat_sn=4294967295
         I> SnackRequest type=DataAck ttt=0 beg_run=1 {OPEN}
         I> TextRequest I F itt=2 {OPEN} | MaxRecvDataSegmentLength=512
         T< TextResponse itt=2 stat_sn=0
         I> SnackRequest type=RData itt=1 ttt=0 {OPEN}
         T< Reject reason=InvalidPduField
         I> SnackRequest type=RData itt=1 beg_run=1 ttt=5 {OPEN}
         T< Reject reason=InvalidPduField
         I> SnackRequest type=RData itt=1 ttt=5 {OPEN}
         T< DataIn itt=1 !F data_sn=1 offset=1024 data=512 !status
         T< DataIn itt=1 F data_sn=2 offset=1536 data=512 !status
         T< ScsiResponse itt=1 stat_sn=4294967295 snack_tag=5 exp_data_sn=3
         # The last tag is told also by the status that is sent again.
         I> SnackRequest type=RData itt=1 ttt=6 {OPEN}
         T< DataIn itt=1 data_sn=1
         T< DataIn itt=1 data_sn=2
         T< ScsiResponse itt=1 stat_sn=4294967295 snack_tag=6
         I> SnackRequest type=Status beg_run=4294967295 run_length=1 {OPEN}
         T< ScsiResponse itt=1 stat_sn=4294967295 snack_tag=6"
    ));
}

/// It may arrive before there is anything to send.
// covers: SNK-04
#[test]
fn snk_04_before_the_data() {
    level_1().play(
        "I> ScsiCommand itt=1 F R edtl=512
         D< Start itt=1
         I> SnackRequest type=RData itt=1 ttt=5
         D> complete itt=1 data=512
         T< DataIn itt=1 F data_sn=0 !status
         T< ScsiResponse itt=1 snack_tag=5",
    );
}

#[test]
fn snk_05_what_was_not_sent_is_refused() {
    let mut peer = level_1();
    read(&mut peer);
    peer.play(&format!(
        "I> SnackRequest type=DataOrR2t itt=1 beg_run=5 run_length=1 {OPEN}
         T< Reject reason=ProtocolError data_sn=5
         I> SnackRequest type=DataOrR2t itt=1 beg_run=4 run_length=2 {OPEN}
         T< Reject reason=ProtocolError data_sn=5
         I> SnackRequest type=DataOrR2t itt=1 beg_run=2 run_length=4294967295 {OPEN}
         T< Reject reason=ProtocolError data_sn=5
         I> SnackRequest type=DataOrR2t itt=7 {OPEN}
         T< Reject reason=ProtocolError
         I> SnackRequest type=DataOrR2t {OPEN}
         T< Reject reason=InvalidPduField
         I> SnackRequest type=DataOrR2t itt=1 ttt=0 {OPEN}
         T< Reject reason=InvalidPduField
         # Once its status is acknowledged, nothing is owed for a command any more.
         I> SnackRequest type=DataOrR2t itt=1 exp_stat_sn=0
         T< Reject reason=ProtocolError"
    ));
}

/// It may not be sent on another connection.
// covers: SNK-05, MCS-02
#[test]
fn snk_05_of_another_connection() {
    let mut peer = Peer::with_connections(2, KEYS);
    read(&mut peer);
    peer.play(
        "I2> SnackRequest type=DataOrR2t itt=1
         T2< Reject reason=ProtocolError
         I2> SnackRequest type=DataAck ttt=0 beg_run=1
         T2< Reject reason=InvalidDataAck
         I> ScsiCommand itt=2 F W edtl=512 exp_stat_sn=4294967295
         D< Start itt=2
         D> need itt=2 bytes=512
         T< R2t itt=2
         I2> SnackRequest type=DataOrR2t itt=2
         T2< Reject reason=ProtocolError",
    );
}

#[test]
fn snk_06_who_asks_for_ever_is_refused() {
    let mut peer = level_1();
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=512
         D< Start itt=1
         D> need itt=1 bytes=512
         T< R2t itt=1",
    );
    for _ in 0..64 {
        peer.play("I> SnackRequest type=DataOrR2t itt=1\nT< R2t itt=1 ttt=0 r2t_sn=0");
    }
    peer.play(
        "I> SnackRequest type=DataOrR2t itt=1
         T< Reject reason=SnackReject
         D< Abandon itt=1
         I> DataOut itt=1 ttt=0 F data=512
         D> gone itt=1
         T< ScsiResponse itt=1 status=0x02 sense=b/11/13",
    );
    // A command that has its status keeps that status.
    let mut peer = level_1();
    read(&mut peer);
    for _ in 0..64 {
        peer.play(&format!(
            "I> SnackRequest type=DataOrR2t itt=1 beg_run=2 run_length=1 {OPEN}\n{}",
            PDUS[2]
        ));
    }
    peer.play(&format!(
        "I> SnackRequest type=DataOrR2t itt=1 {OPEN}\nT< Reject reason=SnackReject data_sn=5"
    ));
}

/// Data that would take too much memory is not kept, and is refused when it is requested.
// covers: SNK-06
#[test]
fn snk_06_what_was_forgotten_is_refused() {
    let mut peer = Peer::logged_in_with(KEYS, |peer| {
        peer.policy.bounds.error_recovery_level = 1;
        peer.config.retained_bytes_max = 2600;
    });
    read(&mut peer);
    peer.play(&format!(
        "I> ScsiCommand itt=2 F R edtl=512 {OPEN}
         D< Start itt=2
         D> complete itt=2 data=512
         T< DataIn itt=2 data_sn=0
         I> SnackRequest type=DataOrR2t itt=1 {OPEN}
         T< Reject reason=SnackReject data_sn=5
         # Not even the part of it that came with the status was kept.
         I> SnackRequest type=Status beg_run=4294967295 run_length=1 {OPEN}
         T< Reject reason=SnackReject
         I> SnackRequest type=DataOrR2t itt=2 {OPEN}
         T< DataIn itt=2 data_sn=0
         I> SnackRequest type=Status beg_run=0 run_length=1 {OPEN}
         T< DataIn itt=2 data_sn=0 stat_sn=0 status=0x00 data=512"
    ));
    assert_eq!(peer.session().holdings().retained_bytes, 512);
}

#[test]
fn snk_07_at_level_0_there_is_none() {
    for keys in ["", "SessionType=Discovery"] {
        let mut peer = Peer::new();
        peer.play(&format!("I> LoginRequest T csg=1 nsg=3 | @names {keys}"));
        peer.output.clear();
        for kind in ["DataOrR2t itt=1", "Status", "DataAck ttt=1", "RData itt=1 ttt=1"] {
            peer.play(&format!("I> SnackRequest type={kind}\nT< Reject reason=ProtocolError"));
        }
        peer.play("I> NopOut itt=9\nT< NopIn itt=9");
    }
}

/// A short read requests no acknowledgement of its data: that of the status is enough.
#[test]
fn snk_08_no_acknowledgement_is_asked_for_without_need() {
    level_1().play(
        "I> ScsiCommand itt=1 F R edtl=1024
         D< Start itt=1
         D> complete itt=1 data=1024
         T< DataIn itt=1 !A data_sn=0
         T< DataIn itt=1 !A data_sn=1 status=0x00",
    );
}

/// Statuses are kept up to a bound.
// covers: SNK-06
#[test]
fn snk_06_statuses_that_were_forgotten_are_refused() {
    let mut peer = level_1();
    for _ in 0..1025 {
        peer.play(&format!("I> NopOut I itt=1 {OPEN}\nT< NopIn itt=1"));
    }
    peer.play(&format!(
        "I> SnackRequest type=Status beg_run=4294967295 run_length=1 {OPEN}
         T< Reject reason=SnackReject"
    ));
}

/// And up to a bound on their data: an initiator that sends large pings and acknowledges nothing cannot fill memory.
// covers: SNK-06
#[test]
fn snk_06_the_data_of_statuses_are_bounded() {
    let keys = KEYS.replace("MaxRecvDataSegmentLength=512", "MaxRecvDataSegmentLength=65536");
    let mut peer = Peer::with_connections(1, &keys);
    for _ in 0..5 {
        peer.play(&format!("I> NopOut I itt=1 data=65536 {OPEN}\nT< NopIn itt=1"));
    }
    peer.play(&format!(
        "I> SnackRequest type=Status beg_run=4294967295 run_length=1 {OPEN}
         T< Reject reason=SnackReject
         # The refusal is a status too.
         I> SnackRequest type=Status beg_run=1 run_length=1 {OPEN}
         T< NopIn itt=1 stat_sn=1 data=65536"
    ));
}

/// The last data is acknowledged, and the status in the same PDU is reported missing: nothing is left to send it with.
// covers: SNK-06, SNK-03
#[test]
fn snk_06_a_status_whose_data_were_acknowledged_is_refused() {
    let mut peer = level_1();
    read(&mut peer);
    peer.play(&format!(
        "I> SnackRequest type=Status beg_run=4294967295 run_length=1 {OPEN}
         {}
         I> SnackRequest type=DataAck ttt=0 beg_run=5 {OPEN}
         I> SnackRequest type=Status beg_run=4294967295 run_length=1 {OPEN}
         T< Reject reason=SnackReject",
        PDUS[4]
    ));
}
