//! How the reservation of another nexus treats a command.

/// How a reservation of another nexus treats the command (SPC-4 table 51, SBC-3 table 13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Allowed under any reservation, including SPC-2 RESERVE.
    Discovery,
    /// Allowed under any persistent reservation.
    Always,
    /// Reads the medium: allowed under Write Exclusive types.
    Read,
    /// Conflicts for nexuses that the reservation type excludes from writing.
    Write,
    /// RESERVE and RELEASE: the handler decides.
    Legacy,
    /// PERSISTENT RESERVE IN.
    PersistentIn,
    /// PERSISTENT RESERVE OUT: the handler decides.
    PersistentOut,
    /// START STOP UNIT: starting is allowed, anything else counts as a write.
    StartStop,
    /// PREVENT ALLOW MEDIUM REMOVAL: allowing is allowed, preventing counts as a write.
    Prevent,
}

impl Access {
    /// Replaces a class that depends on the CDB by the class that applies to this CDB.
    pub(crate) fn resolve(self, cdb: &[u8]) -> Self {
        let byte_4 = cdb.get(4).copied().unwrap_or(0);
        match self {
            Self::StartStop if byte_4 & 0xf1 == 0x01 => Self::Always,
            Self::Prevent if byte_4 & 0x03 == 0 => Self::Discovery,
            Self::StartStop | Self::Prevent => Self::Write,
            other => other,
        }
    }

    /// Whether a unit reserved by RESERVE admits the command. Persistent reservation commands conflict even for the
    /// holder (SPC-4 5.12.3).
    //= spc2 5.5.1 PR-14
    //= esxi locks HST-01
    pub(crate) fn passes_spc2(self, holder: bool) -> bool {
        match self {
            Self::Discovery | Self::Legacy => true,
            Self::PersistentIn | Self::PersistentOut => false,
            _ => holder,
        }
    }
}
