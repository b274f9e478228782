//! `intact wireless model`: equations 3.1 to 3.17 and 4.1 to 4.5 of the thesis, printed and plotted, with its numbers next to
//! ours and each of its errors shown. Nothing is measured: the same program prints the same page on every machine.

mod command_time;
mod failures;
mod flaws;
mod link;
mod queueing;

use super::report::{Report, SCHEMA};

/// Computes everything; `quick`: with shorter runs of the medium where it is compared with equations.
pub fn report(quick: bool) -> Report {
    let sections = vec![
        link::section(),
        link::tcp_section(),
        failures::section(),
        failures::medium_section(if quick { 2 } else { 20 }),
        command_time::hops_section(),
        command_time::section(),
        command_time::nfs_section(),
        queueing::section(),
        queueing::closed_section(),
        flaws::section(),
    ];
    Report {
        schema: SCHEMA,
        command: "wireless model",
        title: "802.11 under storage: the models",
        distrust: None,
        sections,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::wireless::report::Verdict;

    #[test]
    fn every_equation_has_a_row_and_every_refutation_a_reason() {
        let report = report(true);
        let items: BTreeSet<&str> = report.rows().map(|row| row.item).collect();
        let equations = (1..=17).map(|n| format!("3.{n}")).chain((1..=5).map(|n| format!("4.{n}")));
        for equation in equations {
            assert!(items.contains(equation.as_str()), "{equation}");
        }
        for row in report.rows() {
            assert!(row.verdict == Verdict::Reproduced || !row.note.is_empty(), "{row:?}");
            assert!(row.ours.is_none_or(f64::is_finite), "{row:?}");
        }
        let refuted: BTreeSet<&str> =
            report.rows().filter(|row| row.verdict == Verdict::Refuted).map(|row| row.item).collect();
        let expected = ["3.14", "3.2.4", "3.4.2", "3.6", "3.7", "4.3.4", "4.5", "5.1.5"];
        assert_eq!(refuted, expected.into_iter().collect());
    }

    #[test]
    fn the_page_in_the_documentation_is_what_the_command_writes() {
        let page = include_str!("../../../../../docs/wireless-models/results.md");
        let now = report(false).document().markdown();
        let differs = page.lines().zip(now.lines()).find(|(page, now)| page != now);
        assert_eq!(
            (differs, page.lines().count()),
            (None, now.lines().count()),
            "write it again, see docs/wireless-models.md"
        );
    }

    #[test]
    fn charts_have_names_of_their_own() {
        let report = report(true);
        let charts: Vec<&str> =
            report.sections.iter().flat_map(|s| &s.charts).map(|chart| chart.id.as_str()).collect();
        assert_eq!(charts.iter().collect::<BTreeSet<_>>().len(), charts.len(), "{charts:?}");
        assert!(charts.len() >= 8, "{charts:?}");
    }
}
