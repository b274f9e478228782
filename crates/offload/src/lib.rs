//! The interface of an iSCSI offload engine, and the engine in software.
//!
//! `docs/engine-interface.md` is the reference: descriptors, completions and tables byte by byte, what the engine and software
//! each decide, and the rules of order and memory. This crate has the same in three parts:
//!
//! * [`encoding`]: the records of the document, with `parse` and `emit`;
//! * [`Engine`] and [`HostMem`]: the interface between a backend and its host;
//! * [`SoftwareEngine`]: the engine in plain Rust, for an initiator.
//!
//! No I/O, no clock, no threads. A byte reaches host memory only after the digest that covers it was compared.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod crc;
pub mod encoding;
mod engine;
pub mod limits;
mod memory;
mod twin;

pub use crc::CRC32C;
pub use engine::{Busy, Caps, Engine, HostMem, MemFault, Tables};
pub use memory::FlatMemory;
pub use twin::SoftwareEngine;
