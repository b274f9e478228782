//! What the server is told: the model, its TOML form, and every check, with a line and a remedy for each problem.
//!
//! | module | what it knows |
//! |---|---|
//! | [`model`] | the checked, immutable configuration |
//! | [`access`] | who may see a target |

pub mod access;
pub mod model;

pub use access::{AccessRule, AccessRules, NamePattern};
pub use model::{Account, Auth, Config, ControlSocket, Limits, LunConfig, PortalConfig, TargetConfig};
