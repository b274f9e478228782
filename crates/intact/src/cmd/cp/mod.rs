//! `intact cp SRC DST`: files and logical units on either side.
//!
//! Chunks are read and written by several threads at once. What is zero, or is not allocated at the source, is not written but
//! made zero at the destination: a hole in a file, WRITE SAME with UNMAP on a logical unit.

mod endpoint;

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use initiator::LostWrites;
use parking_lot::Mutex;
use serde::Serialize;

use self::endpoint::{Endpoint, Source, Unfinished};
use super::client::ClientArgs;
use super::{FAILED, fail};
use crate::output;

/// Bytes copied in one step.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// Times that what the target has lost is written again.
const MAX_REPAIRS: u32 = 5;

/// Arguments of `intact cp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact cp disk.img iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0\n  \
    intact cp --verify iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0 backup.img\n\n\
    The destination is overwritten. When its target loses what it had acknowledged, by a restart for one, that is written again.\n\n\
    Exit codes: 0 copied; 1 it failed, or the copy differs; 2 wrong usage.")]
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
    /// Lost by the target after it had acknowledged them, and written again.
    repaired_bytes: u64,
    seconds: f64,
    verified: bool,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match copy(&args) {
        Ok(summary) => output::show(args.json, &summary, || {
            format!(
                "{} copied, {} of them zeros that were not sent, in {:.1} s{}{}\n",
                output::bytes(summary.bytes),
                output::bytes(summary.zero_bytes),
                summary.seconds,
                match summary.repaired_bytes {
                    0 => String::new(),
                    n => format!("; {} written again", output::bytes(n)),
                },
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
    let copy_chunk = |offset: u64, buffer: &mut [u8], written: &AtomicU64, zeros: &AtomicU64| {
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
    };
    let whole = [0..size];
    in_parallel(args, &whole, "copying", |offset, buffer| copy_chunk(offset, buffer, &written, &zeros))?;
    let again = AtomicU64::new(0);
    finish(
        || destination.finish(),
        |lost| {
            in_parallel(args, &within(lost, size), "writing again", |at, buffer| {
                copy_chunk(at, buffer, &again, &again)
            })
        },
    )?;
    if args.verify {
        in_parallel(args, &whole, "verifying", |offset, buffer| {
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
        repaired_bytes: again.into_inner(),
        seconds: began.elapsed().as_secs_f64(),
        verified: args.verify,
    })
}

/// Makes what was written stay; what the target has lost is written again, so often and no more.
fn finish(
    flush: impl Fn() -> Result<(), Unfinished>,
    repair: impl Fn(&LostWrites) -> Result<(), ExitCode>,
) -> Result<(), ExitCode> {
    for repairs in 0.. {
        match flush() {
            Ok(()) => return Ok(()),
            Err(Unfinished::Failed(why)) => return Err(fail(FAILED, why)),
            Err(Unfinished::Lost(lost)) if repairs == MAX_REPAIRS => {
                return Err(fail(
                    FAILED,
                    format_args!(
                        "{lost}: that was written again {repairs} times and lost again each time; the copy is not complete\n  \
                         remedy: see why the target does not stay up, then copy again"
                    ),
                ));
            }
            Err(Unfinished::Lost(lost)) => {
                eprintln!("intact: {lost}; writing it again");
                repair(&lost)?;
            }
        }
    }
    unreachable!("the loop ends by its limit")
}

/// The parts of a copy of `size` bytes that are to be written again.
fn within(lost: &LostWrites, size: u64) -> Vec<Range<u64>> {
    let cut = |range: &Range<u64>| range.start..range.end.min(size);
    lost.ranges.iter().map(cut).filter(|range| !range.is_empty()).collect()
}

/// Calls `step` for each chunk of `parts`, several at a time; the first error ends it.
fn in_parallel(
    args: &Args,
    parts: &[Range<u64>],
    what: &'static str,
    step: impl Fn(u64, &mut [u8]) -> Result<(), String> + Sync,
) -> Result<(), ExitCode> {
    let bar = match args.quiet || args.json {
        true => ProgressBar::hidden(),
        false => ProgressBar::new(parts.iter().map(|part| part.end - part.start).sum()),
    };
    let style = ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta}");
    bar.set_style(style.expect("a constant that is right"));
    bar.set_message(what);
    let chunks = parts.iter().flat_map(|part| {
        let starts = part.clone().step_by(CHUNK_BYTES as usize);
        starts.map(|at| at..part.end.min(at + CHUNK_BYTES))
    });
    let chunks = Mutex::new(chunks);
    let stop = AtomicBool::new(false);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                let mut buffer = vec![0; CHUNK_BYTES as usize];
                while !stop.load(Ordering::Relaxed) {
                    let Some(chunk) = chunks.lock().next() else { return };
                    let length = (chunk.end - chunk.start) as usize;
                    if let Err(error) = step(chunk.start, &mut buffer[..length]) {
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
    use std::cell::Cell;

    use initiator::LossCause;

    use super::*;

    #[test]
    fn what_is_lost_is_written_again_and_not_for_ever() {
        let lost =
            LostWrites { epoch: 1, cause: LossCause::Unknown, bytes: 9, ranges: vec![0..512, 1024..4096] };
        assert_eq!(within(&lost, 2000), [0..512, 1024..2000]);
        assert_eq!(within(&lost, 1024), [0..512]);
        for times in 0..=MAX_REPAIRS + 1 {
            let (flushes, repairs) = (Cell::new(0), Cell::new(0));
            let flush = || match flushes.replace(flushes.get() + 1) {
                n if n < times => Err(Unfinished::Lost(lost.clone())),
                _ => Ok(()),
            };
            let ended = finish(flush, |_| {
                repairs.set(repairs.get() + 1);
                Ok(())
            });
            assert_eq!((ended.is_ok(), repairs.get()), (times <= MAX_REPAIRS, times.min(MAX_REPAIRS)));
        }
        assert!(finish(|| Err(Unfinished::Lost(lost.clone())), |_| Err(ExitCode::FAILURE)).is_err());
    }

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
