//! Sense data as it arrives (SPC-4 4.5), fixed and descriptor format.

use std::fmt;

/// The contents of CHECK CONDITION sense data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sense {
    /// SENSE KEY.
    pub key: u8,
    /// ADDITIONAL SENSE CODE.
    pub asc: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub ascq: u8,
    /// INFORMATION, if valid.
    pub information: Option<u64>,
    /// It concerns a command that was acknowledged earlier; the command that ended with it was not executed (SPC-4
    /// 4.5.5).
    pub deferred: bool,
}

impl Sense {
    /// Parses sense data; missing fields are zero.
    pub fn parse(bytes: &[u8]) -> Self {
        let at = |n: usize| bytes.get(n).copied().unwrap_or(0);
        let deferred = matches!(at(0) & 0x7f, 0x71 | 0x73);
        match at(0) & 0x7f {
            0x72 | 0x73 => {
                let descriptors = bytes.get(8..).unwrap_or(&[]);
                // The information descriptor has type 0 and 12 bytes, and bit 7 of its third byte says whether it is
                // valid.
                let information = match descriptors {
                    [0x00, 0x0a, flags, _, rest @ ..] if flags & 0x80 != 0 && rest.len() >= 8 => {
                        rest.first_chunk().map(|eight| u64::from_be_bytes(*eight))
                    }
                    _ => None,
                };
                Self { key: at(1) & 0xf, asc: at(2), ascq: at(3), information, deferred }
            }
            _ => {
                let valid = at(0) & 0x80 != 0;
                let information = u32::from_be_bytes([at(3), at(4), at(5), at(6)]);
                Self {
                    key: at(2) & 0xf,
                    asc: at(12),
                    ascq: at(13),
                    information: valid.then_some(information.into()),
                    deferred,
                }
            }
        }
    }

    /// UNIT ATTENTION: it reports a change; the command should be repeated.
    pub fn is_unit_attention(&self) -> bool {
        self.key == 6
    }

    /// ABORTED COMMAND: the device server aborted the command for a transient reason.
    pub fn is_aborted_command(&self) -> bool {
        self.key == 0xb
    }

    /// ILLEGAL REQUEST: the device server does not know the command or rejects its parameters.
    pub fn is_illegal_request(&self) -> bool {
        self.key == 5
    }

    /// MISCOMPARE.
    pub fn is_miscompare(&self) -> bool {
        self.key == 0xe
    }

    /// What to do about it, if there is any advice.
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        Some(match (self.key, self.asc) {
            (7, 0x27) if self.ascq == 7 => {
                "the target has no room left for the unit's data: free some there, or unmap blocks"
            }
            (_, 0x25) => {
                "the target has no such LUN for this initiator: `intact ls` shows those that there are"
            }
            (2, 0x04) if matches!(self.ascq, 0x0a..=0x0c) => {
                "use a portal of another target port group; `intact group` shows and changes the states of ours"
            }
            (2, _) => "wait until the unit is ready, or start it",
            (3 | 4, _) => "write the blocks anew from a copy; `intact scrub` lists all that are bad",
            (5, 0x21) => "the unit is smaller than was thought: `intact inq` shows its size",
            (5, _) => "the unit does not have that command, or not so: `intact inq` shows what it has",
            (6, _) => "the unit has changed: look at it again, then try again",
            (7, _) => {
                "the unit takes no writes: `intact lun unprotect` lets ours take them, or write elsewhere"
            }
            (0xb, _) => "try again; if it happens again see the target's log",
            _ => return None,
        })
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match self.key {
            0x0 => "no sense",
            0x1 => "recovered error",
            0x2 => "not ready",
            0x3 => "medium error",
            0x4 => "hardware error",
            0x5 => "illegal request",
            0x6 => "unit attention",
            0x7 => "data protect",
            0x8 => "blank check",
            0xb => "aborted command",
            0xd => "volume overflow",
            0xe => "miscompare",
            _ => "reserved sense key",
        };
        let words = match (self.asc, self.ascq) {
            (0x04, 0x0a..=0x0c) => ", the access state of the target port group admits no such command",
            (0x04, _) => ", logical unit not ready",
            (0x0c, _) => ", write error",
            (0x10, 0x01) => ", logical block guard check failed",
            (0x10, 0x02) => ", logical block application tag check failed",
            (0x10, 0x03) => ", logical block reference tag check failed",
            (0x11, _) => ", unrecovered read error",
            (0x1a, 0) => ", parameter list length error",
            (0x1d, 0) => ", miscompare during verify",
            (0x20, 0) => ", invalid command operation code",
            (0x21, 0) => ", logical block address out of range",
            (0x24, 0) => ", invalid field in CDB",
            (0x25, 0) => ", logical unit not supported",
            (0x26, 0) => ", invalid field in parameter list",
            (0x27, 0x07) => ", space allocation failed",
            (0x27, _) => ", write protected",
            (0x29, _) => ", power on, reset or nexus loss occurred",
            (0x2a, 0x09) => ", capacity data has changed",
            (0x3a, _) => ", medium not present",
            (0x3f, 0x0e) => ", reported LUNs data has changed",
            (0x47, 0x05) => ", protocol service CRC error",
            _ => "",
        };
        let deferred = if self.deferred { "deferred " } else { "" };
        write!(f, "{deferred}{key} {:x}h, {:02x}h/{:02x}h{words}", self.key, self.asc, self.ascq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_say_the_same() {
        let mut fixed = [0u8; 18];
        (fixed[0], fixed[2], fixed[6], fixed[12], fixed[13]) = (0xf0, 0x0e, 9, 0x1d, 0);
        let mut descriptor = vec![0x72, 0x0e, 0x1d, 0, 0, 0, 0, 12, 0, 0x0a, 0x80, 0];
        descriptor.extend_from_slice(&9u64.to_be_bytes());
        let expected = Sense { key: 0xe, asc: 0x1d, ascq: 0, information: Some(9), deferred: false };
        assert_eq!(Sense::parse(&fixed), expected);
        assert_eq!(Sense::parse(&descriptor), expected);
        (fixed[0], descriptor[0]) = (0xf1, 0x73);
        assert!(Sense::parse(&fixed).deferred && Sense::parse(&descriptor).deferred);
        for n in 0..18 {
            Sense::parse(&fixed[..n]);
            Sense::parse(&descriptor[..n]);
        }
        assert!(expected.is_miscompare() && expected.to_string().contains("miscompare"));
    }
}
