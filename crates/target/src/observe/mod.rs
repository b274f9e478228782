//! The server as people and machines see it: logins, metrics, the control socket. Nothing in here touches the data path but
//! the counters, which are single relaxed additions.
//!
//! | module | what it knows |
//! |---|---|
//! | [`login_log`] | who was refused, by which rule, and the remedy |
//! | [`metrics`] | counters and latencies, as OpenMetrics text |
//! | [`view`] | sessions, logical units and targets as the control socket tells them |
//! | [`control`] | the socket behind `intact ls`: one line of JSON asks, one answers |
//! | [`plane`] | the thread that serves the control socket and `/metrics` |

pub mod control;
pub mod login_log;
pub mod metrics;
pub mod plane;
pub mod view;

pub use login_log::{LoginEvent, LoginLog};
pub use metrics::{LunStats, Metrics, Op, SessionStats};
pub use plane::ControlPlane;
pub use view::{
    AccessStateInfo, ConnectionInfo, LunChange, LunInfo, RecoveryInfo, ServerView, SessionInfo, TargetInfo,
};

/// What a server reports to while it runs.
#[derive(Debug)]
pub struct Observe {
    /// Logins, refused and accepted.
    pub logins: LoginLog,
    /// Counters and latencies.
    pub metrics: Metrics,
}

impl Default for Observe {
    fn default() -> Self {
        Self::new()
    }
}

impl Observe {
    /// Nothing seen yet.
    pub fn new() -> Self {
        let logins = LoginLog::default();
        Self { metrics: Metrics::new(logins.clone()), logins }
    }
}
