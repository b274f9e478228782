//! Every bound of the protocol core, by name. A peer's words never size an allocation beyond these.

/// Largest text of one negotiation exchange, over all PDUs joined by the C bit, in bytes (RFC 7143 6.1 asks for 8192 at least).
pub const MAX_TEXT_BYTES: usize = 64 * 1024;
/// Most login PDU exchanges tolerated before the login is given up (RFC 7143 6.2 asks for six at least).
pub const MAX_LOGIN_EXCHANGES: u32 = 64;
/// Data segment length that rules while logging in, in bytes (RFC 7143 13.12).
pub const LOGIN_DATA_SEGMENT_BYTES: usize = 8192;
/// Most bytes of additional header segments in one PDU (TotalAHSLength is one byte of words).
pub const MAX_AHS_BYTES: usize = 255 * 4;
/// Most immediate tasks (SCSI commands and task management) that one session may hold at once; more are answered with Reject 06.
pub const MAX_IMMEDIATE_TASKS: usize = 16;
/// Longest ping data that is kept for an answer, in bytes; the receiver's MaxRecvDataSegmentLength bounds it further.
pub const MAX_PING_BYTES: usize = 256 * 1024;
/// Redirections that an initiator follows before it gives up (RFC 7143 11.13.5).
pub const MAX_REDIRECTS: u32 = 4;
/// Longest CHAP challenge or response, in bytes (RFC 7143 12.1.3).
pub const MAX_CHAP_BINARY_BYTES: usize = 1024;
/// Challenge that we generate, in bytes: as long as the longest digest used.
pub const CHAP_CHALLENGE_BYTES: usize = 32;
/// Shortest CHAP secret that is accepted, in bytes: 96 bits (RFC 7143 9.2.1).
pub const MIN_CHAP_SECRET_BYTES: usize = 12;
