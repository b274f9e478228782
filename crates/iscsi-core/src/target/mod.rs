//! The target's half of the protocol: [`login`] until full feature phase, then a [`session`].
//!
//! A session is driven by its `handle_*` methods and by the answers of the device server; [`session::TargetSession::poll_action`]
//! returns what to do next. Each concern has its own file: `connection` handles connections joining and leaving, `requests`
//! checks received PDUs, `command_window` orders commands, `tasks` holds them, `data_out` solicits and collects write data within
//! the memory of `write_flow`, `data_in` sends read data and status, `task_management` aborts, `aborts` knows what that waits for,
//! `fence` orders responses across connections, `logout` and `text` answer those requests, `async_events` sends Asynchronous
//! Messages, `messages` numbers outgoing PDUs, `recovery` repairs losses.
//!
//! What belongs together is a machine with private state, which its own file alone changes: `CommandWindow`, `Tasks`, `WriteFlow`,
//! `Aborts`, `Fences`, `Retained`. What concerns several of them is done by the session.

mod aborts;
pub mod actions;
mod async_events;
pub mod command_window;
mod connection;
mod connections;
mod data_in;
mod data_out;
mod drawn;
mod exchange;
pub mod fence;
mod fencing;
mod invariants;
pub mod login;
mod logout;
mod messages;
mod pieces;
mod read_plan;
pub mod recovery;
mod requests;
mod scattered;
mod sense;
pub mod session;
pub mod task;
pub mod task_management;
mod tasks;
mod text;
mod write_flow;
