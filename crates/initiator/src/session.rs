//! A session as its user sees it: opened, queried, closed.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use engine::{LinkStats, Platform, Sender, SlabRing, System};
use iscsi_core::chap::ChapAlgorithm;
use iscsi_core::initiator::command::Command;
use iscsi_core::initiator::login::{KeyLine, LoggedIn};
use iscsi_core::initiator::session::{CloseReason, Event, ManagementAnswer, RecoveryCounters, TargetRecord};
use iscsi_core::params::Params;
use iscsi_core::wire::{Cid, Isid, Lun, TmfFunction, Tsih};

use crate::error::{ConnectError, IoError};
use crate::event_loop::{Ended, EventLoop, Handle, Request};
use crate::isid::Port;
use crate::options::Options;
use crate::protection::{PiCounters, PiErrors};
use crate::reply::{Awaited, reply};
use crate::support::random_isid;
use crate::ticket::Ticket;
use crate::tuning::TuningInfo;
use crate::unit::LostBlocks;
use crate::workload::Workload;

/// How long the logout of a dropped session may take.
const GOODBYE_TIME: Duration = Duration::from_secs(3);

/// Memory that write data is copied to; at most 256 MiB is kept. Shared slabs are short, and data longer than a quarter of one
/// gets a slab of its own, so that the next write finds memory that an earlier one has just left in the cache.
pub fn write_slabs() -> SlabRing {
    const SLAB_BYTES: usize = 64 * 1024;
    const SLABS: usize = 4096;
    SlabRing::new(SLAB_BYTES, SLABS)
}

/// The answer to a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pong {
    /// The data came back as it was sent, and its digest matched.
    pub intact: bool,
    /// Time between request and answer.
    pub round_trip: Duration,
}

/// Information about a session.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Address of the portal.
    pub address: Option<SocketAddr>,
    /// Time that the TCP connection took to be established: about one round trip.
    pub connect_time: Duration,
    /// Parameters in effect.
    pub params: Params,
    /// TSIH.
    pub tsih: Tsih,
    /// ISID.
    pub isid: Isid,
    /// TargetPortalGroupTag, if the target sent it.
    pub portal_group_tag: Option<u16>,
    /// TargetAlias, if the target sent it.
    pub target_alias: Option<String>,
    /// CHAP algorithm used, if any.
    pub chap: Option<ChapAlgorithm>,
    /// All keys of the last login in order.
    pub keys: Vec<KeyLine>,
    /// Logins so far: more than one if the session was lost and recovered.
    pub logins: u64,
    /// How often the session was lost.
    pub losses: u64,
    /// Why it was lost last.
    pub last_loss: Option<CloseReason>,
    /// Why the session has ended, once it has.
    pub ended: Option<CloseReason>,
    /// Commands whose data did not match their digest.
    pub data_digest_errors: u64,
    /// Asynchronous messages from the target.
    pub events: u64,
    /// Traffic of all connections of the session.
    pub link: LinkStats,
    /// The established connections, by CID.
    pub connections: Vec<ConnectionInfo>,
    /// Connections after the first that joined, including reconnections.
    pub joins: u64,
    /// Connections that the target refused to add.
    pub refused_connections: u64,
    /// Recoveries of the sessions so far.
    pub recovery: RecoveryCounters,
    /// See [`SessionInfo::tuning`].
    tuning: Option<TuningInfo>,
    /// Blocks of the session's disks whose protection information failed a check, here or at the target.
    pub protection: PiCounters,
}

/// One connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// CID.
    pub cid: Cid,
    /// Address of the portal.
    pub address: SocketAddr,
    /// Its traffic.
    pub link: LinkStats,
}

impl SessionInfo {
    pub(crate) fn new(isid: Isid) -> Self {
        Self { isid, ..Self::default() }
    }

    /// What a session that chooses the number of its connections itself has done; `None` if it does not.
    pub fn tuning(&self) -> Option<TuningInfo> {
        self.tuning
    }

    pub(crate) fn set_tuning(&mut self, tuning: Option<TuningInfo>) {
        self.tuning = tuning;
    }

    pub(crate) fn update(&mut self, login: &LoggedIn, address: SocketAddr, connect_time: Duration) {
        self.address = Some(address);
        self.connect_time = connect_time;
        self.params = login.params.clone();
        self.tsih = login.tsih;
        self.portal_group_tag = login.portal_group_tag;
        self.target_alias = login.target_alias.clone();
        self.chap = login.chap;
        self.keys = login.keys.clone();
        self.logins += 1;
    }

    pub(crate) fn note(&mut self, event: &Event) {
        tracing::info!(?event, "the target tells something");
        self.events += 1;
    }

    pub(crate) fn lost(&mut self, link: LinkStats, recovery: RecoveryCounters, reason: &CloseReason) {
        (self.link, self.recovery) = (link, add(self.recovery, recovery));
        self.connections.clear();
        self.losses += 1;
        self.last_loss = Some(reason.clone());
    }
}

/// The sum of the recoveries of two sessions.
pub(crate) fn add(a: RecoveryCounters, b: RecoveryCounters) -> RecoveryCounters {
    RecoveryCounters {
        connections_lost: a.connections_lost + b.connections_lost,
        snacks_sent: a.snacks_sent + b.snacks_sent,
        tasks_reassigned: a.tasks_reassigned + b.tasks_reassigned,
        commands_begun_anew: a.commands_begun_anew + b.commands_begun_anew,
        commands_retried: a.commands_retried + b.commands_retried,
    }
}

/// One session with a target. Clones share it; dropping the last one logs out.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    requests: Sender<Request>,
    slabs: SlabRing,
    options: Options,
    info: SessionInfo,
    /// Commands submitted so far.
    commands: AtomicU64,
    protection_errors: Arc<PiErrors>,
    /// Held for as long as the session exists.
    _port: Option<Port>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("address", &self.shared.info.address).finish_non_exhaustive()
    }
}

impl Session {
    /// Logs in with `options` and starts the session's event loop on a thread of its own.
    ///
    /// # Errors
    /// Why there is no session. Nothing is retried here, apart from the host's further addresses and redirections.
    pub fn connect(options: Options) -> Result<Self, ConnectError> {
        // Only its callers block in an initiator: no worker is ever started.
        Self::connect_on(System::new(1).with_poll_time(options.poll_time()), options)
    }

    /// Like [`Session::connect`], with an event loop on `platform`: for programs that have their own driver.
    ///
    /// # Errors
    /// Those of [`Session::connect`].
    pub fn connect_on<P: Platform>(platform: P, options: Options) -> Result<Self, ConnectError> {
        if let Some(chap) = &options.chap {
            chap.check()?;
            //= rfc7143 9.2.1 SEC-10
            if !chap.secrets_are_long_enough() {
                tracing::warn!("a CHAP secret is shorter than 12 bytes (RFC 7143 9.2.1): use a longer one");
            }
        }
        options.check()?;
        let port = match (&options.isid, &options.ports) {
            (None, Some(directory)) => {
                let target = options.target.as_ref().map_or("discovery", |target| target.as_str());
                let taken = Port::take(&platform, directory, target);
                taken.inspect_err(|error| tracing::warn!(%error, "no lasting ISID: taking a random one")).ok()
            }
            _ => None,
        };
        let isid =
            options.isid.or(port.as_ref().map(|port| port.isid)).unwrap_or_else(|| random_isid(&platform));
        let slabs = write_slabs();
        let (answer, first) = reply();
        let (told, mailbox) = reply();
        let (on_thread, for_thread) = (options.clone(), slabs.clone());
        // The driver never leaves the thread that created it.
        std::thread::Builder::new().name("intact-session".into()).spawn(move || {
            match EventLoop::new(platform, on_thread, isid, for_thread, answer) {
                Ok((event_loop, requests)) => {
                    told.give(Ok(requests));
                    event_loop.run();
                }
                Err(error) => told.give(Err(error)),
            }
        })?;
        let requests = mailbox.wait().unwrap_or_else(|| Err(std::io::ErrorKind::Other.into()))?;
        match first.wait() {
            Some(Ok(info)) => {
                let (commands, protection_errors) = (AtomicU64::new(0), Arc::default());
                let shared =
                    Shared { requests, slabs, options, info, commands, protection_errors, _port: port };
                Ok(Self { shared: Arc::new(shared) })
            }
            Some(Err(error)) => {
                requests.send(Request::Quit);
                Err(error)
            }
            None => Err(ConnectError::Ended(CloseReason::Lost)),
        }
    }

    /// The options it was opened with.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// What was known when the session was opened.
    pub fn opening(&self) -> &SessionInfo {
        &self.shared.info
    }

    /// What is known now; `None` when the event loop has ended.
    pub fn info(&self) -> Option<SessionInfo> {
        let (answer, awaited) = reply();
        self.shared.requests.send(Request::Info(answer));
        let protection = self.protection_errors().counters();
        awaited.wait().map(|info| SessionInfo { protection, ..info })
    }

    /// Completes after `time`, or when the event loop has ended.
    pub(crate) async fn pause(&self, time: Duration) {
        if !time.is_zero() {
            let (answer, awaited) = reply();
            self.shared.requests.send(Request::Pause(time, answer));
            awaited.await;
        }
    }

    /// Where failed checks of protection information are counted.
    pub(crate) fn protection_errors(&self) -> &Arc<PiErrors> {
        &self.shared.protection_errors
    }

    /// Buffers for write data.
    pub(crate) fn slabs(&self) -> &SlabRing {
        &self.shared.slabs
    }

    /// Submits a command; several may be outstanding.
    pub(crate) fn submit(&self, command: Command) -> (Handle, Awaited<Result<Ended, IoError>>) {
        let (answer, awaited) = reply();
        let handle = Handle(self.shared.commands.fetch_add(1, Ordering::Relaxed));
        self.shared.requests.send(Request::Command(command, handle, answer));
        (handle, awaited)
    }

    /// Starts to watch a logical unit. Returns its epoch once the unit has said which volume it is.
    pub(crate) fn watch(&self, lun: Lun) -> Result<u64, IoError> {
        let (answer, awaited) = reply();
        self.shared.requests.send(Request::Watch(lun, answer));
        awaited.wait().unwrap_or_else(|| Err(IoError::loop_ended()))
    }

    /// What a watched unit has lost since the epoch `since`.
    pub(crate) fn lost_since(&self, lun: Lun, since: u64) -> Option<LostBlocks> {
        let (answer, awaited) = reply();
        self.shared.requests.send(Request::Losses(lun, since, answer));
        awaited.wait().flatten()
    }

    /// Why the commands of a watched unit are refused here.
    pub(crate) fn why_refused(&self, lun: Lun) -> Option<IoError> {
        let (answer, awaited) = reply();
        self.shared.requests.send(Request::WhyRefused(lun, answer));
        awaited.wait().flatten()
    }

    /// Pings the target with `data`; `None` if there is no session now, or if it is lost before the answer.
    pub fn ping(&self, data: Bytes) -> Option<Pong> {
        let (answer, awaited) = reply();
        self.shared.requests.send(Request::Ping(data, answer));
        awaited.wait().flatten()
    }

    /// Asks which targets exist: `All` in a discovery session, a name, or an empty value for the session's own target.
    ///
    /// # Errors
    /// The session was lost before the answer.
    pub fn send_targets(&self, which: &str) -> Result<Vec<TargetRecord>, IoError> {
        let (answer, awaited) = reply();
        self.shared.requests.send(Request::SendTargets(which.to_owned(), answer));
        awaited.wait().unwrap_or_else(|| {
            let Some(info) = self.info() else { return Err(IoError::loop_ended()) };
            let reason = info.ended.or(info.last_loss);
            let why = reason.map_or_else(|| "it was lost".to_owned(), |reason| reason.to_string());
            Err(IoError::SessionLost(why))
        })
    }

    /// Declares another MaxRecvDataSegmentLength (bytes, 512 to 16777215) on every connection, for everything the target sends
    /// after its answer. False if one of them cannot: there is no session, or a text exchange is under way on that connection.
    /// Later connections declare the value from the options.
    //= rfc7143 13.12 KEY-11
    pub fn declare_max_recv_data_segment_length(&self, bytes: u32) -> bool {
        let (answer, awaited) = reply();
        self.shared.requests.send(Request::Declare(bytes, answer));
        awaited.wait().unwrap_or(false)
    }

    /// Requests a task management function of a logical unit, of the target (which ignores `lun`) or of the nexus; `None` if there
    /// was no answer. When the function is complete, the affected commands that were sent before it have ended with
    /// [`IoError::Aborted`]. Their callers repeat those that may be executed twice.
    ///
    /// [`TmfFunction::QueryTaskSet`] and later functions exist only at iSCSIProtocolLevel 2 (RFC 7144 4.1). For functions on a
    /// single command there is [`Session::manage_task`].
    pub fn manage(&self, function: TmfFunction, lun: Lun) -> Option<ManagementAnswer> {
        let (answer, awaited) = reply();
        self.shared.requests.send(Request::Manage(function, lun, answer));
        awaited.wait().flatten()
    }

    /// Requests ABORT TASK or QUERY TASK for one command, on the connection that carries it; `None` if there was no answer. An
    /// aborted command ends with [`IoError::Aborted`] and is not repeated. For a command that has already ended no request is
    /// sent. The result is what the target would answer: [`TmfResponse::TaskDoesNotExist`] to an abort and
    /// [`TmfResponse::FunctionComplete`] to a query.
    ///
    /// [`TmfResponse::TaskDoesNotExist`]: iscsi_core::wire::TmfResponse::TaskDoesNotExist
    /// [`TmfResponse::FunctionComplete`]: iscsi_core::wire::TmfResponse::FunctionComplete
    //= rfc7143 11.5.1 TMF-01 TMF-04
    pub fn manage_task(&self, function: TmfFunction, ticket: &mut Ticket) -> Option<ManagementAnswer> {
        let (answer, awaited) = reply();
        let handle = ticket.begin_managing(function == TmfFunction::AbortTask);
        self.shared.requests.send(Request::ManageTask(function, handle, answer));
        awaited.wait().flatten()
    }

    /// Runs `workload` inside the event loop and returns it when the workload or the session has ended; `None` when the event loop
    /// has ended.
    pub fn run<W: Workload>(&self, workload: W) -> Option<W> {
        let (answer, awaited) = reply();
        self.shared.requests.send(Request::Run(Box::new(workload), answer));
        let any: Box<dyn Any> = awaited.wait()?;
        any.downcast().ok().map(|workload| *workload)
    }

    /// Logs out. Outstanding commands fail.
    pub fn logout(&self) {
        let (answer, awaited) = reply();
        self.shared.requests.send(Request::Logout(answer));
        awaited.wait();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let (answer, awaited) = reply();
        self.requests.send(Request::Logout(answer));
        awaited.wait_for(GOODBYE_TIME);
        self.requests.send(Request::Quit);
    }
}
