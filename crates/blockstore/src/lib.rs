//! The storage behind a logical unit: the [`BlockStore`] trait, its stores and stackable wrappers.
//!
//! A store is an array of bytes with a size and a block size; it knows nothing of SCSI or iSCSI. Every call is synchronous. A store
//! says by its [`Placement`] whether a shard may call it inline or must hand the call to a worker. What every store guarantees:
//!
//! * **Range.** A call outside `0..size_bytes` fails with [`StoreError::OutOfRange`] and changes nothing.
//! * **Atomicity.** A read that runs concurrently with a write sees each aligned logical block whole in [`RamStore`]; other stores
//!   promise nothing, and the caller orders overlapping commands (decision 006: a range lock for each unit).
//! * **Durability.** A [`Durability::Cached`] write is durable after the next [`BlockStore::flush`] that succeeds; a
//!   [`Durability::Durable`] one when it returns.
//! * **Failure.** A read that fails midway leaves no bytes of an earlier use in its destination; a failed write may have changed any
//!   part of its own range and nothing else.
//!
//! A [`ProtectedStore`] keeps protection information alongside its blocks, and updates both in one step if it has a log. A
//! [`JournaledStore`] has a journal for writes that are all or nothing. Left out on purpose: snapshots and encryption. They can be
//! added as wrappers.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod error;
mod file;
mod gather;
mod journal;
mod label;
mod log;
#[cfg(test)]
mod power_cuts;
mod protected;
mod ram;
mod record;
pub mod side_file;
mod simple;
mod spec;
mod store;
mod volume;
mod wrappers;

pub use error::{Op, StoreError};
pub use file::{FileOptions, FileStore};
pub use journal::JournaledStore;
pub use label::{FailedFlush, Label, VolumeId};
pub use protected::{Format, ProtectedStore, Records};
pub use ram::RamStore;
pub use record::{Record, RecordRun};
pub use simple::{Simple, SimpleStore};
pub use spec::{SpecError, StoreSpec, parse_size};
pub use store::{
    BlockStore, Durability, Extent, Geometry, InPlace, MediumReads, Placement, fixed_size, not_atomic,
    read_then_crc32c,
};
pub use wrappers::OpSet;
pub use wrappers::delay::{DelayStore, Gate};
pub use wrappers::fault::{Fault, FaultError, FaultHandle, FaultId, FaultRule, FaultStore};
pub use wrappers::stats::{OpCount, Stats, StatsStore};
