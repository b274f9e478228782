//! An NBD server for logical units (the NBD project's `doc/proto.md`): the fixed newstyle handshake, TLS by rustls, simple and
//! structured replies. Requests are executed as SCSI commands of a separate nexus ([`lun::carry_out`]).
//!
//! A program provides the exports ([`Exports`]) and a place for jobs that may block ([`Offload`]), and starts a [`Server`].
//!
//! Left out: the oldstyle handshake, extended headers, metadata contexts other than base:allocation, NBD_CMD_RESIZE, fast zeroes.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod connection;
pub mod counters;
pub mod export;
pub mod negotiation;
pub mod seats;
mod server;
mod shared;
mod tls;
pub mod wire;

pub use counters::Counters;
pub use export::{Denied, Export, Exports, Peer};
pub use server::{CONNECTIONS_MAX, Options, Server, StartError};
pub use shared::{Job, Offload};
pub use tls::{TlsError, TlsOptions};
