//! What shards tell each other, and what they are told from outside.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use engine::{Driver, Link};
use iscsi_core::names::IscsiName;
use iscsi_core::pdu_reader::RxPdu;
use iscsi_core::target::login::Established;
use scsi::NexusId;

use super::work::StoreDone;
use crate::config::PortalConfig;
use crate::observe::view::SessionInfo;
use crate::registry::TargetNode;
use crate::shared::Home;
use crate::units::UnitEvent;

/// Tasks to abort, wherever their sessions live.
#[derive(Clone, Debug)]
pub struct AbortOrder {
    /// Sessions of this target.
    pub target: IscsiName,
    /// One logical unit, or all.
    pub lun: Option<u16>,
    /// Only sessions of these nexuses; `None`: of all.
    pub only: Option<Vec<NexusId>>,
    /// Not the session of this nexus: it takes care of itself.
    pub except: NexusId,
    /// End the tasks with TASK ABORTED instead of silence.
    pub task_aborted_status: bool,
}

/// A connection on its way to the shard where its session lives.
pub struct Migrant<D: Driver> {
    /// The connection, between two drivers.
    pub stream: D::Stream,
    /// Its framing, with what has been received.
    pub link: Link,
    /// How far its login is.
    pub progress: Progress,
    /// Its peer.
    pub peer: SocketAddr,
    /// Where it arrived.
    pub portal: Arc<PortalConfig>,
    /// Keeps its initiator here.
    pub home: Home,
    /// When its login must be complete.
    pub deadline: Duration,
}

/// How far the login of a connection is that moves to another shard.
pub enum Progress {
    /// Its first PDU, already taken off the link, tells where it belongs.
    Begun(Box<RxPdu>),
    /// Only the end of it told.
    Complete(Box<Established>),
}

/// See the module.
pub enum Message<D: Driver> {
    /// Listen here.
    Listen(D::Listener, Arc<PortalConfig>),
    /// Listen no more on addresses that this list lacks; those that stay may have another group tag now.
    KeepPortals(Vec<PortalConfig>),
    /// A connection whose session lives here.
    Migrate(Box<Migrant<D>>),
    /// A worker has carried a command to its end.
    StoreDone(Box<StoreDone>),
    /// Abort tasks; answer the shard `from` with [`Message::AbortDone`].
    Abort {
        /// Who asks.
        from: usize,
        /// Its name for the request.
        token: u64,
        /// Which tasks.
        order: AbortOrder,
    },
    /// Nothing is left of the tasks.
    AbortDone {
        /// Name of the request.
        token: u64,
    },
    /// The configuration has changed: look after your sessions.
    Reconfigured {
        /// Targets whose units are not the same as before.
        changed_luns: Vec<Arc<TargetNode>>,
        /// What happened to units that stay.
        events: Arc<[UnitEvent]>,
    },
    /// There are more sessions than there may be: end one that has lost its connections, or ask the next shard for one.
    EndLostSession {
        /// Shards that have not been asked yet, this one included.
        left: usize,
    },
    /// Memory for data, bytes, for which this shard has waited.
    Room(u64),
    /// Another shard waits for memory: give back what is not in use.
    GiveRoom,
    /// Close every session of a target.
    CloseTarget(IscsiName),
    /// List sessions.
    Sessions(mpsc::Sender<Vec<SessionInfo>>),
    /// Answer with the number of the shard, to show that it turns.
    Turn(mpsc::Sender<usize>),
    /// Ask every initiator to log out, and end when all have or `grace` is over.
    Shutdown {
        /// How long initiators may take.
        grace: Duration,
    },
}
