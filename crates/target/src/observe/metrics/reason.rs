//! Why commands failed, in the categories used for counting.

use scsi::{Asc, Outcome, SenseKey, Status};

/// Why a command failed: its status and sense key, and more detail where these hide what an operator must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// NOT READY: the store is gone.
    NotReady,
    /// MEDIUM ERROR.
    MediumError,
    /// HARDWARE ERROR.
    HardwareError,
    /// DATA PROTECT, SPACE ALLOCATION FAILED: the store is full.
    NoSpace,
    /// ABORTED COMMAND: among others, data that did not match its digest or its guard.
    AbortedCommand,
    /// NOT READY because of the state of the target port group.
    AccessState,
    /// DATA PROTECT otherwise: the unit is write protected.
    DataProtect,
    /// ILLEGAL REQUEST.
    IllegalRequest,
    /// UNIT ATTENTION.
    UnitAttention,
    /// MISCOMPARE.
    Miscompare,
    /// RESERVATION CONFLICT.
    ReservationConflict,
    /// BUSY or TASK SET FULL.
    Busy,
    /// Anything else.
    Other,
}

impl Reason {
    /// All of them; those of [`Reason::is_fault`] first.
    pub const ALL: [Self; 13] = [
        Self::NotReady,
        Self::MediumError,
        Self::HardwareError,
        Self::NoSpace,
        Self::AbortedCommand,
        Self::AccessState,
        Self::DataProtect,
        Self::IllegalRequest,
        Self::UnitAttention,
        Self::Miscompare,
        Self::ReservationConflict,
        Self::Busy,
        Self::Other,
    ];

    /// Why a command with this outcome failed; `None`: it succeeded.
    pub fn of(outcome: &Outcome) -> Option<Self> {
        match outcome.status {
            Status::Good | Status::ConditionMet => return None,
            Status::Busy | Status::TaskSetFull => return Some(Self::Busy),
            Status::ReservationConflict => return Some(Self::ReservationConflict),
            Status::TaskAborted => return Some(Self::Other),
            Status::CheckCondition => {}
        }
        let Some(sense) = &outcome.sense else { return Some(Self::Other) };
        Some(match sense.key {
            SenseKey::NoSense | SenseKey::RecoveredError => return None,
            SenseKey::NotReady => match sense.asc {
                Asc::ACCESS_STATE_TRANSITION | Asc::TARGET_PORT_IN_STANDBY | Asc::TARGET_PORT_UNAVAILABLE => {
                    Self::AccessState
                }
                _ => Self::NotReady,
            },
            SenseKey::MediumError => Self::MediumError,
            SenseKey::HardwareError => Self::HardwareError,
            SenseKey::DataProtect if sense.asc == Asc::SPACE_ALLOCATION_FAILED => Self::NoSpace,
            SenseKey::DataProtect => Self::DataProtect,
            SenseKey::AbortedCommand => Self::AbortedCommand,
            SenseKey::IllegalRequest => Self::IllegalRequest,
            SenseKey::UnitAttention => Self::UnitAttention,
            SenseKey::Miscompare => Self::Miscompare,
            SenseKey::CopyAborted => Self::Other,
        })
    }

    /// Whether the unit or the data is at fault, and not only the request.
    pub fn is_fault(self) -> bool {
        matches!(
            self,
            Self::NotReady | Self::MediumError | Self::HardwareError | Self::NoSpace | Self::AbortedCommand
        )
    }

    /// The value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotReady => "not_ready",
            Self::MediumError => "medium_error",
            Self::HardwareError => "hardware_error",
            Self::NoSpace => "no_space",
            Self::AbortedCommand => "aborted_command",
            Self::AccessState => "access_state",
            Self::DataProtect => "data_protect",
            Self::IllegalRequest => "illegal_request",
            Self::UnitAttention => "unit_attention",
            Self::Miscompare => "miscompare",
            Self::ReservationConflict => "reservation_conflict",
            Self::Busy => "busy",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use scsi::SenseData;

    use super::*;

    #[test]
    fn every_way_to_fail_has_its_reason() {
        let check = |key, asc| Reason::of(&Outcome::check(SenseData::new(key, asc)));
        for (key, asc, reason) in [
            (SenseKey::NotReady, Asc::MEDIUM_NOT_PRESENT, Reason::NotReady),
            (SenseKey::NotReady, Asc::TARGET_PORT_IN_STANDBY, Reason::AccessState),
            (SenseKey::HardwareError, Asc::INTERNAL_TARGET_FAILURE, Reason::HardwareError),
            (SenseKey::DataProtect, Asc::SPACE_ALLOCATION_FAILED, Reason::NoSpace),
            (SenseKey::DataProtect, Asc::WRITE_PROTECTED, Reason::DataProtect),
        ] {
            assert_eq!(check(key, asc), Some(reason));
        }
        let full = Outcome { status: Status::TaskSetFull, sense: None, ..Outcome::good() };
        assert_eq!(Reason::of(&full), Some(Reason::Busy));
        assert_eq!(Reason::of(&Outcome::good()), None);
    }

    #[test]
    fn all_holds_each_at_its_place() {
        assert!(Reason::ALL.iter().enumerate().all(|(at, reason)| *reason as usize == at));
    }
}
