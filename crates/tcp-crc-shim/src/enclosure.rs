//! A network namespace whose TCP carries the CRC, joined to the namespace of the calling thread by a translator of addresses (nft).
//!
//! | here | there |
//! |---|---|
//! | `crcN`, 10.213.N.1, fd43:5243:N::1 | `crc0`, 10.213.N.2, fd43:5243:N::2, the default route |
//!
//! Everything goes with the [`Enclosure`] but one switch: `net.ipv4.ip_forward` stays on, because others may have begun to need it.
//! IPv6 is routed where `net.ipv6.conf.all.forwarding` is on; it is never switched on, since a host then stops believing routers.

use engine::netns::NetNs;
use engine::tun::{Framing, Tun};
use tcp_crc::Config;

use crate::commands::{SetupError, ip, nft, set_switch, switch, within};
use crate::relay::Relay;
use crate::report::Report;
use crate::shim::Shim;

/// Networks there are: one for each number that fits into a byte.
const NETWORKS: u32 = 256;

/// What an enclosure is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// What its shim asks for.
    pub config: Config,
    /// Connections of its table; those beyond stay plain.
    pub connections_max: usize,
    /// Packets of its devices, in bytes: what the way to the peers takes.
    pub mtu_bytes: u16,
    /// Ports that are reached from outside: here, and inside.
    pub publish: Vec<(u16, u16)>,
}

/// A namespace with its shim.
pub struct Enclosure {
    namespace: NetNs,
    relay: Relay,
    name: String,
    routes_v6: bool,
}

impl Enclosure {
    /// Makes one.
    ///
    /// # Errors
    /// What it takes is not there, each with its remedy: root, `/dev/net/tun`, `ip`, `nft`.
    pub fn build(options: &Options) -> Result<Enclosure, SetupError> {
        let tun = |name| {
            Tun::open(name, Framing::Offload).map_err(SetupError::system("a TUN device cannot be made"))
        };
        let namespace = NetNs::create().map_err(SetupError::system("a network namespace cannot be made"))?;
        let outside = tun("crc%d")?;
        let name = outside.name().to_owned();
        let number: u32 = name.trim_start_matches("crc").parse().unwrap_or(NETWORKS);
        if number >= NETWORKS {
            let source = std::io::Error::other(format!("{NETWORKS} are there already"));
            return Err(SetupError::System { what: "no network is left", source });
        }
        let routes_v6 = switch("ipv6/conf/all/forwarding").as_deref() == Some("1");
        let mtu = options.mtu_bytes;
        let addresses = |device: &str, host: u8| {
            vec![
                format!("link set {device} mtu {mtu} up"),
                format!("addr add 10.213.{number}.{host}/24 dev {device}"),
                format!("addr add fd43:5243:{number:x}::{host}/64 dev {device} nodad"),
            ]
        };
        let inside = within(&namespace, || {
            let inside = tun("crc0")?;
            let mut lines = addresses("crc0", 2);
            lines.push("link set lo up".to_owned());
            lines.push(format!("route add default via 10.213.{number}.1"));
            if routes_v6 {
                lines.push(format!("-6 route add default via fd43:5243:{number:x}::1"));
            }
            ip(&lines).map(|()| inside)
        })?;
        ip(&addresses(&name, 1))?;
        set_switch("ipv4/ip_forward", "1")?;
        let shim = Shim::new(Config { mtu_bytes: Some(mtu), ..options.config }, options.connections_max);
        let relay =
            Relay::start(shim, inside, outside).map_err(SetupError::system("a shim cannot be started"))?;
        let enclosure = Enclosure { namespace, relay, name, routes_v6 };
        nft(&rules(&enclosure.name, number, &options.publish))?;
        Ok(enclosure)
    }

    /// The namespace: what a thread in it starts is protected.
    pub fn namespace(&self) -> &NetNs {
        &self.namespace
    }

    /// The device's name on this side, by which others know it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether IPv6 leads out of it.
    pub fn routes_v6(&self) -> bool {
        self.routes_v6
    }

    /// What its shim has seen.
    pub fn report(&self) -> Report {
        self.relay.look(|shared| Report::of(&self.name, shared))
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        // Namespace and devices go by themselves. A table that stays behind is replaced by the next one of its name.
        let _ = nft(&format!("delete table inet {}", table(&self.name)));
    }
}

fn table(name: &str) -> String {
    format!("intact_{name}")
}

fn rules(name: &str, number: u32, publish: &[(u16, u16)]) -> String {
    let table = table(name);
    let published: String = publish
        .iter()
        .map(|(here, there)| {
            format!("iifname != \"{name}\" tcp dport {here} dnat ip to 10.213.{number}.2:{there};\n")
        })
        .collect();
    // Added, deleted and added: so it is empty whether it was there or not.
    format!(
        "add table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n\
         chain from {{ type nat hook postrouting priority srcnat;\n\
         oifname != \"{name}\" ip saddr 10.213.{number}.2 masquerade;\n\
         oifname != \"{name}\" ip6 saddr fd43:5243:{number:x}::2 masquerade; }}\n\
         chain to {{ type nat hook prerouting priority dstnat;\n{published} }}\n}}"
    )
}
