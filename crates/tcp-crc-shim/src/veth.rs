//! Veth pairs that carry the first packet: both ends are up and know each other's link address from the beginning.
//!
//! A new device may take seconds until it sends by IPv6 and answers neighbor solicitations. A SYN with the request that is lost meanwhile
//! would make the connection plain.

use std::net::IpAddr;

use engine::netns::NetNs;

use crate::commands::{SetupError, ip, wait_for_link, within};

/// One end of a pair.
pub(crate) struct VethEnd<'a> {
    /// Where it is.
    pub namespace: &'a NetNs,
    /// Its name there.
    pub device: &'a str,
    /// Its link address.
    pub mac: String,
    /// Its addresses.
    pub addresses: [IpAddr; 2],
}

/// The `ip` line, for the first end's namespace, that makes a pair.
pub(crate) fn pair([here, there]: [&VethEnd<'_>; 2]) -> String {
    format!(
        "link add {} address {} type veth peer name {} address {} netns {}",
        here.device,
        here.mac,
        there.device,
        there.mac,
        there.namespace.path().display()
    )
}

/// Waits until both ends, which have addresses and have been set up, can be used, and makes them known to each other for good.
pub(crate) fn introduce([one, other]: [&VethEnd<'_>; 2]) -> Result<(), SetupError> {
    for (end, peer) in [(one, other), (other, one)] {
        within(end.namespace, || {
            wait_for_link(end.device)?;
            ip(&peer.addresses.map(|address| neighbor(address, &peer.mac, end.device)))
        })?;
    }
    Ok(())
}

fn neighbor(address: IpAddr, mac: &str, device: &str) -> String {
    let version = if address.is_ipv6() { "-6 " } else { "" };
    format!("{version}neigh replace {address} lladdr {mac} dev {device} nud permanent")
}
