//! Opens and closes connections of the session as its [`Tuner`](crate::tuning::Tuner) decides.
//!
//! It has no timer of its own: an interval ends with the first event after its time, and without load nothing wakes the loop. A connection
//! leaves by a logout after its last command.

use std::time::Duration;

use engine::{Driver, Platform};
use iscsi_core::wire::Cid;

use super::{EventLoop, State};
use crate::tuning::Reading;

impl<P: Platform> EventLoop<P> {
    /// Connections that the session should have now; CIDs are smaller.
    pub(super) fn wanted_connections(&self) -> u16 {
        let State::Up(up) = &self.state else { return 1 };
        let most = self.options.connections.min(up.session.params().max_connections);
        self.tuner.as_ref().map_or(most, |tuner| tuner.wanted().min(most))
    }

    /// A session is established, with one connection.
    pub(super) fn tune_anew(&mut self) {
        if let (State::Up(up), Some(tuner)) = (&self.state, &mut self.tuner) {
            tuner.session_begins(self.options.connections.min(up.session.params().max_connections), self.now);
        }
    }

    /// The protocol lacks the connection `cid`, which was lost or logged out: it is brought back unless it was one too many. Where no
    /// other is left, the session needs it to continue.
    pub(super) fn connect_again(&mut self, cid: Cid, wait: Duration) {
        let wanted = self.wanted_connections();
        if let State::Up(up) = &mut self.state
            && (cid.0 < wanted || up.connections.is_empty())
        {
            up.want(cid, self.now + wait);
        }
    }

    /// Tells the tuner what has happened, and does what it says. To be called after everything else that is done between two waits.
    pub(super) fn tune(&mut self) {
        let (State::Up(up), Some(tuner)) = (&mut self.state, &mut self.tuner) else { return };
        if !tuner.pass(self.now, up.session.asked_bytes()) || up.connections.is_empty() {
            return;
        }
        let stats = up.stats();
        let readings: Vec<Reading> =
            up.connections.iter().map(|one| reading(&self.driver, one.cid, one.link.token())).collect();
        let before = tuner.wanted();
        tuner.measured(stats.rx_bytes + stats.tx_bytes, &readings);
        let wanted = tuner.wanted();
        if wanted != before {
            tracing::debug!(before, wanted, "another number of connections");
        }
        up.session.limit_depth(tuner.depth().min(self.options.session.depth_bytes));
        up.stop_joining_from(Cid(wanted), &mut self.driver);
        let now = self.now;
        for leaving in readings.iter().map(|one| one.cid).filter(|cid| cid.0 >= wanted) {
            up.session.logout_connection(now, leaving);
        }
        if wanted > before {
            self.want_all();
        }
        self.drain_actions();
    }
}

fn reading(driver: &impl Driver, cid: Cid, conn: engine::Token) -> Reading {
    let info = driver.tcp_info(conn).unwrap_or_default();
    let losses = u64::from(info.total_retransmits) + u64::from(info.out_of_order_segments);
    Reading { cid, rtt: info.rtt, min_rtt: info.min_rtt, losses }
}
