//! What the TCP of a simulated host knows about its connections, as a kernel reports it (TCP_INFO).

use std::time::Duration;

use engine::TcpInfo;

use wireless::tcp::Endpoint;

use crate::air::host;
use crate::network::{NEAR, Side};
use crate::world::{Nanos, State};

/// What is measured about one direction of a connection: the round trips on a wire with congestion windows only.
#[derive(Default)]
pub(crate) struct Measured {
    /// Round trips, nanoseconds: smoothed (RFC 6298), and the shortest.
    smoothed: Nanos,
    shortest: Nanos,
    /// Segments that the sender has retransmitted.
    pub retransmitted: u32,
    /// Segments that reached the receiver before one sent earlier.
    pub out_of_order: u32,
    /// When bytes last reached the receiver.
    pub delivered_at: Nanos,
}

impl Measured {
    /// A segment that was not retransmitted is acknowledged after this time.
    pub(crate) fn round_trip(&mut self, ns: Nanos) {
        let first = self.shortest == 0;
        self.smoothed = if first { ns } else { (7 * self.smoothed + ns) / 8 };
        self.shortest = if first { ns } else { self.shortest.min(ns) };
    }
}

impl State {
    /// What the host of `side` knows; `None` on a wire without a TCP of its own.
    pub(crate) fn tcp_info(&self, conn: usize, side: Side) -> Option<TcpInfo> {
        let c = &self.network.conns[conn];
        let known = match (&self.network.paths[c.path].air, c.air) {
            (Some(air), Some(number)) => on_air(air.link.endpoint(number, host(side))),
            _ => self.on_wire(conn, side)?,
        };
        // What arrives is acknowledged.
        let delivered_at = c.pipes.iter().map(|pipe| pipe.measured.delivered_at).max().unwrap_or_default();
        Some(TcpInfo {
            last_received: Duration::from_nanos(self.now - delivered_at),
            unacked_segments: known.unacked_segments + c.pipes[side.0].held_back() as u32,
            ..known
        })
    }

    /// On a wire. Only the initiator's hosts know anything: what a target concludes from it is not part of this model.
    fn on_wire(&self, conn: usize, side: Side) -> Option<TcpInfo> {
        let path = self.path(conn);
        if side != NEAR {
            return None;
        }
        if !path.congestion {
            // What is under way is not counted here; something may always be.
            return Some(TcpInfo { unacked_segments: 1, ..TcpInfo::default() });
        }
        let c = &self.network.conns[conn];
        let (out, back) = (&c.pipes[side.0], &c.pipes[side.other().0]);
        Some(TcpInfo {
            rtt: Duration::from_nanos(out.measured.smoothed),
            min_rtt: Duration::from_nanos(out.measured.shortest),
            send_mss_bytes: path.segment_bytes as u32,
            total_retransmits: out.measured.retransmitted,
            out_of_order_segments: back.measured.out_of_order,
            unacked_segments: out.flight.div_ceil(path.segment_bytes.max(1)) as u32,
            unsent_bytes: out.queued as u32,
            ..TcpInfo::default()
        })
    }
}

/// Over the air, where both ends have the TCP of the crate `wireless`.
fn on_air(end: &Endpoint) -> TcpInfo {
    let (rtt, min_rtt) = end.round_trips_ns().unwrap_or_default();
    TcpInfo {
        rtt: Duration::from_nanos(rtt),
        min_rtt: Duration::from_nanos(min_rtt),
        send_mss_bytes: end.mss_bytes(),
        unacked_segments: end.unacknowledged_segments() as u32,
        acked_bytes: end.acknowledged_bytes(),
        total_retransmits: end.losses().1 as u32,
        out_of_order_segments: end.out_of_order() as u32,
        ..TcpInfo::default()
    }
}
