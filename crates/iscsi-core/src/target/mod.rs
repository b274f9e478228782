//! The target's half of the protocol: [`login`] until full feature phase, then a [`session`].
//!
//! A session is driven by `handle_*` and by the answers of the device server, and says what to do through
//! [`session::TargetSession::poll_action`]. Its concerns lie in files of their own: `connection` comes and goes, `requests`
//! takes what arrives, `command_window` orders commands, `task` holds them, `data_out` solicits and collects, `data_in` answers,
//! `task_management` aborts, `fence` keeps answers in order over connections, `logout` says goodbye, `text` talks,
//! `async_events` tells, `messages` numbers what is sent, `recovery` mends.

pub mod actions;
mod async_events;
pub mod command_window;
mod connection;
mod data_in;
mod data_out;
pub mod fence;
mod invariants;
pub mod login;
mod logout;
mod messages;
pub mod recovery;
mod requests;
mod sense;
pub mod session;
pub mod task;
pub mod task_management;
mod text;
