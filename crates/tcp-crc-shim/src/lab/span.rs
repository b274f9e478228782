//! Two hosts and nothing but a wire between them, to measure what a back end costs.
//!
//! ```text
//!   plain, BPF   client ────────────────── veth ────────────────── server
//!   TUN          client ── shim ── routes ─ veth ─ routes ── shim ── server
//! ```

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use engine::netns::NetNs;
use tcp_crc::Config;

use super::{CONNECTIONS_MAX, End, Link, MTU_BYTES, QUEUE_PACKETS, Transfer, transfer};
use crate::bpf::Kernel;
use crate::commands::{SetupError, ip, set_switch, within};
use crate::path::{DataPath, Seen};
use crate::veth::{VethEnd, introduce, pair};

/// Bytes of one write and of one read, at most.
const CHUNK_BYTES: usize = 256 << 10;

/// A device cuts what is longer: by this a super-segment of a shim, whose number of segments is not known to the kernel. It is more than
/// the MTU, because the kernel's TCP takes its longest header off it.
const SINGLE_BYTES_MAX: u32 = 2048;

/// What the wire carries of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Super-segments, as from a NIC that would cut them.
    Supers,
    /// Single segments: what leaves a NIC, or a host without segmentation offload.
    Singles,
}

/// What is between the TCP of each host and the wire.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Nothing.
    Plain(Wire),
    /// A shim each. Without a value in its configuration it only forwards, and the wire decides about super-segments.
    Tun(Config, Wire),
    /// Programs in the kernel; the wire carries single segments.
    Bpf(Config),
}

/// The two hosts.
pub struct Span {
    hosts: [NetNs; 2],
    /// Routers of shims, which a wire joins.
    routers: Vec<NetNs>,
    paths: Vec<DataPath>,
}

impl Span {
    /// Builds them.
    ///
    /// # Errors
    /// A requirement is missing: root, `ip`, and `/dev/net/tun` or BPF.
    pub fn build(way: Way) -> Result<Span, SetupError> {
        let hosts = [namespace()?, namespace()?];
        let mut span = Span { hosts, routers: Vec::new(), paths: Vec::new() };
        match way {
            Way::Plain(wire) => span.join_hosts(wire)?,
            Way::Bpf(config) => {
                span.join_hosts(Wire::Supers)?;
                for host in &span.hosts {
                    let mut kernel = Kernel::start(host, None, config, CONNECTIONS_MAX)?;
                    kernel.attach(host, "wire")?;
                    span.paths.push(DataPath::Bpf(Box::new(kernel)));
                }
            }
            Way::Tun(config, wire) => span.join_by_shims(config, wire)?,
        }
        Ok(span)
    }

    fn join_hosts(&self, wire: Wire) -> Result<(), SetupError> {
        let ends = [End::Client, End::Server].map(|end| end.address(false));
        join([&self.hosts[0], &self.hosts[1]], ends, wire)?;
        self.route([&self.hosts[0], &self.hosts[1]], ends.map(|address| format!("{address}/32 dev wire")))
    }

    fn join_by_shims(&mut self, config: Config, wire: Wire) -> Result<(), SetupError> {
        let routers = [namespace()?, namespace()?];
        for ((end, host), network) in [End::Client, End::Server].into_iter().zip(&self.hosts).zip(&routers) {
            within(network, || set_switch("ipv4/ip_forward", "1"))?;
            let link = Link { end, host, network, mtu_bytes: MTU_BYTES };
            self.paths.push(link.join_by_shim(config)?);
        }
        let ends = [1, 2].map(|host| IpAddr::from([10, 77, 0, host]));
        join([&routers[0], &routers[1]], ends, wire)?;
        let nets = [1, 2].map(|net| format!("10.77.{net}.0/24 via 10.77.0.{net}"));
        self.route([&routers[0], &routers[1]], nets)?;
        self.routers.extend(routers);
        Ok(())
    }

    /// The route of each of two to what the other one has.
    fn route(&self, of: [&NetNs; 2], [here, there]: [String; 2]) -> Result<(), SetupError> {
        for (namespace, other) in of.into_iter().zip([there, here]) {
            within(namespace, || ip(&[format!("route add {other}")]))?;
        }
        Ok(())
    }

    /// The counters of the client's and of the server's back end, if they have one.
    pub fn seen(&self) -> Vec<Seen> {
        self.paths.iter().map(DataPath::seen).collect()
    }

    /// Packets that the wire has brought to the server.
    ///
    /// # Errors
    /// `/proc/net/dev` says nothing of the wire.
    pub fn wire_packets(&self) -> io::Result<u64> {
        let server = self.routers.last().unwrap_or(&self.hosts[1]);
        let text = server.within(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
        let mut fields = text.lines().filter_map(|line| line.trim().strip_prefix("wire:"));
        let packets = fields.next().and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        packets.ok_or_else(|| io::Error::other("/proc/net/dev says nothing of the wire"))
    }

    /// Sends `data` from the client to the server, and compares what arrives.
    ///
    /// # Errors
    /// Errors of the sockets.
    pub fn transfer(&self, data: &[u8]) -> io::Result<Transfer> {
        let (client, server) = self.connect()?;
        transfer::send(client, server, data, |_| {})
    }

    /// Opens a connection through which the client sends until the result is dropped, `congestion` being its congestion control if the
    /// kernel has it.
    ///
    /// # Errors
    /// Errors of the sockets, or no thread is left.
    pub fn pour(&self, congestion: &str) -> io::Result<Pour> {
        let (client, server) = self.connect()?;
        // Without it the measurement is of another one, and the caller can see which.
        let _ = rustix::net::sockopt::set_tcp_congestion(&client, congestion);
        let congestion = rustix::net::sockopt::tcp_congestion(&client)?;
        let received = Arc::new(AtomicU64::new(0));
        let mut pour = Pour {
            received: Arc::clone(&received),
            congestion,
            socket: server.try_clone()?,
            threads: Vec::new(),
        };
        let data = super::content(1, CHUNK_BYTES);
        pour.spawn("sender", move || send(client, &data))?;
        pour.spawn("receiver", move || receive(server, &received))?;
        Ok(pour)
    }

    fn connect(&self) -> io::Result<(TcpStream, TcpStream)> {
        transfer::open(self.hosts.each_ref(), End::Server.address(false))
    }
}

/// A stream that goes on until this is dropped.
pub struct Pour {
    received: Arc<AtomicU64>,
    congestion: String,
    socket: TcpStream,
    threads: Vec<JoinHandle<()>>,
}

impl Pour {
    /// Bytes that the server's program has received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The client's congestion control.
    pub fn congestion(&self) -> &str {
        &self.congestion
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(work)?);
        Ok(())
    }
}

impl Drop for Pour {
    fn drop(&mut self) {
        // The receiver ends at once, and closes; the sender's next write fails.
        let _ = self.socket.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Until the connection ends.
fn send(mut stream: TcpStream, data: &[u8]) {
    while stream.write_all(data).is_ok() {}
}

/// Until the connection ends.
fn receive(mut stream: TcpStream, received: &AtomicU64) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        received.fetch_add(read as u64, Ordering::Relaxed);
    }
}

fn namespace() -> Result<NetNs, SetupError> {
    let namespace = NetNs::create().map_err(SetupError::system("a network namespace cannot be made"))?;
    within(&namespace, || ip(&["link set lo up".to_owned()]))?;
    Ok(namespace)
}

/// Joins two namespaces by a veth pair, `wire` in both.
fn join(namespaces: [&NetNs; 2], addresses: [IpAddr; 2], wire: Wire) -> Result<(), SetupError> {
    let end = |n: usize| VethEnd {
        namespace: namespaces[n],
        device: "wire",
        mac: format!("02:00:00:00:00:{:02x}", n + 1),
        addresses: [addresses[n]; 2],
    };
    let ends = [end(0), end(1)];
    within(namespaces[0], || ip(&[pair([&ends[0], &ends[1]])]))?;
    for end in &ends {
        let [address, _] = end.addresses;
        let mut lines = vec![
            format!("link set wire mtu {MTU_BYTES} txqueuelen {QUEUE_PACKETS} up"),
            format!("addr add {address}/30 dev wire"),
        ];
        if wire == Wire::Singles {
            lines.push(format!("link set wire gso_max_segs 1 gso_max_size {SINGLE_BYTES_MAX}"));
        }
        within(end.namespace, || ip(&lines))?;
    }
    introduce([&ends[0], &ends[1]])
}
