//! Data transfer: Data-In, unsolicited data, R2T.

use crate::play::Peer;

#[test]
fn dat_01_sequences_whose_lengths_do_not_divide_each_other() {
    let mut peer = Peer::logged_in("MaxBurstLength=1000 FirstBurstLength=512 MaxRecvDataSegmentLength=600");
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=1701
         D< Start itt=1
         D> complete itt=1 data=1701
         T< DataIn itt=1 data_sn=0 offset=0 data=600 !F
         T< DataIn itt=1 data_sn=1 offset=600 data=400 F
         T< DataIn itt=1 data_sn=2 offset=1000 data=600 !F
         T< DataIn itt=1 data_sn=3 offset=1600 data=101 F status=0x00",
    );
}

// covers: DAT-02, RSP-02, RES-03, DAT-07
#[test]
fn dat_02_data_in_and_r2t_of_one_command_share_their_numbers() {
    let mut peer = Peer::logged_in(
        "InitialR2T=Yes ImmediateData=No MaxBurstLength=512 FirstBurstLength=512 MaxOutstandingR2T=1",
    );
    peer.play(
        "I> ScsiCommand itt=1 F R W edtl=1024 bidi_read_length=600
         D< Start itt=1 read=600 write=1024
         D> need itt=1 bytes=1024
         T< R2t itt=1 ttt=0 r2t_sn=0 offset=0 len=512
         I> DataOut itt=1 ttt=0 data_sn=0 data=256
         I> DataOut itt=1 ttt=0 data_sn=1 offset=256 data=256 F
         T< R2t itt=1 ttt=1 r2t_sn=1 offset=512 len=512
         I> DataOut itt=1 ttt=1 data_sn=0 offset=512 data=512 F
         D< DataOut itt=1 bytes=1024
         D> complete itt=1 data=500 transfer=1024
         T< DataIn itt=1 data_sn=2 offset=0 data=500 F !stat_sn
         T< ScsiResponse itt=1 exp_data_sn=3 bidi_underflow=100 !underflow",
    );
}

#[test]
fn dat_04_tags_and_lun_of_data_out() {
    let start = "I> ScsiCommand itt=1 F W edtl=1024 lun=1
                 D< Start itt=1 lun=1
                 D> need itt=1 bytes=1024
                 T< R2t itt=1 ttt=0 offset=0 len=1024";
    let keys = "InitialR2T=Yes ImmediateData=No MaxBurstLength=1024 FirstBurstLength=512";
    // An unknown task: the others are not affected.
    let mut peer = Peer::logged_in(keys);
    peer.play(start);
    peer.play(
        "I> DataOut itt=9 ttt=0 lun=1 F data=1024
         T< Reject reason=InvalidPduField of_opcode=0x05 of_itt=9
         I> DataOut itt=1 ttt=0 lun=1 F data=1024
         D< DataOut itt=1 bytes=1024",
    );
    // The wrong transfer tag or LUN: rejected, nothing is written, and the status follows the F bit that is owed.
    for wrong in ["ttt=7 lun=1", "ttt=0 lun=2"] {
        let mut peer = Peer::logged_in(keys);
        peer.play(start);
        peer.play(&format!(
            "I> DataOut itt=1 {wrong} data=512
             T< Reject reason=InvalidPduField of_opcode=0x05 of_itt=1
             D< Abandon itt=1
             D> gone itt=1
             I> DataOut itt=1 ttt=0 lun=1 F data=1024
             T< ScsiResponse itt=1 status=0x02 sense=b/0c/0d"
        ));
    }
}

/// The device server has all the data: further data is rejected and changes nothing.
// covers: DAT-04, REJ-02
#[test]
fn dat_04_stray_data_does_not_end_a_write_that_is_executing() {
    let mut peer = Peer::logged_in("ImmediateData=Yes");
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=512 data=512
         D< Start itt=1
         D> need itt=1 bytes=512
         D< DataOut itt=1 bytes=512
         I> DataOut itt=1 F offset=512 data=512
         T< Reject reason=InvalidPduField of_opcode=0x05 of_itt=1
         I> DataOut itt=1 ttt=3 F data=512
         T< Reject reason=InvalidPduField
         D> complete itt=1 transfer=512
         T< ScsiResponse itt=1 status=0x00",
    );
}

#[test]
fn dat_06_the_f_bit_comes_alone() {
    let mut peer =
        Peer::logged_in("InitialR2T=No ImmediateData=Yes FirstBurstLength=1024 MaxBurstLength=1024");
    peer.play(
        "I> ScsiCommand itt=1 W edtl=1024 data=1024
         D< Start itt=1
         D> need itt=1 bytes=1024
         # Everything came with the command; the F bit comes alone.
         I> DataOut itt=1 F offset=1024
         D< DataOut itt=1 bytes=1024
         D> complete itt=1 transfer=1024
         T< ScsiResponse itt=1 status=0x00",
    );
}

// covers: DAT-07, DAT-08, RSP-01
#[test]
fn dat_07_where_the_status_travels() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=512
         D< Start itt=1
         D> complete itt=1 data=512 status=4
         T< DataIn itt=1 F status=0x04
         # An error has a response of its own, whether data came before it or not.
         I> ScsiCommand itt=2 F R edtl=512
         D< Start itt=2
         D> complete itt=2 data=512 status=2 sense=3/11/00
         T< DataIn itt=2 F !status data=512
         T< ScsiResponse itt=2 status=0x02 sense=3/11/00 exp_data_sn=1
         I> ScsiCommand itt=3 F R edtl=512
         D< Start itt=3
         D> complete itt=3 data=100 status=8
         T< DataIn itt=3 F !status data=100
         T< ScsiResponse itt=3 status=0x08 underflow=412 exp_data_sn=1
         # No data: a response.
         I> ScsiCommand itt=4 F R edtl=512
         D< Start itt=4
         D> complete itt=4
         T< ScsiResponse itt=4 status=0x00 underflow=512 exp_data_sn=0",
    );
}

/// Unsolicited data although F announced that none would follow.
#[test]
fn uns_02_data_after_the_f_bit_is_refused() {
    let mut peer = Peer::logged_in("InitialR2T=No");
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=512
         D< Start itt=1
         I> DataOut itt=1 F data=512
         D< Abandon itt=1
         D> gone itt=1
         T< ScsiResponse itt=1 status=0x02 sense=b/0c/0c",
    );
}

#[test]
fn uns_03_no_more_than_the_command_announced() {
    Peer::logged_in("InitialR2T=No ImmediateData=Yes FirstBurstLength=1024 MaxBurstLength=4096").play(
        "I> ScsiCommand itt=3 F W edtl=100 data=101
         T< ScsiResponse itt=3 status=0x02 sense=b/0c/0d",
    );
}

#[test]
fn uns_05_the_f_bit_of_commands() {
    let mut peer = Peer::logged_in("InitialR2T=No");
    for line in
        ["ScsiCommand itt=1 R edtl=512", "ScsiCommand itt=1 edtl=0", "ScsiCommand itt=1 F R edtl=8 data=8"]
    {
        peer.play(&format!(
            "I> {line} cmd_sn=1\nT< Reject reason=InvalidPduField of_opcode=0x01 exp_cmd_sn=1"
        ));
    }
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=512 cmd_sn=1
         D< Start itt=1
         D> need itt=1 bytes=512
         T< R2t itt=1 offset=0 len=512",
    );
}

#[test]
fn r2t_04_an_answer_that_is_too_short() {
    let mut peer = Peer::logged_in(
        "InitialR2T=Yes ImmediateData=No MaxBurstLength=512 FirstBurstLength=512 MaxOutstandingR2T=2",
    );
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=1024
         D< Start itt=1
         D> need itt=1 bytes=1024
         T< R2t itt=1 ttt=0 offset=0 len=512
         T< R2t itt=1 ttt=1 offset=512 len=512
         I> DataOut itt=1 ttt=0 data=100 F
         D< Abandon itt=1
         I> DataOut itt=1 ttt=1 offset=512 data=512 F
         # The status waits for the device server too.
         D> gone itt=1
         T< ScsiResponse itt=1 status=0x02 sense=b/0c/0d underflow=1024",
    );
}

/// Data that the device server does not want is not requested; data that arrived anyway is not passed on.
#[test]
fn r2t_05_only_what_is_needed() {
    let mut peer = Peer::logged_in("InitialR2T=No FirstBurstLength=512 MaxBurstLength=512");
    peer.play(
        "I> ScsiCommand itt=1 W edtl=2048 data=100
         D< Start itt=1
         I> DataOut itt=1 F offset=100 data=412
         D> need itt=1 bytes=600
         T< R2t itt=1 offset=512 len=88
         I> DataOut itt=1 ttt=0 F offset=512 data=88
         D< DataOut itt=1 bytes=600
         D> complete itt=1 transfer=600
         T< ScsiResponse itt=1 underflow=1448 exp_data_sn=1
         I> ScsiCommand itt=2 F W edtl=2048 data=512
         D< Start itt=2
         D> need itt=2 bytes=24
         D< DataOut itt=2 bytes=24",
    );
}

/// Solicited data is bounded for the session: a command gets its whole share or waits; a smaller one that fits may go first.
// covers: R2T-01
#[test]
fn r2t_01_solicitation_is_bounded() {
    let mut peer = Peer::logged_in_with(
        "InitialR2T=Yes ImmediateData=No MaxBurstLength=1024 FirstBurstLength=512",
        |peer| {
            peer.config.solicited_bytes_max = 1500;
        },
    );
    for itt in 1..=3 {
        peer.play(&format!("I> ScsiCommand itt={itt} F W edtl=1024\nD< Start itt={itt}"));
    }
    peer.play(
        "D> need itt=1 bytes=1024
         T< R2t itt=1 ttt=0 len=1024
         D> need itt=2 bytes=1024
         D> need itt=3 bytes=400
         T< R2t itt=3 ttt=1 len=400
         I> DataOut itt=1 ttt=0 F data=1024
         D< DataOut itt=1
         D> complete itt=1 transfer=1024
         T< R2t itt=2 ttt=2 len=1024
         T< ScsiResponse itt=1",
    );
    assert_eq!(peer.session().holdings().data_out.solicited_bytes, 1424);
}

/// Commands whose requested data does not arrive give up their memory: data that still arrives is discarded, and the command may
/// be repeated.
#[test]
fn r2ts_that_nobody_answers_give_way() {
    let mut peer = Peer::logged_in("InitialR2T=Yes ImmediateData=No");
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=4096
         D< Start itt=1
         D> need itt=1 bytes=4096
         T< R2t itt=1 ttt=0 offset=0 len=4096",
    );
    peer.session().give_way();
    peer.play(
        "@ 0s
         D< Abandon itt=1
         D> gone itt=1
         I> DataOut itt=1 ttt=0 F offset=0 data=4096
         D< Refused Busy lun=0
         T< ScsiResponse itt=1 status=0x08",
    );
    assert_eq!(peer.session().holdings().tasks, 0);
}

/// A status of the logical unit that waits for data is the unit's own: it knows of it.
#[test]
fn a_unit_is_not_told_of_its_own_busy() {
    Peer::logged_in("InitialR2T=Yes ImmediateData=No").play(
        "I> ScsiCommand itt=1 F W edtl=4096
         D< Start itt=1
         D> need itt=1 bytes=4096
         T< R2t itt=1 ttt=0 offset=0 len=4096
         D> complete itt=1 status=8
         I> DataOut itt=1 ttt=0 F offset=0 data=4096
         T< ScsiResponse itt=1 status=0x08",
    );
}

/// Without memory for unsolicited data the command ends with BUSY; with TASK SET FULL where others of the session will free some.
// covers: SNS-06
#[test]
fn sns_06_unsolicited_data_without_memory_ends_its_command() {
    let mut peer = Peer::logged_in("ImmediateData=Yes");
    peer.session().set_early_bytes_max(0);
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=8 data=8
         D< Refused Busy lun=0
         T< ScsiResponse itt=1 status=0x08
         I> ScsiCommand itt=2 F R edtl=8
         D< Start itt=2
         I> ScsiCommand itt=3 F W edtl=8 data=8
         D< Refused TaskSetFull lun=0
         T< ScsiResponse itt=3 status=0x28
         D> complete itt=2 data=8
         T< DataIn itt=2 status=0x00
         I> ScsiCommand itt=4 F W edtl=8 data=8
         D< Refused Busy lun=0
         T< ScsiResponse itt=4 status=0x08",
    );
}
