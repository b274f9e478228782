//! Messages between shards, and to shards from outside.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use engine::{Driver, Link};
use iscsi_core::names::IscsiName;
use iscsi_core::pdu_reader::RxPdu;
use iscsi_core::target::login::Established;
use iscsi_core::target::task::{DataOutPieces, TaskId};
use lun::Payload;
use scsi::NexusId;

use super::running::Running;
use super::slots::SessionKey;
use crate::config::PortalConfig;
use crate::device::UnitEvent;
use crate::home::Home;
use crate::observe::view::SessionInfo;
use crate::registry::TargetNode;

/// Tasks to abort, on whichever shards their sessions live.
#[derive(Clone, Debug)]
pub(crate) struct AbortOrder {
    /// Sessions of this target.
    pub target: IscsiName,
    /// One logical unit, or all.
    pub lun: Option<u16>,
    /// Only sessions of these nexuses; `None`: sessions of all nexuses.
    pub only: Option<Vec<NexusId>>,
    /// Not the session of this nexus, which aborts its own tasks.
    pub except: NexusId,
    /// End the tasks with TASK ABORTED instead of silently.
    pub task_aborted_status: bool,
}

/// A connection that moves to the shard where its session lives.
pub(crate) struct Migrant<D: Driver> {
    /// The connection, between two drivers.
    pub stream: D::Stream,
    /// Its framing, with the bytes received so far.
    pub link: Link,
    /// The progress of its login.
    pub progress: Progress,
    /// Its peer.
    pub peer: SocketAddr,
    /// The portal that accepted it.
    pub portal: Arc<PortalConfig>,
    /// Keeps its initiator at the new shard.
    pub home: Home,
    /// When its login must be complete.
    pub deadline: Duration,
}

/// The login progress of a connection that moves to another shard.
pub(crate) enum Progress {
    /// Its first PDU, already taken from the link, shows where it belongs.
    Begun(Box<RxPdu>),
    /// Only the completed login shows where it belongs.
    Complete(Box<Established>),
}

/// The result from a worker.
pub(crate) struct StoreDone {
    pub(super) session: SessionKey,
    pub(super) task: TaskId,
    /// `None`: the store panicked, or the pool accepted no more jobs.
    pub(super) result: Option<(Running, Payload, DataOutPieces)>,
    /// Reservations that had to be stored have been stored.
    pub(super) saved: bool,
}

/// See the module.
pub(crate) enum Message<D: Driver> {
    /// Listen here.
    Listen(D::Listener, Arc<PortalConfig>),
    /// Stop listening on addresses that are not in this list; the others may have a new group tag.
    KeepPortals(Vec<PortalConfig>),
    /// A connection whose session lives here.
    Migrate(Box<Migrant<D>>),
    /// A worker has finished a command.
    StoreDone(Box<StoreDone>),
    /// Abort tasks; answer the shard `from` with [`Message::AbortDone`].
    Abort {
        /// The requesting shard.
        from: usize,
        /// Its token for the request.
        token: u64,
        /// The tasks to abort.
        order: AbortOrder,
    },
    /// None of the tasks is left.
    AbortDone {
        /// The token of the request.
        token: u64,
    },
    /// The configuration has changed: check your sessions.
    Reconfigured {
        /// Targets whose units have changed.
        changed_luns: Vec<Arc<TargetNode>>,
        /// Events of units that stay.
        events: Arc<[UnitEvent]>,
    },
    /// There are more sessions than allowed: end one that has lost its connections, or pass the request to the next
    /// shard.
    EndLostSession {
        /// Shards that have not been asked yet, including this one.
        left: usize,
    },
    /// Memory for data for which this shard has waited, bytes.
    Room(u64),
    /// Another shard waits for memory: return unused memory.
    GiveRoom,
    /// Close every session of a target.
    CloseTarget(IscsiName),
    /// List sessions.
    Sessions(mpsc::Sender<Vec<SessionInfo>>),
    /// Answer with the number of the shard, to show that it is running.
    Turn(mpsc::Sender<usize>),
    /// Ask every initiator to log out, and end when all have done so or `grace` is over.
    Shutdown {
        /// How long initiators may take.
        grace: Duration,
    },
}
