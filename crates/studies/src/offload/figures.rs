//! The figures of the circuits and of the host, from files that are part of the program: they are counted, not measured in time, so no
//! machine can disturb them. Commands write them again, and say when they have changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Shown where there is no figure.
pub(super) const NONE: &str = "-";

/// Version of the JSON format.
pub(super) const SCHEMA: u32 = 1;

/// `make rtl-report` writes it, as rtl/report.json. A link, because a package contains its files and nothing above them.
const AREA: &str = include_str!("area.json");
/// `make rtl-cycles` writes it, as rtl/cycles.json.
const CYCLES: &str = include_str!("cycles.json");
/// `cargo xtask bench offload --write` writes it.
const HOST: &str = include_str!("host-instructions.json");

/// Area and clock of a circuit on an ECP5-85.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Area {
    /// Bits of a beat; 0 where there is none.
    pub bits: u32,
    /// LUT4, with those that are RAM.
    pub lut4_with_ram: u32,
    pub ff: u32,
    /// Blocks of RAM.
    pub bram: u32,
    /// Clock of each placement, MHz.
    pub mhz: Vec<f64>,
    /// Their median.
    pub mhz_median: f64,
    /// Cells for UltraScale+, by type, as far as they were counted.
    #[serde(default)]
    pub ultrascale_plus_cells: BTreeMap<String, u32>,
}

impl Area {
    /// Lookup tables of six inputs on UltraScale+, with those that are RAM: a RAM32M16 takes eight.
    pub(crate) fn lut6(&self) -> Option<u32> {
        let cells = &self.ultrascale_plus_cells;
        let luts = cells.iter().filter(|(kind, _)| kind.starts_with("LUT") || kind.starts_with("SRL"));
        let ram = cells.get("RAM32M16").map_or(0, |count| 8 * count);
        (!cells.is_empty()).then(|| luts.map(|(_, count)| count).sum::<u32>() + ram)
    }
}

/// When the stages of receiving one Data-In end, in cycles after its first beat.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct RxStages {
    pub bits: u32,
    pub data_bytes: u32,
    /// With header and digests.
    pub pdu_bytes: u32,
    pub header_parsed: u32,
    pub header_digest_compared: u32,
    pub data_parsed: u32,
    pub data_digest_compared: u32,
    /// Its last beat has left the Rx buffer.
    pub left_buffer: u32,
}

/// When the stages of sending one command with immediate data end, in cycles after its descriptor was offered. Host memory answers in
/// the next cycle.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct TxStages {
    pub bits: u32,
    pub data_bytes: u32,
    /// With header and digests.
    pub pdu_bytes: u32,
    pub descriptor_taken: u32,
    /// Its scatter/gather list is there, and the header is made.
    pub data_requested: u32,
    pub data_arrives: u32,
    pub first_beat: u32,
    /// Its last beat has left the Tx buffer.
    pub left: u32,
}

/// A stream of equal PDUs without a pause, both digests on: Data-In PDUs through packet controller and Rx buffer, or Data-Out PDUs of the
/// whole engine.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Rate {
    pub bits: u32,
    pub data_bytes: u32,
    pub pdus: u32,
    pub stream_bytes: u64,
    pub cycles: u64,
}

impl Rate {
    /// Beats of the stream in a cycle.
    pub fn beats_per_cycle(&self) -> f64 {
        self.stream_bytes as f64 * 8.0 / f64::from(self.bits) / self.cycles as f64
    }

    /// Bits of data in a cycle, without headers and digests.
    pub fn data_bits_per_cycle(&self) -> f64 {
        f64::from(self.data_bytes) * f64::from(self.pdus) * 8.0 / self.cycles as f64
    }
}

/// Cycles of the circuits, from their models.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Cycles {
    /// From SET_POLY to the first beat.
    pub set_poly: u32,
    /// From the last beat of a message to its digest.
    pub crc64_digest_after: u32,
    pub crc_wide_digest_after: u32,
    pub rx_stages: Vec<RxStages>,
    pub rx_rates: Vec<Rate>,
    pub tx_stages: Vec<TxStages>,
    pub tx_rates: Vec<Rate>,
}

/// Instructions of one command in the client's process, all threads, without the kernel's.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HostRow {
    /// `read` or `write`.
    pub rw: String,
    pub bytes: u64,
    pub digests: bool,
    /// `none` or `software`.
    pub engine: String,
    pub instructions: f64,
    /// Of them inside the software engine: what hardware would do.
    pub engine_instructions: f64,
}

impl HostRow {
    /// What the host executes.
    pub fn host(&self) -> f64 {
        self.instructions - self.engine_instructions
    }
}

/// Instructions of the host, and what they were counted on.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Host {
    /// Machine and commit.
    pub counted_on: String,
    /// Commands under way at a time.
    pub depth: u32,
    pub rows: Vec<HostRow>,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub(crate) schema: u32,
    pub(crate) benchmark: &'static str,
    pub(crate) area: BTreeMap<String, Area>,
    pub(crate) cycles: Cycles,
    pub(crate) host: Host,
}

impl Report {
    /// From the files.
    ///
    /// # Panics
    /// If a file does not have the form that this program expects: they are part of it.
    pub fn read() -> Self {
        Self {
            schema: SCHEMA,
            benchmark: "offload",
            area: serde_json::from_str(AREA).expect("rtl/report.json has its form"),
            cycles: serde_json::from_str(CYCLES).expect("rtl/cycles.json has its form"),
            host: serde_json::from_str(HOST).expect("host-instructions.json has its form"),
        }
    }

    /// The clock of a circuit in the report, Hz.
    pub fn clock(&self, circuit: &str) -> Option<f64> {
        self.area.get(circuit).map(|area| area.mhz_median * 1e6)
    }

    /// The whole receive path as far as it exists, for a width.
    pub fn rx_clock(&self, bits: u32) -> Option<f64> {
        self.clock(&format!("rx_checked_{bits}"))
    }

    /// The transmit path, for a width.
    pub fn tx_clock(&self, bits: u32) -> Option<f64> {
        self.clock(&format!("tx_{bits}"))
    }

    /// The transmit stages of a width.
    pub fn tx_stages(&self, bits: u32) -> Option<TxStages> {
        self.cycles.tx_stages.iter().copied().find(|stages| stages.bits == bits)
    }

    /// The stages of a width.
    pub fn rx_stages(&self, bits: u32) -> Option<RxStages> {
        self.cycles.rx_stages.iter().copied().find(|stages| stages.bits == bits)
    }

    /// The stream of a width with PDUs of a length.
    pub fn rx_rate(&self, bits: u32, data_bytes: u32) -> Option<Rate> {
        find(&self.cycles.rx_rates, bits, data_bytes)
    }

    /// The same for what leaves.
    pub fn tx_rate(&self, bits: u32, data_bytes: u32) -> Option<Rate> {
        find(&self.cycles.tx_rates, bits, data_bytes)
    }

    /// The host's instructions of one command.
    pub fn host(&self, rw: &str, bytes: u64, digests: bool, engine: &str) -> Option<&HostRow> {
        let wanted = (rw, bytes, digests, engine);
        self.host
            .rows
            .iter()
            .find(|row| (row.rw.as_str(), row.bytes, row.digests, row.engine.as_str()) == wanted)
    }

    /// How many times fewer instructions the host executes when an engine carries out the command, digests on.
    pub fn host_ratio(&self, rw: &str, bytes: u64) -> Option<f64> {
        Some(self.host(rw, bytes, true, "none")?.host() / self.host(rw, bytes, true, "software")?.host())
    }
}

fn find(rates: &[Rate], bits: u32, data_bytes: u32) -> Option<Rate> {
    rates.iter().copied().find(|rate| (rate.bits, rate.data_bytes) == (bits, data_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_have_what_the_tables_need() {
        let report = Report::read();
        assert!(report.clock("crc64").is_some() && report.clock("crc_wide").is_some());
        for bits in [64, 512] {
            let stages = report.rx_stages(bits).unwrap();
            assert!(stages.header_parsed <= stages.data_parsed && stages.data_parsed <= stages.left_buffer);
            let sent = report.tx_stages(bits).unwrap();
            assert!(sent.descriptor_taken < sent.data_requested && sent.data_arrives < sent.left);
            for rate in [report.rx_rate(bits, 512).unwrap(), report.tx_rate(bits, 512).unwrap()] {
                assert!(rate.beats_per_cycle() <= 1.0 && rate.data_bits_per_cycle() < f64::from(bits));
            }
            assert!(report.tx_rate(bits, 128).is_none(), "no peer may ask for so little");
        }
    }

    #[test]
    fn a_ram_of_ultrascale_counts_as_its_lookup_tables() {
        let cells = [("LUT6", 10), ("RAM32M16", 2), ("FDRE", 100), ("SRL16E", 1)];
        let area = Area {
            bits: 64,
            lut4_with_ram: 0,
            ff: 0,
            bram: 0,
            mhz: vec![],
            mhz_median: 0.0,
            ultrascale_plus_cells: cells.map(|(kind, count)| (kind.to_owned(), count)).into(),
        };
        assert_eq!(area.lut6(), Some(27));
        assert_eq!(Area { ultrascale_plus_cells: BTreeMap::new(), ..area }.lut6(), None);
    }
}
