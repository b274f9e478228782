//! The target's half of the protocol: [`login`] until full feature phase, then a [`session`].
//!
//! A session is driven by `handle_*` and by the answers of the device server, and says what to do through
//! [`session::TargetSession::poll_action`]. Its concerns lie in files of their own: `command_window` orders commands, `task`
//! holds them, `data_out` solicits and collects, `data_in` answers, `task_management` aborts, `text` talks, `messages`
//! numbers what is sent.

pub mod actions;
pub mod command_window;
mod data_in;
mod data_out;
pub mod login;
mod messages;
mod security;
mod sense;
pub mod session;
pub mod task;
pub mod task_management;
mod text;
