//! CRC32C in TCP for programs that are unaware of it, by one of two back ends: a shim between two TUN devices, built on the codec and the
//! negotiation of [`tcp_crc`]; or programs in the kernel ([`bpf`]), which implement the same rules in C and are tested against it.
//!
//! ```text
//!   program ── its TCP ── inside device ── Relay ── outside device ── routes, NAT, network
//!                                            │
//!                                          Shim: cut, stamp │ judge, strip, join
//! ```
//!
//! * [`Shim`] decides about each packet; it does no I/O.
//! * [`Relay`] is the thread that moves packets between two devices through a shim.
//! * [`host`] puts the kernel's programs on a whole network namespace, and takes them off; [`surroundings`] has the facts by which it
//!   chooses what to ask for.
//! * [`Enclosure`] is a network namespace whose programs' TCP goes through a shim; [`report`] publishes its counters.
//! * [`lab`] has two hosts in network namespaces and a forwarder between them that may do anything with a packet.
//!
//! Invariants:
//! - A packet that the shim does not understand, or of a connection that it does not know, is forwarded unchanged. The exception is a
//!   fragment from the network under the strict policy, which is discarded. All these packets are counted.
//! - Segments are joined only if their CRC and their sum were found right; every other sum is left for the kernel to verify.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod bpf;
mod commands;
mod enclosure;
pub mod forwarding;
pub mod host;
mod icmp;
pub mod lab;
mod path;
mod relay;
pub mod report;
mod shim;
pub mod surroundings;
mod veth;

pub use commands::SetupError;
pub use enclosure::{Enclosure, Options};
pub use path::{Backend, Seen};
pub use relay::{Relay, Shared};
pub use shim::{PacketCounters, Ports, Shim, TurnedAway};
