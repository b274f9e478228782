//! The result of a SCSI command.

use crate::frame::Received;
use iscsi_wire::{DataIn, ResidualCount, ScsiResponse};

/// The residual of one direction (RFC 7143 11.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// Neither O nor U.
    #[default]
    None,
    /// O, and the number of bytes.
    Overflow(u32),
    /// U, and the number of bytes.
    Underflow(u32),
}

impl Residual {
    /// From the flags and the count; what has both flags (RES-01) is an overflow.
    pub fn of(count: ResidualCount) -> Self {
        match (count.overflow, count.underflow) {
            (true, _) => Residual::Overflow(count.bytes),
            (_, true) => Residual::Underflow(count.bytes),
            _ => Residual::None,
        }
    }
}

/// The result of a SCSI command, and the data it read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Response: 0 command completed at target, 1 target failure.
    pub response: u8,
    /// SCSI status; 0 GOOD, 2 CHECK CONDITION.
    pub status: u8,
    /// Sense data, without its length.
    pub sense: Vec<u8>,
    /// The data read.
    pub data: Vec<u8>,
    /// Residual of the only direction, or of the write.
    pub residual: Residual,
    /// Residual of the read of a bidirectional command.
    pub bidi_residual: Residual,
    /// Residual Count as received, whatever the flags.
    pub residual_count: u32,
    /// Data-In PDUs received.
    pub data_ins: Vec<DataIn>,
    /// R2Ts received.
    pub r2ts: Vec<iscsi_wire::R2t>,
}

impl Outcome {
    /// From a SCSI Response, without data.
    pub fn of_response(rx: &Received) -> Self {
        let Ok(p) = ScsiResponse::parse(&rx.bhs) else {
            return Outcome { response: 0xff, ..Outcome::default() };
        };
        let sense = match rx.data.split_first_chunk::<2>() {
            Some((length, rest)) => rest[..rest.len().min(usize::from(u16::from_be_bytes(*length)))].to_vec(),
            None => Vec::new(),
        };
        Outcome {
            response: p.response,
            status: p.status,
            sense,
            residual: Residual::of(p.residual_count),
            bidi_residual: Residual::of(p.bidi_residual_count),
            residual_count: p.residual_count.bytes,
            ..Outcome::default()
        }
    }

    /// Completed with GOOD?
    pub fn is_good(&self) -> bool {
        self.response == 0 && self.status == 0
    }

    /// Sense key, ASC and ASCQ, of either sense format.
    pub fn sense_code(&self) -> Option<(u8, u8, u8)> {
        let at = |index: usize| self.sense.get(index).copied();
        match at(0)? & 0x7f {
            0x70 | 0x71 => Some((at(2)? & 0x0f, at(12)?, at(13)?)),
            0x72 | 0x73 => Some((at(1)? & 0x0f, at(2)?, at(3)?)),
            _ => None,
        }
    }

    /// CHECK CONDITION with this sense?
    pub fn is_check(&self, key: u8, asc: u8, ascq: u8) -> bool {
        self.response == 0 && self.status == 2 && self.sense_code() == Some((key, asc, ascq))
    }

    /// CHECK CONDITION with UNIT ATTENTION?
    pub fn is_unit_attention(&self) -> bool {
        self.status == 2 && self.sense_code().is_some_and(|(key, _, _)| key == 6)
    }

    /// In words, for a failure.
    pub fn words(&self) -> String {
        let residual = match self.residual {
            Residual::None => String::new(),
            other => format!(", {other:?}"),
        };
        match (self.response, self.status, self.sense_code()) {
            (0, 0, _) => format!("GOOD, {} bytes{residual}", self.data.len()),
            (0, 2, Some((key, asc, ascq))) => {
                format!("CHECK CONDITION {key:X}/{asc:02X}/{ascq:02X}{residual}")
            }
            (0, 2, None) => "CHECK CONDITION without sense".to_owned(),
            (0, status, _) => format!("status {status:#04x}{residual}"),
            (response, _, _) => format!("iSCSI response {response:#04x}"),
        }
    }
}
