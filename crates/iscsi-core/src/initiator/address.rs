//! TargetAddress: where a target can be reached (RFC 7143 13.8).

use std::fmt;

use crate::error::ProtocolViolation;
use crate::negotiation::shown;

/// TCP port of iSCSI if none is given.
pub const DEFAULT_PORT: u16 = 3260;

/// `host[:port][,portal-group-tag]`, an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetAddress {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Portal group tag: present in SendTargets, absent in a redirection.
    pub group_tag: Option<u16>,
}

impl TargetAddress {
    /// Reads the value of a TargetAddress key.
    ///
    /// # Errors
    /// When it is not of that form.
    //= rfc7143 13.8 KEY-07
    pub fn parse(value: &str) -> Result<Self, ProtocolViolation> {
        let refuse = || {
            ProtocolViolation::new("RFC 7143 13.8", format!("TargetAddress={} is malformed", shown(value)))
        };
        let (address, group_tag) = match value.rsplit_once(',') {
            Some((address, tag)) => (address, Some(tag.parse().map_err(|_| refuse())?)),
            None => (value, None),
        };
        let (host, rest) = match address.strip_prefix('[') {
            Some(inner) => inner.split_once(']').ok_or_else(refuse)?,
            None => address.split_at(address.find(':').unwrap_or(address.len())),
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|&port| port != 0).ok_or_else(refuse)?,
            None if rest.is_empty() => DEFAULT_PORT,
            None => return Err(refuse()),
        };
        let plain = |c: char| c.is_ascii_graphic() && !"[]/\\\"'<>|;&$`(){}*?".contains(c);
        if host.is_empty() || host.len() > 255 || !host.chars().all(plain) {
            return Err(refuse());
        }
        Ok(Self { host: host.to_owned(), port, group_tag })
    }
}

/// Without the tag: as a user types it.
impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_07_forms_of_a_target_address() {
        let full = |text: &str| {
            let address = TargetAddress::parse(text).unwrap();
            (address.to_string(), address.group_tag)
        };
        assert_eq!(full("10.0.0.1:3261,1"), ("10.0.0.1:3261".to_owned(), Some(1)));
        assert_eq!(full("disk.example"), ("disk.example:3260".to_owned(), None));
        assert_eq!(full("[fe80::1]:860,65535"), ("[fe80::1]:860".to_owned(), Some(65535)));
        assert_eq!(full("[::1]"), ("[::1]:3260".to_owned(), None));
        for bad in ["", ",1", "a:", "a:0", "a:99999", "[::1", "a,", "a,65536", "a b", "::1", "[::1]x", "a\n"]
        {
            assert!(TargetAddress::parse(bad).is_err(), "{bad:?}");
        }
    }
}
