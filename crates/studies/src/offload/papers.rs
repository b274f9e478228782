//! The figures of the 2013 paper.

use crate::source;

/// How the paper is cited.
pub(super) const CITATION: &str = "the 2013 paper on an iSCSI offload engine in an FPGA, sections 2.4, 3.4 and 4, Tables 2 and 3, Figure 12";

static TEXT: &str = include_str!("papers/offload-2013.txt");

/// A figure of the paper, by its key.
pub(super) fn figure(key: &str) -> f64 {
    source::figure(TEXT, key)
}

/// Microseconds as cycles of the paper's clock.
pub(super) fn cycles(us: f64) -> f64 {
    us * figure("clock") / 1e6
}

/// The stages of Table 2 in one direction, by the last part of their keys.
pub(super) const TX_STAGES: [&str; 5] = ["dma", "descriptors", "header-digest", "data-digest", "toe"];
/// The same of the other.
pub(super) const RX_STAGES: [&str; 4] = ["toe", "parse-header-digest", "dma", "data-digest-store"];

/// The sum of a direction's stages, us.
pub(super) fn sum(direction: &str, stages: &[&str]) -> f64 {
    stages.iter().map(|stage| figure(&format!("table2-{direction}-{stage}"))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_frame_takes_a_beat_in_each_cycle() {
        let beats = figure("frame-data") * 8.0 / figure("bits-per-cycle");
        assert!((cycles(figure("table2-rx-data-digest-store")) - beats).abs() < 0.2);
    }

    /// Table 2's receive stages have the sum that it gives; its transmit stages do not.
    #[test]
    fn one_sum_of_the_paper_is_right_and_one_is_wrong() {
        assert!((sum("rx", &RX_STAGES) - figure("table2-rx-total")).abs() < 0.003);
        assert!((sum("tx", &TX_STAGES) - 1.493).abs() < 1e-6);
        assert!((sum("tx", &TX_STAGES) - figure("table2-tx-total")).abs() > 0.04);
    }
}
