//! Arguments that benchmarks of this machine share: sizes, and the forms of their result; and the bar that moves
//! meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::document::Document;
use super::page;
use crate::cmd::{FAILED, MISUSED, fail};
use crate::output;

/// Largest buffer of a sample, so that a wrong unit does not fill the memory.
pub const MAX_SAMPLE_BYTES: usize = 64 << 20;

/// The forms of a result.
#[derive(Debug, clap::Args)]
pub struct Forms {
    /// Every table, on the terminal too.
    #[arg(long)]
    full: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Write everything, with charts, as a page that needs no network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write everything as Markdown, results.md, with charts as SVG, into this folder.
    #[arg(long, value_name = "DIR")]
    markdown: Option<PathBuf>,
}

/// How much of a result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The tables that compare.
    Summary,
    /// Every figure.
    Everything,
}

impl Forms {
    /// Writes the files asked for, and prints the rest.
    pub fn show<R: Serialize>(&self, report: &R, document: impl Fn(&R, Extent) -> Document) -> ExitCode {
        if let Err(code) = self.keep(&document(report, Extent::Everything)) {
            return code;
        }
        let extent = if self.full { Extent::Everything } else { Extent::Summary };
        output::show(self.json, report, || document(report, extent).text())
    }

    fn keep(&self, everything: &Document) -> Result<(), ExitCode> {
        if let Some(path) = &self.html {
            write(path, &page::html(everything))?;
        }
        if let Some(folder) = &self.markdown {
            fs::create_dir_all(folder)
                .map_err(|error| fail(FAILED, format_args!("{}: {error}", folder.display())))?;
            write(&folder.join("results.md"), &everything.markdown())?;
            for chart in everything.charts() {
                write(&folder.join(format!("{}.svg", chart.id)), &chart.standalone())?;
            }
        }
        Ok(())
    }

    /// A bar that moves at most a few times per second, on a terminal only.
    pub fn progress(&self, turns: u64) -> ProgressBar {
        let bar = if self.json { ProgressBar::hidden() } else { ProgressBar::new(turns) };
        let style = ProgressStyle::with_template("{msg} {percent}% {wide_bar} {eta}");
        bar.set_style(style.expect("a constant that is right"));
        bar
    }
}

fn write(path: &Path, text: &str) -> Result<(), ExitCode> {
    fs::write(path, text)
        .map_err(|error| fail(FAILED, format_args!("cannot write {}: {error}", path.display())))
}

/// The sizes asked for in `arguments`, ascending, if there are any; each is a multiple of `unit` bytes.
///
/// # Errors
/// The exit code, when one is no such size; the remedy was printed.
pub fn sizes(arguments: &[u64], unit: usize) -> Result<Option<Vec<usize>>, ExitCode> {
    let size = |&bytes: &u64| {
        let bytes = usize::try_from(bytes).ok()?;
        ((unit..=MAX_SAMPLE_BYTES).contains(&bytes) && bytes.is_multiple_of(unit)).then_some(bytes)
    };
    let Some(mut sizes) = arguments.iter().map(size).collect::<Option<Vec<usize>>>() else {
        let multiples = if unit == 1 { String::new() } else { format!(", in multiples of {unit}") };
        let what = format_args!("sizes are from {unit} to {MAX_SAMPLE_BYTES} bytes{multiples}");
        return Err(fail(MISUSED, what));
    };
    sizes.sort_unstable();
    sizes.dedup();
    Ok((!sizes.is_empty()).then_some(sizes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_put_in_order_and_those_that_cannot_be_are_refused() {
        assert_eq!(sizes(&[4096, 1, 4096], 1).unwrap(), Some(vec![1, 4096]));
        assert_eq!(sizes(&[], 512).unwrap(), None);
        assert_eq!(sizes(&[1024, 512], 512).unwrap(), Some(vec![512, 1024]));
        for wrong in [0, 513, 1 << 40, u64::MAX] {
            assert!(sizes(&[512, wrong], 512).is_err(), "{wrong}");
        }
    }
}
