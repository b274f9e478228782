//! The initiator's half of the protocol: [`login`] until full feature phase, then a [`session`].
//!
//! A session takes [`command::Command`]s and received PDUs; [`session::InitiatorSession::poll_action`] returns what to do next.
//! Each concern has its own file: `command_window` assigns CmdSNs, `task` holds tasks, `write_data` assembles write data,
//! `data_out` answers R2Ts, `data_in` checks received data and status, `executed` takes the ends of commands that an engine has carried out, `task_management` deals with commands that take too long,
//! `reject` with rejected PDUs, `messages` with pings and events, `text` with discovery, `connections` with joining, leaving and
//! failing, `ledger` with statuses, `scheduler` with spreading commands over connections, `recovery` with error recovery levels 1
//! and 2.
//!
//! What belongs together is a machine with private state, which its own file alone changes: `CommandWindow`, `CommandFlow`, `Turns`,
//! `Managing`, `Missing`, `Settlement`. What concerns several of them is done by the session.

mod actions;
pub mod address;
pub mod command;
mod command_flow;
mod command_window;
mod connection;
mod connections;
mod data_in;
mod data_out;
mod exchange;
mod executed;
mod invariants;
mod ledger;
pub mod login;
mod login_failure;
mod login_support;
mod managing;
mod messages;
mod outcome;
mod read_order;
mod recovery;
mod reject;
mod roll_call;
mod scheduler;
mod scheduling;
mod security;
pub mod session;
mod task;
mod task_management;
#[cfg(test)]
mod tests;
mod text;
mod write_data;

pub use address::TargetAddress;
pub use command::{Command, Completion, Ending, WriteBuilder, WriteData};
pub use login::{ChapConfig, InitiatorLogin, Join, LoggedIn, LoginConfig, LoginFailure};
pub use session::{Action, CloseReason, InitiatorSession, Scheduling, SessionConfig};
