//! The facts by which a host chooses its value (thesis, Table 7.1): whether its devices compute TCP's sum, and whether addresses are
//! translated between it and its peers.
//!
//! The first is asked of the devices. The second cannot be: it is assumed of a host with an address that is private (RFC 1918) or shared
//! (RFC 6598), or whose IPv6 addresses are all unique-local (RFC 4193). A translator that is not there costs the CRC over the addresses; one
//! that was overlooked would cost every connection. Either can be told instead.

use std::net::IpAddr;

use engine::nic;
use serde_json::Value;
use tcp_crc::Host;

use crate::commands::{SetupError, addresses};

/// What is told, and hence not detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Whether a device computes TCP's sum.
    pub checksum_offload: Option<bool>,
    /// Whether addresses are translated.
    pub behind_nat: Option<bool>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    told: Told,
    /// The first device that computes TCP's sum.
    computes: Option<String>,
    /// The first device with an address that is not public, and this address.
    private: Option<(String, IpAddr)>,
}

impl Surroundings {
    /// Looks at `devices` of the calling thread's network namespace.
    ///
    /// # Errors
    /// A device is missing, or `ip` is.
    pub fn look(devices: &[String], told: Told) -> Result<Surroundings, SetupError> {
        let mut found = Surroundings { told, ..Surroundings::default() };
        for device in devices {
            let computes = nic::computes_sums(device)
                .map_err(SetupError::system("a device cannot be asked what it computes"))?;
            if computes && found.computes.is_none() {
                found.computes = Some(device.clone());
            }
        }
        found.private = private(&addresses()?, devices);
        Ok(found)
    }

    /// The facts of Table 7.1.
    pub fn host(&self) -> Host {
        Host {
            checksum_offload: self.told.checksum_offload.unwrap_or(self.computes.is_some()),
            behind_nat: self.told.behind_nat.unwrap_or(self.private.is_some()),
        }
    }

    /// The facts, each with what it was found by, in a line.
    pub fn reasons(&self) -> String {
        let Host { checksum_offload, behind_nat } = self.host();
        let nat = match (&self.private, behind_nat) {
            _ if self.told.behind_nat.is_some() => format!("NAT: {} (told)", word(behind_nat)),
            (Some((device, address)), _) => {
                format!("NAT: assumed, {device} has the private address {address}")
            }
            (None, _) => "NAT: none, all addresses are public".to_owned(),
        };
        let offload = match &self.computes {
            _ if self.told.checksum_offload.is_some() => {
                format!("checksum offload: {} (told)", word(checksum_offload))
            }
            Some(device) => format!("checksum offload: {device}"),
            None => "checksum offload: none".to_owned(),
        };
        format!("{nat}; {offload}")
    }
}

fn word(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// The first device with an address that is not public, in the output of `ip -json address`.
fn private(listed: &Value, devices: &[String]) -> Option<(String, IpAddr)> {
    let links = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    let ours = links.iter().filter_map(|link| {
        let name = link["ifname"].as_str()?;
        devices.iter().any(|device| device == name).then_some((name, link))
    });
    let all: Vec<(&str, IpAddr)> = ours
        .flat_map(|(name, link)| {
            let infos = link["addr_info"].as_array().map(Vec::as_slice).unwrap_or_default();
            let global = infos.iter().filter(|info| info["scope"] == "global");
            global.filter_map(move |info| Some((name, info["local"].as_str()?.parse().ok()?)))
        })
        .collect();
    let has_public_v6 = all.iter().any(|(_, address)| address.is_ipv6() && !is_private(*address));
    let found = all.iter().find(|(_, address)| is_private(*address) && !(address.is_ipv6() && has_public_v6));
    found.map(|(name, address)| ((*name).to_owned(), *address))
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64,
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_address_is_told_from_a_public_one() {
        let listed = |addresses: &[&str]| {
            let info: Vec<Value> = addresses
                .iter()
                .map(|address| serde_json::json!({"local": address, "scope": "global"}))
                .chain([serde_json::json!({"local": "fe80::1", "scope": "link"})])
                .collect();
            serde_json::json!([
                {"ifname": "lo", "addr_info": [{"local": "10.0.0.1", "scope": "global"}]},
                {"ifname": "eth0", "addr_info": info},
            ])
        };
        for (addresses, expected) in [
            (&["192.0.2.1"][..], None),
            (&["192.0.2.1", "10.0.0.1"], Some("10.0.0.1")),
            (&["172.16.0.1"], Some("172.16.0.1")),
            (&["172.32.0.1"], None),
            (&["192.168.1.1"], Some("192.168.1.1")),
            (&["100.64.0.1"], Some("100.64.0.1")),
            (&["100.128.0.1"], None),
            (&["fd00::1"], Some("fd00::1")),
            (&["fd00::1", "2001:db8::1"], None),
            (&["fd00::1", "2001:db8::1", "10.0.0.1"], Some("10.0.0.1")),
            (&[], None),
        ] {
            let found = private(&listed(addresses), &["eth0".to_owned()]);
            let expected = expected.map(|address| ("eth0".to_owned(), address.parse().unwrap()));
            assert_eq!(found, expected, "{addresses:?}");
        }
        assert_eq!(private(&Value::Null, &["eth0".to_owned()]), None);
    }
}
