//! A SCSI device server for direct-access block devices (SAM-5, SPC-4, SBC-3), without I/O.
//!
//! The caller owns the transport and the medium. A command starts with [`LogicalUnit::begin`] and runs as an
//! [`Execution`]: a small state machine that requests data-out, requests one medium operation at a time and
//! completes with an [`Outcome`]. This crate never waits, reads a clock or touches a socket, so the same code serves
//! every driver, the simulator and the fuzzer.
//!
//! ```
//! use scsi::{LogicalUnit, LuConfig, MediumConfig, Nexus, Step};
//! let medium = MediumConfig { blocks: 2048, ..MediumConfig::default() };
//! let lu = LogicalUnit::new(LuConfig { medium, ..LuConfig::default() });
//! let nexus = Nexus::new("iqn.2025-01.org.example:host,i,0x00023d000001", 1, 1);
//! lu.attach_nexus(&nexus);
//! let execution = lu.begin(&nexus, &[0x12, 0, 0, 0, 36, 0]); // INQUIRY
//! assert!(matches!(execution.step(), Step::Done(_)));
//! ```
//!
//! Invariants: no input can panic; memory is never allocated in proportion to what a peer claims, only to what it
//! sent within the limits of the command; the state's lock is never held across a step.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod absent;
mod access;
mod access_state;
mod atomic;
mod attached;
mod capacity;
mod cdb;
mod command_table;
mod config;
mod data_out;
mod dispatch;
mod erase;
mod execution;
mod identifying;
mod inquiry;
mod kept;
mod lba_status;
mod log_sense;
mod logical_unit;
mod medium;
mod misc;
mod mode_pages;
mod mode_select;
mod mode_sense;
mod nexus;
mod orwrite;
mod outcome;
mod pending;
mod persistent_reservation;
mod prefetch;
mod protection;
mod pseudo_error;
mod read_write;
mod readiness;
mod report_luns;
mod report_opcodes;
mod reservation;
mod sense;
mod state;
mod sync_cache;
mod target_port_groups;
mod third_party;
mod timestamp;
mod unit_attention;
mod unmap;
mod verify;
mod vpd;
mod write_same;

pub use absent::{absent_lun, report_luns};
pub use access_state::AccessState;
pub use command_table::{CommandClass, CommandFacts, command_facts, command_name};
pub use config::{Identity, LuConfig, MediumConfig, NaaIdentifier, Paths, TargetPort, TransferLimits};
pub use data_out::DataOut;
pub use execution::{Execution, Step};
pub use identifying::IdentifyingInformation;
pub use logical_unit::{KeptState, LogicalUnit};
pub use medium::{FormatMark, LbaStatusDescriptor, MediumError, MediumOp, MediumReply, Provisioning};
pub use nexus::{Nexus, NexusId};
pub use outcome::{DataInSource, Effect, Outcome, Status};
pub use persistent_reservation::{PrRegistration, PrState};
pub use protection::{Checks, PiField, Protection, ProtectionType, TUPLE_BYTES};
pub use read_write::blocks_ahead;
pub use sense::{Asc, SenseData, SenseKey, SenseSpecific};
pub use third_party::Neighbours;
pub use unit_attention::UaScope;
