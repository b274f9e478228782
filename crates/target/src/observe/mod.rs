//! The view of the server for users and programs: logins, metrics, the control socket. Only the counters touch the data
//! path, and they are single relaxed additions.
//!
//! | module | content |
//! |---|---|
//! | [`login_log`] | which logins were refused, by which rule, and the remedy |
//! | [`events`] | which ends and failures are logged, and which are only counted |
//! | [`metrics`] | counters and latencies, as OpenMetrics text |
//! | [`view`] | sessions, logical units and targets as the control socket reports them |
//! | [`control`] | the socket behind `intact ls`: a request is one line of JSON, and so is the reply |
//! | [`clients`] | how many clients are served at a time, and for how long |
//! | [`plane`] | the thread that serves the control socket and `/metrics` |

pub mod clients;
pub mod control;
pub mod events;
pub mod login_log;
pub mod metrics;
pub mod plane;
pub mod view;

use std::time::Duration;

pub use events::{EventKind, Events};
pub use login_log::{LoginEvent, LoginLog};
pub use metrics::{LunStats, Metrics, Op, SessionStats};
pub use plane::ControlPlane;
pub use view::{
    AccessStateInfo, ConnectionInfo, LunChange, LunInfo, Negotiated, RecoveryInfo, ServerView, SessionInfo,
    TargetInfo,
};

use crate::supervise::Failures;

/// Where a server reports to while it runs.
#[derive(Debug)]
pub struct Observe {
    /// Logins, refused and accepted.
    pub logins: LoginLog,
    /// Counters and latencies.
    pub metrics: Metrics,
    /// Which other events are logged.
    pub events: Events,
    /// The handler that is called when a thread fails.
    pub failures: Failures,
}

impl Default for Observe {
    fn default() -> Self {
        Self::new()
    }
}

impl Observe {
    /// Keeps and counts a login, and logs it unless there were too many.
    pub fn record_login(&self, event: LoginEvent, now: Duration) {
        let kind = match event.accepted || event.is_redirection() {
            true => EventKind::LoginAccepted,
            false => EventKind::LoginRefused,
        };
        if self.events.admits(kind, now) {
            event.trace();
        }
        self.logins.record(event);
    }

    /// With no records yet.
    pub fn new() -> Self {
        let logins = LoginLog::default();
        Self {
            metrics: Metrics::new(logins.clone()),
            logins,
            events: Events::default(),
            failures: Failures::default(),
        }
    }
}
