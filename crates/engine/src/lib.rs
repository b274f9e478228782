//! The data plane: drivers, buffers, the framing of connections on a socket, and the threads around a shard.
//!
//! A shard is one thread that owns a [`driver::Driver`], the connections on it and everything those connections touch. It waits for
//! [`driver::Completion`]s, feeds them to the protocol and submits the operations that the protocol requests. Nothing on this path crosses
//! a thread. Work that blocks goes to [`offload::Offload`] and its result comes back through a [`mailbox::Mailbox`].
//!
//! Invariants:
//! - No I/O of the data path happens outside a driver, so a simulator can replace it.
//! - In the steady state nothing is allocated: buffers come from a [`slab::SlabRing`], and vectors are handed back and forth.
//! - A stale [`driver::Token`] names nothing: it can never reach a connection that took the same slot later.
//!
//! The crate also holds the other system calls that need `unsafe`: network namespaces ([`netns`]), TUN devices ([`tun`]) and
//! questions to network devices ([`nic`]).
//!
//! What is not here: the protocol (`iscsi-core`), and the meaning of a PDU. Linux only.

#![warn(unreachable_pub)]

pub mod clock;
pub mod cycles;
pub mod driver;
pub mod link;
pub mod mailbox;
pub mod netns;
pub mod nic;
pub mod offload;
mod packing;
pub mod platform;
pub mod realtime;
pub mod slab;
pub mod tun;

pub use clock::Clock;
pub use driver::epoll::EpollDriver;
pub use driver::{Completion, Driver, POLL_TIME, POLL_TIME_MAX, PollCounts, TcpInfo, Token, Waker};
pub use link::{Link, LinkStats};
pub use mailbox::{Mailbox, Sender};
pub use offload::{Lane, Offload};
pub use platform::{Platform, Resolve, System};
pub use slab::{Pins, SlabRing, SlabStats};
