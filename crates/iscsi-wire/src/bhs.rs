//! The Basic Header Segment (RFC 7143 11.2.1): 48 bytes, big-endian, the same first 20 in every PDU.
//!
//! Accessors read constant offsets inside a fixed array, so none can panic. Fields beyond byte 20 belong to
//! the PDU structs; the few that are read here are needed before the PDU is known (framing, Reject, tracing).

use crate::{CmdSn, Itt, Lun, Opcode, StatSn, WireError};
use std::fmt;

/// Largest DataSegmentLength that 24 bits can hold, in bytes.
pub const MAX_DATA_SEGMENT_LENGTH: usize = 0xff_ffff;
/// Largest TotalAHSLength, in bytes (255 four-byte words).
pub const MAX_AHS_LENGTH: usize = 255 * 4;

/// `length` rounded up to the four-byte boundary at which segments end.
//= rfc7143 11.1 PDU-01
pub const fn padded_length(length: usize) -> usize {
    length.saturating_add(padding_length(length))
}

/// Padding bytes (0 to 3) that follow a segment of `length` bytes. They are sent as zero.
//= rfc7143 11.1 PDU-01
pub const fn padding_length(length: usize) -> usize {
    length.wrapping_neg() % 4
}

/// A Basic Header Segment. Any 48 bytes make one; the `parse` of a PDU decides whether they are valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bhs([u8; 48]);

impl Bhs {
    /// Size on the wire, in bytes.
    pub const SIZE: usize = 48;

    /// Takes the 48 bytes unchanged.
    pub const fn from_bytes(bytes: [u8; 48]) -> Self {
        Bhs(bytes)
    }

    /// The 48 bytes.
    pub const fn as_bytes(&self) -> &[u8; 48] {
        &self.0
    }

    /// The six opcode bits of byte 0.
    pub const fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// The I bit: the PDU does not advance CmdSN.
    pub const fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// Bit 7 of byte 1: F in most PDUs, T in Login.
    pub const fn final_bit(&self) -> bool {
        self.0[1] & 0x80 != 0
    }

    /// TotalAHSLength in bytes (the field itself counts four-byte words).
    pub const fn total_ahs_length(&self) -> usize {
        self.0[4] as usize * 4
    }

    /// Sets TotalAHSLength. `bytes` is the padded length of all AHS, at most [`MAX_AHS_LENGTH`].
    pub fn set_total_ahs_length(&mut self, bytes: usize) {
        debug_assert!(bytes <= MAX_AHS_LENGTH && bytes.is_multiple_of(4), "TotalAHSLength of {bytes} bytes");
        self.0[4] = u8::try_from(bytes.div_ceil(4)).unwrap_or(u8::MAX);
    }

    /// DataSegmentLength in bytes, without padding.
    pub const fn data_segment_length(&self) -> usize {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]]) as usize
    }

    /// Sets DataSegmentLength. `bytes` is the length without padding, at most [`MAX_DATA_SEGMENT_LENGTH`].
    //= rfc7143 11.2.1.6 PDU-01
    pub fn set_data_segment_length(&mut self, bytes: usize) {
        debug_assert!(bytes <= MAX_DATA_SEGMENT_LENGTH, "DataSegmentLength of {bytes} bytes");
        let [_, b5, b6, b7] = (bytes.min(MAX_DATA_SEGMENT_LENGTH) as u32).to_be_bytes();
        (self.0[5], self.0[6], self.0[7]) = (b5, b6, b7);
    }

    /// Bytes that the data segment occupies on the wire, padding included, digest excluded.
    pub const fn padded_data_length(&self) -> usize {
        padded_length(self.data_segment_length())
    }

    /// Bytes 8 to 15 as a LUN. They mean something else in Login PDUs.
    pub fn lun(&self) -> Lun {
        Lun(u64::from_be_bytes(self.bytes_at(8)))
    }

    /// Initiator Task Tag, bytes 16 to 19.
    pub fn itt(&self) -> Itt {
        Itt(self.u32_at(16))
    }

    /// CmdSN, bytes 24 to 27 of the initiator PDUs that have one.
    pub fn cmd_sn(&self) -> CmdSn {
        CmdSn(self.u32_at(24))
    }

    /// ExpStatSN, bytes 28 to 31 of every initiator PDU.
    pub fn exp_stat_sn(&self) -> StatSn {
        StatSn(self.u32_at(28))
    }

    /// Sets ExpCmdSN and MaxCmdSN of a target PDU: they are brought up to date when it is sent again.
    pub fn set_command_window(&mut self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) {
        self.put_u32(28, exp_cmd_sn.0);
        self.put_u32(32, max_cmd_sn.0);
    }

    /// A zeroed header with its opcode and I bit.
    pub(crate) const fn new(opcode: Opcode, immediate: bool) -> Self {
        let mut bytes = [0; 48];
        bytes[0] = opcode.code() | if immediate { 0x40 } else { 0 };
        Bhs(bytes)
    }

    pub(crate) fn expect(&self, expected: Opcode) -> Result<(), WireError> {
        if self.opcode() == expected.code() {
            Ok(())
        } else {
            Err(WireError::WrongOpcode { expected, found: self.opcode() })
        }
    }

    /// `N` bytes at a constant offset. Callers keep `offset + N <= 48`.
    pub(crate) fn bytes_at<const N: usize>(&self, offset: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[offset + i])
    }

    pub(crate) fn u8_at(&self, offset: usize) -> u8 {
        self.0[offset]
    }

    pub(crate) fn u16_at(&self, offset: usize) -> u16 {
        u16::from_be_bytes(self.bytes_at(offset))
    }

    pub(crate) fn u32_at(&self, offset: usize) -> u32 {
        u32::from_be_bytes(self.bytes_at(offset))
    }

    /// Is any bit of `mask` set in byte 1?
    pub(crate) fn flag(&self, mask: u8) -> bool {
        self.0[1] & mask != 0
    }

    /// Sets the bits of `mask` in byte 1 when `on`.
    pub(crate) fn put_flag(&mut self, mask: u8, on: bool) {
        if on {
            self.0[1] |= mask;
        }
    }

    pub(crate) fn put(&mut self, offset: usize, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn put_u8(&mut self, offset: usize, value: u8) {
        self.0[offset] = value;
    }

    pub(crate) fn put_u16(&mut self, offset: usize, value: u16) {
        self.put(offset, value.to_be_bytes());
    }

    pub(crate) fn put_u32(&mut self, offset: usize, value: u32) {
        self.put(offset, value.to_be_bytes());
    }

    pub(crate) fn put_lun(&mut self, lun: Lun) {
        self.put(8, lun.0.to_be_bytes());
    }
}

impl fmt::Debug for Bhs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Opcode::try_from(self.opcode()) {
            Ok(opcode) => write!(f, "Bhs({} ", opcode.name())?,
            Err(_) => write!(f, "Bhs(opcode {:#04x} ", self.opcode())?,
        }
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}
