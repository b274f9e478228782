//! Which initiators may see and use a target: patterns of initiator names and networks.
//!
//! A rule matches when one of its name patterns and one of its networks match; an empty list matches everything. An
//! initiator may use a target when one rule matches, or when the target has no rules. SendTargets does not list the target
//! to other initiators, and their login by name ends with status 0202 (authorization failure).
//!
//! Limitation: a name proves nothing. On shared networks, CHAP is the proof and these rules only keep order.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use iscsi_core::names::{IscsiName, MAX_NAME_BYTES};

/// An initiator name in which each `*` matches any number of characters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NamePattern(Box<str>);

/// A text that can match no initiator name. Says why, and what could match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(String);

impl NamePattern {
    /// Parses a pattern; upper case is folded as in names (RFC 3722).
    ///
    /// # Errors
    /// No iSCSI name could match it.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if !text.contains('*') {
            return match IscsiName::parse(text) {
                Ok(name) => Ok(Self(name.as_str().into())),
                Err(violation) => Err(PatternError(violation.what.into_owned())),
            };
        }
        let refuse = |why: &str| {
            let shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
            Err(PatternError(format!("the pattern \"{shown}\" {why}")))
        };
        if text.len() > MAX_NAME_BYTES {
            return refuse("is longer than any iSCSI name (223 bytes)");
        }
        if text.chars().any(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && !"*-.:".contains(c)) {
            return refuse(
                "holds a character that no iSCSI name has; names have letters, digits, '-', '.' and ':'",
            );
        }
        let folded = text.to_lowercase();
        let stem = folded.split('*').next().unwrap_or_default();
        if !["iqn.", "eui.", "naa."].iter().any(|form| form.starts_with(stem) || stem.starts_with(form)) {
            return refuse("matches no iSCSI name; names begin with iqn., eui. or naa.");
        }
        Ok(Self(folded.into()))
    }

    /// Whether `name` matches.
    pub fn matches(&self, name: &IscsiName) -> bool {
        glob(self.0.as_bytes(), name.as_str().as_bytes())
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Matches with `*` only. On a mismatch only the last star needs to be tried again, so the work is at most the product of
/// the lengths.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// One rule that allows access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRule {
    /// Allowed names; empty: any.
    pub initiators: Vec<NamePattern>,
    /// Allowed networks; empty: any.
    pub networks: Vec<IpNet>,
}

impl AccessRule {
    fn matches(&self, initiator: &IscsiName, address: IpAddr) -> bool {
        (self.initiators.is_empty() || self.initiators.iter().any(|pattern| pattern.matches(initiator)))
            && (self.networks.is_empty() || self.networks.iter().any(|network| network.contains(&address)))
    }
}

/// The rules for access to a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRules {
    /// The rules; empty: any initiator may use it.
    pub rules: Vec<AccessRule>,
}

impl AccessRules {
    /// Whether `initiator`, connecting from `address`, may see and use the target. IPv4 addresses that arrive mapped into
    /// IPv6 are compared as IPv4.
    pub fn allows(&self, initiator: &IscsiName, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.rules.is_empty() || self.rules.iter().any(|rule| rule.matches(initiator, address))
    }

    /// Whether there is no rule, so that any initiator may use it.
    pub fn is_open(&self) -> bool {
        self.rules.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> IscsiName {
        IscsiName::parse(text).unwrap()
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, yes, no) in [
            ("iqn.2001-04.com.example:host", "iqn.2001-04.com.example:host", "iqn.2001-04.com.example:host2"),
            ("iqn.2001-04.com.example:*", "iqn.2001-04.com.example:", "iqn.2001-04.com.examples:a"),
            ("IQN.2001-04.com.Example:*", "iqn.2001-04.com.example:a", "iqn.2001-05.com.example:a"),
            ("*", "eui.02004567a425678d", ""),
            ("iqn.*:a*b*c", "iqn.2001-04.com.example:axxbabcbc", "iqn.2001-04.com.example:axxbabcb"),
            ("*:disk", "iqn.2001-04.com.example:disk:disk", "iqn.2001-04.com.example:disk:disks"),
        ] {
            let pattern = NamePattern::parse(pattern).unwrap();
            assert!(pattern.matches(&name(yes)), "{pattern} {yes}");
            assert!(no.is_empty() || !pattern.matches(&name(no)), "{pattern} {no}");
        }
    }

    #[test]
    fn patterns_that_match_nothing_are_refused() {
        for (text, hint) in [
            ("host*", "begin with iqn."),
            ("iqn.2001-04.com.example:a b*", "character"),
            ("example", "iqn.YYYY-MM"),
            ("", "1 to 223"),
            ("iqn.2001-04.com.example:\n*", "character"),
        ] {
            let error = NamePattern::parse(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(NamePattern::parse(&format!("iqn.*{}", "a".repeat(300))).is_err());
    }

    #[test]
    fn a_rule_needs_name_and_network_and_one_rule_is_enough() {
        let rule = |names: &[&str], nets: &[&str]| AccessRule {
            initiators: names.iter().map(|n| NamePattern::parse(n).unwrap()).collect(),
            networks: nets.iter().map(|n| n.parse().unwrap()).collect(),
        };
        let a = name("iqn.2001-04.com.example:a");
        let b = name("iqn.2001-04.com.example:b");
        let rules = AccessRules {
            rules: vec![
                rule(&["iqn.2001-04.com.example:a"], &["192.0.2.0/25", "2001:db8::/32"]),
                rule(&[], &["198.51.100.7/32"]),
            ],
        };
        for (who, from, allowed) in [
            (&a, "192.0.2.127", true),
            (&a, "192.0.2.128", false),
            (&a, "::ffff:192.0.2.1", true),
            (&a, "2001:db8::1", true),
            (&a, "2001:db9::1", false),
            (&b, "192.0.2.1", false),
            (&b, "198.51.100.7", true),
            (&b, "198.51.100.8", false),
        ] {
            assert_eq!(rules.allows(who, from.parse().unwrap()), allowed, "{who} {from}");
        }
        assert!(AccessRules::default().allows(&b, "203.0.113.9".parse().unwrap()));
        let any_address = AccessRules { rules: vec![rule(&["*:a"], &[])] };
        assert!(any_address.allows(&a, "203.0.113.9".parse().unwrap()));
        assert!(!any_address.allows(&b, "203.0.113.9".parse().unwrap()));
    }
}
