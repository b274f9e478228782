//! The codes in the fields of records. Each is a number with names: a code without a name stays what it is.

use super::field::Field;

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$code_doc:meta])* $code:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(pub u8);

        impl $name {
            $($(#[$code_doc])* pub const $code: Self = Self($value);)*
            /// Every code with its name in the document, in numerical order.
            pub const ALL: &'static [(u8, &'static str)] = &[$(($value, stringify!($code)),)*];
        }

        impl Field for $name {
            const BYTES: usize = 1;
            fn get(record: &[u8], offset: usize) -> Self {
                Self(record[offset])
            }
            fn put(&self, record: &mut [u8], offset: usize) {
                record[offset] = self.0;
            }
        }
    };
}

codes!(
    /// What a descriptor asks for: its first byte.
    DescriptorKind {
        /// [`OpenConn`](super::OpenConn).
        OPEN_CONN = 0x01,
        /// [`SetParams`](super::SetParams).
        SET_PARAMS = 0x02,
        /// [`PostTask`](super::PostTask).
        POST_TASK = 0x03,
        /// [`Abort`](super::Abort).
        ABORT = 0x04,
        /// [`SendRaw`](super::SendRaw).
        SEND_RAW = 0x05,
        /// [`SetPoly`](super::SetPoly).
        SET_POLY = 0x06,
        /// [`Resync`](super::Resync).
        RESYNC = 0x07,
    }
);

codes!(
    /// What a completion reports: its first byte.
    CompletionKind {
        /// [`TaskDone`](super::TaskDone).
        TASK_DONE = 0x81,
        /// [`RawPdu`](super::RawPdu).
        RAW_PDU = 0x82,
        /// [`DigestError`](super::DigestError).
        DIGEST_ERROR = 0x83,
        /// [`SnackSent`](super::SnackSent).
        SNACK_SENT = 0x84,
        /// [`DataackSent`](super::DataackSent).
        DATAACK_SENT = 0x85,
        /// [`NeedResync`](super::NeedResync).
        NEED_RESYNC = 0x86,
    }
);

codes!(
    /// How a descriptor ended.
    TaskResult {
        /// Done. For POST_TASK: the target's answer is in the completion.
        GOOD = 0,
        /// Ended by ABORT.
        ABORTED = 1,
        /// A field has a value that the document does not allow.
        INVALID = 2,
        /// The connection is not open, or is open already.
        NO_CONNECTION = 3,
        /// ABORT names a task that does not exist.
        NO_TASK = 4,
        /// The Initiator Task Tag belongs to another task of the connection.
        ITT_IN_USE = 5,
        /// The table of commands or the queue of raw PDUs is full, or the circuit has no room for a change of the polynomial.
        TABLE_FULL = 6,
        /// The scatter/gather list has too many elements, or too few bytes.
        BAD_SGL = 7,
        /// Host memory refused an access.
        MEMORY = 8,
        /// The engine does not have this function; see its capabilities.
        NOT_SUPPORTED = 9,
    }
);

codes!(
    /// Why a PDU goes to software.
    RawReason {
        /// Its opcode is not one that the engine handles.
        OPCODE = 0,
        /// No command in the table has its Initiator Task Tag.
        NO_TASK = 1,
        /// It breaks a rule; NEED_RESYNC follows.
        PROTOCOL = 2,
        /// An earlier PDU is missing at ErrorRecoveryLevel 0; NEED_RESYNC follows.
        SEQUENCE = 3,
        /// The SNACK table is full; NEED_RESYNC follows.
        NO_ROOM = 4,
    }
);

codes!(
    /// Why the engine has stopped receiving.
    StopReason {
        /// A header digest does not match. Where the next PDU begins is not known.
        HEADER_DIGEST = 1,
        /// DataSegmentLength is above the declared MaxRecvDataSegmentLength.
        DATA_TOO_LONG = 2,
        /// A data digest does not match at ErrorRecoveryLevel 0.
        DATA_DIGEST = 3,
        /// A PDU breaks a rule.
        PROTOCOL = 4,
        /// A PDU is missing at ErrorRecoveryLevel 0.
        SEQUENCE = 5,
        /// The SNACK table is full.
        NO_ROOM = 6,
        /// Host memory refused a write to the ring of raw PDUs.
        MEMORY = 7,
    }
);

codes!(
    /// What follows from a data digest that does not match.
    DigestAction {
        /// The engine has stopped; NEED_RESYNC follows.
        STOPPED = 1,
        /// The PDU counts as lost; a SNACK will request it.
        SNACK = 2,
        /// The PDU is dropped: it carries no number by which it could be requested, or it is a duplicate.
        DROPPED = 3,
    }
);

codes!(
    /// State of a connection in the session table.
    SessionState {
        /// PDUs are received and sent.
        OPEN = 1,
        /// Nothing is received until RESYNC.
        STOPPED = 2,
    }
);

codes!(
    /// State of a command in the command table.
    CommandState {
        /// Waits for its turn or for the window of CmdSN.
        QUEUED = 1,
        /// Sent, no status yet.
        SENT = 2,
        /// Its status has arrived, and data that is missing has not.
        HELD = 3,
    }
);

codes!(
    /// State of an entry of the SNACK table.
    SnackState {
        /// Not due yet.
        WAITING = 1,
        /// In the transmit queue.
        DUE = 2,
        /// Sent; the PDUs have not arrived yet.
        SENT = 3,
    }
);

codes!(
    /// What caused an entry of the SNACK table.
    SnackCause {
        /// A later number arrived.
        GAP = 1,
        /// A data digest did not match.
        DIGEST = 2,
        /// ExpDataSN of the response counts more PDUs than arrived.
        EXP_DATA_SN = 3,
        /// The A bit of a Data-In.
        A_BIT = 4,
    }
);
