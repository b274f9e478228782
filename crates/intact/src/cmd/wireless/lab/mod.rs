//! `intact wireless lab`: Figures 6.1 to 6.18 of the thesis again, in discrete events: the real target and the real initiator over the
//! medium of the crate `wireless`, with the thesis' numbers next to ours.
//!
//! The same seeds give the same page on every machine. What is not here: peers of other makes, and the kernel's TCP, which need the
//! medium in real time.

mod bench;
mod several;
mod single;
mod tcp;

use std::process::ExitCode;

use self::bench::Lab;
use super::report::{Report, SCHEMA, Section};
use crate::cmd::bench::kit::arguments::Forms;
use crate::cmd::{FAILED, MISUSED, fail};

/// A figure, and the function that measures it.
type Figure = (&'static str, fn(&Lab) -> Result<Section, String>);

const FIGURES: [Figure; 17] = [
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
];
/// The figures of --quick.
const QUICK: [&str; 5] = ["6.2", "6.6", "6.11", "6.17", "6.18"];
/// Runs whose mean a figure is.
const SEEDS: u64 = 5;

/// Arguments of `intact wireless lab`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact wireless lab --quick                    a first impression\n  \
    intact wireless lab --figure 6.11,6.18         two figures\n  \
    intact wireless lab --html lab.html            everything, with charts\n\n\
    Exit codes: 0 done; 1 an invariant did not hold; 2 wrong usage.")]
pub struct Args {
    /// Only these figures of the thesis: 6.1 to 6.18; 6.4 stands for 6.5 as well.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    figure: Vec<String>,
    /// Five figures, fewer sizes, shorter runs, one seed.
    #[arg(long)]
    quick: bool,
    /// Runs whose mean a figure is [default: 5, quick: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    #[command(flatten)]
    forms: Forms,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    let known = |number: &&String| FIGURES.iter().any(|(figure, _)| figure == number);
    if let Some(unknown) = args.figure.iter().find(|number| !known(number)) {
        return fail(MISUSED, format_args!("there is no figure {unknown}: 6.1 to 6.18, and 6.4 for 6.5"));
    }
    let wanted = |number: &str| match args.figure.is_empty() {
        true => !args.quick || QUICK.contains(&number),
        false => args.figure.iter().any(|wanted| wanted == number),
    };
    let figures: Vec<Figure> = FIGURES.into_iter().filter(|(number, _)| wanted(number)).collect();
    let lab = Lab { seeds: args.seeds.unwrap_or(if args.quick { 1 } else { SEEDS }), quick: args.quick };
    let bar = args.forms.progress(figures.len() as u64);
    let mut sections = Vec::new();
    for (number, measure) in figures {
        bar.set_message(number);
        match measure(&lab) {
            Ok(section) => sections.push(section),
            Err(what) => {
                return fail(FAILED, format_args!("figure {number}: an invariant did not hold: {what}"));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let title = "802.11 under storage: the experiments";
    let report = Report { schema: SCHEMA, command: "wireless lab", title, sections };
    args.forms.show(&report, |report, _| report.document())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::wireless::report::Verdict;

    #[test]
    fn every_figure_of_the_thesis_is_measured_or_has_its_reason() {
        let lab = Lab { seeds: 1, quick: true };
        for number in ["6.4", "6.15"] {
            let (_, measure) = FIGURES.iter().find(|(figure, _)| *figure == number).unwrap();
            let rows = measure(&lab).unwrap().rows;
            assert!(rows.iter().all(|row| row.verdict == Verdict::NotReproducible && !row.note.is_empty()));
        }
        let numbers: Vec<String> = (1..=18).filter(|n| *n != 5).map(|n| format!("6.{n}")).collect();
        assert_eq!(FIGURES.map(|(number, _)| number).to_vec(), numbers);
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
