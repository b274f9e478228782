//! TCP connections that always have something to send, over a [`Link`]: the measurement of iperf and netperf.

use crate::link::{Host, Link, LinkSetup};
use crate::medium::Counts;

/// Bytes that a connection keeps written and not yet acknowledged: more than any window.
const AHEAD_BYTES: u64 = 4 << 20;

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The link between the hosts.
    pub link: LinkSetup,
    /// Connections, all from near to far.
    pub connections: usize,
    /// Duration, in virtual time.
    pub seconds: f64,
    /// Seed of all randomness.
    pub seed: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Streamed {
    /// Bytes that arrived in order, Mbit/s.
    pub mbit_s: f64,
    /// The same for each whole second, over all connections.
    pub by_second: Vec<f64>,
    /// Bytes that arrived, by connection.
    pub by_connection: Vec<u64>,
    /// Counts of the medium's frames.
    pub counts: Counts,
    /// Packets that were lost although the medium had delivered them, between hops, or after all tries of the medium.
    pub lost: u64,
    /// Timeouts of all connections, and segments retransmitted.
    pub losses: (u64, u64),
    /// A fingerprint: equal for equal runs, on every machine and in every build.
    pub hash: u64,
}

impl Stream {
    /// Runs the streams.
    pub fn run(&self) -> Streamed {
        let mut link = Link::new(self.link, self.seed);
        let conns: Vec<usize> = (0..self.connections).filter_map(|_| link.connect()).collect();
        conns.iter().for_each(|conn| link.write(0, *conn, Host::Near, AHEAD_BYTES));
        let end_ns = (self.seconds * 1e9) as u64;
        let mut by_connection = vec![0u64; conns.len()];
        let mut by_second = vec![0.0; self.seconds as usize];
        let mut now = 0;
        while let Some(at) = link.next_ns().filter(|at| *at <= end_ns) {
            now = at.max(now);
            let Some(happening) = link.advance(now).1 else { continue };
            let (conn, progress) = (happening.conn, happening.progress);
            if progress.delivered > 0 {
                link.read(now, conn, happening.host, progress.delivered);
                by_connection[conn] += progress.delivered;
                if let Some(second) = by_second.get_mut((now / 1_000_000_000) as usize) {
                    *second += progress.delivered as f64 * 8e-6;
                }
            }
            if progress.acknowledged > 0 {
                link.write(now, conn, Host::Near, progress.acknowledged);
            }
        }
        let losses = conns.iter().map(|conn| link.endpoint(*conn, Host::Near).losses());
        Streamed {
            mbit_s: by_connection.iter().sum::<u64>() as f64 * 8e-6 / self.seconds,
            by_second,
            by_connection,
            counts: link.counts(),
            lost: link.lost(),
            losses: losses.fold((0, 0), |(a, b), (c, d)| (a + c, b + d)),
            hash: link.hash(),
        }
    }
}
