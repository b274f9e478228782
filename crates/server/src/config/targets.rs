//! `[[target]]` with its logical units, access rules and portal groups.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;

use blockstore::StoreSpec;
use ipnet::IpNet;
use iscsi_core::names::IscsiName;
use iscsi_core::params::Bounds;
use target::config::{AccessRule, AccessRules, Auth, DEFAULT_QUEUE_DEPTH, LunConfig, TargetConfig};

use super::auth::{self, Secrets};
use super::port_groups;
use super::problem::Source;
use super::reader::{At, Section};
use super::settings;

/// Maximum number of commands that a session may have outstanding.
pub(crate) const MAX_QUEUE_DEPTH: u32 = 4096;
/// Highest LUN: flat space addressing has 14 bits (SAM-5 4.7.7.4).
pub(crate) const MAX_LUN: u16 = 16_383;
/// Longest TargetAlias, bytes (RFC 7143 13.7).
const MAX_ALIAS_BYTES: usize = 255;
/// Longest PRODUCT IDENTIFICATION (SPC-4 6.6.2).
const MAX_PRODUCT_BYTES: usize = 16;
/// Longest serial number that can be configured; hosts keep little more.
const MAX_SERIAL_BYTES: usize = 36;

/// Reads every `[[target]]`.
pub(super) fn read(
    source: &mut Source<'_>,
    top: &mut Section<'_>,
    bounds: &Bounds,
    secrets: &mut Secrets,
) -> Vec<At<TargetConfig>> {
    let mut targets: Vec<At<TargetConfig>> = Vec::new();
    let mut names: HashSet<IscsiName> = HashSet::new();
    let sections = top.tables(source, "target");
    if sections.is_empty() {
        source.warn(
            &(0..0),
            "there is no target",
            "",
            "add [[target]] with a name, and [[target.lun]] below it",
        );
    }
    for mut section in sections {
        let at = section.at.clone();
        if let Some(target) = target(source, &mut section, bounds, secrets) {
            if !names.insert(target.name.clone()) {
                let what = format!("the target {} is given twice", target.name);
                source.error(&at, what, "RFC 7143 4.2.7: a name is one target", "give it another name");
            }
            targets.push((target, at));
        }
        section.finish(source);
    }
    same_stores(source, &targets);
    same_serials(source, &targets);
    targets
}

fn target(
    source: &mut Source<'_>,
    section: &mut Section<'_>,
    bounds: &Bounds,
    secrets: &mut Secrets,
) -> Option<TargetConfig> {
    let name = name(source, section);
    let alias = section.text(source, "alias").and_then(|(alias, at)| {
        //= rfc7143 13.7 KEY-06
        let usable = alias.len() <= MAX_ALIAS_BYTES && !alias.chars().any(char::is_control);
        if !usable {
            let what = "the alias cannot be sent";
            source.error(&at, what, "RFC 7143 13.7", "write up to 255 bytes without control characters");
        }
        usable.then_some(alias)
    });
    let queue_depth = section
        .number(source, "queue_depth", 1..=u64::from(MAX_QUEUE_DEPTH), "")
        .and_then(|depth| u32::try_from(depth).ok())
        .unwrap_or(DEFAULT_QUEUE_DEPTH);
    let redirect = redirect(source, section);
    let portals = section
        .numbers(source, "portal_groups", 0..=65_535, "RFC 7143 13.9")
        .map(|tags| tags.into_iter().filter_map(|(tag, _)| u16::try_from(tag).ok()).collect::<Vec<_>>());
    if portals.as_ref().is_some_and(Vec::is_empty) {
        section.empty(source, "portal_groups", "leave it away to serve the target on all portals");
    }
    let access_states = port_groups::read(source, section);
    let hosts_set_access_states = section.boolean(source, "hosts_set_access_states").unwrap_or(false);
    let management_url = port_groups::management_url(source, section);
    let luns = luns(source, section, redirect.is_some());
    let access = access(source, section);
    let auth: Auth = auth::read(source, section, secrets);
    accounts_for_anybody(source, section, &auth);
    let bounds = settings::negotiation(source, section, bounds.clone());
    Some(TargetConfig {
        name: name?,
        alias,
        luns,
        access,
        auth,
        bounds,
        queue_depth,
        redirect,
        portals,
        access_states,
        hosts_set_access_states,
        management_url,
    })
}

/// An initiator chooses its own name: where several accounts may use any name, only the account distinguishes hosts.
//= rfc7143 9.2 SEC-14
fn accounts_for_anybody(source: &mut Source<'_>, section: &Section<'_>, auth: &Auth) {
    let Auth::Chap { accounts, .. } = auth else { return };
    let open: Vec<_> = accounts.iter().filter(|a| a.initiators.is_empty()).map(|a| &*a.name).collect();
    if accounts.len() > 1 && !open.is_empty() {
        source.warn(
            &section.at,
            format!("of several accounts, {} may log in as any initiator", open.join(", ")),
            "RFC 7143 9.2: an account is for the initiators that it names",
            "add initiators = [\"NAME\"] to each [[target.chap.account]]",
        );
    }
}

fn name(source: &mut Source<'_>, section: &mut Section<'_>) -> Option<IscsiName> {
    let Some((text, at)) = section.text(source, "name") else {
        section.missing(source, "name", "add name = \"iqn.YYYY-MM.your.domain.reversed:label\"");
        return None;
    };
    match IscsiName::parse(&text) {
        Ok(name) => Some(name),
        Err(violation) => {
            let remedy = "write for example \"iqn.2004-10.com.example:disk\": a month in which you had the domain, \
                 the domain reversed, and a label";
            source.error(&at, violation.what, violation.rule, remedy);
            None
        }
    }
}

//= rfc7143 13.8 KEY-07
fn redirect(source: &mut Source<'_>, section: &mut Section<'_>) -> Option<Vec<String>> {
    let addresses = section.texts(source, "redirect")?;
    if addresses.is_empty() {
        section.empty(source, "redirect", "leave it away, or write where initiators are to go");
        return None;
    }
    let mut usable = Vec::new();
    for (address, at) in addresses {
        match target_address(&address) {
            true => usable.push(address),
            false => source.error(
                &at,
                "this is no address for initiators",
                "RFC 7143 13.8",
                "write host:port without a group tag; IPv6 addresses stand in brackets: \"[2001:db8::1]:3260\"",
            ),
        }
    }
    Some(usable)
}

/// `host[:port]`, where host is a name, an IPv4 address, or an IPv6 address in brackets.
fn target_address(text: &str) -> bool {
    let (host_fits, rest) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, rest)) => (host.parse::<std::net::Ipv6Addr>().is_ok(), rest),
            None => (false, ""),
        },
        None => {
            let end = text.find(':').unwrap_or(text.len());
            let (host, rest) = text.split_at(end);
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
            ((1..=253).contains(&host.len()) && host.chars().all(plain), rest)
        }
    };
    let port_fits = match rest.strip_prefix(':') {
        Some(port) => {
            port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
        }
        None => rest.is_empty(),
    };
    host_fits && port_fits
}

fn luns(source: &mut Source<'_>, section: &mut Section<'_>, redirected: bool) -> Vec<LunConfig> {
    let mut luns: Vec<LunConfig> = Vec::new();
    let mut numbers: HashSet<u16> = HashSet::new();
    let mut any = false;
    for mut section in section.tables(source, "lun") {
        any = true;
        // Without a number, the one after the last.
        let next = luns.last().map_or(0, |lun| lun.number.saturating_add(1));
        let number = section
            .number(source, "number", 0..=u64::from(MAX_LUN), "SAM-5 4.7.7.4")
            .and_then(|number| u16::try_from(number).ok())
            .unwrap_or(next);
        if numbers.contains(&number) {
            let remedy = "give each logical unit of a target a number of its own";
            source.error(&section.at, format!("LUN {number} is given twice"), "SAM-5 4.7", remedy);
        }
        let serial = ascii(source, &mut section, "serial", MAX_SERIAL_BYTES);
        let product = ascii(source, &mut section, "product", MAX_PRODUCT_BYTES);
        let read_only = section.boolean(source, "read_only").unwrap_or(false);
        let write_cache = section.boolean(source, "write_cache").unwrap_or(true);
        let rotational = section.boolean(source, "rotational").unwrap_or(false);
        if let Some(mut store) = store(source, &mut section) {
            let mut read_only = read_only;
            // One switch: a unit that rejects writes does not open its file for writing.
            read_only |= store.is_read_only();
            store.set_read_only(read_only);
            numbers.insert(number);
            luns.push(LunConfig { number, store, serial, product, read_only, write_cache, rotational });
        }
        section.finish(source);
    }
    if redirected {
        return luns;
    }
    if !any {
        let remedy = "add [[target.lun]] with store = \"ram:1G\" or \"file:PATH\"";
        source.warn(&section.at, "the target has no logical unit", "", remedy);
    } else if !luns.is_empty() && !luns.iter().any(|lun| lun.number == 0) {
        let what = "the target has no LUN 0, where many initiators look first";
        source.warn(&section.at, what, "SAM-5 4.7.4", "number one of its logical units 0");
    }
    luns
}

fn store(source: &mut Source<'_>, section: &mut Section<'_>) -> Option<StoreSpec> {
    const EXAMPLE: &str = "write store = \"ram:1G\" or \"file:/srv/disk0,size=10G\"";
    let Some((text, at)) = section.text(source, "store") else {
        section.missing(source, "store", EXAMPLE);
        return None;
    };
    match text.parse() {
        Ok(store) => Some(StoreSpec::within(store, source.directory())),
        Err(error) => {
            source.error(&at, error.to_string(), "", EXAMPLE);
            None
        }
    }
}

/// A text for INQUIRY: printable ASCII, at most `max` bytes.
fn ascii(
    source: &mut Source<'_>,
    section: &mut Section<'_>,
    key: &'static str,
    max: usize,
) -> Option<String> {
    let (text, at) = section.text(source, key)?;
    let usable = (1..=max).contains(&text.len()) && text.bytes().all(|b| (0x20..0x7f).contains(&b));
    if !usable {
        let remedy = format!("write 1 to {max} letters, digits or signs of ASCII");
        source.error(&at, format!("`{key}` cannot be told by INQUIRY"), "SPC-4 4.3.1", remedy);
    }
    usable.then_some(text)
}

fn access(source: &mut Source<'_>, section: &mut Section<'_>) -> AccessRules {
    let mut rules = Vec::new();
    for mut section in section.tables(source, "access") {
        let at = section.at.clone();
        let before = source.problems.len();
        let initiators = auth::patterns(source, &mut section);
        let networks = networks(source, &mut section);
        if initiators.is_empty() && networks.is_empty() && source.problems.len() == before {
            source.error(
                &at,
                "the rule allows everyone",
                "what opens a target is written out",
                "name initiators or networks; for everyone, write initiators = [\"*\"]",
            );
        }
        section.finish(source);
        rules.push(AccessRule { initiators, networks });
    }
    AccessRules { rules }
}

fn networks(source: &mut Source<'_>, section: &mut Section<'_>) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for (text, at) in section.texts(source, "networks").into_iter().flatten() {
        let network =
            text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| ());
        match network {
            Ok(network) => {
                if network.addr() != network.network() {
                    let what = format!("`{text}` has bits beyond its prefix");
                    source.error(&at, what, "RFC 4632 3.1", format!("write \"{}\"", network.trunc()));
                }
                networks.push(network);
            }
            Err(()) => {
                let shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
                source.error(
                    &at,
                    format!("`{shown}` is no network"),
                    "RFC 4632 3.1",
                    "write an address or a network, such as \"192.0.2.0/24\" or \"2001:db8::/32\"",
                );
            }
        }
    }
    networks
}

/// Reports files that two logical units share: the second could not open the file.
fn same_stores(source: &mut Source<'_>, targets: &[At<TargetConfig>]) {
    let mut seen: HashMap<&std::path::Path, String> = HashMap::new();
    let mut twice: Vec<(Range<usize>, String)> = Vec::new();
    for (target, at) in targets {
        for lun in &target.luns {
            let Some(path) = lun.store.path() else { continue };
            let here = format!("LUN {} of {}", lun.number, target.name);
            match seen.get(path) {
                Some(there) => {
                    let what = format!("{} is the store of {there} and of {here}", path.display());
                    twice.push((at.clone(), what));
                }
                None => drop(seen.insert(path, here)),
            }
        }
    }
    for (at, what) in twice {
        let remedy = "give each logical unit a store of its own; one target may have several portals";
        source.error(&at, what, "a store has one logical unit", remedy);
    }
}

/// Reports serial numbers that two logical units share: hosts would treat the units as two paths to one disk, and their
/// persistent reservations would be kept in one place.
//= spc4 7.8.6 VPD-83
fn same_serials(source: &mut Source<'_>, targets: &[At<TargetConfig>]) {
    let mut seen: HashMap<&str, String> = HashMap::new();
    let mut twice: Vec<(Range<usize>, String)> = Vec::new();
    for (target, at) in targets {
        for lun in &target.luns {
            let Some(serial) = lun.serial.as_deref() else { continue };
            let here = format!("LUN {} of {}", lun.number, target.name);
            match seen.get(serial) {
                Some(there) => {
                    twice.push((at.clone(), format!("{there} and {here} have the serial number {serial}")))
                }
                None => drop(seen.insert(serial, here)),
            }
        }
    }
    for (at, what) in twice {
        let remedy = "give each logical unit a serial number of its own, or leave it away";
        source.error(&at, what, "SPC-4 7.8.6: it names one unit", remedy);
    }
}

#[cfg(test)]
mod tests {
    use super::target_address;

    // covers: KEY-07
    #[test]
    fn key_07_addresses_of_a_redirection() {
        for good in ["example.com", "192.0.2.1:3260", "[2001:db8::1]", "[2001:db8::1]:860", "a-b.c:1"] {
            assert!(target_address(good), "{good}");
        }
        for bad in [
            "",
            ":3260",
            "host:",
            "host:0",
            "host:65536",
            "host:1,1",
            "2001:db8::1",
            "[::1",
            "[x]:1",
            "a b",
            "h:+1",
        ] {
            assert!(!target_address(bad), "{bad}");
        }
    }
}
