//! The subcommands. Each has `Args` and `run`, which returns the exit code.

pub mod bench;
pub mod check;
pub mod client;
pub mod conform;
pub mod cp;
pub mod docs;
pub mod doctor;
pub mod group;
mod identity;
pub mod inq;
pub mod list;
pub mod ls;
pub mod lun;
pub mod portal;
pub mod reload;
pub mod reset;
pub mod scrub;
pub mod serve;
pub mod server;

use std::process::ExitCode;

/// It failed, or data differ.
pub const FAILED: u8 = 1;
/// Wrong usage or configuration.
pub const MISUSED: u8 = 2;

/// Says on standard error why the command ends.
pub fn fail(code: u8, what: impl std::fmt::Display) -> ExitCode {
    eprintln!("intact: {what}");
    ExitCode::from(code)
}
