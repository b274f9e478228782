//! The handshake after the greeting, without I/O: options in, replies out.
//!
//! Fixed newstyle, with NBD_OPT_EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED_REPLY, LIST_META_CONTEXT and
//! SET_META_CONTEXT. Left out, and refused as unsupported: extended headers.

use std::sync::Arc;

use crate::export::{Denied, Export, Exports, Facts, Peer};
use crate::seats::{CONNECTIONS_PER_EXPORT_MAX, Seat, Seats};
use crate::wire::{self, NAME_BYTES_MAX, NO_ZEROES, ReplyForm, info, option, push_reply, reply};

/// The only metadata context, and its number.
pub const ALLOCATION: &str = "base:allocation";
/// See [`ALLOCATION`].
pub const ALLOCATION_ID: u32 = 1;
/// A client that sends more options than this is misbehaving.
const OPTIONS_MAX: u32 = 256;
/// The zeroes after the reply to NBD_OPT_EXPORT_NAME.
const ZEROES: [u8; 124] = [0; 124];
/// Blocks of up to this size need no negotiation: no client uses smaller units.
const USUAL_BLOCK_BYTES: u32 = 512;

/// Whether a connection is encrypted, or must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// The server has no certificate.
    Off,
    /// A client may request it.
    Offered,
    /// Until TLS is active, only NBD_OPT_STARTTLS and NBD_OPT_ABORT are answered.
    Required,
    /// TLS is active.
    Done,
}

/// The result of the negotiation: the export, and how the client wants its replies.
#[derive(Debug)]
pub struct Agreed {
    /// The export that it uses.
    pub export: Arc<dyn Export>,
    /// The right to use it, for as long as the connection lasts.
    pub seat: Seat,
    /// The form of its replies.
    pub form: ReplyForm,
    /// The client may request the status of blocks.
    pub allocation: bool,
}

/// What to do after an option.
#[derive(Debug)]
pub enum Next {
    /// Send this, and read the next option.
    Reply(Vec<u8>),
    /// Send this, and start TLS.
    StartTls(Vec<u8>),
    /// Send this; requests follow.
    Transmit(Vec<u8>, Agreed),
    /// Send this, and close the connection.
    End(Vec<u8>),
}

/// See the head of the module.
#[derive(Debug)]
pub struct Negotiation {
    no_zeroes: bool,
    structured: bool,
    /// The export for which base:allocation was chosen.
    allocation_of: Option<String>,
    tls: Tls,
    request_bytes_max: u32,
    seats: Arc<Seats>,
    options: u32,
}

impl Negotiation {
    /// The negotiation after the client has answered the greeting with its flags, for a server with this limit on the length of
    /// requests, bytes, and these seats; `None`: the client does not speak fixed newstyle.
    pub fn new(client_flags: u32, tls: Tls, request_bytes_max: u32, seats: Arc<Seats>) -> Option<Self> {
        let known = u32::from(wire::FIXED_NEWSTYLE | NO_ZEROES);
        (client_flags & !known == 0 && client_flags & u32::from(wire::FIXED_NEWSTYLE) != 0).then_some(Self {
            no_zeroes: client_flags & u32::from(NO_ZEROES) != 0,
            structured: false,
            allocation_of: None,
            tls,
            request_bytes_max,
            seats,
            options: 0,
        })
    }

    /// The connection is encrypted now: everything negotiated before is void.
    pub fn secured(&mut self) {
        (self.structured, self.allocation_of, self.tls) = (false, None, Tls::Done);
    }

    /// Answers an option. `data` is `None` if it was longer than [`wire::OPTION_BYTES_MAX`].
    pub fn option(&mut self, option: u32, data: Option<&[u8]>, exports: &dyn Exports, peer: &Peer) -> Next {
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Next::End(Vec::new());
        }
        let refuse = |kind, text: &str| Next::Reply(error(option, kind, text));
        if self.tls == Tls::Required && !matches!(option, option::STARTTLS | option::ABORT) {
            return match option {
                // This option has no error reply.
                option::EXPORT_NAME => Next::End(Vec::new()),
                _ => refuse(reply::ERR_TLS_REQD, "this server serves encrypted connections only: use TLS"),
            };
        }
        let Some(data) = data else {
            return match option {
                option::EXPORT_NAME => Next::End(Vec::new()),
                _ => refuse(reply::ERR_TOO_BIG, "the data of this option are too long"),
            };
        };
        match option {
            option::ABORT => Next::End(acknowledged(option)),
            option::STARTTLS => self.start_tls(data),
            option::EXPORT_NAME => self.export_name(data, exports, peer),
            option::LIST if !data.is_empty() => refuse(reply::ERR_INVALID, "NBD_OPT_LIST has no data"),
            option::LIST => {
                let mut out = Vec::new();
                for name in exports.names(peer) {
                    let length = (name.len() as u32).to_be_bytes();
                    push_reply(&mut out, option, reply::SERVER, &[&length, name.as_bytes()]);
                }
                push_reply(&mut out, option, reply::ACK, &[]);
                Next::Reply(out)
            }
            option::STRUCTURED_REPLY if !data.is_empty() => {
                refuse(reply::ERR_INVALID, "NBD_OPT_STRUCTURED_REPLY has no data")
            }
            option::STRUCTURED_REPLY => {
                self.structured = true;
                Next::Reply(acknowledged(option))
            }
            option::INFO | option::GO => self.info(option, data, exports, peer),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(option, data, exports, peer)
            }
            _ => refuse(reply::ERR_UNSUP, "this server does not know the option"),
        }
    }

    fn start_tls(&self, data: &[u8]) -> Next {
        let option = option::STARTTLS;
        match self.tls {
            _ if !data.is_empty() => {
                Next::Reply(error(option, reply::ERR_INVALID, "NBD_OPT_STARTTLS has no data"))
            }
            Tls::Off => {
                Next::Reply(error(option, reply::ERR_POLICY, "this server has no certificate for TLS"))
            }
            Tls::Done => {
                Next::Reply(error(option, reply::ERR_INVALID, "the connection is encrypted already"))
            }
            Tls::Offered | Tls::Required => Next::StartTls(acknowledged(option)),
        }
    }

    fn export_name(&self, data: &[u8], exports: &dyn Exports, peer: &Peer) -> Next {
        let found = std::str::from_utf8(data).ok().filter(|name| name.len() <= NAME_BYTES_MAX);
        let Some(export) = found.and_then(|name| exports.find(name, peer).ok()) else {
            return Next::End(Vec::new());
        };
        let Some(seat) = self.seats.take(export.name()) else { return Next::End(Vec::new()) };
        let facts = Facts::of(&*export, self.request_bytes_max);
        let mut out = facts.size_bytes.to_be_bytes().to_vec();
        out.extend(facts.flags(self.structured).to_be_bytes());
        if !self.no_zeroes {
            out.extend(ZEROES);
        }
        Next::Transmit(out, self.agreed(export, seat, found.unwrap_or_default()))
    }

    fn agreed(&self, export: Arc<dyn Export>, seat: Seat, name: &str) -> Agreed {
        Agreed {
            export,
            seat,
            form: if self.structured { ReplyForm::Structured } else { ReplyForm::Simple },
            allocation: self.allocation_of.as_deref() == Some(name),
        }
    }

    fn info(&mut self, option: u32, data: &[u8], exports: &dyn Exports, peer: &Peer) -> Next {
        let refuse = |kind, text: &str| Next::Reply(error(option, kind, text));
        let Some((name, asked)) = info_request(data) else {
            return refuse(reply::ERR_INVALID, "the data of this option are malformed");
        };
        let export = match exports.find(name, peer) {
            Ok(export) => export,
            Err(denied) => return refuse(denied_kind(&denied), &denied.to_string()),
        };
        let facts = Facts::of(&*export, self.request_bytes_max);
        if facts.block_bytes > USUAL_BLOCK_BYTES && !asked.contains(&info::BLOCK_SIZE) {
            let text = format!("the blocks have {} bytes: ask for NBD_INFO_BLOCK_SIZE", facts.block_bytes);
            return refuse(reply::ERR_BLOCK_SIZE_REQD, &text);
        }
        let mut out = Vec::new();
        let mut tell = |kind: u16, parts: &[&[u8]]| {
            let kind = kind.to_be_bytes();
            let all: Vec<&[u8]> = std::iter::once(&kind[..]).chain(parts.iter().copied()).collect();
            push_reply(&mut out, option, reply::INFO, &all);
        };
        tell(info::EXPORT, &[&facts.size_bytes.to_be_bytes(), &facts.flags(self.structured).to_be_bytes()]);
        if asked.contains(&info::NAME) {
            tell(info::NAME, &[export.name().as_bytes()]);
        }
        if asked.contains(&info::DESCRIPTION) {
            tell(info::DESCRIPTION, &[export.description().as_bytes()]);
        }
        let sizes = [facts.block_bytes, facts.preferred_bytes, facts.request_bytes_max].map(u32::to_be_bytes);
        tell(info::BLOCK_SIZE, &[&sizes[0], &sizes[1], &sizes[2]]);
        push_reply(&mut out, option, reply::ACK, &[]);
        if option != option::GO {
            return Next::Reply(out);
        }
        match self.seats.take(export.name()) {
            Some(seat) => Next::Transmit(out, self.agreed(export, seat, name)),
            None => {
                let text =
                    format!("{CONNECTIONS_PER_EXPORT_MAX} connections use this export: close one of them");
                refuse(reply::ERR_POLICY, &text)
            }
        }
    }

    fn contexts(&mut self, option: u32, data: &[u8], exports: &dyn Exports, peer: &Peer) -> Next {
        let set = option == option::SET_META_CONTEXT;
        if set {
            self.allocation_of = None;
        }
        let refuse = |kind, text: &str| Next::Reply(error(option, kind, text));
        if !self.structured {
            return refuse(
                reply::ERR_INVALID,
                "metadata contexts need structured replies: negotiate those first",
            );
        }
        let Some((name, queries)) = context_request(data) else {
            return refuse(reply::ERR_INVALID, "the data of this option are malformed");
        };
        if let Err(denied) = exports.find(name, peer) {
            return refuse(denied_kind(&denied), &denied.to_string());
        }
        let wanted =
            queries.contains(&ALLOCATION) || (!set && (queries.is_empty() || queries.contains(&"base:")));
        let mut out = Vec::new();
        if wanted {
            // The number has no meaning in a list.
            let id = if set { ALLOCATION_ID } else { 0 }.to_be_bytes();
            push_reply(&mut out, option, reply::META_CONTEXT, &[&id, ALLOCATION.as_bytes()]);
        }
        if set && wanted {
            self.allocation_of = Some(name.to_owned());
        }
        push_reply(&mut out, option, reply::ACK, &[]);
        Next::Reply(out)
    }
}

fn acknowledged(option: u32) -> Vec<u8> {
    let mut out = Vec::new();
    push_reply(&mut out, option, reply::ACK, &[]);
    out
}

fn error(option: u32, kind: u32, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    push_reply(&mut out, option, kind, &[text.as_bytes()]);
    out
}

fn denied_kind(denied: &Denied) -> u32 {
    match denied {
        Denied::Unknown => reply::ERR_UNKNOWN,
        Denied::NeedsProof => reply::ERR_POLICY,
        Denied::NotReady => reply::ERR_SHUTDOWN,
    }
}

/// A text preceded by its length, and the rest of the data.
fn text(data: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    let length =
        usize::try_from(u32::from_be_bytes(*length)).ok().filter(|length| *length <= NAME_BYTES_MAX)?;
    let (text, rest) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

/// The export and the kinds of information of NBD_OPT_INFO and NBD_OPT_GO.
fn info_request(data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let (name, rest) = text(data)?;
    let (count, rest) = rest.split_first_chunk::<2>()?;
    let (kinds, []) = rest.as_chunks::<2>() else { return None };
    let kinds: Vec<u16> = kinds.iter().map(|kind| u16::from_be_bytes(*kind)).collect();
    (kinds.len() == usize::from(u16::from_be_bytes(*count))).then_some((name, kinds))
}

/// The export and the queries of NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT.
fn context_request(data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let (name, rest) = text(data)?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut queries = Vec::new();
    // Each query takes at least four bytes, and no memory is reserved for the claimed count.
    for _ in 0..u32::from_be_bytes(*count) {
        let (query, others) = text(rest)?;
        queries.push(query);
        rest = others;
    }
    rest.is_empty().then_some((name, queries))
}
