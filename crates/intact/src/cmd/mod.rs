//! The subcommands. Each has `Args` and `run`, which returns the exit code.

pub mod bench;
pub mod check;
pub mod client;
pub mod conform;
pub mod cp;
pub mod docs;
pub mod doctor;
mod forms;
pub mod group;
mod guest;
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
pub mod tcp_crc;
pub mod wireless;

use std::process::ExitCode;

use harness::Failure;
pub use harness::text::complain;

/// It failed, or data differs.
pub const FAILED: u8 = 1;
/// Wrong usage or configuration.
pub const MISUSED: u8 = 2;

/// Reports on standard error why there is no result.
pub fn failure(failure: &Failure) -> ExitCode {
    let code = match failure {
        Failure::Misused(_) => MISUSED,
        Failure::Failed(_) => FAILED,
    };
    fail(code, failure)
}

/// Reports on standard error why the command ends.
pub fn fail(code: u8, what: impl std::fmt::Display) -> ExitCode {
    complain(format_args!("intact: {what}"));
    ExitCode::from(code)
}
