//! The figures of the 2005 paper.

use crate::source;

/// How the paper is cited.
pub(super) const CITATION: &str = "the 2005 paper on the performance of iSCSI software (Slicing-by-8, interleaved copy and CRC), sections 3.3, 4 and 5";

static TEXT: &str = include_str!("papers/fastpath-2005.txt");

/// A figure of the paper, by its key.
pub(super) fn figure(key: &str) -> f64 {
    source::figure(TEXT, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_figures_fit_together() {
        let shares = |figure_, size| {
            ["protocol", "crc", "copy"]
                .map(|part| figure(&format!("{figure_}-{part}-share-{size}")))
                .iter()
                .sum::<f64>()
        };
        assert!((shares("fig11", 512) - 1.0).abs() < 0.011);
        assert!((shares("fig11", 8192) - 1.0).abs() < 0.011);
        assert!((shares("fig15", 8192) - 1.0).abs() < 0.011);
        let crc = figure("fig11-crc-cycles-per-byte") * 8192.0;
        assert!((crc / figure("fig11-total-cycles-8192") - figure("fig11-crc-share-8192")).abs() < 0.011);
        let saved = figure("fig16-slicing-8-saved-cycles") / figure("fig16-slicing-8-saved-share");
        assert!(
            (saved / (2.0 * 2.15 * 8192.0) - 1.0).abs() < 0.03,
            "copy and CRC at 2.15 cycles per byte each"
        );
    }

    #[test]
    fn the_projection_of_the_paper_is_consistent_but_what_tcp_costs_it_does_not_say() {
        let cycles = |mb_per_s: &str| figure("frequency") * 8192.0 / (figure(mb_per_s) * 1e6);
        let sarwate = cycles("fig17-mb-per-s-sarwate") - figure("fig11-total-cycles-8192");
        let fast = figure("fig15-total-cycles-8192") - figure("fig16-slicing-8-saved-cycles");
        let slicing_8 = cycles("fig17-mb-per-s-slicing-8") - fast;
        assert!((5000.0..6500.0).contains(&sarwate), "{sarwate}");
        assert!((5000.0..6500.0).contains(&slicing_8), "{slicing_8}");
    }
}
