//! `intact cp SRC DST`: files and logical units on either side.
//!
//! Chunks are read and written by several threads at once. What is zero, or is not allocated at the source, is not written but
//! made zero at the destination: a hole in a file, WRITE SAME with UNMAP on a logical unit.
//!
//! With `--state`, the copy goes segment by segment: when one is at the destination it is flushed there, and only then the state file
//! says so ([`state`]). A copy that is ended at any moment, also by a loss of power, is continued by `--resume` from the last segment.
//!
//! `--changed-only` reads both sides and compares the bytes. Digests would cost the same reading and miss one change in 2^32.

mod depth;
mod endpoint;
mod identity;
mod rate;
mod state;

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use initiator::LostWrites;
use parking_lot::Mutex;
use serde::Serialize;

use self::depth::Depth;
use self::endpoint::{Endpoint, Keep, Source, Unfinished};
use self::identity::Identity;
use self::rate::Pace;
use self::state::{Checkpoint, State};
use super::client::ClientArgs;
use super::{FAILED, MISUSED, complain, fail};
use crate::output;

/// Bytes copied in one step.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// The same with `--rate`. A target serves a command as a whole, so one of this length holds up those of other hosts for some 30 µs, one of
/// [`CHUNK_BYTES`] for 0.2 to 0.3 ms (docs/database.md).
const LIMITED_CHUNK_BYTES: u64 = 128 * 1024;
/// Bytes that `--changed-only` compares, and writes or leaves, as one.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes between two flushes of a copy with a state, and so the most that a resumed copy moves twice. A flush waits until all jobs are
/// idle and the medium is done, some ten milliseconds; a segment of this size takes 250 ms even at 1 GB/s.
const SEGMENT_BYTES: &str = "256M";
/// Times that what the target has lost is written again.
const MAX_REPAIRS: u32 = 5;

/// Arguments of `intact cp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact cp disk.img iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0\n  \
    intact cp --verify iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0 backup.img\n  \
    intact cp --changed-only --rate 50M iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0 backup.img\n  \
    intact cp --resume --state backup.state iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0 backup.img\n  \
    intact cp iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0 /dev/null\n\n\
    The destination is overwritten. When its target loses what it had acknowledged, by a restart for one, that is written again.\n\n\
    Exit codes: 0 copied; 1 it failed, or the copy differs; 2 wrong usage.")]
pub struct Args {
    /// A file or iscsi://[user[%password]@]host[:port]/target/lun
    source: String,
    /// A file or a URL; /dev/null to read everything and keep nothing.
    destination: String,
    /// Read both sides again and compare every byte.
    #[arg(long)]
    verify: bool,
    /// Read both sides, compare every byte, and write only the pieces of 64 KiB that differ. A file keeps what it holds.
    #[arg(long)]
    changed_only: bool,
    /// Move at most so many bytes a second at either side, such as 50M, in chunks of 128 KiB: other users of the target wait less.
    /// Holes cost nothing.
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    rate: Option<u64>,
    /// Keep in this file how far the copy has come, so that --resume can continue it. Removed when the copy is complete, and
    /// verified if --verify says so.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Continue the copy that --state knows, or begin it if there is no such file. What was written to the source meanwhile is
    /// not noticed where it was copied already.
    #[arg(long, requires = "state")]
    resume: bool,
    /// Bytes copied between two flushes with --state.
    #[arg(long, value_name = "SIZE", default_value = SEGMENT_BYTES, value_parser = parse_segment, hide = true)]
    segment: u64,
    /// Chunks under way at a time: of 1 MiB, of 128 KiB with --rate. Without it 8, or fewer where one connection is kept busy by fewer.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
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
    /// Copied by an earlier run, which this one has continued; the figures below are of this one alone.
    resumed_bytes: u64,
    /// Read from the source.
    read_bytes: u64,
    written_bytes: u64,
    /// Made zero at the destination without sending them.
    zero_bytes: u64,
    /// Not allocated at the source, so not read.
    hole_bytes: u64,
    /// Left as they were at the destination, with --changed-only.
    unchanged_bytes: u64,
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
                "{} copied, {} of them zeros that were not sent, in {:.1} s{}{}{}{}\n",
                output::bytes(summary.bytes - summary.resumed_bytes),
                output::bytes(summary.zero_bytes),
                summary.seconds,
                match summary.resumed_bytes {
                    0 => String::new(),
                    n => format!("; {} by an earlier run", output::bytes(n)),
                },
                match summary.unchanged_bytes {
                    0 => String::new(),
                    n => format!("; {} unchanged", output::bytes(n)),
                },
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

/// A rate: a size that is not 0.
fn parse_rate(text: &str) -> Result<u64, String> {
    match blockstore::parse_size(text).map_err(|error| error.to_string())? {
        0 => Err("a rate of 0 never ends: say how many bytes a second, such as 50M".to_owned()),
        rate => Ok(rate),
    }
}

/// The length of a segment: whole chunks.
fn parse_segment(text: &str) -> Result<u64, String> {
    match blockstore::parse_size(text).map_err(|error| error.to_string())? {
        bytes if bytes > 0 && bytes.is_multiple_of(CHUNK_BYTES) => Ok(bytes),
        _ => Err("a segment has whole chunks of 1 MiB".to_owned()),
    }
}

/// What was done so far, bytes.
#[derive(Debug, Default)]
struct Counters {
    read: AtomicU64,
    written: AtomicU64,
    zeros: AtomicU64,
    holes: AtomicU64,
    unchanged: AtomicU64,
}

/// One copy under way.
struct Copy<'a> {
    args: &'a Args,
    source: Endpoint,
    destination: Endpoint,
    map: Source,
    chunk_bytes: u64,
    pace: Option<Pace>,
    /// The copy finds out how many chunks should be under way.
    adapts: bool,
    /// A job has failed: the others end too.
    stop: AtomicBool,
    /// A byte of the destination is not that of the source.
    differs: AtomicBool,
    done: Counters,
    /// What was written again.
    again: Counters,
}

fn copy(args: &Args) -> Result<Summary, ExitCode> {
    let began = Instant::now();
    let found = find_state(args)?;
    let keep = match (&found, args.changed_only) {
        (Some(_), _) => Keep::Everything,
        (None, true) => Keep::Contents,
        (None, false) => Keep::Nothing,
    };
    let source = Endpoint::open_source(&args.source, &args.client)?;
    let destination = Endpoint::open_destination(&args.destination, &args.client, &source, keep)?;
    if destination.is_nowhere() && (args.verify || args.changed_only || args.state.is_some()) {
        let why = "/dev/null keeps nothing, so there is nothing to verify, to compare with or to continue\n  remedy: without --verify, \
                   --changed-only and --state; a digest that does not match ends the copy all the same";
        return Err(fail(MISUSED, why));
    }
    let mut checkpoint = begin_state(args, found, &source, &destination)?;
    let resumed_bytes = checkpoint.as_ref().map_or(0, Checkpoint::copied_bytes);
    let chunk_bytes = if args.rate.is_some() { LIMITED_CHUNK_BYTES } else { CHUNK_BYTES };
    // Several connections share the chunks, and a chunk that waits for --rate takes longer for that alone.
    let adapts =
        args.jobs.is_none() && args.rate.is_none() && source.has_one_path() && destination.has_one_path();
    let copy = Copy {
        adapts,
        map: Source::map(&source).map_err(|error| fail(FAILED, error))?,
        chunk_bytes,
        pace: args.rate.map(|rate| Pace::new(rate, chunk_bytes)),
        stop: AtomicBool::new(false),
        differs: AtomicBool::new(false),
        done: Counters::default(),
        again: Counters::default(),
        args,
        source,
        destination,
    };
    let ended = copy.segments(checkpoint.as_mut()).and_then(|()| copy.verify());
    end_state(checkpoint.as_ref(), ended, &copy)?;
    let Copy { source, done, again, .. } = copy;
    Ok(Summary {
        bytes: source.size(),
        resumed_bytes,
        read_bytes: done.read.into_inner(),
        written_bytes: done.written.into_inner(),
        zero_bytes: done.zeros.into_inner(),
        hole_bytes: done.holes.into_inner(),
        unchanged_bytes: done.unchanged.into_inner(),
        repaired_bytes: again.written.into_inner() + again.zeros.into_inner(),
        seconds: began.elapsed().as_secs_f64(),
        verified: args.verify,
    })
}

/// The state to continue from. Without --resume there must be none, because it would be lost.
fn find_state(args: &Args) -> Result<Option<State>, ExitCode> {
    let Some(path) = &args.state else { return Ok(None) };
    let shown = path.display();
    if args.resume {
        let found = state::load(path).map_err(|error| fail(FAILED, error))?;
        if found.is_none() {
            complain(format_args!("intact: there is no state in {shown}: copying from the beginning"));
        }
        return Ok(found);
    }
    match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fail(FAILED, format_args!("the state {shown}: {error}"))),
        Ok(_) => Err(fail(
            MISUSED,
            format_args!(
                "{shown} exists, and may be the state of a copy that is not complete\n  remedy: --resume continues that copy; to \
                 copy from the beginning remove the file"
            ),
        )),
    }
}

fn begin_state(
    args: &Args,
    found: Option<State>,
    source: &Endpoint,
    destination: &Endpoint,
) -> Result<Option<Checkpoint>, ExitCode> {
    let Some(path) = &args.state else { return Ok(None) };
    // There was nothing a moment ago, so the destination was made there.
    if found.is_none() && path.symlink_metadata().is_ok() {
        return Err(fail(MISUSED, "--state and the destination are the same file"));
    }
    let begin = || {
        let now = State::new(Identity::of(source)?, Identity::of(destination)?, args.changed_only);
        Checkpoint::begin(path, found, now)
    };
    let checkpoint = begin().map_err(|error| fail(FAILED, error))?;
    if checkpoint.copied_bytes() > 0 {
        let (copied, size) = (output::bytes(checkpoint.copied_bytes()), output::bytes(source.size()));
        complain(format_args!("intact: continuing behind the first {copied} of {size}"));
    }
    Ok(Some(checkpoint))
}

/// Removes the state of a copy that has ended well, and of one that turned out to be wrong.
fn end_state(
    checkpoint: Option<&Checkpoint>,
    ended: Result<(), ExitCode>,
    copy: &Copy<'_>,
) -> Result<(), ExitCode> {
    let Some(checkpoint) = checkpoint else { return ended };
    let differs = copy.differs.load(Ordering::Relaxed);
    if ended.is_ok() || differs {
        checkpoint.remove().map_err(|error| fail(FAILED, error))?;
    }
    if ended.is_err() {
        complain(match differs {
            true => "  remedy: the state was removed, copy again from the beginning; nothing may write to either side meanwhile"
                .to_owned(),
            false => format!(
                "intact: {} of {} are copied and flushed: the same command with --resume continues",
                output::bytes(checkpoint.copied_bytes()),
                output::bytes(copy.source.size())
            ),
        });
    }
    ended
}

impl Copy<'_> {
    /// Copies what `checkpoint` does not have yet, and flushes it; all at once without one.
    fn segments(&self, mut checkpoint: Option<&mut Checkpoint>) -> Result<(), ExitCode> {
        let size = self.source.size();
        let mut at = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.copied_bytes());
        let length = if checkpoint.is_some() { self.args.segment } else { size };
        let bar = self.bar("copying", size);
        bar.set_position(at);
        bar.reset_eta();
        loop {
            let end = size.min(at.saturating_add(length));
            self.in_parallel(&[at..end], &bar, "copying", |offset, buffer| match self.args.changed_only {
                true => self.update(offset, buffer),
                false => self.transfer(offset, buffer, &self.done),
            })?;
            if end == size {
                bar.finish_and_clear();
            }
            self.flush(&bar)?;
            if let Some(checkpoint) = &mut checkpoint {
                checkpoint.advance(end).map_err(|error| fail(FAILED, error))?;
            }
            if end == size {
                return Ok(());
            }
            at = end;
        }
    }

    /// Makes what was written stay.
    fn flush(&self, bar: &ProgressBar) -> Result<(), ExitCode> {
        finish(
            || self.destination.finish(),
            |lost| {
                let parts = within(lost, self.source.size());
                bar.set_message("writing again");
                self.in_parallel(&parts, &ProgressBar::hidden(), "writing again", |at, buffer| {
                    self.transfer(at, buffer, &self.again)
                })?;
                bar.set_message("copying");
                Ok(())
            },
        )
    }

    /// Compares all, if that is wanted.
    fn verify(&self) -> Result<(), ExitCode> {
        if !self.args.verify {
            return Ok(());
        }
        let size = self.source.size();
        let bar = self.bar("verifying", size);
        self.in_parallel(&[0..size], &bar, "verifying", |offset, buffer| self.compare(offset, buffer))?;
        bar.finish_and_clear();
        Ok(())
    }

    /// Reads a chunk of the source, if it has to be read; whether it had.
    fn fetch(&self, offset: u64, buffer: &mut [u8], done: &Counters) -> Result<bool, String> {
        let length = buffer.len() as u64;
        if self.map.is_zero(offset, length) {
            buffer.fill(0);
            done.holes.fetch_add(length, Ordering::Relaxed);
            return Ok(false);
        }
        self.wait(length);
        done.read.fetch_add(length, Ordering::Relaxed);
        self.source.read(offset, buffer).map(|()| true)
    }

    /// Writes bytes of the source to the destination, or makes them zero there.
    fn put(&self, offset: u64, bytes: &[u8], done: &Counters) -> Result<(), String> {
        let length = bytes.len() as u64;
        if is_zero(bytes) {
            done.zeros.fetch_add(length, Ordering::Relaxed);
            self.destination.write_zeroes(offset, length)
        } else {
            done.written.fetch_add(length, Ordering::Relaxed);
            self.destination.write(offset, bytes)
        }
    }

    /// Copies a chunk, whatever the destination has there; whether it had to be read.
    fn transfer(&self, offset: u64, buffer: &mut [u8], done: &Counters) -> Result<bool, String> {
        let read = self.fetch(offset, buffer, done)?;
        self.put(offset, buffer, done)?;
        Ok(read)
    }

    /// Copies those pieces of a chunk that differ; whether the source had to be read.
    fn update(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, String> {
        let done = &self.done;
        let read = self.fetch(offset, buffer, done)?;
        // The rate holds at either side: what is read there was waited for when as much was read here.
        if !read {
            self.wait(buffer.len() as u64);
        }
        let mut there = vec![0; buffer.len()];
        self.destination.read(offset, &mut there)?;
        let mut unchanged = buffer.len() as u64;
        for run in differing(buffer, &there) {
            unchanged -= run.len() as u64;
            self.wait(run.len() as u64);
            self.put(offset + run.start as u64, &buffer[run], done)?;
        }
        done.unchanged.fetch_add(unchanged, Ordering::Relaxed);
        Ok(read)
    }

    /// Compares every byte of a chunk, which is always read.
    fn compare(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, String> {
        self.wait(buffer.len() as u64);
        self.source.read(offset, buffer)?;
        let mut other = vec![0; buffer.len()];
        self.destination.read(offset, &mut other)?;
        match buffer.iter().zip(&other).position(|(a, b)| a != b) {
            None => Ok(true),
            Some(at) => {
                self.differs.store(true, Ordering::Relaxed);
                Err(format!("the copy differs from the source at byte {}", offset + at as u64))
            }
        }
    }

    /// Calls `step` for each chunk of `parts`, several at a time; the first error ends it. `step` says whether it has read the source.
    fn in_parallel(
        &self,
        parts: &[Range<u64>],
        bar: &ProgressBar,
        what: &str,
        step: impl Fn(u64, &mut [u8]) -> Result<bool, String> + Sync,
    ) -> Result<(), ExitCode> {
        let chunks = parts.iter().flat_map(|part| {
            let starts = part.clone().step_by(self.chunk_bytes as usize);
            starts.map(|at| at..part.end.min(at + self.chunk_bytes))
        });
        let chunks = Mutex::new(chunks);
        let failure = Mutex::new(None);
        // What a chunk takes when it is copied says nothing of what it takes when it is compared.
        let depth = self.adapts.then(|| Depth::up_to(depth::MOST));
        std::thread::scope(|scope| {
            for _ in 0..self.args.jobs.unwrap_or(depth::MOST) {
                scope.spawn(|| {
                    let mut buffer = vec![0; self.chunk_bytes as usize];
                    let mut place = None;
                    while !self.stop.load(Ordering::Relaxed) {
                        if let (None, Some(depth)) = (&place, &depth) {
                            let Some(free) = depth.place(&self.stop) else { return };
                            place = Some(free);
                        }
                        let Some(chunk) = chunks.lock().next() else { return };
                        let length = chunk.end - chunk.start;
                        match step(chunk.start, &mut buffer[..length as usize]) {
                            Ok(read) => {
                                bar.inc(length);
                                let tells = read && length == self.chunk_bytes;
                                place = place.and_then(|place| place.done(tells));
                            }
                            Err(error) => {
                                self.stop.store(true, Ordering::Relaxed);
                                failure.lock().get_or_insert(error);
                                return;
                            }
                        }
                    }
                });
            }
        });
        match failure.into_inner() {
            Some(error) => {
                bar.finish_and_clear();
                Err(fail(FAILED, format_args!("{what}: {error}")))
            }
            None => Ok(()),
        }
    }

    fn bar(&self, what: &'static str, bytes: u64) -> ProgressBar {
        let bar = match self.args.quiet || self.args.json {
            true => ProgressBar::hidden(),
            false => ProgressBar::new(bytes),
        };
        let style =
            ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta}");
        bar.set_style(style.expect("a constant that is right"));
        bar.set_message(what);
        bar
    }

    fn wait(&self, bytes: u64) {
        if let Some(pace) = &self.pace {
            pace.wait(bytes, &self.stop);
        }
    }
}

/// Runs of pieces that differ, bytes from the beginning of both.
fn differing(ours: &[u8], theirs: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let pairs = ours.chunks(PIECE_BYTES).zip(theirs.chunks(PIECE_BYTES));
    for (n, (a, _)) in pairs.enumerate().filter(|(_, (a, b))| a != b) {
        let piece = n * PIECE_BYTES..n * PIECE_BYTES + a.len();
        match runs.last_mut() {
            Some(last) if last.end == piece.start => last.end = piece.end,
            _ => runs.push(piece),
        }
    }
    runs
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
    fn pieces_that_differ_are_found_and_joined() {
        let ours = vec![1; 4 * PIECE_BYTES + 10];
        assert!(differing(&ours, &ours).is_empty());
        let mut theirs = ours.clone();
        theirs[PIECE_BYTES] = 0;
        theirs[3 * PIECE_BYTES - 1] = 0;
        theirs[4 * PIECE_BYTES + 9] = 0;
        let end = 4 * PIECE_BYTES + 10;
        assert_eq!(differing(&ours, &theirs), [PIECE_BYTES..3 * PIECE_BYTES, 4 * PIECE_BYTES..end]);
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
