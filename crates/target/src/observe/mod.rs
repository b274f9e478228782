//! The server as people and machines see it: logins, metrics, the control socket. Nothing in here touches the data path but
//! the counters, which are single relaxed additions.
//!
//! | module | what it knows |
//! |---|---|
//! | [`login_log`] | who was refused, by which rule, and the remedy |
//! | [`events`] | which ends and failures have a line in the log, and which are only counted |
//! | [`metrics`] | counters and latencies, as OpenMetrics text |
//! | [`view`] | sessions, logical units and targets as the control socket tells them |
//! | [`control`] | the socket behind `intact ls`: one line of JSON asks, one answers |
//! | [`clients`] | how many of those who ask are served at once, and for how long |
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

/// What a server reports to while it runs.
#[derive(Debug)]
pub struct Observe {
    /// Logins, refused and accepted.
    pub logins: LoginLog,
    /// Counters and latencies.
    pub metrics: Metrics,
    /// What else has a line in the log.
    pub events: Events,
    /// Who is told when a thread fails.
    pub failures: Failures,
}

impl Default for Observe {
    fn default() -> Self {
        Self::new()
    }
}

impl Observe {
    /// Keeps and counts a login, and gives it a line in the log if there were not too many.
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

    /// Nothing seen yet.
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
