//! A logical unit on its store, free of transport and configuration: what a session layer (iSCSI, NBD) needs below it.
//!
//! * [`Unit`] joins a device server and a store, and excludes operations that may not run at the same time.
//! * [`carry_out`] executes a command from its CDB to its outcome; [`step`] executes one medium operation of it, for callers that have
//!   other work in between.
//! * [`ReservationFile`] stores the state of a unit that survives a restart.
//!
//! A server gives each unit a [`Host`], which knows the other units for copies and receives reports of failures.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod blocks;
mod execute;
mod kept;
mod lba_status;
mod plain;
mod protected;
mod range_lock;
mod surroundings;
#[cfg(test)]
mod testing;
mod unit;
mod work;

pub use kept::ReservationFile;
pub use payload::Payload;
pub use surroundings::{NEVER, Surroundings};
pub use unit::{Access, Held, Host, Unit};
pub use work::{Carried, carry_out, change_to_keep, step, step_now};
