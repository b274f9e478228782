//! `intact scrub URL`: makes a LUN read and check its whole medium, and lists the bad blocks.
//!
//! The device does the work (VERIFY, with the checks of protection information if it has some): no data travels, and other
//! initiators are served meanwhile. A command that fails names its first bad block; the scrub continues behind it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use initiator::{Disk, IoError, Session};
use serde::Serialize;

use super::client::{ClientArgs, failed, refused};
use super::{FAILED, MISUSED, fail};
use crate::output::{self, Table};

/// Bytes that one command covers: few enough that other commands do not wait long.
const STEP_BYTES: u64 = 1024 * 1024;

/// Arguments of `intact scrub`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact scrub iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0\n  \
    intact scrub --rate 50M 'iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0?pi=1&app_tag=beef'\n\n\
    Nothing is written, and no data travel. With pi=1 the tags of the URL are asked for too, as far as the device checks them.\n\n\
    Exit codes: 0 every block is good; 1 some are bad, or it failed; 2 wrong usage.")]
pub struct Args {
    /// iscsi://[user[%password]@]host[:port]/target/lun
    url: String,
    /// Maximum rate in bytes per second, to leave room for others.
    #[arg(long, value_name = "SIZE", value_parser = blockstore::parse_size)]
    rate: Option<u64>,
    /// Stop after this many bad blocks.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    most: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// A bad block.
#[derive(Debug, Serialize)]
struct Bad {
    lba: u64,
    /// The field of its protection information that failed; none if the medium itself failed.
    field: Option<String>,
    what: String,
}

#[derive(Debug, Serialize)]
struct Report {
    url: String,
    /// Type of the protection information, 0 to 3.
    protection: u8,
    bytes: u64,
    seconds: f64,
    bad: Vec<Bad>,
    /// The whole medium was examined.
    complete: bool,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match scrub(&args) {
        Ok(report) => {
            let code = output::show(args.json, &report, || report.text());
            if report.bad.is_empty() && report.complete { code } else { ExitCode::from(FAILED) }
        }
        Err(code) => code,
    }
}

fn scrub(args: &Args) -> Result<Report, ExitCode> {
    if args.rate == Some(0) {
        return Err(fail(MISUSED, "--rate is at least one byte in a second; leave it out for no limit"));
    }
    let url = args.client.url(&args.url)?;
    let (_, lun) = url.unit().map_err(|error| fail(MISUSED, error))?;
    let session = Session::connect(args.client.options(&url)?).map_err(|error| refused(&error))?;
    let disk = Disk::open(&session, lun).map_err(|error| failed(&error))?;
    let size = disk.capacity().bytes();
    let bar = if args.json { ProgressBar::hidden() } else { ProgressBar::new(size) };
    let style = ProgressStyle::with_template("{bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta}");
    bar.set_style(style.expect("a constant that is right"));
    let began = Instant::now();
    let mut bad = Vec::new();
    let mut at = 0;
    while at < size && bad.len() < args.most as usize {
        at = examine(&disk, at, STEP_BYTES.min(size - at), &mut bad).map_err(|error| failed(&error))?;
        bar.set_position(at);
        if let Some(rate) = args.rate {
            let due = Duration::from_secs_f64(at as f64 / rate as f64);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
    bar.finish_and_clear();
    Ok(Report {
        url: url.to_string(),
        protection: disk.info().protection.kind.number(),
        bytes: at,
        seconds: began.elapsed().as_secs_f64(),
        bad,
        complete: at >= size,
    })
}

/// Examines `length` bytes at `at` up to the first bad block, and returns where to continue.
//= sbc3 4.22.4 PI-18
fn examine(disk: &Disk, at: u64, length: u64, bad: &mut Vec<Bad>) -> Result<u64, IoError> {
    let block = u64::from(disk.capacity().block_bytes);
    let length = length.next_multiple_of(block).max(block);
    let error = match disk.verify(at, length) {
        Ok(()) => return Ok(at + length),
        Err(error) => error,
    };
    let (lba, field) = match &error {
        IoError::Protection(failure) => (failure.lba, Some(failure.field.to_string())),
        // MEDIUM ERROR and HARDWARE ERROR concern a block; after any other error it makes no sense to continue.
        IoError::CheckCondition(sense) if matches!(sense.key, 3 | 4) => (sense.information, None),
        _ => return Err(error),
    };
    let (first, blocks) = (at / block, length / block);
    match lba.filter(|lba| (first..first + blocks).contains(lba)) {
        None if blocks > 1 => {
            // It does not say which block: try the first half.
            let half = blocks / 2 * block;
            let next = examine(disk, at, half, bad)?;
            if next < at + half { Ok(next) } else { examine(disk, next, length - half, bad) }
        }
        lba => {
            let lba = lba.unwrap_or(first);
            bad.push(Bad { lba, field, what: error.to_string() });
            Ok((lba + 1) * block)
        }
    }
}

impl Report {
    fn text(&self) -> String {
        let checked = match self.protection {
            0 => "read".to_owned(),
            kind => format!("read and checked (protection information of type {kind})"),
        };
        let all = if self.complete { "all of it" } else { "ended after that many bad blocks" };
        let mut text = format!(
            "{} {checked} in {:.1} s, {all}: {}\n",
            output::bytes(self.bytes),
            self.seconds,
            output::count(self.bad.len(), "bad block")
        );
        if !self.bad.is_empty() {
            let mut table = Table::new(&["BLOCK", "WHAT"]);
            for bad in &self.bad {
                table.row(vec![bad.lba.to_string(), output::plain(&bad.what).to_string()]);
            }
            text += &table.text();
        }
        text
    }
}
