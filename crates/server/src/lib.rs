//! A target as a service of a machine: its configuration file, its control socket, its metrics. What serves blocks is the
//! crate `target`, which a program can embed without any of this.
//!
//! * [`Config`] is read from a file or from a few arguments; every problem has a place, a rule and a remedy.
//! * [`ControlPlane`] answers on the control socket and on `/metrics`, on a thread of its own.
//! * [`control`] has the messages of the socket and its client; [`metrics`] makes the text.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod clients;
pub mod config;
pub mod control;
pub mod metrics;
mod plane;

pub use config::Config;
pub use plane::{ControlPlane, PlaneError, Reload};
