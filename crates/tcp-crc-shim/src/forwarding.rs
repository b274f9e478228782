//! `net.ipv4.ip_forward` of the network namespace that the calling thread is in: switched on by the first enclosure that finds it off,
//! and off again by the last one that goes. In between a table of nft without rules says that it was off, for whichever is the last.

use serde_json::Value;

use crate::commands::{SetupError, nft, nft_list, set_switch, switch};

/// How the tables of enclosures are called.
pub(crate) const TABLES: &str = "intact_crc_";
/// The table that says: it was off.
const WAS_OFF: &str = "intact_forwarding_was_off";
const SWITCH: &str = "ipv4/ip_forward";

/// Switches it on.
pub(crate) fn switch_on() -> Result<(), SetupError> {
    if switch(SWITCH).as_deref() == Some("0") {
        nft(&format!("add table inet {WAS_OFF}"))?;
        set_switch(SWITCH, "1")?;
    }
    Ok(())
}

/// Switches it off, if it was off before the first enclosure and none is left.
pub(crate) fn switch_off_if_last() {
    let Ok(listed) = nft_list("tables") else { return };
    let names = || objects(&listed, "table").filter_map(|table| table["name"].as_str());
    if names().any(|name| name == WAS_OFF) && !names().any(|name| name.starts_with(TABLES)) {
        let _ = nft(&format!("delete table inet {WAS_OFF}"));
        let _ = set_switch(SWITCH, "0");
    }
}

/// The chains of this machine's firewall that discard what is forwarded unless a rule accepts it, as `family table chain`.
pub fn chains_that_drop() -> Vec<String> {
    nft_list("chains").map(|listed| dropping(&listed)).unwrap_or_default()
}

fn dropping(listed: &Value) -> Vec<String> {
    objects(listed, "chain")
        .filter(|chain| chain["hook"] == "forward" && chain["policy"] == "drop")
        .filter_map(|chain| {
            let [family, table, name] = ["family", "table", "name"].map(|field| chain[field].as_str());
            Some(format!("{} {} {}", family?, table?, name?))
        })
        .collect()
}

/// The objects of one kind in what `nft --json` lists (libnftables-json(5)).
fn objects<'a>(listed: &'a Value, kind: &'static str) -> impl Iterator<Item = &'a Value> {
    listed["nftables"].as_array().into_iter().flatten().filter_map(move |object| object.get(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_that_drops_what_is_forwarded_is_named() {
        let listed = serde_json::json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "hook": "forward", "policy": "drop"}},
            {"chain": {"family": "ip", "table": "filter", "name": "INPUT", "hook": "input", "policy": "drop"}},
            {"chain": {"family": "inet", "table": "mine", "name": "f", "hook": "forward", "policy": "accept"}},
            {"chain": {"family": "inet", "table": "mine", "name": "called"}},
        ]});
        assert_eq!(dropping(&listed), ["ip filter FORWARD"]);
        assert_eq!(dropping(&Value::Null), Vec::<String>::new());
    }
}
