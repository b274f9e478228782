//! An iSCSI initiator as a library.
//!
//! * [`Session`] is one login to a target, on an event loop of its own. It takes commands from any thread, and logs in again with
//!   the same ISID when the connection is lost.
//! * [`Disk`] is one of its logical units as a block device; [`AsyncDisk`] is the same for asynchronous programs, on any runtime.
//! * [`WideDisk`] is a unit over as many sessions as pay, for programs that one core does not serve.
//! * [`protection`] generates and checks the protection information of blocks in the caller's process.
//! * [`Workload`] runs inside the event loop, for programs that cannot afford a thread switch per command.
//! * [`IscsiUrl`] and [`Options`] say where to log in and how; [`discovery`] asks a portal which targets it has.
//!
//! The protocol is in `iscsi-core` and the sockets are in `engine`; this crate joins them. It re-exports every type that its
//! signatures name: a program needs no other crate of ours.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod asynchronous;
pub mod cdb;
pub mod discovery;
mod disk;
mod error;
mod event_loop;
mod info;
mod isid;
mod offloaded;
mod options;
mod owner;
pub mod protection;
mod reply;
mod sense;
mod session;
mod stepped;
mod support;
mod ticket;
mod tuning;
mod unit;
mod url;
mod wide;
mod workload;

pub use asynchronous::{AsyncDisk, OpenError};
pub use discovery::DiscoveryError;
pub use disk::{Capacity, Disk, DiskInfo, Extent};
pub use engine::{LinkStats, Platform, SlabRing, System};
pub use error::{ConnectError, IoError, NotOffloaded};
pub use info::{ConnectionInfo, LoginInfo, Pong, SessionInfo};
pub use iscsi_core::chap::{ChapAlgorithm, Credentials, Secret};
pub use iscsi_core::initiator::address::TargetAddress;
pub use iscsi_core::initiator::command::WriteBuilder;
pub use iscsi_core::initiator::command::{Command, Completion, Ending, Residual, WriteData};
pub use iscsi_core::initiator::login::{ChapConfig, KeyLine, LoginFailure};
pub use iscsi_core::initiator::session::{
    CloseReason, ManagementAnswer, RecoveryCounters, Scheduling, SessionConfig, TargetRecord,
};
pub use iscsi_core::names::IscsiName;
pub use iscsi_core::params::{Bounds, DigestPolicy, Params, TaskReporting};
pub use iscsi_core::wire::{Cid, Isid, LoginStatus, Lun, RejectReason, TmfFunction, TmfResponse, Tsih};
pub use isid::default_directory as default_port_directory;
pub use offload;
pub use options::{
    Circuit, DEFAULT_INITIATOR_NAME, EngineKind, InitiatorPort, Options, Paths, Portal, Timeouts,
};
pub use protection::{Arrival, PiCounters, PiFailure, PiPlace, PiTags, Protection, UnitProtection};
pub use scsi::{PiField, ProtectionType};
pub use sense::Sense;
pub use session::{Session, write_slabs};
pub use stepped::Stepped;
pub use ticket::{Response, Ticket};
pub use tuning::{AUTO_CONNECTIONS, TuningInfo};
pub use unit::{LossCause, LostBlocks, LostWrites};
pub use url::{CONNECTIONS, IscsiUrl, UrlError, read_password};
pub use wide::{Interval, WideDisk, Width};
pub use workload::{Submitter, Workload};
