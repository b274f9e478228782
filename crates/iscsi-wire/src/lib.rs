//! The wire format of iSCSI: RFC 7143 (PDUs of section 11, text of section 6.1) and the additions of RFC
//! 7144.
//!
//! This crate answers one question: *what do these bytes say?* It knows no session, no negotiation, no policy
//! and does no I/O, so that the same code serves the target, the initiator, the simulator and the raw-PDU
//! test peer.
//!
//! * [`Bhs`] is the 48-byte Basic Header Segment; any 48 bytes make one.
//! * One struct per PDU ([`ScsiCommand`], [`R2t`], ...) with `parse` (may refuse, never panics) and `to_bhs`.
//!   [`Pdu`] is any of them.
//! * [`parse_ahs`] walks Additional Header Segments.
//! * [`TextPairs`] and [`TextBuilder`] read and write `key=value` text; [`keys`] names the keys.
//! * [`one_line`] prints a header for transcripts and traces; [`PduLine`] reads such a line, for scripts.
//!
//! Reserved bits are sent as zero and ignored on receipt; a reserved *code* in a defined field is a
//! [`WireError`]. Left out on purpose: framing, digests and padding bytes (the reader and writer of
//! `iscsi-core`), and every rule that relates two fields or two PDUs to each other.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod ahs;
mod bhs;
mod codes;
mod error;
mod ids;
mod login_status;
mod lun;
mod opcode;
mod pdu;
mod serial;
mod text;
mod transcript;

pub use ahs::{
    Ahs, AhsChain, MAX_EXTENDED_CDB_LENGTH, parse_ahs, write_bidi_read_length, write_extended_cdb,
};
pub use bhs::{Bhs, MAX_AHS_LENGTH, MAX_DATA_SEGMENT_LENGTH, padded_length, padding_length};
pub use codes::{
    AsyncEvent, LoginStage, LogoutReason, LogoutResponseCode, RejectReason, SnackType, TaskAttribute,
    TmfFunction, TmfResponse,
};
pub use error::WireError;
pub use ids::{Cid, Isid, IsidFormat, Itt, Tsih, Ttt};
pub use login_status::LoginStatus;
pub use lun::Lun;
pub use opcode::Opcode;
pub use pdu::{
    AsyncMessage, DataIn, DataOut, LoginRequest, LoginResponse, LogoutRequest, LogoutResponse, NopIn, NopOut,
    Pdu, R2t, Reject, ResidualCount, ResponseNumbers, ScsiCommand, ScsiResponse, SnackRequest,
    TaskManagementRequest, TaskManagementResponse, TextRequest, TextResponse,
};
pub use serial::{CmdSn, DataSn, R2tSn, StatSn};
pub use text::keys;
pub use text::{
    MAX_BINARY_ITEM_LENGTH, MAX_KEY_LENGTH, MAX_VALUE_LENGTH, TextBuilder, TextPairs, encode_base64,
    encode_hex, max_encoded_length, parse_binary, parse_bool, parse_list, parse_number,
};
pub use transcript::{LineError, Names, PduLine, Usual, one_line};
