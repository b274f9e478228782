//! An iSCSI target as a library. See the workspace's docs/architecture.md.
#![forbid(unsafe_code)]

pub mod config;
pub mod device;
pub mod identity;
pub mod medium;
mod memory;
pub mod observe;
mod policy;
mod portal;
mod protected;
mod range_lock;
pub mod registry;
mod reopen;
mod reservations;
mod server;
mod shard;
mod shared;
mod stepped;
pub mod supervise;
mod units;

pub use server::{Server, StartError};
pub use stepped::{SessionHoldings, Stepped};
