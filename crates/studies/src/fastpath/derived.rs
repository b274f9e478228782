//! What tables and findings derive from the measurements.

use super::caches::Regime;
use super::contenders::{SARWATE, SLICING_8};
use super::report::{Projection, Query, Report};
use super::sandbox::Way;
use super::turns::{LARGE_PDU_BYTES, PDU_BYTES};

/// Shown where there is no figure.
pub(super) const NONE: &str = "-";

/// Bytes of an Ethernet frame with its gap and preamble, and of TCP payload in it (timestamps in use).
const FRAME_BYTES: (f64, f64) = (1538.0, 1448.0);
const TEN_GIGABIT_BYTES_PER_S: f64 = 1.25e9;
/// Header and two digests.
const PDU_OVERHEAD_BYTES: f64 = 56.0;

/// The protocol's cycles of reads of so many PDUs.
pub(super) fn protocol(report: &Report, pdus: usize, regime: Regime) -> Option<f64> {
    let query = Query::new(Way::Layered, report.in_use(), LARGE_PDU_BYTES);
    report.cycles(Query { pdus, regime, crc: false, copy: false, ..query })
}

/// Copy and CRC of a PDU: cycles one after the other, and interleaved.
pub(super) fn copy_and_crc(
    report: &Report,
    contender: &'static str,
    bytes: usize,
    regime: Regime,
) -> Option<(f64, f64)> {
    let layered = Query { regime, ..Query::new(Way::Layered, contender, bytes) };
    let stub = Query { contender: report.in_use(), crc: false, copy: false, ..layered };
    let protocol = report.cycles(stub)?;
    let interleaved = report.cycles(Query { way: Way::Interleaved, ..layered })?;
    Some((report.cycles(layered)? - protocol, interleaved - protocol))
}

/// 10^6 bytes per second that one processor could receive, as the paper projects it.
pub(super) fn projection(report: &Report, way: Way, contender: &'static str, bytes: usize) -> Option<f64> {
    let tcp = report.figure_17.tcp_cycles_per_byte? * (bytes as f64 + PDU_OVERHEAD_BYTES);
    let cycles = report.cycles(Query::new(way, contender, bytes))? + tcp;
    Some(report.frequency.cycle_hz * bytes as f64 / cycles / 1e6)
}

/// The curves of Figure 17: the paper's two, Slicing-by-8 one after the other, and the product.
pub(super) fn projected(report: &Report) -> [(Way, &'static str, &'static str); 4] {
    [
        (Way::Layered, SARWATE, "Sarwate, layered"),
        (Way::Layered, SLICING_8, "Slicing-by-8, layered"),
        (Way::Interleaved, SLICING_8, "Slicing-by-8, interleaved"),
        (Way::AsBuilt, report.in_use(), "as built"),
    ]
}

/// Every projection of Figure 17.
pub(super) fn projections(report: &Report) -> Vec<Projection> {
    let each = projected(report).into_iter().flat_map(|(way, contender, _)| {
        PDU_BYTES.into_iter().filter_map(move |pdu_bytes| {
            let mb_per_s = projection(report, way, contender, pdu_bytes)?;
            Some(Projection { way, contender, pdu_bytes, mb_per_s })
        })
    });
    each.collect()
}

/// What 10 Gbit/s Ethernet carries of the data of PDUs of so many bytes, 10^6 bytes per second.
pub(super) fn line_rate(pdu_bytes: usize) -> f64 {
    let share = pdu_bytes as f64 / (pdu_bytes as f64 + PDU_OVERHEAD_BYTES);
    TEN_GIGABIT_BYTES_PER_S * FRAME_BYTES.1 / FRAME_BYTES.0 * share / 1e6
}
