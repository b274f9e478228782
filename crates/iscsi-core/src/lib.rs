//! The protocol of RFC 7143 for both roles, without I/O and without a clock.
//!
//! There is no socket and no clock in here because four very different callers drive the same code: event loops on epoll and
//! io_uring, the simulator, scripted transcripts, and fuzzers. Events enter through `handle_*`, with the time as an argument;
//! `poll_*` returns what to do.
//!
//! | module | subject |
//! |---|---|
//! | [`digest`], [`pdu_reader`], [`pdu_writer`] | where PDUs begin and end, and what their digests cover |
//! | [`keys`], [`negotiation`], [`params`], [`names`], [`text_exchange`], [`chap`] | what both roles share of a login |
//! | [`target`] | a target's login and session |
//! | [`initiator`] | an initiator's login and session |
//! | [`error`], [`limits`] | whose fault it was, and every bound |
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod chap;
pub mod digest;
pub mod error;
mod extents;
pub mod initiator;
pub mod keys;
pub mod limits;
pub mod names;
pub mod negotiation;
pub mod params;
pub mod pdu_reader;
pub mod pdu_writer;
mod role;
pub mod send_order;
pub mod target;
pub mod text_exchange;

/// The wire format, for crates that use this one.
pub use iscsi_wire as wire;

/// Time since an arbitrary start, given by the caller: the core has no clock.
pub type Time = std::time::Duration;

/// The earlier of two times, either of which may be absent. Event loops use it in every turn to find out what is due: an iterator
/// over all the optional times would cost several times as much.
#[inline]
pub(crate) fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
