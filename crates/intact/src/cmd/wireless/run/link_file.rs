//! Links by name, and links that a file describes.

use std::path::Path;

use serde::Deserialize;
use wireless::link::{HOPS_MAX, LinkSetup};
use wireless::mac::{Mac, Rates};

/// A link as a JSON file describes it; fields that are left out are those of 802.11b.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LinkFile {
    data_mbit_s: f64,
    ack_mbit_s: f64,
    slot_us: f64,
    difs_us: f64,
    sifs_us: f64,
    cw_min: u32,
    doublings: u32,
    preamble_us: f64,
    phy_header_us: f64,
    queue_frames: usize,
    latency_us: u64,
}

impl Default for LinkFile {
    fn default() -> Self {
        let mac = Mac::B;
        Self {
            data_mbit_s: mac.rates.data,
            ack_mbit_s: mac.rates.ack,
            slot_us: mac.t_slot_us,
            difs_us: mac.t_difs_us,
            sifs_us: mac.t_sifs_us,
            cw_min: mac.cw_min,
            doublings: mac.doublings,
            preamble_us: mac.t_p_us,
            phy_header_us: mac.t_phy_us,
            queue_frames: LinkSetup::of(mac).queue_frames,
            latency_us: 0,
        }
    }
}

/// Longest time in a file, µs, and most frames of a queue: a larger value is in the wrong unit.
const TIME_MAX_US: f64 = 1e6;
const QUEUE_MAX: usize = 10_000;

impl LinkFile {
    fn setup(&self) -> Result<LinkSetup, String> {
        let times = [self.slot_us, self.difs_us, self.sifs_us, self.preamble_us, self.phy_header_us];
        if !times.iter().all(|time| (0.0..=TIME_MAX_US).contains(time)) || self.slot_us < 1.0 {
            return Err("times are from 0 to 1000000 µs, a slot is at least 1".to_owned());
        }
        if ![self.data_mbit_s, self.ack_mbit_s].iter().all(|rate| (0.1..=10_000.0).contains(rate)) {
            return Err("rates are from 0.1 to 10000 Mbit/s".to_owned());
        }
        if self.cw_min > 1023
            || self.doublings > 10
            || self.queue_frames > QUEUE_MAX
            || self.latency_us > 10_000_000
        {
            return Err(
                "cw_min is at most 1023, doublings 10, queue_frames 10000, latency_us 10000000".to_owned()
            );
        }
        let mac = Mac {
            rates: Rates {
                data: self.data_mbit_s,
                ack: self.ack_mbit_s,
                lowest: self.ack_mbit_s.min(self.data_mbit_s),
            },
            t_slot_us: self.slot_us,
            t_difs_us: self.difs_us,
            t_sifs_us: self.sifs_us,
            cw_min: self.cw_min,
            doublings: self.doublings,
            t_p_us: self.preamble_us,
            t_phy_us: self.phy_header_us,
            ..Mac::B
        };
        let (queue_frames, latency_ns) = (self.queue_frames, self.latency_us * 1000);
        Ok(LinkSetup { queue_frames, latency_ns, ..LinkSetup::of(mac) })
    }
}

/// The link of that name, or of that file.
///
/// # Errors
/// What is wrong with it, and the remedy.
pub fn named(name: &str) -> Result<LinkSetup, String> {
    match name {
        "802.11b" => Ok(LinkSetup::of(Mac::B)),
        "802.11g" => Ok(LinkSetup::of(Mac::G)),
        path => {
            let text = std::fs::read_to_string(Path::new(path))
                .map_err(|error| format!("{path}: {error}; a link is 802.11b, 802.11g, or a file of JSON"))?;
            let file: LinkFile = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
            file.setup().map_err(|what| format!("{path}: {what}"))
        }
    }
}

/// How many hops there may be.
pub fn hops(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(hops @ 1..=HOPS_MAX) => Ok(hops),
        _ => Err(format!("1 to {HOPS_MAX}")),
    }
}

/// A share: 0.01, or 1%.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    match number.parse::<f64>().map(|number| number * unit) {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("a share from 0 to 1, or from 0% to 100%, without the upper end".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_differs_from_802_11b() {
        let link = |text: &str| serde_json::from_str::<LinkFile>(text).map(|file| file.setup());
        assert_eq!(
            link("{}").unwrap().unwrap().mac,
            Mac { rates: Rates { lowest: 2.0, ..Mac::B.rates }, ..Mac::B }
        );
        let slow = link(r#"{"data_mbit_s": 1, "ack_mbit_s": 1, "latency_us": 2000}"#).unwrap().unwrap();
        assert_eq!((slow.mac.rates.data, slow.latency_ns), (1.0, 2_000_000));
        assert!(link(r#"{"speed": 1}"#).is_err(), "a field that is not known is no slip to be ignored");
        for wrong in
            [r#"{"data_mbit_s": 0}"#, r#"{"slot_us": 0}"#, r#"{"difs_us": -1}"#, r#"{"cw_min": 5000}"#]
        {
            assert!(link(wrong).unwrap().is_err(), "{wrong}");
        }
        assert!(named("no such file").unwrap_err().contains("802.11b"));
    }

    #[test]
    fn shares_are_numbers_or_percents() {
        assert_eq!((share("0.01"), share("1%"), share("0")), (Ok(0.01), Ok(0.01), Ok(0.0)));
        for wrong in ["1", "100%", "-1", "x", "nan", "inf"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert!(hops("0").is_err() && hops("17").is_err() && hops("2") == Ok(2));
    }
}
