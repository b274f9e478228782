//! What a response says about its command (RFC 7143 11.4).

use iscsi_wire::{ResidualCount, ScsiResponse};

use super::actions::{CloseReason, violation};
use super::command::Residual;
use crate::limits::MAX_SENSE_BYTES;

/// SCSI status CHECK CONDITION.
pub(super) const CHECK_CONDITION: u8 = 0x02;

/// What a response says about its command.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// The target failed to execute it, with this response code.
    Failure(u8),
    Status {
        status: u8,
        sense: bytes::Bytes,
        residual: Residual,
    },
}

impl Outcome {
    //= rfc7143 11.4 RSP-01 RSP-03
    pub(super) fn of(pdu: &ScsiResponse, bidi: bool, data: &bytes::Bytes) -> Result<Self, CloseReason> {
        //= rfc7143 11.4.3 RSP-03
        if pdu.response != ScsiResponse::COMPLETED_AT_TARGET {
            return Ok(Self::Failure(pdu.response));
        }
        let residual = match bidi {
            //= rfc7143 11.4.6 RES-03
            true => residual_of(pdu.bidi_residual_count)?,
            false => residual_of(pdu.residual_count)?,
        };
        let sense = match data.len() {
            0 => bytes::Bytes::new(),
            n => {
                let length = data.first_chunk().map_or(n, |two| usize::from(u16::from_be_bytes(*two)));
                if n < 2 || length > n - 2 {
                    return Err(violation("RFC 7143 11.4.7", "the sense length exceeds the data segment"));
                }
                // Sense data that is kept without a copy would pin the whole receive buffer.
                bytes::Bytes::copy_from_slice(&data[2..2 + length.min(MAX_SENSE_BYTES)])
            }
        };
        if pdu.status == CHECK_CONDITION && sense.is_empty() {
            return Err(no_sense());
        }
        Ok(Self::Status { status: pdu.status, sense, residual })
    }

    /// Bytes by which the transfer fell short of the expected length.
    pub(super) fn missing(&self) -> u32 {
        match self {
            Self::Status { residual: Residual::Underflow(missing), .. } => *missing,
            _ => 0,
        }
    }

    pub(super) fn is_good(&self) -> bool {
        matches!(self, Self::Status { status: 0, .. })
    }
}

//= rfc7143 11.4.5 RES-04
pub(super) fn residual_of(count: ResidualCount) -> Result<Residual, CloseReason> {
    let bytes = count.bytes;
    match (count.overflow, count.underflow) {
        (true, true) => Err(violation("RFC 7143 11.4.1", "a response has both overflow and underflow")),
        (true, false) => Ok(Residual::Overflow(bytes)),
        (false, true) => Ok(Residual::Underflow(bytes)),
        (false, false) => Ok(Residual::None),
    }
}

//= rfc7143 7.7 PDU-08 RSP-01
pub(super) fn no_sense() -> CloseReason {
    violation("RFC 7143 11.4.7", "CHECK CONDITION without sense data")
}
