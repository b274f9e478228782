//! Conformance of iSCSI targets and initiators to RFC 7143, tested by a peer that can break any rule on purpose.
//!
//! * [`RawPeer`] is one end of a connection in either role. It sends bytes, headers, digests, padding and lengths
//!   as told, right or wrong, and receives PDUs with their digests verified. It sends [`Frame`]s and receives
//!   [`Received`] PDUs.
//! * [`Transcript`] is the readable record of the traffic.
//! * [`Session`] is a logged-in initiator that keeps the rules unless told otherwise, and always checks the
//!   target's numbering ([`Ledger`]).
//! * [`target::run`] runs the rows of the conformance table that a target must keep against any target.
//! * [`evil::EvilTarget`] is a small, correct target with hooks that break rules on demand, and
//!   [`initiator::rows`] are the rows that an initiator must keep against it.
//!
//! Sockets are blocking with timeouts on purpose: a script reads from top to bottom. The crate shares no protocol
//! code with the product, only the wire format and the checksum, so each implementation checks the other.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod chap;
mod error;
pub mod evil;
mod frame;
pub mod initiator;
mod ledger;
mod link;
mod login;
mod params;
mod peer;
mod script;
mod session;
pub mod target;
mod text;
mod transcript;
mod verdict;

pub use error::PeerError;
pub use frame::{DigestWish, Digests, Frame, Received};
pub use ledger::{Finding, Ledger};
pub use link::{Dial, Link};
pub use login::{ChapScript, LoggedIn, LoginReply, LoginScript, text_of};
pub use params::Params;
pub use peer::RawPeer;
pub use session::{Command, Outcome, Reaction, Residual, Sent, Session, Unsolicited};
pub use transcript::{Entry, Side, Transcript, What};
pub use verdict::{Report, RowReport, Stop, Verdict};
