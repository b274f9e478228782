//! `intact wireless lab`: Figures 6.1 to 6.18 of the thesis again: the real target and the real initiator over the medium of the crate
//! `wireless`, with the thesis' numbers next to ours.
//!
//! In discrete events, where the same seeds give the same page on every machine; and with --live in real time (`live`), where peers of
//! other makes and the kernel's TCP take part.

mod bench;
mod live;
mod several;
mod single;
mod survival;
mod tcp;

use self::bench::Lab;
use self::live::Live;
use super::report::{Report, SCHEMA, Section};
use harness::Failure;
use harness::progress::Progress;

/// A figure, and the function that measures it.
type Figure = (&'static str, fn(&Lab) -> Result<Section, String>);

const FIGURES: [Figure; 18] = [
    ("6.1", tcp::windows),
    ("6.2", tcp::linux),
    ("6.3", tcp::access_point),
    ("6.4", single::nfs),
    ("6.6", single::one_connection),
    ("6.7", several::targets_b_reads),
    ("6.8", several::targets_b_writes),
    ("6.9", several::targets_g_reads),
    ("6.10", several::targets_g_writes),
    ("6.11", several::connections_reads),
    ("6.12", several::connections_writes),
    ("6.13", several::ethernet),
    ("6.14", several::response_time),
    ("6.15", single::processors),
    ("6.16", single::latency),
    ("6.17", single::mtu),
    ("6.18", single::queue),
    ("survival", survival::figure),
];
/// The figures of --quick.
const QUICK: [&str; 5] = ["6.2", "6.6", "6.11", "6.17", "6.18"];
/// Runs whose mean a figure is.
const SEEDS: u64 = 5;

/// What to measure, and how much of it.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Only these figures of the thesis: 6.1 to 6.18; 6.4 stands for 6.5 as well. Also `survival`; in real time `peers` and `storage`.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    figure: Vec<String>,
    /// In real time, with the kernel's TCP: 6.4, 6.14 to 6.16, peers and storage. 6.4 and 6.15, peers and storage are so without it. Needs root.
    #[arg(long)]
    live: bool,
    /// Five figures, fewer sizes, shorter runs, one seed.
    #[arg(long)]
    quick: bool,
    /// Runs whose mean a figure is [default: 5, quick: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
}

/// Figures of which discrete events have only the reason why they are not there.
const LIVE_ONLY: [&str; 4] = ["6.4", "6.15", "peers", "storage"];

/// Measures.
///
/// # Errors
/// There is no such figure, an invariant did not hold, or a measurement failed.
pub fn measure(options: &Options, progress: Progress) -> Result<Report, Failure> {
    let named: Vec<&str> = options.figure.iter().map(String::as_str).collect();
    let only_live = !named.is_empty() && named.iter().all(|figure| LIVE_ONLY.contains(figure));
    if options.live || only_live {
        live(options, &named, progress)
    } else {
        simulate(options, &named, progress)
    }
}

/// The figures asked for, of those that there are.
fn chosen<F>(
    named: &[&str],
    figures: impl IntoIterator<Item = (&'static str, F)>,
    default: impl Fn(&str) -> bool,
) -> Result<Vec<(&'static str, F)>, Failure> {
    let figures: Vec<_> = figures.into_iter().collect();
    if let Some(unknown) = named.iter().find(|name| !figures.iter().any(|(figure, _)| figure == *name)) {
        let known: Vec<&str> = figures.iter().map(|(figure, _)| *figure).collect();
        return Err(Failure::Misused(format!("no figure {unknown} here, but {}", known.join(", "))));
    }
    let wanted = |figure: &str| if named.is_empty() { default(figure) } else { named.contains(&figure) };
    Ok(figures.into_iter().filter(|(figure, _)| wanted(figure)).collect())
}

/// Measures figures, one after the other.
fn each<F>(
    progress: Progress,
    figures: Vec<(&'static str, F)>,
    measure: impl Fn(&F) -> Result<Section, String>,
) -> Result<Vec<Section>, Failure> {
    let bar = progress.bar(figures.len() as u64);
    let mut sections = Vec::new();
    for (number, figure) in figures {
        bar.set_message(number);
        let section = measure(&figure).map_err(|what| Failure::Failed(format!("figure {number}: {what}")))?;
        sections.push(section);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(sections)
}

fn simulate(options: &Options, named: &[&str], progress: Progress) -> Result<Report, Failure> {
    let seeds = options.seeds.unwrap_or(if options.quick { 1 } else { SEEDS });
    let lab = Lab { seeds, quick: options.quick };
    let figures = chosen(named, FIGURES, |figure| !options.quick || QUICK.contains(&figure))?;
    let sections = each(progress, figures, |measure| measure(&lab))?;
    Ok(report("802.11 under storage: the experiments", None, sections))
}

fn live(options: &Options, named: &[&str], progress: Progress) -> Result<Report, Failure> {
    let live = Live::new(options.quick);
    let mut sections = each(progress, chosen(named, live::FIGURES, |_| true)?, |measure| measure(&live))?;
    sections.push(live.surroundings());
    Ok(report("802.11 under storage: in real time", Some(live.distrust()), sections))
}

fn report(title: &'static str, distrust: Option<Vec<String>>, sections: Vec<Section>) -> Report {
    Report { schema: SCHEMA, command: "wireless lab", title, distrust, sections }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wireless::report::Verdict;

    #[test]
    fn every_figure_of_the_thesis_is_measured_or_has_its_reason() {
        let lab = Lab { seeds: 1, quick: true };
        for number in ["6.4", "6.15"] {
            let (_, measure) = FIGURES.iter().find(|(figure, _)| *figure == number).unwrap();
            let rows = measure(&lab).unwrap().rows;
            assert!(rows.iter().all(|row| row.verdict == Verdict::NotReproducible && !row.note.is_empty()));
        }
        let mut numbers: Vec<String> = (1..=18).filter(|n| *n != 5).map(|n| format!("6.{n}")).collect();
        numbers.push("survival".to_owned());
        assert_eq!(FIGURES.map(|(number, _)| number).to_vec(), numbers);
        assert!(LIVE_ONLY.iter().all(|number| live::FIGURES.iter().any(|(figure, _)| figure == number)));
        assert!(QUICK.iter().all(|number| numbers.iter().any(|known| known == number)));
    }

    #[test]
    fn one_connection_reads_as_the_thesis_measured() {
        let section = single::one_connection(&Lab { seeds: 1, quick: true }).unwrap();
        for row in &section.rows {
            assert_eq!(row.verdict, Verdict::Reproduced, "{row:?}");
        }
    }
}
