//! The 8-byte LUN (SAM-5 4.7): single-level forms to and from a small index.
//!
//! Multi-level LUNs are passed on unchanged and have no index; a target answers them as an unsupported
//! logical unit.

use std::fmt;

/// A logical unit number: the eight wire bytes, big-endian. Two forms of the same number are different
/// `Lun`s.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lun(pub u64);

impl Lun {
    /// The REPORT LUNS well known logical unit.
    pub const REPORT_LUNS: Lun = Lun(0xc101_0000_0000_0000);

    /// The preferred form of `index`: peripheral below 256, flat below 16384, extended flat above.
    pub const fn from_index(index: u16) -> Self {
        let n = index as u64;
        match index {
            0..=0xff => Lun(n << 48),
            0x100..=0x3fff => Lun((0x4000 | n) << 48),
            _ => Lun(0xd2 << 56 | n << 32),
        }
    }

    /// The index that a single-level LUN names, whichever form it has: peripheral on bus 0, flat, extended
    /// flat of 3 or 5 bytes. `None` for everything else (other buses, second levels, well known LUs, numbers
    /// over 65535).
    //= sam5 4.7 INQ-03
    pub const fn to_index(self) -> Option<u16> {
        let n = match self.0 >> 56 {
            0x00 if self.0 << 16 == 0 => self.0 >> 48,
            0x40..=0x7f if self.0 << 16 == 0 => self.0 >> 48 & 0x3fff,
            0xd2 if self.0 << 32 == 0 => self.0 >> 32 & 0xff_ffff,
            0xe2 if self.0 << 48 == 0 => self.0 >> 16 & 0xff_ffff_ffff,
            _ => return None,
        };
        if n <= u16::MAX as u64 { Some(n as u16) } else { None }
    }
}

/// The index if there is one, otherwise the eight bytes in hexadecimal.
impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_index() {
            Some(index) => index.fmt(f),
            None => write!(f, "{:#018x}", self.0),
        }
    }
}

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lun({:#018x})", self.0)
    }
}
