//! The configuration: its TOML form, and every check, with a line and a remedy for each problem.
//!
//! | module | content |
//! |---|---|
//! | [`model`] | what the program around the target needs besides [`target::config`] |
//! | [`load`] | the file as a whole, and checks across sections |
//! | `targets`, `port_groups`, `auth`, `nbd`, `settings` | the sections |
//! | `overrides` | the command line |
//! | `problem`, `reader` | errors and their positions; reading tables key by key |
//!
//! `examples/intact.toml` shows every key.

mod auth;
pub mod load;
pub mod model;
mod nbd;
mod overrides;
mod port_groups;
mod problem;
mod reader;
mod settings;
mod targets;

pub use load::{Loaded, parse_listen, parse_nbd_listen};
pub use model::{Config, ControlSocket, NbdConfig, NbdTls};
pub use overrides::Overrides;
pub use problem::{Problem, Severity};
