//! `intact cp SRC DST`: files and logical units on either side.
//!
//! Chunks are read and written by several threads at once. What is zero, or is not allocated at the source, is not written but
//! made zero at the destination: a hole in a file, WRITE SAME with UNMAP on a logical unit.

mod endpoint;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde::Serialize;

use self::endpoint::{Endpoint, Source};
use super::client::ClientArgs;
use super::{FAILED, fail};
use crate::output;

/// Bytes copied in one step.
const CHUNK_BYTES: u64 = 1024 * 1024;

/// Arguments of `intact cp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact cp disk.img iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0\n  \
    intact cp --verify iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0 backup.img\n\n\
    The destination is overwritten. Exit codes: 0 copied; 1 it failed, or the copy differs; 2 wrong usage.")]
pub struct Args {
    /// A file or iscsi://[user[%password]@]host[:port]/target/lun
    source: String,
    /// A file or a URL.
    destination: String,
    /// Read both sides again and compare every byte.
    #[arg(long)]
    verify: bool,
    /// Chunks of 1 MiB under way at a time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// No progress bar.
    #[arg(long, short)]
    quiet: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Serialize)]
struct Summary {
    bytes: u64,
    written_bytes: u64,
    zero_bytes: u64,
    seconds: f64,
    verified: bool,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match copy(&args) {
        Ok(summary) => output::show(args.json, &summary, || {
            format!(
                "{} copied, {} of them zeros that were not sent, in {:.1} s{}\n",
                output::bytes(summary.bytes),
                output::bytes(summary.zero_bytes),
                summary.seconds,
                if summary.verified { "; verified" } else { "" },
            )
        }),
        Err(code) => code,
    }
}

fn copy(args: &Args) -> Result<Summary, ExitCode> {
    let began = Instant::now();
    let source = Endpoint::open_source(&args.source, &args.client)?;
    let size = source.size();
    let destination = Endpoint::open_destination(&args.destination, &args.client, &source)?;
    let map = Source::map(&source).map_err(|error| fail(FAILED, error))?;
    let written = AtomicU64::new(0);
    let zeros = AtomicU64::new(0);
    in_parallel(args, size, "copying", |offset, buffer| {
        let known_zero = map.is_zero(offset, buffer.len() as u64);
        if known_zero {
            buffer.fill(0);
        } else {
            source.read(offset, buffer)?;
        }
        if known_zero || is_zero(buffer) {
            zeros.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            destination.write_zeroes(offset, buffer.len() as u64)
        } else {
            written.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            destination.write(offset, buffer)
        }
    })?;
    destination.finish().map_err(|error| fail(FAILED, error))?;
    if args.verify {
        in_parallel(args, size, "verifying", |offset, buffer| {
            source.read(offset, buffer)?;
            let mut other = vec![0; buffer.len()];
            destination.read(offset, &mut other)?;
            match buffer.iter().zip(&other).position(|(a, b)| a != b) {
                None => Ok(()),
                Some(at) => Err(format!("the copy differs from the source at byte {}", offset + at as u64)),
            }
        })?;
    }
    Ok(Summary {
        bytes: size,
        written_bytes: written.into_inner(),
        zero_bytes: zeros.into_inner(),
        seconds: began.elapsed().as_secs_f64(),
        verified: args.verify,
    })
}

/// Calls `step` for each chunk, several at a time; the first error ends it.
fn in_parallel(
    args: &Args,
    size: u64,
    what: &'static str,
    step: impl Fn(u64, &mut [u8]) -> Result<(), String> + Sync,
) -> Result<(), ExitCode> {
    let bar = match args.quiet || args.json {
        true => ProgressBar::hidden(),
        false => ProgressBar::new(size),
    };
    let style = ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta}");
    bar.set_style(style.expect("a constant that is right"));
    bar.set_message(what);
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                let mut buffer = vec![0; CHUNK_BYTES.min(size) as usize];
                while !stop.load(Ordering::Relaxed) {
                    let offset = next.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
                    if offset >= size {
                        return;
                    }
                    let length = CHUNK_BYTES.min(size - offset) as usize;
                    if let Err(error) = step(offset, &mut buffer[..length]) {
                        stop.store(true, Ordering::Relaxed);
                        failure.lock().get_or_insert(error);
                        return;
                    }
                    bar.inc(length as u64);
                }
            });
        }
    });
    bar.finish_and_clear();
    match failure.into_inner() {
        Some(error) => Err(fail(FAILED, format_args!("{what}: {error}"))),
        None => Ok(()),
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    // Chunk by chunk without leaving early inside one, which the compiler turns into wide loads.
    let chunks = bytes.chunks_exact(64);
    let rest = chunks.remainder();
    chunks.chain([rest]).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn one_bit_anywhere_is_not_zero() {
        for len in [0, 1, 63, 64, 65, 200] {
            let mut bytes = vec![0u8; len];
            assert!(is_zero(&bytes));
            for at in 0..len {
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "{at} of {len}");
                bytes[at] = 0;
            }
        }
    }
}
