//! A session as its user sees it: opened, queried, closed.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use engine::{Platform, Sender, SlabRing, System};
use iscsi_core::initiator::command::Command;
use iscsi_core::initiator::session::{CloseReason, ManagementAnswer, TargetRecord};
use iscsi_core::wire::{Lun, TmfFunction};

use crate::error::{ConnectError, IoError};
use crate::event_loop::{Ended, EventLoop, Handle, Request};
use crate::info::{Pong, SessionInfo};
use crate::isid::Port;
use crate::options::Options;
use crate::protection::PiErrors;
use crate::reply::{Awaited, reply};
use crate::support::random_isid;
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
        f.debug_struct("Session").field("address", &self.shared.info.login.address).finish_non_exhaustive()
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
        let port = match (&options.port.isid, &options.port.ports) {
            (None, Some(directory)) => {
                let target = options.target.as_ref().map_or("discovery", |target| target.as_str());
                let taken = Port::take(&platform, directory, target);
                taken.inspect_err(|error| tracing::warn!(%error, "no lasting ISID: taking a random one")).ok()
            }
            _ => None,
        };
        let isid = options
            .port
            .isid
            .or(port.as_ref().map(|port| port.isid))
            .unwrap_or_else(|| random_isid(&platform));
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
        awaited.wait().map(|info| info.with_protection(protection))
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

    /// Requests a task management function for one command; `None` if there was no answer.
    pub(crate) fn manage_command(&self, function: TmfFunction, handle: Handle) -> Option<ManagementAnswer> {
        let (answer, awaited) = reply();
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
