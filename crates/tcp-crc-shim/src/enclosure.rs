//! A network namespace whose TCP carries the CRC, joined to the calling thread's namespace by address translation (nft).
//!
//! | here | there |
//! |---|---|
//! | `crcN`, 10.213.N.1, fd43:5243:N::1 | `crc0`, 10.213.N.2, fd43:5243:N::2, the default route |
//!
//! The two are TUN devices with a shim between them, or a veth pair with the programs in the kernel at `crc0`. Dropping the [`Enclosure`]
//! removes everything. If an enclosure switched `net.ipv4.ip_forward` on, the last one to go switches it off. IPv6 is routed if
//! `net.ipv6.conf.all.forwarding` is on; it is never switched on here, because a host then stops accepting router advertisements.

use std::net::{Ipv4Addr, Ipv6Addr};

use engine::netns::NetNs;
use engine::tun::{Framing, Tun};
use tcp_crc::Config;

use crate::bpf::Kernel;
use crate::commands::{SetupError, ip, nft, switch, within};
use crate::forwarding;
use crate::path::{Backend, DataPath};
use crate::relay::Relay;
use crate::report::Report;
use crate::shim::Shim;
use crate::veth::{VethEnd, introduce, pair};

/// The number of possible networks: one for each value of a byte.
const NETWORKS: u32 = 256;

/// Packets that a TUN device queues for the shim, which must be a whole window of a connection (Linux: 6 MiB): there is no other place
/// for what arrives while the shim's thread waits for a processor, and the device discards it. The kernel's 500 were overrun by one iperf3.
const QUEUE_PACKETS: u32 = 5000;

/// The configuration of an enclosure.
#[derive(Clone, Debug)]
pub struct Options {
    /// What its TCP asks for.
    pub config: Config,
    /// The back end.
    pub backend: Backend,
    /// Size of its connection table; further connections stay plain.
    pub connections_max: usize,
    /// MTU of its devices, in bytes: that of the path to the peers.
    pub mtu_bytes: u16,
    /// Published ports: the port here, and the port inside.
    pub publish: Vec<(u16, u16)>,
    /// Called with the reason, on a thread of the shim, when packets can no longer pass.
    pub on_end: fn(&str),
}

/// A namespace whose TCP carries the CRC.
pub struct Enclosure {
    namespace: NetNs,
    path: DataPath,
    name: String,
    routes_v6: bool,
}

impl Enclosure {
    /// Builds an enclosure.
    ///
    /// # Errors
    /// A requirement is missing; each error names the remedy: root, `ip`, `nft`, and `/dev/net/tun` or BPF.
    pub fn build(options: &Options) -> Result<Enclosure, SetupError> {
        let namespace = NetNs::create().map_err(SetupError::system("a network namespace cannot be made"))?;
        let routes_v6 = switch("ipv6/conf/all/forwarding").as_deref() == Some("1");
        let here = NetNs::current().map_err(SetupError::system("a network namespace cannot be named"))?;
        let (name, number, devices) = devices(options.backend, &here, &namespace)?;
        let mtu = options.mtu_bytes;
        let addresses = |device: &str, host: u8| {
            vec![
                format!("link set {device} mtu {mtu} txqueuelen {QUEUE_PACKETS} up"),
                format!("addr add 10.213.{number}.{host}/24 dev {device}"),
                format!("addr add fd43:5243:{number:x}::{host}/64 dev {device} nodad"),
            ]
        };
        within(&namespace, || {
            let mut lines = addresses(INSIDE, 2);
            lines.push("link set lo up".to_owned());
            lines.push(format!("route add default via 10.213.{number}.1"));
            if routes_v6 {
                lines.push(format!("-6 route add default via fd43:5243:{number:x}::1"));
            }
            ip(&lines)
        })?;
        ip(&addresses(&name, 1))?;
        let config = Config { mtu_bytes: Some(mtu), ..options.config };
        let path = match devices {
            Some([inside, outside]) => {
                let shim = Shim::new(config, options.connections_max);
                let relay = Relay::start(shim, inside, outside, options.on_end)
                    .map_err(SetupError::system("a shim cannot be started"))?;
                DataPath::Tun(relay)
            }
            None => {
                let [outer, inner] = veth_ends(number, [(&here, &name), (&namespace, INSIDE)]);
                introduce([&outer, &inner])?;
                let mut kernel = Kernel::start(&namespace, None, config, options.connections_max)?;
                kernel.attach(&namespace, INSIDE)?;
                DataPath::Bpf(Box::new(kernel))
            }
        };
        let enclosure = Enclosure { namespace, path, name, routes_v6 };
        nft(&rules(&enclosure.name, number, &options.publish))?;
        forwarding::switch_on()?;
        Ok(enclosure)
    }

    /// The namespace: programs started by a thread in it are protected.
    pub fn namespace(&self) -> &NetNs {
        &self.namespace
    }

    /// The name of the outer device, which identifies the enclosure to others.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether IPv6 traffic can leave it.
    pub fn routes_v6(&self) -> bool {
        self.routes_v6
    }

    /// The counters and states of its connections.
    pub fn report(&self) -> Report {
        Report::of(&self.name, self.path.seen())
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        // Namespace and devices vanish on their own. A table that stays behind is replaced by the next one with its name.
        let _ = nft(&format!("delete table inet {}", table(&self.name)));
        forwarding::switch_off_if_last();
    }
}

/// The device inside.
const INSIDE: &str = "crc0";

/// A pair of devices, with the outer one's name and number first. TUN devices have queues; a veth pair is joined already.
fn devices(
    backend: Backend,
    here: &NetNs,
    namespace: &NetNs,
) -> Result<(String, u32, Option<[Tun; 2]>), SetupError> {
    let none_left = || {
        let source = std::io::Error::other(format!("{NETWORKS} are there already"));
        SetupError::System { what: "no network is left", source }
    };
    if backend == Backend::Tun {
        let tun = |name| {
            Tun::open(name, Framing::Offload).map_err(SetupError::system("a TUN device cannot be made"))
        };
        let outside = tun("crc%d")?;
        let name = outside.name().to_owned();
        let number: u32 = name.trim_start_matches("crc").parse().unwrap_or(NETWORKS);
        if number >= NETWORKS {
            return Err(none_left());
        }
        return Ok((name, number, Some([within(namespace, || tun(INSIDE))?, outside])));
    }
    for number in 0..NETWORKS {
        let name = format!("crc{number}");
        if rustix::net::netdevice::name_to_index(socket()?, &name).is_ok() {
            continue;
        }
        let [outer, inner] = veth_ends(number, [(here, &name), (namespace, INSIDE)]);
        match ip(&[pair([&outer, &inner])]) {
            // Another program has taken the name in the meantime.
            Err(SetupError::Refused { said, .. }) if said.contains("File exists") => continue,
            made => return made.map(|()| (name, number, None)),
        }
    }
    Err(none_left())
}

/// Both ends of the veth pair of network `number`: the one here, and the one inside.
fn veth_ends<'a>(number: u32, ends: [(&'a NetNs, &'a str); 2]) -> [VethEnd<'a>; 2] {
    let number = number as u8;
    let mut host = 0;
    ends.map(|(namespace, device)| {
        host += 1;
        VethEnd {
            namespace,
            device,
            mac: format!("02:00:43:52:{number:02x}:{host:02x}"),
            addresses: [
                Ipv4Addr::new(10, 213, number, host).into(),
                Ipv6Addr::new(0xfd43, 0x5243, number.into(), 0, 0, 0, 0, host.into()).into(),
            ],
        }
    })
}

fn socket() -> Result<std::os::unix::net::UnixDatagram, SetupError> {
    std::os::unix::net::UnixDatagram::unbound().map_err(SetupError::system("no socket is left"))
}

fn table(name: &str) -> String {
    format!("{}{name}", forwarding::TABLES)
}

fn rules(name: &str, number: u32, publish: &[(u16, u16)]) -> String {
    let table = table(name);
    let published: String = publish
        .iter()
        .map(|(here, there)| {
            format!("iifname != \"{name}\" tcp dport {here} dnat ip to 10.213.{number}.2:{there};\n")
        })
        .collect();
    // Added, deleted and added again: the table is empty whether or not it existed.
    format!(
        "add table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n\
         chain from {{ type nat hook postrouting priority srcnat;\n\
         oifname != \"{name}\" ip saddr 10.213.{number}.2 masquerade;\n\
         oifname != \"{name}\" ip6 saddr fd43:5243:{number:x}::2 masquerade; }}\n\
         chain to {{ type nat hook prerouting priority dstnat;\n{published} }}\n}}"
    )
}
