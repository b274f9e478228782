//! Portals: where the server listens, and the addresses that it reports to initiators (RFC 7143 4.1, appendix C).

use std::net::{IpAddr, SocketAddr};

use crate::config::PortalConfig;

/// The TargetAddress of `portal` for an initiator that reached us at `local`, or `None` when that initiator could not use it:
/// a loopback address from outside, or one that is only valid on its own link. A wildcard becomes the address that the
/// initiator reached.
//= rfc7143 C DSC-06
pub(crate) fn address_for(portal: &PortalConfig, local: SocketAddr) -> Option<String> {
    let local_ip = local.ip().to_canonical();
    let configured = portal.address.ip().to_canonical();
    let ip = match configured {
        ip if !ip.is_unspecified() => ip,
        // A wildcard of IPv4 does not cover IPv6; one of IPv6 covers both.
        IpAddr::V4(_) if local_ip.is_ipv6() => return None,
        _ => local_ip,
    };
    if ip.is_loopback() && !local_ip.is_loopback() {
        return None;
    }
    if let IpAddr::V6(v6) = ip
        && v6.is_unicast_link_local()
    {
        return None;
    }
    // The system chose the port for port 0: the initiator used it.
    let port = if portal.address.port() == 0 { local.port() } else { portal.address.port() };
    Some(format!("{},{}", SocketAddr::new(ip, port), portal.group_tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portal(address: &str) -> PortalConfig {
        PortalConfig { address: address.parse().unwrap(), group_tag: 7 }
    }

    #[test]
    fn dsc_06_addresses_that_the_initiator_can_use() {
        for (listen, reached, told) in [
            ("192.0.2.1:3260", "192.0.2.1:3260", Some("192.0.2.1:3260,7")),
            ("0.0.0.0:3260", "192.0.2.1:3260", Some("192.0.2.1:3260,7")),
            ("[::]:3260", "192.0.2.1:3260", Some("192.0.2.1:3260,7")),
            ("[::]:3260", "[::ffff:192.0.2.1]:3260", Some("192.0.2.1:3260,7")),
            ("[::]:3260", "[2001:db8::1]:3260", Some("[2001:db8::1]:3260,7")),
            ("0.0.0.0:3260", "[2001:db8::1]:3260", None),
            ("127.0.0.1:3260", "192.0.2.1:3260", None),
            ("127.0.0.1:3260", "127.0.0.1:3260", Some("127.0.0.1:3260,7")),
            ("[::]:3260", "[fe80::1]:3260", None),
            ("127.0.0.1:0", "127.0.0.1:40000", Some("127.0.0.1:40000,7")),
        ] {
            assert_eq!(
                address_for(&portal(listen), reached.parse().unwrap()).as_deref(),
                told,
                "{listen} {reached}"
            );
        }
    }
}
