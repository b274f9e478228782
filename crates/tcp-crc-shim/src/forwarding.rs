//! `net.ipv4.ip_forward` of the calling thread's network namespace. The first enclosure that finds it off switches it on, and the last one
//! to go switches it off again. In between, an nft table without rules records that it was off, for whichever is last.

use serde_json::Value;

use crate::commands::{SetupError, nft, nft_list, set_switch, switch};

/// Prefix of the names of the enclosures' tables.
pub(crate) const TABLES: &str = "intact_crc_";
/// The table that records that forwarding was off.
const WAS_OFF: &str = "intact_forwarding_was_off";
const SWITCH: &str = "ipv4/ip_forward";

/// Switches forwarding on.
pub(crate) fn switch_on() -> Result<(), SetupError> {
    if switch(SWITCH).as_deref() == Some("0") {
        nft(&format!("add table inet {WAS_OFF}"))?;
        set_switch(SWITCH, "1")?;
    }
    Ok(())
}

/// Switches forwarding off if it was off before the first enclosure and no enclosure is left.
pub(crate) fn switch_off_if_last() {
    let Ok(listed) = nft_list("tables") else { return };
    let names = || objects(&listed, "table").filter_map(|table| table["name"].as_str());
    if names().any(|name| name == WAS_OFF) && !names().any(|name| name.starts_with(TABLES)) {
        let _ = nft(&format!("delete table inet {WAS_OFF}"));
        let _ = set_switch(SWITCH, "0");
    }
}

/// The chains of this machine's firewall that discard forwarded packets unless a rule accepts them, as `family table chain`.
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

/// The objects of one kind in the output of `nft --json` (libnftables-json(5)).
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
