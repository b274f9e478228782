//! Wireless links under storage: the models of a 2004 thesis on iSCSI over 802.11b (chapters 3 and 4), and a state machine of the medium
//! that they describe. No I/O and no clock.
//!
//! * [`mac`]: the throughput of a single sender on the medium (equations 3.1 to 3.7), and that of TCP (section 3.2.4).
//! * [`contention`]: several senders and errors (3.8 to 3.15).
//! * [`chain`]: several hops (section 3.4): which links of a chain may send at the same time.
//! * [`delay`]: the time of an iSCSI read command (3.16, 3.17), and round trips of NFS (section 3.6).
//! * [`queues`]: M/M/1, M/M/m (4.1 to 4.5), and the closed model that fits a bounded queue depth.
//! * [`medium`]: DCF frame by frame, on a nanosecond clock that the caller advances; [`saturation`] drives it with stations that
//!   always have something to send, which is the case that [`contention`] predicts.
//! * [`crossing`]: packets from host to host over the medium, hop by hop, for every driver.
//! * [`tcp`]: one end of a TCP connection; [`link`]: two hosts with connections over a crossing, in discrete events; [`stream`] drives
//!   it with connections that always have something to send, as iperf does.
//!
//! The functions keep the symbols of the thesis; units are in the names or next to the fields. If a formula is misprinted in the thesis,
//! both forms are here, and a test shows the size of the difference.
//!
//! Not modelled so far: a device in real time, RTS/CTS and hidden terminals in the medium.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod chain;
pub mod contention;
pub mod crossing;
pub mod delay;
pub mod link;
pub mod mac;
pub mod medium;
pub mod queues;
pub mod saturation;
mod setup;
pub mod stream;
pub mod tcp;
