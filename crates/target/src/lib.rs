//! An iSCSI target as a library.
//!
//! * [`config`] says what is served, to whom, and within which limits. The crate `server` reads it from a file.
//! * [`Server`] serves it: with the stores named in the configuration, or with those of the program ([`OpenStore`],
//!   [`SimpleStore`]).
//! * [`observe`] is the view of it from outside: logins, events, counters.
//!
//! All types named in signatures here are exported here: a program needs no other crate of ours. `docs/architecture.md`
//! of the workspace shows the structure.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod config;
mod device;
mod failures;
mod home;
pub mod identity;
mod memory;
pub mod observe;
mod policy;
mod portal;
mod registry;
mod reopen;
mod served;
mod server;
mod shard;
mod shared;
mod stepped;
pub mod supervise;
mod units;

pub use blockstore::{
    BlockStore, Durability, Extent, FailedFlush, FileOptions, FileStore, Geometry, InPlace, Label,
    MediumReads, Placement, RamStore, RecordRun, Records, Simple, SimpleStore, SpecError, StoreError,
    StoreSpec, VolumeId,
};
pub use iscsi_core::chap::{ChapAlgorithm, Credentials, Secret};
pub use iscsi_core::names::IscsiName;
pub use iscsi_core::params::{Bounds, DigestPolicy, TaskReporting};
pub use scsi::AccessState;
pub use served::ServedUnit;
pub use server::{Server, StartError, read_at_start};
pub use stepped::{SessionHoldings, Stepped};
pub use units::OpenStore;
