//! The initiator's half of the protocol: [`login`] until full feature phase, then a [`session`].
//!
//! A session takes [`command::Command`]s and received PDUs and says what to do through
//! [`session::InitiatorSession::poll_action`]. Its concerns lie in files of their own: `command_window` counts, `task` holds,
//! `data_out` answers R2Ts, `data_in` checks what arrives, `recovery` deals with commands that take too long, `reject` with
//! refused PDUs, `messages` with pings, events and logout, `text` with discovery.

pub mod address;
pub mod command;
mod command_window;
mod data_in;
mod data_out;
pub mod login;
mod login_failure;
mod messages;
mod recovery;
mod reject;
mod security;
pub mod session;
mod task;
#[cfg(test)]
mod tests;
mod text;

pub use address::TargetAddress;
pub use command::{Command, Completion, Ending, WriteData};
pub use login::{ChapConfig, InitiatorLogin, LoggedIn, LoginConfig, LoginFailure};
pub use session::{Action, CloseReason, InitiatorSession, SessionConfig};
