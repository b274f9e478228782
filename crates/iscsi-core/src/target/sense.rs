//! Sense data of the conditions that iSCSI itself defines (RFC 7143 11.4.7.2), in fixed format.

use bytes::Bytes;

/// SCSI status BUSY.
pub(super) const BUSY: u8 = 0x08;
/// SCSI status TASK SET FULL.
pub(super) const TASK_SET_FULL: u8 = 0x28;
/// SCSI status CHECK CONDITION.
pub(super) const CHECK_CONDITION: u8 = 0x02;
/// SCSI status TASK ABORTED.
pub(super) const TASK_ABORTED: u8 = 0x40;

/// How a command ends for whose data there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// BUSY.
    Busy,
    /// TASK SET FULL: other commands of the session will free some.
    TaskSetFull,
}

/// Additional sense of an iSCSI condition; the sense key is always ABORTED COMMAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Unsolicited data that was not agreed on.
    UnexpectedUnsolicitedData,
    /// More or less data than announced.
    IncorrectAmountOfData,
    /// Data whose digest does not match.
    ProtocolServiceCrcError,
    /// Data requested by SNACK cannot be sent again.
    SnackRejected,
}

impl Condition {
    /// The sense data.
    //= rfc7143 11.4.7.2 SNS-05
    pub(super) fn sense(self) -> Bytes {
        static SENSES: [[u8; 18]; 4] =
            [fixed(0x0c, 0x0c), fixed(0x0c, 0x0d), fixed(0x47, 0x05), fixed(0x11, 0x13)];
        Bytes::from_static(match self {
            Self::UnexpectedUnsolicitedData => &SENSES[0],
            Self::IncorrectAmountOfData => &SENSES[1],
            Self::ProtocolServiceCrcError => &SENSES[2],
            Self::SnackRejected => &SENSES[3],
        })
    }
}

const fn fixed(asc: u8, ascq: u8) -> [u8; 18] {
    let mut sense = [0; 18];
    sense[0] = 0x70;
    sense[2] = 0x0b;
    sense[7] = 10;
    sense[12] = asc;
    sense[13] = ascq;
    sense
}
