//! Every bound of the protocol core, by name. A peer can never make it allocate more than these.

/// Largest text that one end may send in one negotiation, over all its exchanges, in bytes (RFC 7143 6.1 requires 8192 at least).
pub const MAX_TEXT_BYTES: usize = 64 * 1024;
/// Most keys that one end may send in one negotiation: all keys of the standard are a third of it.
pub const MAX_NEGOTIATION_KEYS: usize = 128;
/// Most requests with complete text in one text negotiation; those that only fetch a long answer do not count (RFC 7143 6.2
/// requires six at least).
pub const MAX_TEXT_EXCHANGES: u32 = 16;
/// Most login PDU exchanges before the login fails, including the pieces of long texts (RFC 7143 6.2 requires six at least).
pub const MAX_LOGIN_EXCHANGES: u32 = 64;
/// Limit for data segments during login, in bytes (RFC 7143 13.12).
pub const LOGIN_DATA_SEGMENT_BYTES: usize = 8192;
/// Most immediate SCSI commands, and most immediate task management requests, that one session may hold at once; more are
/// answered with Reject 06.
pub const MAX_IMMEDIATE_TASKS: usize = 16;
/// Longest ping data that is kept for an answer, in bytes; the receiver's MaxRecvDataSegmentLength bounds it further.
pub const MAX_PING_BYTES: usize = 256 * 1024;
/// Most data of pings and text requests of one session that wait for their turn in the command window, bytes; more are rejected.
pub const MAX_HELD_REQUEST_BYTES: usize = 256 * 1024;
/// Redirections that an initiator follows before it fails (RFC 7143 11.13.5).
pub const MAX_REDIRECTS: u32 = 4;
/// Longest CHAP challenge or response, in bytes (RFC 7143 12.1.3).
pub const MAX_CHAP_BINARY_BYTES: usize = 1024;
/// Challenge that we generate, in bytes: as long as the longest digest used.
pub const CHAP_CHALLENGE_BYTES: usize = 32;
/// Shortest CHAP secret that is accepted, in bytes: 96 bits (RFC 7143 9.2.1).
pub const MIN_CHAP_SECRET_BYTES: usize = 12;
/// Longest CHAP_N that is accepted, in bytes (RFC 7143 6.1).
pub const MAX_CHAP_NAME_BYTES: usize = 255;
/// TargetAddress values of one redirection that are considered.
pub const MAX_REDIRECT_ADDRESSES: usize = 16;
/// Longest answer to SendTargets that an initiator accepts, in bytes.
pub const MAX_DISCOVERY_TEXT_BYTES: usize = 4 * 1024 * 1024;
/// Tasks (commands, pings, task management) that an initiator's session holds at most; their tags have 16 bits of index.
pub const MAX_INITIATOR_TASKS: usize = 32 * 1024;
/// Times that a rejected or unacknowledged PDU is sent again before its task fails or the attempts end.
pub const MAX_RESENDS: u8 = 3;
/// Longest Time2Wait, and longest time to reconnect, that an initiator obeys if a target asks for one, in seconds: commands wait
/// for that time, and a target could ask for 18 hours.
pub const MAX_TIME2WAIT_S: u16 = 60;
/// Statuses that an initiator leaves unacknowledged while it has nothing to send (RFC 7143 4.2.2.2).
pub const MAX_STATUS_LAG: u32 = 1024;
/// Most bytes of sense data that an initiator keeps from one response.
pub const MAX_SENSE_BYTES: usize = 252;
/// Statuses of one connection that a target keeps for a Status SNACK until they are acknowledged; beyond it the oldest is
/// dropped.
pub const MAX_RETAINED_STATUSES: usize = 1024;
/// Most data in those statuses, bytes: sense, text, and ping data. The data of reads is counted with their commands.
pub const MAX_RETAINED_STATUS_BYTES: usize = 256 * 1024;
/// Completed commands of one session that a target keeps until their status is acknowledged; beyond it the oldest is dropped.
pub const MAX_RETAINED_COMMANDS: usize = 4096;
/// SNACKs that a target answers for one task; more are refused.
pub const MAX_SNACKS_PER_TASK: u8 = 64;
/// Times that lost data of one task is requested again; then the task fails.
pub const MAX_RECOVERIES_PER_TASK: u8 = 64;
/// PDUs that a target resends on one connection before the initiator acknowledges a further status.
pub const MAX_REPLAYED_PDUS: u32 = 64 * 1024;
/// Most connections of a session that are lost and not cleaned up; beyond it the tasks of the oldest one are aborted.
pub const MAX_LOST_CONNECTIONS: usize = 64;
/// Requests of a lost connection that are remembered as not reassignable (RFC 7143 11.5.1).
pub const MAX_REMEMBERED_REQUESTS: usize = 64;
/// Most connections of an initiator's session.
pub const MAX_INITIATOR_CONNECTIONS: usize = 64;
/// Most numbers that a status may be ahead of a missing one; beyond it the session is closed.
pub const MAX_STATUS_GAP: u32 = 4096;
/// Most PDUs of one task that an initiator keeps behind a missing one; any beyond these count as missing too.
pub const MAX_HELD_PDUS: usize = 4096;
/// Most runs of bytes that are recorded for one transfer whose data may arrive in any order: 16 MiB in PDUs of 8 KiB can come
/// with every second PDU first. More holes are a protocol error.
pub const MAX_EXTENTS: usize = 1024;
/// Times that the same missing PDUs are requested.
pub const MAX_SNACKS: u8 = 5;
/// Most runs of missing PDUs that are requested one by one; if there are more, one request covers everything from the first to
/// the last.
pub const MAX_SNACK_RUNS: usize = 16;
/// Task management functions that an initiator has under way at a time to recover the tasks of a lost connection.
pub const MAX_SETTLING: usize = 8;
