//! The configuration: its TOML form, and every check, with a line and a remedy for each problem.
//!
//! | module | content |
//! |---|---|
//! | [`model`] | what the program around the target needs besides [`target::config`] |
//! | [`load`] | the file as a whole, the command line, and checks across sections |
//! | `targets`, `port_groups`, `auth`, `nbd`, `settings` | the sections |
//! | `problem`, `reader` | errors and their positions; reading tables key by key |
//!
//! `examples/intact.toml` shows every key.

mod auth;
pub mod load;
pub mod model;
mod nbd;
mod port_groups;
mod problem;
mod reader;
mod settings;
mod targets;

pub use load::{Loaded, Overrides, parse_listen, parse_nbd_listen};
pub use model::{Config, ControlSocket, NbdConfig, NbdTls};
pub use problem::{Problem, Severity};
