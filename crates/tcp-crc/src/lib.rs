//! CRC32C instead of, or in addition to, TCP's 16-bit sum: the option of a thesis (2019, chapter 7) on the option numbers of RFC 1146, as
//! bytes and as a state machine. No I/O, no clock: a shim on a TUN device, a test and a fuzzer drive the same code.
//!
//! * [`Packet`] is an IPv4 or IPv6 packet that carries one whole TCP segment. Parsing may refuse; it never panics.
//! * [`Method`] says what the CRC covers and where it is placed; [`Offer`] is what an end asks for, and [`Offer::join`] what both agree on.
//! * [`stamp`] puts the CRC into a packet, [`check`] judges a packet, [`strip`] removes the option again.
//! * [`Flow`] is one connection: it reads and writes the request in SYN and SYN-ACK, falls back to plain TCP, and determines the action
//!   for each packet. [`Flows`] holds many connections, up to a limit.
//! * [`cut`] splits a super-segment into segments, [`Joined`] joins segments into a super-segment; [`resets`] ends a connection.
//!
//! Invariants:
//! - [`check`] accepts what [`stamp`] writes, and [`strip`] returns a segment with the same header fields and the same data.
//! - TCP options never take more than 40 bytes. Timestamps are never dropped. SACK blocks are, last block first, if a segment with data has
//!   no room for its CRC.
//! - Segments with SYN or RST carry the ordinary sum and no CRC (RFC 1146). Data in a SYN (TCP Fast Open) is not covered.
//! - A packet that this crate does not understand is never changed.
//!
//! Sockets, devices and the reassembly of IP fragments are out of scope.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod coverage;
mod flow;
mod flows;
mod method;
mod options;
mod packet;
mod reset;
mod rewrite;
mod segment;

pub use flow::{
    Action, Config, Counters, Direction, Flow, OnMissing, Plain, REQUESTS_MAX, RESEGMENTED_AFTER, State,
};
pub use flows::{FlowKey, Flows, IDLE_MS, LINGER_MS, Outcome, UNANSWERED_MS};
pub use method::{Codepoints, Host, Method, Offer};
pub use options::{MAX_OPTION_BYTES, OptionError, TcpOption, TcpOptions};
pub use packet::{Flags, Packet, Unsuitable};
pub use reset::resets;
pub use rewrite::{Fault, NoRoom, check, clamp_mss, growth_bytes, request, stamp, strip};
pub use segment::{Joined, Super, cut, finish_sums};
