//! The path between a namespace's TCP and its network: a shim on TUN devices, or the programs in the kernel.

use tcp_crc::{Counters, FlowKey, State};

use crate::bpf::Kernel;
use crate::relay::Relay;
use crate::shim::PacketCounters;

/// Which of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The shim on TUN devices: the fastest, with every value.
    #[default]
    Tun,
    /// Programs in the kernel: no copy and no thread, values 4, 5 and 6.
    Bpf,
}

/// Counters and states of a back end.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Each connection.
    pub connections: Vec<(FlowKey, State, Counters)>,
    /// All connections together, including those no longer in the table.
    pub total: Counters,
    /// Everything else.
    pub packets: PacketCounters,
    /// Packets that a device did not accept.
    pub lost: u64,
    /// Connections refused because the table was full: they stay plain.
    pub refused: u64,
}

/// A running back end.
pub(crate) enum DataPath {
    Tun(Relay),
    Bpf(Box<Kernel>),
}

impl DataPath {
    pub(crate) fn seen(&self) -> Seen {
        match self {
            DataPath::Tun(relay) => relay.look(|shared| {
                let flows = shared.shim.flows();
                Seen {
                    connections: flows.iter().map(|(key, state, counters)| (*key, state, counters)).collect(),
                    total: flows.total(),
                    packets: shared.shim.counters(),
                    lost: shared.lost,
                    refused: flows.refused(),
                }
            }),
            DataPath::Bpf(kernel) => {
                let (total, packets, refused) = kernel.totals();
                Seen { connections: kernel.connections(), total, packets, lost: 0, refused }
            }
        }
    }
}
