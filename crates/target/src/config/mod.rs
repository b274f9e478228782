//! What a server serves: the checked, immutable model. The crate `server` reads it from a file.

pub mod access;
mod model;

pub use access::{AccessRule, AccessRules, NamePattern, PatternError};
pub use model::{
    Account, Auth, Config, DEFAULT_GROUP_TAG, DEFAULT_QUEUE_DEPTH, Limits, LunConfig, PortalConfig,
    TargetConfig, default_bounds,
};
