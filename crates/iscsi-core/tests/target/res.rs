//! Residuals and responses.

use crate::play::Peer;

// covers: RES-01, RES-02
#[test]
fn res_01_residuals_of_reads() {
    let mut peer = Peer::logged_in("");
    // EDTL, transfer length, data sent, residual in the answer.
    for (edtl, transfer, data, expected) in [
        (512, 512, 512, "!underflow !overflow"),
        (512, 100, 100, "underflow=412 !overflow"),
        (512, 1024, 512, "overflow=512 !underflow"),
        (0, 512, 0, "overflow=512 !underflow"),
        (512, 0, 0, "underflow=512 !overflow"),
        // INQUIRY with an allocation length of 36 and 255 bytes expected: an underflow; cut by the allocation length: none.
        (255, 36, 36, "underflow=219"),
        (16, 16, 16, "!underflow !overflow"),
    ] {
        peer.play(&format!("I> ScsiCommand itt=1 F R edtl={edtl}\nD< Start itt=1 read={edtl}"));
        peer.play_open(&format!("D> complete itt=1 data={transfer} transfer={transfer}"));
        let pdu = if data > 0 {
            format!("T< DataIn itt=1 F status=0x00 data={data}")
        } else {
            "T< ScsiResponse itt=1 status=0x00".into()
        };
        peer.play(&format!("{pdu} {expected}"));
    }
}

#[test]
fn res_01_residuals_of_writes_and_errors() {
    let mut peer = Peer::logged_in("InitialR2T=No");
    for (edtl, transfer, expected) in [
        (512, 512, "!underflow !overflow"),
        (512, 100, "underflow=412"),
        (512, 4096, "overflow=3584"),
        (0, 512, "overflow=512"),
    ] {
        peer.play(&format!(
            "I> ScsiCommand itt=1 F W edtl={edtl} data={edtl}
             D< Start itt=1 write={edtl}
             D> need itt=1 bytes={transfer}
             D< DataOut itt=1 bytes={}
             D> complete itt=1 transfer={transfer}
             T< ScsiResponse itt=1 status=0x00 {expected}",
            std::cmp::min(edtl, transfer)
        ));
    }
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=512
         D< Start itt=1
         D> complete itt=1 status=2 sense=5/21/00 transfer=0
         T< ScsiResponse itt=1 status=0x02 underflow=512
         # A command without data has nothing to be left over.
         I> ScsiCommand itt=2 F edtl=512
         D< Start itt=2 read=0 write=0
         D> complete itt=2
         T< ScsiResponse itt=2 status=0x00 !underflow !overflow
         # More than 32 bits can say.
         I> ScsiCommand itt=3 F R edtl=512
         D< Start itt=3
         D> complete itt=3 data=512 transfer=4294967295
         T< DataIn itt=3 F overflow=4294966783",
    );
}

#[test]
fn res_03_bidirectional_residuals_are_two() {
    let mut peer = Peer::logged_in("InitialR2T=No");
    peer.play(
        "I> ScsiCommand itt=1 F R W edtl=512 bidi_read_length=1024 data=512
         D< Start itt=1 read=1024 write=512
         D> need itt=1 bytes=512
         D< DataOut itt=1
         D> complete itt=1 data=1000 transfer=100
         T< DataIn itt=1 F data=1000 !stat_sn
         T< ScsiResponse itt=1 underflow=412 bidi_underflow=24 exp_data_sn=1",
    );
}

#[test]
fn rsp_01_no_status_before_the_last_f_bit() {
    let mut peer =
        Peer::logged_in("InitialR2T=No FirstBurstLength=1024 MaxBurstLength=1024 MaxOutstandingR2T=3");
    peer.play(
        "I> ScsiCommand itt=1 W edtl=4096
         D< Start itt=1
         # The device server refuses the command while unsolicited data is on its way.
         D> complete itt=1 status=2 sense=7/27/00 transfer=4096
         I> DataOut itt=1 data=512
         I> DataOut itt=1 data_sn=1 offset=512 data=512 F
         T< ScsiResponse itt=1 status=0x02 sense=7/27/00
         # And an error on the first of three R2Ts.
         I> ScsiCommand itt=2 F W edtl=3072
         D< Start itt=2
         D> need itt=2 bytes=3072
         T< R2t itt=2 ttt=0
         T< R2t itt=2 ttt=1
         T< R2t itt=2 ttt=2
         D> complete itt=2 status=2 sense=3/0c/00 transfer=0
         I> DataOut itt=2 ttt=0 data=1024 F
         I> DataOut itt=2 ttt=1 offset=1024 data=1024 F
         I> DataOut itt=2 ttt=2 offset=2048 data=1024 F
         T< ScsiResponse itt=2 status=0x02 sense=3/0c/00 exp_data_sn=3",
    );
}

#[test]
fn rsp_02_exp_data_sn_counts_data_in_and_r2t() {
    let mut peer = Peer::logged_in("InitialR2T=Yes ImmediateData=No MaxRecvDataSegmentLength=512");
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=2000
         D< Start itt=1
         D> complete itt=1 data=1500 status=8
         T< DataIn itt=1 data_sn=0
         T< DataIn itt=1 data_sn=1
         T< DataIn itt=1 data_sn=2 F
         T< ScsiResponse itt=1 status=0x08 exp_data_sn=3
         I> ScsiCommand itt=2 F W edtl=512
         D< Start itt=2
         D> need itt=2 bytes=512
         T< R2t itt=2 ttt=0
         I> DataOut itt=2 ttt=0 F data=512
         D< DataOut itt=2
         D> complete itt=2 transfer=512
         T< ScsiResponse itt=2 exp_data_sn=1",
    );
}

#[test]
fn rsp_04_a_tag_that_is_in_use() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=8
         D< Start itt=1
         I> ScsiCommand itt=1 F R edtl=16 cmd_sn=2
         T< Reject reason=TaskInProgress of_opcode=0x01 of_itt=1 exp_cmd_sn=2
         I> TaskManagementRequest I itt=1 function=LogicalUnitReset
         T< Reject reason=TaskInProgress of_opcode=0x02
         I> TaskManagementRequest I itt=2 function=LogicalUnitReset
         D< Manage LogicalUnitReset
         I> ScsiCommand itt=2 F R edtl=8 cmd_sn=2
         T< Reject reason=TaskInProgress of_itt=2
         D> managed FunctionComplete
         T< TaskManagementResponse itt=2
         D> complete itt=1
         T< ScsiResponse itt=1 status=0x00
         # The reserved tag names no task.
         I> ScsiCommand F R edtl=8 cmd_sn=2
         T< Reject reason=InvalidPduField of_itt=ffffffff
         I> TaskManagementRequest I function=LogicalUnitReset
         T< Reject reason=InvalidPduField
         I> TextRequest I F
         T< Reject reason=InvalidPduField
         I> LogoutRequest I
         T< Reject reason=InvalidPduField
         I> ScsiCommand itt=1 F R edtl=8 cmd_sn=2
         D< Start itt=1",
    );
}
