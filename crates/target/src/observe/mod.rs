//! What the server shows of itself: logins, events, counters. Only the counters touch the data path, and they are single
//! relaxed additions.
//!
//! | module | content |
//! |---|---|
//! | [`login_log`] | which logins were refused, by which rule, and the remedy |
//! | [`events`] | which ends and failures are logged, and which are only counted |
//! | [`metrics`] | counters and latencies |
//! | [`view`] | sessions, logical units and targets, as a program or a person wants to see them |

pub mod events;
pub mod login_log;
pub mod metrics;
pub mod view;

use std::time::Duration;

pub use events::{EventKind, Events};
pub use login_log::{LoginEnd, LoginEvent, LoginLog};
pub use metrics::{LunStats, Metrics, Op, SessionStats};
pub use view::{
    AccessStateInfo, ConnectionInfo, LunChange, LunCounts, LunFace, LunInfo, Negotiated, Place, RecoveryInfo,
    ServerView, SessionInfo, SessionNames, TargetInfo,
};

use crate::failures::Failures;

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
        let kind = match event.end.accepted || event.is_redirection() {
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
        Self {
            logins: LoginLog::default(),
            metrics: Metrics::default(),
            events: Events::default(),
            failures: Failures::default(),
        }
    }
}
