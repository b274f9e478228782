//! Framing, AHS and format errors.

use bytes::Bytes;

use crate::pdus::{bare_header, build, mutated, opcodes};
use crate::play::Peer;

/// Sends the PDU of `line` with bytes of its header changed.
fn send_mutated(peer: &mut Peer, line: &str, changes: &[(usize, u8)]) {
    let (pdu, ahs) = build(line, peer);
    peer.remember(&pdu);
    let bhs = changes.iter().fold(pdu.to_bhs(), |bhs, (at, xor)| mutated(bhs, *at, *xor));
    peer.feed(bhs, ahs, Bytes::new(), None);
}

#[test]
fn pdu_02_reserved_bits_change_nothing() {
    let mut peer = Peer::logged_in("InitialR2T=No");
    send_mutated(
        &mut peer,
        "NopOut itt=1",
        &[(0, 0x80), (1, 0x7f), (2, 0xff), (3, 0xff), (36, 0xff), (47, 0xff)],
    );
    peer.play("T< NopIn itt=1");
    send_mutated(&mut peer, "ScsiCommand itt=2 W edtl=8", &[(0, 0x80), (1, 0x18), (2, 0xff), (3, 0xff)]);
    peer.play("D< Start itt=2 write=8");
    let data_out = "DataOut itt=2 F";
    let data_out_reserved = [(0, 0xc0), (1, 0x7f), (2, 0xff), (24, 0xff), (32, 0xff), (44, 0xff), (8, 0xff)];
    send_mutated(&mut peer, data_out, &data_out_reserved);
    // Too short, but recognised: its F bit ended the sequence.
    peer.play(
        "D< Abandon itt=2
         D> gone itt=2
         T< ScsiResponse itt=2 status=0x02 sense=b/0c/0d",
    );
    send_mutated(&mut peer, "TextRequest itt=3 F", &[(0, 0x80), (1, 0x3f), (2, 0xff), (3, 0xff), (32, 0xff)]);
    peer.play("T< TextResponse itt=3 F");
    let tmf = "TaskManagementRequest itt=4 function=AbortTask referenced_task_tag=99";
    send_mutated(&mut peer, tmf, &[(0, 0x80), (2, 0xff), (3, 0xff), (44, 0xff)]);
    peer.play("T< TaskManagementResponse itt=4 response=TaskDoesNotExist");
    send_mutated(
        &mut peer,
        "LogoutRequest itt=5 reason=CloseSession",
        &[(0, 0x80), (2, 0xff), (8, 0xff), (22, 0xff)],
    );
    peer.play(
        "T< LogoutResponse itt=5 response=Success
         D< Close Logout
         D< Ended",
    );
}

#[test]
fn pdu_03_reserved_codes_are_refused_and_the_session_lives() {
    let mut peer = Peer::logged_in("");
    send_mutated(&mut peer, "TaskManagementRequest I itt=1 function=AbortTask", &[(1, 1 ^ 13)]);
    peer.play("T< Reject reason=InvalidPduField of_opcode=0x02 of_itt=1");
    send_mutated(&mut peer, "LogoutRequest I itt=2", &[(1, 3)]);
    peer.play("T< Reject reason=InvalidPduField of_opcode=0x06");
    send_mutated(&mut peer, "SnackRequest type=DataOrR2t itt=3", &[(1, 4)]);
    peer.play("T< Reject reason=InvalidPduField of_opcode=0x10");
    send_mutated(&mut peer, "ScsiCommand I F itt=4", &[(1, 1 ^ 7)]);
    peer.play(
        "T< Reject reason=InvalidPduField of_opcode=0x01
         I> NopOut itt=9
         T< NopIn itt=9",
    );
}

// covers: PDU-04, NUM-13
#[test]
fn pdu_04_unknown_opcodes_are_rejected_and_take_no_number() {
    let mut peer = Peer::logged_in("");
    for opcode in [0x07, 0x0f, 0x1c, 0x1f] {
        peer.feed(bare_header(opcode, false, 1, peer.cmd_sn), Bytes::new(), Bytes::new(), None);
        peer.play(&format!("T< Reject reason=CommandNotSupported of_opcode={opcode:#04x} exp_cmd_sn=1"));
    }
    peer.play(
        "I> NopOut itt=2 cmd_sn=1
         T< NopIn itt=2 exp_cmd_sn=2",
    );
}

#[test]
fn pdu_05_opcodes_of_a_target_are_errors_here() {
    let mut peer = Peer::logged_in("");
    for opcode in opcodes(false) {
        peer.feed(bare_header(opcode, false, 1, peer.cmd_sn), Bytes::new(), Bytes::new(), None);
        let reply = peer.output.pop_front().expect("an answer").line;
        assert!(reply.contains("T< Reject") && reply.contains("exp_cmd_sn=1"), "{opcode:#x}: {reply}");
    }
    peer.play("I> NopOut itt=2\nT< NopIn itt=2");
}

#[test]
fn pdu_06_segments_where_none_belong() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> TaskManagementRequest I itt=1 function=LogicalUnitReset data=4
         T< Reject reason=InvalidPduField of_opcode=0x02
         I> LogoutRequest I itt=2 data=4
         T< Reject reason=InvalidPduField of_opcode=0x06",
    );
    let (nop, _) = build("NopOut I itt=3", &mut peer);
    peer.feed(nop.to_bhs(), Bytes::from_static(&[0, 5, 2, 0, 0, 0, 0, 1]), Bytes::new(), None);
    peer.play(
        "T< Reject reason=InvalidPduField of_opcode=0x00
         I> NopOut itt=4
         T< NopIn itt=4",
    );
}

#[test]
fn pdu_08_a_format_error_closes_the_session() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=512
         D< Start itt=1
         I> NopOut itt=2 ttt=5
         D< Close Violation
         D< Abandon itt=1
         D> gone itt=1
         D< Ended",
    );
}

#[test]
fn pdu_10_no_data_leaves_with_an_error() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=8192
         D< Start itt=1 read=8192
         D> complete itt=1 status=2 sense=5/20/00 transfer=0
         T< ScsiResponse itt=1 status=0x02 sense=5/20/00 underflow=8192 exp_data_sn=0",
    );
}

#[test]
fn ahs_01_extended_cdbs_arrive_whole() {
    let mut peer = Peer::logged_in("");
    for (itt, beyond) in [(1, 1), (2, 3), (3, 16), (4, 244)] {
        peer.play(&format!(
            "I> ScsiCommand itt={itt} F R edtl=8 extended_cdb={beyond}
             D< Start itt={itt} cdb_len={}
             D> complete itt={itt}
             T< ScsiResponse itt={itt} status=0x00",
            16 + beyond
        ));
    }
    peer.play("I> ScsiCommand itt=9 F R edtl=8\nD< Start itt=9 cdb_len=16");
}

#[test]
fn ahs_02_a_bidirectional_command_says_both_lengths() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> ScsiCommand itt=1 F R W edtl=512
         T< Reject reason=InvalidPduField of_opcode=0x01 exp_cmd_sn=1
         I> ScsiCommand itt=1 F R W edtl=512 bidi_read_length=1024 cmd_sn=1
         D< Start itt=1 read=1024 write=512",
    );
}

#[test]
fn ahs_03_several_segments_and_a_chain_that_does_not_fit() {
    let mut peer = Peer::logged_in("HeaderDigest=CRC32C");
    peer.play(
        "I> ScsiCommand itt=1 F R W edtl=512 bidi_read_length=1024 extended_cdb=16
         D< Start itt=1 read=1024 write=512 cdb_len=32",
    );
    // In the other order, with one of an unknown type between them.
    let (command, _) = build("ScsiCommand itt=2 F R W edtl=512", &mut peer);
    let mut ahs = vec![0, 5, 1, 0, 0xcd, 0xcd, 0xcd, 0xcd];
    ahs.extend_from_slice(&[0, 2, 0x3e, 7, 7, 0, 0, 0]);
    ahs.extend_from_slice(&[0, 5, 2, 0, 0, 0, 4, 0]);
    peer.remember(&command);
    peer.feed(command.to_bhs(), Bytes::from(ahs), Bytes::new(), None);
    peer.play("D< Start itt=2 read=1024 write=512 cdb_len=20");
    let (command, _) = build("ScsiCommand itt=3 F R edtl=512", &mut peer);
    peer.feed(command.to_bhs(), Bytes::from_static(&[0, 9, 1, 0, 1, 2, 3, 4]), Bytes::new(), None);
    peer.play(
        "D< Close Violation
         D< Abandon itt=1
         D< Abandon itt=2
         D> gone itt=1
         D> gone itt=2
         D< Ended",
    );
}

/// Whether the length fits ADDITIONAL CDB LENGTH is for the device server to check: it gets the bytes received, not a padded CDB.
#[test]
fn ahs_04_a_short_extended_cdb_is_not_made_up() {
    let mut peer = Peer::logged_in("");
    peer.play(
        "I> ScsiCommand itt=1 F R edtl=512 extended_cdb=12 cdb=7f000000000000180000000000000001
         D< Start itt=1 cdb_len=28
         D> complete itt=1 status=2 sense=5/24/00 transfer=0
         T< ScsiResponse itt=1 status=0x02 sense=5/24/00",
    );
}
