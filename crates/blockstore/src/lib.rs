//! Where the blocks of a logical unit live: the [`BlockStore`] trait, its stores and stackable wrappers.
//!
//! A store is an array of bytes with a size and a block size; it knows nothing of SCSI or iSCSI. Every call is
//! synchronous: a store says by its [`Placement`] whether a shard may call it inline or must hand the call to a
//! worker. What every store keeps:
//!
//! * **Range.** A call outside `0..size_bytes` fails with [`StoreError::OutOfRange`] and changes nothing.
//! * **Atomicity.** A read that runs beside a write sees each aligned logical block whole in [`RamStore`]; other
//!   stores promise nothing, and the caller orders overlapping commands (decision 006: a lock of ranges for each unit).
//! * **Durability.** A [`Durability::Cached`] write is durable after the next [`BlockStore::flush`] that succeeds; a
//!   [`Durability::Durable`] one when it returns.
//! * **Failure.** A read that failed on the way leaves no bytes of an earlier use in its destination; a failed write
//!   may have changed any part of its own range and nothing else.
//!
//! A [`ProtectedStore`] keeps protection information beside its blocks, in one step with them where it has a log; a [`JournaledStore`]
//! has a journal for writes that are all or nothing. Left out on purpose: snapshots, encryption. They are
//! wrappers to come.

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
pub use protected::{Format, ProtectedStore, Record, RecordRun, Records};
pub use ram::RamStore;
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
