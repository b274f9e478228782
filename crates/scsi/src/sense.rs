//! Sense data (SPC-4 4.5): the content of a CHECK CONDITION, and its two encodings.

/// SENSE KEY (SPC-4 table 46).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SenseKey {
    /// Nothing to report.
    NoSense = 0x0,
    /// Completed successfully after recovery.
    RecoveredError = 0x1,
    /// The unit cannot be accessed now.
    NotReady = 0x2,
    /// The medium failed.
    MediumError = 0x3,
    /// The device failed, not the medium.
    HardwareError = 0x4,
    /// The command or its parameters are wrong.
    IllegalRequest = 0x5,
    /// Something changed since this nexus last sent a command.
    UnitAttention = 0x6,
    /// A write was rejected.
    DataProtect = 0x7,
    /// A third-party copy failed.
    CopyAborted = 0xa,
    /// The command was aborted; the host may retry.
    AbortedCommand = 0xb,
    /// The compared data differs.
    Miscompare = 0xe,
}

/// ADDITIONAL SENSE CODE and its qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Asc {
    /// ADDITIONAL SENSE CODE.
    pub asc: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub ascq: u8,
}

macro_rules! ascs {
    ($($(#[$meta:meta])* $name:ident = $asc:literal / $ascq:literal;)*) => {
        impl Asc { $($(#[$meta])* pub const $name: Asc = Asc { asc: $asc, ascq: $ascq };)* }
    };
}

ascs! {
    /// No additional sense information.
    NONE = 0x00/0x00;
    /// Operation in progress: the list identifier belongs to a copy that has not ended.
    OPERATION_IN_PROGRESS = 0x00/0x16;
    /// Logical unit not ready, initializing command required (stopped by START STOP UNIT).
    INITIALIZING_COMMAND_REQUIRED = 0x04/0x02;
    /// Logical unit not ready, manual intervention required: its medium is missing.
    MANUAL_INTERVENTION_REQUIRED = 0x04/0x03;
    /// Logical unit not accessible, asymmetric access state transition.
    ACCESS_STATE_TRANSITION = 0x04/0x0a;
    /// Logical unit not accessible, target port in standby state.
    TARGET_PORT_IN_STANDBY = 0x04/0x0b;
    /// Logical unit not accessible, target port in unavailable state.
    TARGET_PORT_UNAVAILABLE = 0x04/0x0c;
    /// Logical unit not ready, format in progress.
    FORMAT_IN_PROGRESS = 0x04/0x04;
    /// Logical unit not ready, sanitize in progress.
    SANITIZE_IN_PROGRESS = 0x04/0x1b;
    /// Unreachable copy target.
    UNREACHABLE_COPY_TARGET = 0x08/0x04;
    /// Write error.
    WRITE_ERROR = 0x0c/0x00;
    /// Third party device failure.
    THIRD_PARTY_DEVICE_FAILURE = 0x0d/0x01;
    /// Copy target device not reachable.
    COPY_TARGET_DEVICE_NOT_REACHABLE = 0x0d/0x02;
    /// Incorrect copy target device type.
    INCORRECT_COPY_TARGET_DEVICE_TYPE = 0x0d/0x03;
    /// Invalid field in command information unit: the transport's data does not fit the command.
    INVALID_FIELD_IN_INFORMATION_UNIT = 0x0e/0x03;
    /// Logical block guard check failed.
    GUARD_CHECK_FAILED = 0x10/0x01;
    /// Logical block application tag check failed.
    APP_TAG_CHECK_FAILED = 0x10/0x02;
    /// Logical block reference tag check failed.
    REF_TAG_CHECK_FAILED = 0x10/0x03;
    /// Unrecovered read error.
    UNRECOVERED_READ_ERROR = 0x11/0x00;
    /// Read error, LBA marked bad by application client: what WRITE LONG leaves behind.
    MARKED_BAD_BY_APPLICATION_CLIENT = 0x11/0x14;
    /// Parameter list length error.
    PARAMETER_LIST_LENGTH_ERROR = 0x1a/0x00;
    /// Miscompare during verify operation.
    MISCOMPARE_DURING_VERIFY = 0x1d/0x00;
    /// Invalid command operation code.
    INVALID_OPERATION_CODE = 0x20/0x00;
    /// Logical block address out of range.
    LBA_OUT_OF_RANGE = 0x21/0x00;
    /// Invalid token operation, unsupported token type.
    UNSUPPORTED_TOKEN_TYPE = 0x23/0x01;
    /// Invalid token operation, remote token usage not supported.
    REMOTE_TOKEN_NOT_SUPPORTED = 0x23/0x02;
    /// Invalid token operation, token unknown.
    TOKEN_UNKNOWN = 0x23/0x04;
    /// Invalid token operation, token corrupt.
    TOKEN_CORRUPT = 0x23/0x05;
    /// Invalid token operation, token revoked.
    TOKEN_REVOKED = 0x23/0x06;
    /// Invalid token operation, token expired.
    TOKEN_EXPIRED = 0x23/0x07;
    /// Invalid token operation, invalid token length.
    INVALID_TOKEN_LENGTH = 0x23/0x0a;
    /// Invalid field in CDB.
    INVALID_FIELD_IN_CDB = 0x24/0x00;
    /// Logical unit not supported.
    LOGICAL_UNIT_NOT_SUPPORTED = 0x25/0x00;
    /// Invalid field in parameter list.
    INVALID_FIELD_IN_PARAMETER_LIST = 0x26/0x00;
    /// Invalid release of persistent reservation.
    INVALID_RELEASE_OF_PERSISTENT_RESERVATION = 0x26/0x04;
    /// Too many target descriptors.
    TOO_MANY_CSCD_DESCRIPTORS = 0x26/0x06;
    /// Unsupported target descriptor type code.
    UNSUPPORTED_CSCD_DESCRIPTOR_TYPE = 0x26/0x07;
    /// Too many segment descriptors.
    TOO_MANY_SEGMENT_DESCRIPTORS = 0x26/0x08;
    /// Unsupported segment descriptor type code.
    UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE = 0x26/0x09;
    /// Unexpected inexact segment.
    INEXACT_SEGMENT = 0x26/0x0a;
    /// Inline data length exceeded.
    INLINE_DATA_LENGTH_EXCEEDED = 0x26/0x0b;
    /// Write protected.
    WRITE_PROTECTED = 0x27/0x00;
    /// Logical unit software write protected (SWP).
    SOFTWARE_WRITE_PROTECTED = 0x27/0x02;
    /// Space allocation failed write protect.
    SPACE_ALLOCATION_FAILED = 0x27/0x07;
    /// Power on, reset, or bus device reset occurred.
    POWER_ON_OR_RESET = 0x29/0x00;
    /// SCSI bus reset occurred: target warm reset.
    BUS_RESET = 0x29/0x02;
    /// Bus device reset function occurred: logical unit reset by task management.
    BUS_DEVICE_RESET = 0x29/0x03;
    /// I_T nexus loss occurred.
    I_T_NEXUS_LOSS = 0x29/0x07;
    /// Mode parameters changed.
    MODE_PARAMETERS_CHANGED = 0x2a/0x01;
    /// Reservations preempted.
    RESERVATIONS_PREEMPTED = 0x2a/0x03;
    /// Reservations released.
    RESERVATIONS_RELEASED = 0x2a/0x04;
    /// Registrations preempted.
    REGISTRATIONS_PREEMPTED = 0x2a/0x05;
    /// Asymmetric access state changed.
    ACCESS_STATE_CHANGED = 0x2a/0x06;
    /// Timestamp changed.
    TIMESTAMP_CHANGED = 0x2a/0x10;
    /// Capacity data has changed.
    CAPACITY_DATA_CHANGED = 0x2a/0x09;
    /// Previous busy status: what UA_INTLCK 3 leaves behind.
    PREVIOUS_BUSY = 0x2c/0x07;
    /// Previous task set full status: the same.
    PREVIOUS_TASK_SET_FULL = 0x2c/0x08;
    /// Previous reservation conflict status: the same.
    PREVIOUS_RESERVATION_CONFLICT = 0x2c/0x09;
    /// ORWRITE generation does not match.
    ORWRITE_GENERATION_MISMATCH = 0x2c/0x0c;
    /// Commands cleared by another initiator.
    COMMANDS_CLEARED = 0x2f/0x00;
    /// Commands cleared by device server.
    COMMANDS_CLEARED_BY_DEVICE_SERVER = 0x2f/0x02;
    /// Medium format corrupted.
    MEDIUM_FORMAT_CORRUPTED = 0x31/0x00;
    /// Sanitize command failed.
    SANITIZE_COMMAND_FAILED = 0x31/0x03;
    /// Saving parameters not supported.
    SAVING_PARAMETERS_NOT_SUPPORTED = 0x39/0x00;
    /// Medium not present.
    MEDIUM_NOT_PRESENT = 0x3a/0x00;
    /// Inquiry data has changed.
    INQUIRY_DATA_CHANGED = 0x3f/0x03;
    /// Device identifier changed: by SET IDENTIFYING INFORMATION.
    DEVICE_IDENTIFIER_CHANGED = 0x3f/0x05;
    /// Reported LUNs data has changed.
    REPORTED_LUNS_DATA_CHANGED = 0x3f/0x0e;
    /// Internal target failure.
    INTERNAL_TARGET_FAILURE = 0x44/0x00;
    /// Some commands cleared by iSCSI protocol event.
    COMMANDS_CLEARED_BY_ISCSI_EVENT = 0x47/0x7f;
    /// Insufficient resources.
    INSUFFICIENT_RESOURCES = 0x55/0x03;
    /// Insufficient resources to create ROD token.
    INSUFFICIENT_RESOURCES_FOR_ROD_TOKEN = 0x55/0x0d;
    /// Insufficient resources (persistent reservation registration resources).
    INSUFFICIENT_REGISTRATION_RESOURCES = 0x55/0x04;
}

/// SENSE KEY SPECIFIC field (SPC-4 4.5.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SenseSpecific {
    /// SKSV is 0.
    #[default]
    None,
    /// Field pointer: what the device server rejected.
    Field {
        /// True for the CDB, false for the parameter list.
        in_cdb: bool,
        /// First byte of the field in error.
        byte: u16,
        /// Most significant bit of the field, if the field does not consist of whole bytes.
        bit: Option<u8>,
    },
    /// Progress indication in 65536ths.
    Progress(u16),
}

/// Sense data before it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenseData {
    /// SENSE KEY.
    pub key: SenseKey,
    /// ADDITIONAL SENSE CODE and qualifier.
    pub asc: Asc,
    /// INFORMATION: an LBA, or a byte offset for COMPARE AND WRITE.
    pub information: Option<u64>,
    /// COMMAND-SPECIFIC INFORMATION.
    pub command_specific: Option<u64>,
    /// SENSE KEY SPECIFIC.
    pub specific: SenseSpecific,
}

/// Length of fixed format sense data as this server sends it.
pub(crate) const FIXED_SENSE_BYTES: usize = 18;

impl SenseData {
    /// Sense with only a key and an additional code.
    pub const fn new(key: SenseKey, asc: Asc) -> Self {
        Self { key, asc, information: None, command_specific: None, specific: SenseSpecific::None }
    }

    /// ILLEGAL REQUEST with this code.
    pub const fn illegal(asc: Asc) -> Self {
        Self::new(SenseKey::IllegalRequest, asc)
    }

    /// 5/24/00 that points at a byte, and optionally a bit of it, of the CDB.
    pub const fn cdb_field(byte: u16, bit: Option<u8>) -> Self {
        Self {
            specific: SenseSpecific::Field { in_cdb: true, byte, bit },
            ..Self::illegal(Asc::INVALID_FIELD_IN_CDB)
        }
    }

    /// 5/26/00 that points at a byte, and optionally a bit of it, of the parameter list.
    pub const fn parameter_field(byte: u16, bit: Option<u8>) -> Self {
        Self {
            specific: SenseSpecific::Field { in_cdb: false, byte, bit },
            ..Self::illegal(Asc::INVALID_FIELD_IN_PARAMETER_LIST)
        }
    }

    /// The same sense with INFORMATION.
    pub const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// Encodes as descriptor format (72h) or fixed format (70h) sense data.
    ///
    /// INFORMATION that does not fit the four bytes of fixed format is sent as zero with VALID 0; only descriptor
    /// format, which a host selects with D_SENSE, can carry it.
    pub fn to_bytes(&self, descriptor_format: bool) -> Vec<u8> {
        if descriptor_format { self.descriptor_bytes() } else { self.fixed_bytes() }
    }

    //= spc4 4.5.3 SNS-01
    fn fixed_bytes(&self) -> Vec<u8> {
        let mut b = vec![0; FIXED_SENSE_BYTES];
        b[0] = 0x70;
        b[2] = self.key as u8;
        if let Some(information) = self.information.and_then(|i| u32::try_from(i).ok()) {
            b[0] |= 0x80;
            b[3..7].copy_from_slice(&information.to_be_bytes());
        }
        b[7] = (FIXED_SENSE_BYTES - 8) as u8;
        if let Some(specific) = self.command_specific.and_then(|i| u32::try_from(i).ok()) {
            b[8..12].copy_from_slice(&specific.to_be_bytes());
        }
        b[12] = self.asc.asc;
        b[13] = self.asc.ascq;
        if let Some(specific) = self.specific_bytes() {
            b[15..18].copy_from_slice(&specific);
        }
        b
    }

    fn descriptor_bytes(&self) -> Vec<u8> {
        let mut b = vec![0x72, self.key as u8, self.asc.asc, self.asc.ascq, 0, 0, 0, 0];
        if let Some(information) = self.information {
            b.extend([0x00, 0x0a, 0x80, 0]);
            b.extend(information.to_be_bytes());
        }
        if let Some(specific) = self.command_specific {
            b.extend([0x01, 0x0a, 0, 0]);
            b.extend(specific.to_be_bytes());
        }
        if let Some([a, c, d]) = self.specific_bytes() {
            b.extend([0x02, 0x06, 0, 0, a, c, d, 0]);
        }
        b[7] = (b.len() - 8) as u8;
        b
    }

    fn specific_bytes(&self) -> Option<[u8; 3]> {
        match self.specific {
            SenseSpecific::None => None,
            SenseSpecific::Field { in_cdb, byte, bit } => {
                let flags = 0x80 | if in_cdb { 0x40 } else { 0 } | bit.map_or(0, |bit| 0x08 | (bit & 7));
                let [hi, lo] = byte.to_be_bytes();
                Some([flags, hi, lo])
            }
            SenseSpecific::Progress(done) => {
                let [hi, lo] = done.to_be_bytes();
                Some([0x80, hi, lo])
            }
        }
    }
}
