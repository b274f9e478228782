//! The figures as tables.

use std::fmt::Write as _;

use super::super::judge::{Judge, Rounds};
use super::super::median;
use super::{CONTENDERS, NO_FSYNC, OURS_AGAIN, OURS_OFF, OURS_ON, Options, Sample, TGT_OFF, TGT_ON};

/// The least that digests may leave of the speed, and the least multiple of tgt's speed with digests.
const DIGESTS_MIN: f64 = 0.97;
const TGT_MIN: f64 = 1.5;
const JUDGE: Judge = Judge { median_max: 0.02, quarters_max: 0.08 };

/// Ratios of two contenders.
fn ratio(samples: &[Vec<Sample>], of: usize, to: usize, f: impl Fn(&Sample) -> f64) -> Rounds {
    Rounds::ratios(samples[of].iter().map(&f), samples[to].iter().map(&f))
}

/// Both tables, and what they say.
pub fn markdown(samples: &[Vec<Sample>], machine: &str, file_system: &str, options: &Options) -> String {
    let mut text = format!(
        "{machine}\n{} rounds of {} s for each run, in turn within each round; target and guest pinned to a core each; volumes in files on \
         {file_system}; scale {}, 4 clients{}; medians.\n\n",
        options.rounds,
        options.seconds,
        options.scale,
        options
            .poll_us
            .map_or(String::new(), |us| format!("; our target polls for {us} µs before it sleeps"))
    );
    let same = ratio(samples, OURS_AGAIN, OURS_ON, |s| s.tps);
    let _ = writeln!(text, "{}", JUDGE.says("intact, digests on", "transactions", &same));
    runs(samples, &mut text);
    ratios(samples, &mut text);
    text
}

fn runs(samples: &[Vec<Sample>], text: &mut String) {
    text.push_str(
        "| run | transactions/s | latency, ms | a write and its flush, ms | a flush, ms | disk in use | guest's CPU in use | CPU of a transaction, µs: target | \
         network | guest |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (contender, of) in CONTENDERS.iter().zip(samples) {
        let middle = |f: &dyn Fn(&Sample) -> f64| median(of.iter().map(f));
        let each = |ms: u64, count: u64| if count == 0 { 0.0 } else { ms as f64 / count as f64 };
        let _ = writeln!(
            text,
            "| {} | {:.1} | {:.2} | {:.2} | {:.2} | {:.0} % | {:.0} % | {:.0} | {:.0} | {:.0} |",
            contender.name,
            middle(&|s| s.tps),
            middle(&|s| s.latency_ms),
            middle(&|s| each(s.write_ms, s.flushes)),
            middle(&|s| each(s.flush_ms, s.flushes)),
            middle(&|s| 100.0 * each(s.busy_ms, s.wall_ms)),
            middle(&|s| 100_000.0 * s.cpu.guest / s.wall_ms as f64),
            middle(&|s| 1e6 * s.cpu.target / s.transactions as f64),
            middle(&|s| 1e6 * s.cpu.network / s.transactions as f64),
            middle(&|s| 1e6 * s.cpu.guest / s.transactions as f64),
        );
    }
}

fn ratios(samples: &[Vec<Sample>], text: &mut String) {
    text.push_str("\n| ratio, within the rounds | | quarters | bar |\n|---|--:|---|---|\n");
    let tps = |s: &Sample| s.tps;
    let cpu = |s: &Sample| s.cpu.target / s.transactions as f64;
    let flush = |s: &Sample| s.flush_ms as f64 / s.flushes as f64;
    let row = |text: &mut String, what: &str, ratio: &Rounds, bar: Option<f64>| {
        let bar = bar.map_or("-".to_owned(), |bar| {
            format!("{bar}: {}", if ratio.median() >= bar { "reached" } else { "**missed**" })
        });
        let _ = writeln!(text, "| {what} | {} | {bar} |", ratio.cells());
    };
    let speed = |of, to| ratio(samples, of, to, tps);
    row(text, "transactions/s: intact, digests on to off", &speed(OURS_ON, OURS_OFF), Some(DIGESTS_MIN));
    row(text, "transactions/s: intact to tgt, digests on", &speed(OURS_ON, TGT_ON), Some(TGT_MIN));
    row(text, "transactions/s: intact to tgt, digests off", &speed(OURS_OFF, TGT_OFF), None);
    row(text, "transactions/s: tgt, digests on to off", &speed(TGT_ON, TGT_OFF), None);
    row(text, "transactions/s: without fsync to intact, digests on", &speed(NO_FSYNC, OURS_ON), None);
    row(
        text,
        "target's CPU of a transaction: intact to tgt, digests on",
        &ratio(samples, OURS_ON, TGT_ON, cpu),
        None,
    );
    row(
        text,
        "target's CPU of a transaction: intact, digests on to off",
        &ratio(samples, OURS_ON, OURS_OFF, cpu),
        None,
    );
    row(text, "time of a flush: intact to tgt, digests on", &ratio(samples, OURS_ON, TGT_ON, flush), None);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn page(tps: [f64; CONTENDERS.len()]) -> String {
        let of = |n: usize| {
            let tps = tps[n];
            let figures = Sample {
                contender: n,
                transactions: 100,
                tps,
                wall_ms: 1000,
                flushes: 1,
                flush_ms: 2,
                ..Sample::default()
            };
            vec![figures; 3]
        };
        let samples: Vec<_> = (0..CONTENDERS.len()).map(of).collect();
        markdown(&samples, "A machine.", "tmpfs", &Cli::parse_from(["bench"]).options)
    }

    #[test]
    fn the_bars_are_judged() {
        let text = page([100.0, 98.0, 98.0, 60.0, 60.0, 300.0]);
        assert!(crate::tidy::distrust(&text).is_empty());
        assert!(text.contains("digests on to off | **0.980** | 0.980 - 0.980 | 0.97: reached |"), "{text}");
        assert!(text.contains("to tgt, digests on | **1.633** | 1.633 - 1.633 | 1.5: reached |"), "{text}");
        let text = page([100.0, 90.0, 90.0, 90.0, 90.0, 300.0]);
        assert_eq!(text.matches("**missed**").count(), 2);
    }

    #[test]
    fn a_load_that_differs_from_itself_makes_the_page_untrusted() {
        assert_eq!(crate::tidy::distrust(&page([100.0, 100.0, 105.0, 50.0, 50.0, 300.0])).len(), 1);
    }
}
