//! A laboratory: a client and a server in network namespaces of their own, and between them a third namespace that routes every packet
//! through a forwarder that may do anything with it.
//!
//! ```text
//!   client ── shim ── m0 ┐ kernel's routes ┌ m1 ── shim ── server
//!                        f0 ── forwarder ── f1
//! ```
//!
//! A host without a shim has a veth pair instead. The forwarder's devices have no offloads, so the kernel segments and checksums everything
//! from such a host. Nothing in the laboratory has a name outside its namespaces. It all goes when the [`Lab`] is dropped.

mod damage;
mod forwarder;
mod span;
mod transfer;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use engine::netns::NetNs;
use engine::tun::{Framing, Tun};
use tcp_crc::Config;

use crate::bpf::Kernel;
use crate::commands::{SetupError, ip, nft, set_switch, within};
use crate::path::{Backend, DataPath, Seen};
use crate::relay::Relay;
use crate::shim::Shim;
use crate::veth::{VethEnd, introduce, pair};

use forwarder::Forwarder;

pub use damage::{Damage, Damager};
pub use forwarder::{Middle, Pass, untouched};
pub use span::{Pour, Span, Way, Wire};
pub use transfer::{Transfer, content, sum_errors};

/// MTU of all links, in bytes, unless the plan has another.
pub const MTU_BYTES: u16 = 1500;
/// Packets that a device queues for a slow reader: more than a TCP window, each with a twin, so that the counts at the two ends of the
/// network agree.
const QUEUE_PACKETS: u32 = 20_000;
/// Size of the connection table of a laboratory shim.
const CONNECTIONS_MAX: usize = 20_000;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end usually called the client.
    Client,
    /// The other end.
    Server,
}

impl End {
    /// Its address.
    pub fn address(self, v6: bool) -> IpAddr {
        let net = self as u8 + 1;
        match v6 {
            false => Ipv4Addr::new(10, 77, net, 2).into(),
            true => Ipv6Addr::new(0xfd77, net.into(), 0, 0, 0, 0, 0, 2).into(),
        }
    }

    /// The network's device on the side of this end.
    fn device(self) -> &'static str {
        ["m0", "m1"][self as usize]
    }
}

/// The configuration of a laboratory.
pub struct Plan {
    /// The client's shim, if it has one.
    pub client: Option<Config>,
    /// The server's.
    pub server: Option<Config>,
    /// The back ends of the two, if they have a shim.
    pub backends: [Backend; 2],
    /// The network translates the client's address into its own (IPv4, nft's masquerade).
    pub nat: bool,
    /// MTU of all links, in bytes.
    pub mtu_bytes: u16,
    /// Kernel switches below `/proc/sys/net`, set on both hosts.
    pub switches: Vec<(&'static str, &'static str)>,
    /// What happens to packets in transit.
    pub middle: Middle,
}

impl Plan {
    /// Both ends with this configuration, or both without a shim, and nothing happens in transit.
    pub fn both(config: Option<Config>) -> Plan {
        let backends = [Backend::Tun; 2];
        Plan {
            client: config,
            server: config,
            backends,
            nat: false,
            mtu_bytes: MTU_BYTES,
            switches: Vec::new(),
            middle: untouched(),
        }
    }
}

struct Host {
    namespace: NetNs,
    path: Option<DataPath>,
}

/// A running laboratory.
pub struct Lab {
    hosts: [Host; 2],
    network: NetNs,
    _forwarder: Forwarder,
}

impl Lab {
    /// Builds a laboratory.
    ///
    /// # Errors
    /// A requirement is missing: root, `/dev/net/tun`, `ip`, and `nft` if the plan has NAT.
    pub fn build(plan: Plan) -> Result<Lab, SetupError> {
        let space = || NetNs::create().map_err(SetupError::system("a network namespace cannot be made"));
        let network = space()?;
        within(&network, || {
            set_switch("ipv4/ip_forward", "1")?;
            set_switch("ipv6/conf/all/forwarding", "1")?;
            set_switch("ipv4/conf/all/rp_filter", "0")?;
            set_switch("ipv4/conf/default/rp_filter", "0")?;
            ip(&["link set lo up".to_owned()])
        })?;
        let configs = [(End::Client, plan.client), (End::Server, plan.server)];
        let mut hosts = Vec::new();
        for ((end, config), backend) in configs.into_iter().zip(plan.backends) {
            let namespace = space()?;
            within(&namespace, || {
                plan.switches.iter().try_for_each(|(name, value)| set_switch(name, value))?;
                ip(&["link set lo up".to_owned()])
            })?;
            let link = Link { end, host: &namespace, network: &network, mtu_bytes: plan.mtu_bytes };
            let path = link.connect(config.map(|config| (config, backend)))?;
            hosts.push(Host { path, namespace });
        }
        let forwarder = within(&network, || {
            let forwarder = Forwarder::start(plan.middle)?;
            ip(&routes(plan.mtu_bytes))?;
            if plan.nat {
                nft(NAT)?;
            }
            Ok(forwarder)
        })?;
        let [client, server] = hosts.try_into().unwrap_or_else(|_| unreachable!("two ends"));
        Ok(Lab { hosts: [client, server], network, _forwarder: forwarder })
    }

    /// The namespace of one end: the TCP of a program started there is protected.
    pub fn host(&self, end: End) -> &NetNs {
        &self.hosts[end as usize].namespace
    }

    /// The namespace in between.
    pub fn network(&self) -> &NetNs {
        &self.network
    }

    /// The counters of the shim of one end, or of its kernel programs, if it has either.
    pub fn seen(&self, end: End) -> Option<Seen> {
        Some(self.hosts[end as usize].path.as_ref()?.seen())
    }
}

/// The link between a host and the network.
struct Link<'a> {
    end: End,
    host: &'a NetNs,
    network: &'a NetNs,
    mtu_bytes: u16,
}

impl Link<'_> {
    /// Joins the two: by a shim, or by a veth pair.
    fn connect(&self, config: Option<(Config, Backend)>) -> Result<Option<DataPath>, SetupError> {
        match config {
            None => self.join_by_veth().map(|()| None),
            Some((config, Backend::Bpf)) => {
                self.join_by_veth()?;
                let mut kernel = Kernel::start(self.host, None, config, CONNECTIONS_MAX)?;
                kernel.attach(self.host, "eth0")?;
                Ok(Some(DataPath::Bpf(Box::new(kernel))))
            }
            Some((config, Backend::Tun)) => self.join_by_shim(config).map(Some),
        }
    }

    fn join_by_veth(&self) -> Result<(), SetupError> {
        let net = self.end as u8 + 1;
        let veth = |namespace, device, number: u8| VethEnd {
            namespace,
            device,
            mac: format!("02:00:00:00:{net:02x}:{number:02x}"),
            addresses: [
                Ipv4Addr::new(10, 77, net, number).into(),
                Ipv6Addr::new(0xfd77, net.into(), 0, 0, 0, 0, 0, number.into()).into(),
            ],
        };
        let (router, ours) = (veth(self.network, self.end.device(), 1), veth(self.host, "eth0", 2));
        within(self.network, || ip(&[pair([&router, &ours])]))?;
        within(self.host, || ip(&self.addresses(ours.device, 2)))?;
        within(self.network, || ip(&self.addresses(router.device, 1)))?;
        introduce([&router, &ours])
    }

    fn join_by_shim(&self, config: Config) -> Result<DataPath, SetupError> {
        let open = |name| {
            Tun::open(name, Framing::Offload).map_err(SetupError::system("a TUN device cannot be made"))
        };
        let inside = within(self.host, || {
            let tun = open("crc0")?;
            ip(&self.addresses("crc0", 2))?;
            Ok(tun)
        })?;
        let outside = within(self.network, || {
            let tun = open(self.end.device())?;
            ip(&self.addresses(self.end.device(), 1))?;
            Ok(tun)
        })?;
        let shim = Shim::new(Config { mtu_bytes: Some(self.mtu_bytes), ..config }, CONNECTIONS_MAX);
        let relay = Relay::start(shim, inside, outside, |_| {})
            .map_err(SetupError::system("a shim cannot be started"))?;
        Ok(DataPath::Tun(relay))
    }

    /// Addresses of a device on this link; for a host (2) also its routes to everything else.
    fn addresses(&self, device: &str, host: u8) -> Vec<String> {
        let (net, mtu_bytes) = (self.end as u8 + 1, self.mtu_bytes);
        let mut lines = vec![
            format!("link set {device} mtu {mtu_bytes} txqueuelen {QUEUE_PACKETS} up"),
            format!("addr add 10.77.{net}.{host}/24 dev {device}"),
            format!("addr add fd77:{net}::{host}/64 dev {device} nodad"),
        ];
        if host == 2 {
            lines.push(format!("route add default via 10.77.{net}.1 dev {device}"));
            lines.push(format!("-6 route add default via fd77:{net}::1 dev {device}"));
        }
        lines
    }
}

/// Packets from a host go to the forwarder; packets from the forwarder go to a host.
fn routes(mtu_bytes: u16) -> Vec<String> {
    let mut lines = Vec::new();
    for (side, table) in [(0, 100), (1, 101)] {
        lines.push(format!("link set f{side} mtu {mtu_bytes} txqueuelen {QUEUE_PACKETS} up"));
        for version in ["", "-6 "] {
            lines.push(format!("{version}rule add iif m{side} lookup {table}"));
            lines.push(format!("{version}route add default dev f{side} table {table}"));
        }
    }
    lines
}

/// Connections are tracked only on the server's side, because each packet passes the network's routes twice.
const NAT: &str = r#"
table ip lab {
    chain raw { type filter hook prerouting priority raw; iifname { "m0", "f0" } notrack; }
    chain nat { type nat hook postrouting priority srcnat; oifname "m1" masquerade; }
}
"#;
