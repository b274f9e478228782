//! An NBD server for logical units (the NBD project's `doc/proto.md`): the fixed newstyle handshake, TLS by rustls, simple and
//! structured replies, and requests as SCSI commands of a nexus of their own ([`lun::carry_out`]).
//!
//! A program says what is exported ([`Exports`]) and where jobs run that may block ([`Offload`]), and starts a [`Server`].
//!
//! Left out: the oldstyle handshake, extended headers, metadata contexts other than base:allocation, NBD_CMD_RESIZE, fast zeroes.
#![forbid(unsafe_code)]

mod connection;
pub mod export;
pub mod negotiation;
mod server;
mod tls;
pub mod wire;

pub use export::{Denied, Export, Exports, Peer};
pub use server::{CONNECTIONS_MAX, Job, Offload, Options, Server, StartError};
pub use tls::{TlsError, TlsOptions};
