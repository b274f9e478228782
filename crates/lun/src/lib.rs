//! A logical unit on its store, free of transport and configuration: what a session layer (iSCSI, NBD) needs below it.
//!
//! * [`Unit`] joins a device server and a store, and keeps operations apart that may not meet.
//! * [`carry_out`] takes a command from its CDB to its outcome; [`step`] takes one medium operation of it, for who has other things
//!   to do in between.
//! * [`ReservationFile`] keeps what a unit has to know again after a restart.
//!
//! Whoever serves a unit gives it a [`Host`]: its neighbours for copies, and an ear for what its store does wrong.
#![forbid(unsafe_code)]

mod blocks;
mod execute;
mod kept;
mod lba_status;
mod plain;
mod protected;
mod range_lock;
#[cfg(test)]
mod testing;
mod unit;
mod work;

pub use execute::{NEVER, Surroundings};
pub use kept::ReservationFile;
pub use payload::Payload;
pub use unit::{Access, Held, Host, Unit};
pub use work::{Carried, carry_out, change_to_keep, step, step_now};
