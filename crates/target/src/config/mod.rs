//! The configuration: the model, its TOML form, and every check, with a line and a remedy for each problem.
//!
//! | module | content |
//! |---|---|
//! | [`model`] | the checked, immutable configuration |
//! | [`access`] | which initiators may see a target |
//! | [`load`] | the file as a whole, the command line, and checks across sections |
//! | `targets`, `auth`, `nbd`, `settings` | the sections |
//! | `problem`, `reader` | errors and their positions; reading tables key by key |
//!
//! `examples/intact.toml` shows every key.

pub mod access;
pub mod auth;
pub mod load;
pub mod model;
mod nbd;
pub mod port_groups;
mod problem;
mod reader;
mod settings;
pub mod targets;

pub use access::{AccessRule, AccessRules, NamePattern};
pub use load::{Loaded, Overrides, parse_listen, parse_nbd_listen};
pub use model::{
    Account, Auth, Config, ControlSocket, Limits, LunConfig, NbdConfig, NbdTls, PortalConfig, TargetConfig,
};
pub use problem::{Problem, Severity};
pub use settings::default_bounds;
