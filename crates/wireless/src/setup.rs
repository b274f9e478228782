//! The configuration of a link, and its two hosts.

use crate::mac::Mac;
use crate::tcp::TcpSetup;

/// Most hops of a link.
pub const HOPS_MAX: u32 = 16;

/// The host at one end of a link, and its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// The host at station 0.
    Near = 0,
    /// The host at the last station.
    Far = 1,
}

impl Host {
    /// Both, in order.
    pub const BOTH: [Host; 2] = [Host::Near, Host::Far];

    /// The other host.
    pub const fn other(self) -> Host {
        match self {
            Host::Near => Host::Far,
            Host::Far => Host::Near,
        }
    }
}

/// The configuration of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSetup {
    /// Frames and their times.
    pub mac: Mac,
    /// Hops, 1 to [`HOPS_MAX`].
    pub hops: u32,
    /// Frames that a station queues in addition to the one it is sending.
    pub queue_frames: usize,
    /// P_e: the chance that a frame is not acknowledged and its station must retransmit it.
    pub p_error: f64,
    /// The share of packets lost although the medium has delivered them: losses that its retries do not repair.
    pub loss: f64,
    /// Latency added to each packet, one way, ns: the time that hosts and disks take.
    pub latency_ns: u64,
    /// Packet size, bytes.
    pub mtu_bytes: u32,
    /// TCP at both ends.
    pub tcp: TcpSetup,
}

impl LinkSetup {
    /// One hop of `mac` without errors: packets of 1500 bytes, a queue of 100 frames.
    pub const fn of(mac: Mac) -> LinkSetup {
        LinkSetup {
            mac,
            hops: 1,
            queue_frames: 100,
            p_error: 0.0,
            loss: 0.0,
            latency_ns: 0,
            mtu_bytes: 1500,
            tcp: TcpSetup::of_mtu(1500),
        }
    }

    /// The same with another packet size.
    pub const fn with_mtu(self, mtu_bytes: u32) -> LinkSetup {
        let tcp = TcpSetup { mss_bytes: mtu_bytes - 52, ..self.tcp };
        LinkSetup { mtu_bytes, tcp, ..self }
    }
}
