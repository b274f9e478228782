//! The result of a command: status, sense, data-in and any further action required from the caller.

use bytes::Bytes;

use crate::nexus::NexusId;
use crate::sense::SenseData;

/// SCSI status code (SAM-5 5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// GOOD.
    Good = 0x00,
    /// CHECK CONDITION: the sense data gives the reason.
    CheckCondition = 0x02,
    /// CONDITION MET (PRE-FETCH).
    ConditionMet = 0x04,
    /// BUSY.
    Busy = 0x08,
    /// RESERVATION CONFLICT.
    ReservationConflict = 0x18,
    /// TASK SET FULL.
    TaskSetFull = 0x28,
    /// TASK ABORTED.
    TaskAborted = 0x40,
}

/// Where the data-in of a command comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataInSource {
    /// No data-in.
    None,
    /// These bytes, already truncated to the ALLOCATION LENGTH.
    Bytes(Bytes),
    /// The data read by the last [`crate::MediumOp::Read`]; the caller holds it.
    Medium,
}

/// Something the caller must do before it sends the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Abort the tasks of these nexuses on this unit (PREEMPT AND ABORT); all must be gone before the status is sent.
    AbortTasksOf(Vec<NexusId>),
    /// Reservations, registrations or identifying information changed; this is the number of the change. Store them
    /// with [`crate::LogicalUnit::store_kept`].
    KeptStateChanged(u64),
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Status to send.
    pub status: Status,
    /// Sense, only with CHECK CONDITION. Boxed to keep the outcome small: most commands have none, and every outcome
    /// is moved.
    pub sense: Option<Box<SenseData>>,
    /// True when D_SENSE selects descriptor format sense.
    pub descriptor_sense: bool,
    /// Where the data-in comes from.
    pub data_in: DataInSource,
    /// Bytes that the command transfers according to its CDB, for the residual count: data-in before it is cut to the
    /// expected data transfer length, or the data-out that the CDB requests.
    pub transfer_bytes: u64,
    /// Further actions.
    pub effects: Vec<Effect>,
}

impl Outcome {
    /// GOOD without data.
    pub fn good() -> Self {
        Self::status(Status::Good)
    }

    /// A status without sense and data.
    pub fn status(status: Status) -> Self {
        Self {
            status,
            sense: None,
            descriptor_sense: false,
            data_in: DataInSource::None,
            transfer_bytes: 0,
            effects: Vec::new(),
        }
    }

    /// GOOD with data-in, cut to `allocation_length`.
    //= spc4 4.2.5.6 CDB-05
    pub fn data_in(mut data: Vec<u8>, allocation_length: u64) -> Self {
        data.truncate(usize::try_from(allocation_length).unwrap_or(usize::MAX));
        let transfer_bytes = data.len() as u64;
        let data_in =
            if data.is_empty() { DataInSource::None } else { DataInSource::Bytes(Bytes::from(data)) };
        Self { data_in, transfer_bytes, ..Self::good() }
    }

    /// CHECK CONDITION with this sense.
    pub fn check(sense: SenseData) -> Self {
        Self { sense: Some(Box::new(sense)), ..Self::status(Status::CheckCondition) }
    }

    /// The sense bytes in the format selected by the unit's D_SENSE.
    pub fn sense_bytes(&self) -> Option<Vec<u8>> {
        self.sense.as_ref().map(|sense| sense.to_bytes(self.descriptor_sense))
    }
}
