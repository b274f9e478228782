//! A session without a thread of its own: its owner decides when it takes its next step. For simulators, which run many
//! sessions and their target in turn on one clock.

use engine::Platform;
use iscsi_core::Time;
use iscsi_core::wire::Isid;

use crate::error::ConnectError;
use crate::event_loop::{EventLoop, Request};
use crate::info::SessionInfo;
use crate::options::Options;
use crate::reply::{Awaited, reply};
use crate::session::write_slabs;
use crate::support::random_isid;
use crate::workload::Workload;

/// See the head of the module.
pub struct Stepped<P: Platform> {
    event_loop: EventLoop<P>,
    requests: engine::Sender<Request>,
    opening: Awaited<Result<SessionInfo, ConnectError>>,
    workload: Awaited<Box<dyn Workload>>,
}

impl<P: Platform> Stepped<P> {
    /// Starts to open a session on `platform`, in which `workload` will run. `InitiatorPort::ports` is ignored.
    ///
    /// # Errors
    /// The platform cannot provide a driver.
    pub fn open(platform: P, options: Options, workload: Box<dyn Workload>) -> std::io::Result<Self> {
        options.check().map_err(std::io::Error::other)?;
        let isid: Isid = options.port.isid.unwrap_or_else(|| random_isid(&platform));
        let (answer, opening) = reply();
        let slabs = write_slabs();
        let (mut event_loop, requests) = EventLoop::new(platform, options, isid, slabs, answer)?;
        let (answer, awaited) = reply();
        requests.send(Request::Run(workload, answer));
        event_loop.prepare();
        Ok(Self { event_loop, requests, opening, workload: awaited })
    }

    /// Waits once, and handles the completions; false when the session has ended and is closed.
    pub fn turn(&mut self) -> bool {
        self.event_loop.turn()
    }

    /// When [`Stepped::turn`] has something to do even if no event occurs.
    pub fn next_deadline(&self) -> Option<Time> {
        self.event_loop.next_deadline()
    }

    /// The result of the first login, once, when it is known.
    pub fn opening(&mut self) -> Option<Result<SessionInfo, ConnectError>> {
        self.opening.take()
    }

    /// Returns the workload once, when the workload or the session has ended.
    pub fn workload(&mut self) -> Option<Box<dyn Workload>> {
        self.workload.take()
    }

    /// What is currently known about the session.
    pub fn info(&self) -> SessionInfo {
        self.event_loop.info()
    }

    /// Requests the session to log out and end.
    pub fn log_out(&self) {
        let (answer, _) = reply();
        self.requests.send(Request::Logout(answer));
    }

    /// Requests the session to end at once, without notifying the target.
    pub fn quit(&self) {
        self.requests.send(Request::Quit);
    }
}
