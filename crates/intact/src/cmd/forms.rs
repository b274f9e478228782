//! The forms in which the commands that measure show their result: on the terminal, as JSON, as a page, as Markdown.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use harness::Failure;
use harness::document::{Document, Extent};
use harness::page;
use harness::progress::Progress;
use serde::Serialize;

use super::{FAILED, fail, failure};
use crate::output;

/// The forms of a result.
#[derive(Debug, clap::Args)]
pub struct Forms {
    /// Every table, on the terminal too.
    #[arg(long)]
    full: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write everything, with charts, as a page that needs no network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write everything as Markdown, results.md, with charts as SVG, into this folder.
    #[arg(long, value_name = "DIR")]
    markdown: Option<PathBuf>,
}

impl Forms {
    /// Writes the files asked for, and prints the rest; or says why there is no report.
    pub fn show<R: Serialize>(
        &self,
        report: Result<R, Failure>,
        document: impl Fn(&R, Extent) -> Document,
    ) -> ExitCode {
        match report {
            Ok(report) => self.show_report(&report, document),
            Err(why) => failure(&why),
        }
    }

    fn show_report<R: Serialize>(&self, report: &R, document: impl Fn(&R, Extent) -> Document) -> ExitCode {
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

    /// Is JSON asked for?
    pub fn json(&self) -> bool {
        self.json
    }

    /// Whether the user sees how far a measurement is: a program that reads JSON does not.
    pub fn progress(&self) -> Progress {
        if self.json { Progress::Hidden } else { Progress::Shown }
    }
}

fn write(path: &Path, text: &str) -> Result<(), ExitCode> {
    fs::write(path, text)
        .map_err(|error| fail(FAILED, format_args!("cannot write {}: {error}", path.display())))
}
