//! The wire format of the protocol (the NBD project's `doc/proto.md`): numbers, the request, and the replies. No semantics.

/// Longest name of an export, bytes (proto.md, "Values": strings).
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest option data that is kept; longer data is skipped and the option refused.
pub const OPTION_BYTES_MAX: usize = 16 << 10;
/// Bytes of an option's header: magic, option, length.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of a request: magic, flags, type, cookie, offset, length.
pub const REQUEST_BYTES: usize = 28;

const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Flags of the handshake, for both server and client.
pub const FIXED_NEWSTYLE: u16 = 1;
/// The reply to NBD_OPT_EXPORT_NAME has no zeroes at its end.
pub const NO_ZEROES: u16 = 2;

/// Options (NBD_OPT_...).
pub mod option {
    #![allow(missing_docs, reason = "the names are those of proto.md")]
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options (NBD_REP_...).
pub mod reply {
    #![allow(missing_docs, reason = "the names are those of proto.md")]
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub const ERR_POLICY: u32 = 1 << 31 | 2;
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    pub const ERR_TLS_REQD: u32 = 1 << 31 | 5;
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub const ERR_SHUTDOWN: u32 = 1 << 31 | 7;
    pub const ERR_BLOCK_SIZE_REQD: u32 = 1 << 31 | 8;
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// Information about an export (NBD_INFO_...).
pub mod info {
    #![allow(missing_docs, reason = "the names are those of proto.md")]
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export (NBD_FLAG_...).
pub mod export_flag {
    #![allow(missing_docs, reason = "the names are those of proto.md")]
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const ROTATIONAL: u16 = 1 << 4;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
}

/// Commands (NBD_CMD_...).
pub mod command {
    #![allow(missing_docs, reason = "the names are those of proto.md")]
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command (NBD_CMD_FLAG_...).
pub mod command_flag {
    #![allow(missing_docs, reason = "the names are those of proto.md")]
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
}

/// Why a request failed, as a number of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are those of proto.md, without NBD_E")]
pub enum Errno {
    Perm = 1,
    Io = 5,
    Inval = 22,
    Nospc = 28,
    Shutdown = 108,
}

/// Types of chunks of structured replies (NBD_REPLY_TYPE_...).
mod chunk {
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const ERROR: u16 = 1 << 15 | 1;
}
/// The last chunk of a reply (NBD_REPLY_FLAG_DONE).
const DONE: u16 = 1;

/// The greeting that the server sends first.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&NBDMAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&IHAVEOPT.to_be_bytes());
    bytes[16..].copy_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    bytes
}

/// The option and the length of its data; `None`: this is no option header.
pub fn option_header(bytes: &[u8; OPTION_HEADER_BYTES]) -> Option<(u32, u32)> {
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let (option, length) = rest.split_first_chunk::<4>()?;
    let known = u64::from_be_bytes(*magic) == IHAVEOPT;
    known.then_some((u32::from_be_bytes(*option), u32::from_be_bytes(*length.first_chunk()?)))
}

/// Appends a reply to `option`.
pub fn push_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[&[u8]]) {
    let length: usize = data.iter().map(|part| part.len()).sum();
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    // Only our own names and texts: far below 4 GiB.
    out.extend((length as u32).to_be_bytes());
    data.iter().for_each(|part| out.extend(*part));
}

/// A request of the transmission phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Flags of the command.
    pub flags: u16,
    /// The command.
    pub command: u16,
    /// Identifies the request in the reply.
    pub cookie: u64,
    /// Where its range begins, bytes.
    pub offset: u64,
    /// Length of its range, bytes.
    pub length: u32,
}

impl Request {
    /// Parses a request; `None`: this is no request.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (flags, rest) = rest.split_first_chunk::<2>()?;
        let (command, rest) = rest.split_first_chunk::<2>()?;
        let (cookie, rest) = rest.split_first_chunk::<8>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        (u32::from_be_bytes(*magic) == REQUEST_MAGIC).then_some(Self {
            flags: u16::from_be_bytes(*flags),
            command: u16::from_be_bytes(*command),
            cookie: u64::from_be_bytes(*cookie),
            offset: u64::from_be_bytes(*offset),
            length: u32::from_be_bytes(*rest.first_chunk()?),
        })
    }
}

/// The form of replies: structured for a client that negotiated them, otherwise simple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyForm {
    /// Simple replies.
    Simple,
    /// Structured replies.
    Structured,
}

/// One extent of a block status reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u32,
    /// A hole that reads as zeroes (NBD_STATE_HOLE and NBD_STATE_ZERO); otherwise data.
    pub hole: bool,
}

/// Bits of base:allocation for a hole.
const STATE_HOLE_AND_ZERO: u32 = 3;

fn simple(cookie: u64, error: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    out.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend(error.to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out
}

/// The header of the only chunk of a reply.
fn structured(cookie: u64, kind: u16, length: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(40);
    out.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    out.extend(DONE.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out.extend(length.to_be_bytes());
    out
}

impl ReplyForm {
    /// The reply to a request that succeeded and returns no data.
    pub fn done(self, cookie: u64) -> Vec<u8> {
        match self {
            Self::Simple => simple(cookie, 0),
            Self::Structured => structured(cookie, chunk::NONE, 0),
        }
    }

    /// What precedes the `length` bytes of a read.
    pub fn data(self, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
        match self {
            Self::Simple => simple(cookie, 0),
            Self::Structured => {
                let mut out = structured(cookie, chunk::OFFSET_DATA, length.saturating_add(8));
                out.extend(offset.to_be_bytes());
                out
            }
        }
    }

    /// The reply to a request that failed; only a structured reply carries the text.
    pub fn error(self, cookie: u64, error: Errno, text: &str) -> Vec<u8> {
        match self {
            Self::Simple => simple(cookie, error as u32),
            Self::Structured => {
                let text = &text.as_bytes()[..text.len().min(NAME_BYTES_MAX)];
                let mut out = structured(cookie, chunk::ERROR, 6 + text.len() as u32);
                out.extend((error as u32).to_be_bytes());
                out.extend((text.len() as u16).to_be_bytes());
                out.extend(text);
                out
            }
        }
    }
}

/// The reply to a block status request, for the context with this number.
pub fn block_status(cookie: u64, context: u32, extents: &[Extent]) -> Vec<u8> {
    let mut out = structured(cookie, chunk::BLOCK_STATUS, 4 + 8 * extents.len() as u32);
    out.extend(context.to_be_bytes());
    for extent in extents {
        out.extend(extent.length.to_be_bytes());
        out.extend(if extent.hole { STATE_HOLE_AND_ZERO } else { 0 }.to_be_bytes());
    }
    out
}
