//! Descriptors, completions and table entries as bytes: the types of `docs/engine-interface.md`.
//!
//! Every record lists its fields with their offsets once; `parse`, `emit` and `FIELDS` follow from that list. A test reads the
//! tables of the document and compares them with `FIELDS`, so neither can change alone.
//!
//! Numbers are little-endian. A LUN, a CDB and a header segment are bytes in the order of the wire. Reserved bytes are zero when
//! emitted and ignored when parsed. Parsing never fails and never panics: every array of the right length is a record.

mod codes;
mod completion;
mod descriptor;
mod field;
mod table;

pub use codes::{
    CommandState, CompletionKind, DescriptorKind, DigestAction, RawReason, SessionState, SnackCause,
    SnackState, StopReason, TaskResult,
};
pub use completion::{Completion, DataackSent, DigestError, NeedResync, RawPdu, SnackSent, TaskDone};
pub use descriptor::{
    Abort, Descriptor, OpenConn, PostTask, Resync, SendRaw, SetParams, SetPoly, SglElement, conn_flags,
    raw_flags, task_flags,
};
pub use field::FieldPlace;
pub use table::{CommandEntry, DataAddressEntry, R2tEntry, SessionEntry, SnackEntry, residual_flags};

/// Length of a descriptor and of a completion, in bytes.
pub const RECORD_BYTES: usize = 64;
