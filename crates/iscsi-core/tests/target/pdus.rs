//! PDUs of an initiator, built from words.

use bytes::Bytes;
use iscsi_core::wire::{Bhs, CmdSn, Names, Opcode, Pdu, PduLine, StatSn, Usual};

use crate::play::Peer;

pub fn parse(line: &str) -> PduLine {
    PduLine::parse(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The number in `field=...`.
pub fn number(line: &PduLine, names: &Names, field: &str) -> Option<u32> {
    line.number(field, names).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The PDU of a line and its AHS. Fields that are not given follow from the state of `peer`.
pub fn build(line: &str, peer: &mut Peer) -> (Pdu, Bytes) {
    made(&parse(line), peer)
}

/// As [`build`], of a line that has been read.
pub fn made(line: &PduLine, peer: &mut Peer) -> (Pdu, Bytes) {
    let counted = !line.flag("I") && !matches!(line.name(), "LoginRequest" | "DataOut" | "SnackRequest");
    let cmd_sn = peer.cmd_sn;
    if counted && line.text("cmd_sn").is_none() {
        peer.cmd_sn = cmd_sn.next();
    }
    // The CDB says to whom it belongs.
    let mut cdb = [0; 16];
    cdb[2..6].copy_from_slice(&number(line, &peer.names, "itt").unwrap_or(u32::MAX).to_be_bytes());
    let (isid, tsih, cid) = (peer.isid, peer.tsih, peer.at);
    let exp_stat_sn: StatSn = peer.exp_stat_sn();
    let usual = Usual { cmd_sn, exp_stat_sn, cdb, isid, tsih, cid, ..Usual::default() };
    let (pdu, ahs) = line.pdu(&usual, &peer.names).unwrap_or_else(|error| panic!("{error}: {line}"));
    (pdu, ahs.into())
}

/// A header of any opcode, empty but for tags and CmdSN.
pub fn bare_header(opcode: u8, immediate: bool, itt: u32, cmd_sn: CmdSn) -> Bhs {
    let mut header = [0u8; 48];
    header[0] = opcode | if immediate { 0x40 } else { 0 };
    header[1] = 0x80;
    header[16..20].copy_from_slice(&itt.to_be_bytes());
    header[24..28].copy_from_slice(&cmd_sn.0.to_be_bytes());
    Bhs::from_bytes(header)
}

/// `bhs` with one byte changed by `xor`.
pub fn mutated(bhs: Bhs, at: usize, xor: u8) -> Bhs {
    let mut header = *bhs.as_bytes();
    header[at] ^= xor;
    Bhs::from_bytes(header)
}

/// Opcodes of the two sides, for scans.
pub fn opcodes(of_initiator: bool) -> impl Iterator<Item = u8> {
    Opcode::ALL.iter().filter(move |o| o.is_initiator() == of_initiator).map(|o| o.code())
}

#[test]
fn a_name_stands_for_what_it_met_first() {
    Peer::logged_in(crate::play::SOLICITED).play(
        "I> ScsiCommand itt=1 F W edtl=512
         D< Start itt=1
         D> need itt=1 bytes=512
         T< R2t itt=1 ttt=x
         I> DataOut itt=1 ttt=x F data=512
         D< DataOut itt=1 bytes=512
         D> complete itt=1
         T< ScsiResponse itt=1 status=0x00",
    );
}

#[test]
#[should_panic(expected = "at `exp_cmd_sn=n`")]
fn a_name_stands_for_nothing_else() {
    Peer::logged_in("").play(
        "I> NopOut I itt=1
         T< NopIn itt=1 exp_cmd_sn=n
         I> NopOut itt=2
         T< NopIn itt=2 exp_cmd_sn=n+1
         I> NopOut itt=3
         T< NopIn itt=3 exp_cmd_sn=n",
    );
}
