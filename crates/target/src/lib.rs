//! An iSCSI target as a library. See the workspace's docs/architecture.md.
#![forbid(unsafe_code)]

pub mod config;
pub mod observe;
