//! `intact bench lun URL`: a load generator that lives in the session's event loop, and checks every digest it receives.
//!
//! It measures the time from handing a command to the session until its status and data have arrived. CPU seconds
//! are those of this process, all threads, user and system, in the measured time.

mod course;
mod profile;
mod report;
mod sessions;
mod slots;
mod workload;

use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use initiator::{Disk, IscsiUrl};
use iscsi_core::params::DigestPolicy;

use self::profile::{Profile, Settings};
use self::report::Report;
use self::sessions::{Opener, Sessions, run_loads};
use self::slots::Unit;
use self::workload::{Direction, Pattern, Plan};
use crate::cmd::client::ClientArgs;
use crate::cmd::{FAILED, MISUSED, fail};
use harness::text::parse_time;

/// Most bytes outstanding in one session, so that a wrong unit does not fill the memory.
const MAX_UNDER_WAY_BYTES: u64 = 4 << 30;

/// Which digests to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Digests {
    /// As the URL says; offered if it says nothing.
    Url,
    /// Neither.
    Off,
    /// Header and data.
    On,
    /// One run without, then one with.
    Both,
}

/// Arguments of `intact bench lun`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact bench iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0\n  \
    intact bench --rw write --overwrite --block 128k --depth 8 --pattern sequential --digests both \
    iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0\n  \
    intact bench lun --profile oltp --overwrite --time 60s iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0\n\n\
    Writes destroy what is on the LUN; they need --overwrite.\n\
    --bs, --iodepth, --runtime and --rwmixread are taken as fio has them.\n\n\
    Exit codes: 0 measured; 1 it failed, or commands failed; 2 wrong usage.")]
pub struct Args {
    /// iscsi://[user[%password]@]host[:port]/target/lun
    // Optional only for the sake of `intact bench`, which has no URL with a subcommand.
    #[arg(required = true)]
    url: Option<String>,
    /// Bytes of one command.
    #[arg(long, short, alias = "bs", value_name = "SIZE", default_value = "4k", value_parser = blockstore::parse_size)]
    block: u64,
    /// Commands outstanding at a time, in each session; with --sessions auto in all of them.
    #[arg(long, short, alias = "iodepth", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// What to do.
    #[arg(long, value_enum, default_value = "read")]
    rw: Direction,
    /// Share of reads with --rw mix, in percent.
    #[arg(long, alias = "rwmixread", value_name = "PERCENT", default_value_t = 70, value_parser = clap::value_parser!(u8).range(0..=100))]
    read_percent: u8,
    /// Where to do it.
    #[arg(long, value_enum, default_value = "random")]
    pattern: Pattern,
    /// Measured time of each run.
    #[arg(long, short, alias = "runtime", value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    time: Duration,
    /// Time before the measurement begins.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    warmup: Duration,
    /// Use only this much of the LUN, from its beginning.
    #[arg(long, value_name = "SIZE", value_parser = blockstore::parse_size)]
    region: Option<u64>,
    /// The load of a database instead of commands of one kind.
    #[arg(long, value_enum, conflicts_with_all = ["block", "rw", "read_percent", "pattern", "sessions"])]
    profile: Option<Profile>,
    /// Seed of the random numbers of --profile: the same seed sends the same commands.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "profile")]
    seed: u64,
    /// Time between the checkpoints of --profile oltp.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time, requires = "profile")]
    checkpoint: Duration,
    /// Which digests to request.
    #[arg(long, value_enum, default_value = "url")]
    digests: Digests,
    /// Sessions, 1 to 64, each with a thread of its own; `auto`: as many as bring something, at most one for each processor. 1 if
    /// it is left out, auto with connections=auto.
    #[arg(long, value_name = "N", value_parser = Sessions::parse)]
    sessions: Option<Sessions>,
    /// Allow writes: what is on the LUN is lost.
    #[arg(long)]
    overwrite: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let url = match check(&args) {
        Ok(url) => url,
        Err(code) => return code,
    };
    match args.profile {
        Some(profile) => {
            let run = |opener: &Opener| {
                let disk = opener.open()?;
                profile::run(&settings(&args, profile, &disk), &disk)
            };
            match each(&args, &url, run) {
                Ok(reports) => profile::print(&reports, args.json),
                Err(code) => code,
            }
        }
        None => match each(&args, &url, |opener| run_once(&args, opener)) {
            Ok(reports) => report::print(&reports, args.json),
            Err(code) => code,
        },
    }
}

/// Checks the arguments as far as that needs no LUN.
fn check(args: &Args) -> Result<IscsiUrl, ExitCode> {
    let url = args.url.as_ref().ok_or_else(|| fail(MISUSED, "bench needs the URL of a LUN"))?;
    let url = args.client.url(url)?;
    if args.profile.map_or(args.rw != Direction::Read, Profile::writes) {
        if !args.overwrite {
            return Err(fail(
                MISUSED,
                "writing destroys what is on the LUN: say --overwrite if nothing there is of use",
            ));
        }
        eprintln!("intact: writing to {url}: what is on it is being destroyed");
    }
    if args.time.is_zero() {
        return Err(fail(MISUSED, "--time 0 measures nothing: say how long, such as 10s"));
    }
    if args.block == 0 || args.block.saturating_mul(args.depth.into()) > MAX_UNDER_WAY_BYTES {
        return Err(fail(MISUSED, "block size times depth is at least 1 and at most 4 GiB"));
    }
    Ok(url)
}

/// Runs `once` with each requested choice of digests, over its own sessions.
fn each<R>(
    args: &Args,
    url: &IscsiUrl,
    once: impl Fn(&Opener) -> Result<R, ExitCode>,
) -> Result<Vec<R>, ExitCode> {
    let policies: &[Option<DigestPolicy>] = match args.digests {
        Digests::Url => &[None],
        Digests::Off => &[Some(DigestPolicy::Off)],
        Digests::On => &[Some(DigestPolicy::Required)],
        Digests::Both => &[Some(DigestPolicy::Off), Some(DigestPolicy::Required)],
    };
    policies.iter().map(|policy| once(&Opener::new(&args.client, url, *policy)?)).collect()
}

fn run_once(args: &Args, opener: &Opener) -> Result<Report, ExitCode> {
    let mut disks = vec![opener.open()?];
    let mut plan = plan(args, &disks[0])?;
    match args.sessions.unwrap_or(Sessions::of(opener)) {
        Sessions::Number(n) => (1..n).try_for_each(|_| opener.open().map(|disk| disks.push(disk)))?,
        Sessions::Auto => {
            plan.depth = sessions::find(&plan, opener, &mut disks)?;
        }
    }
    let loads = run_loads(&plan, &disks)?;
    Report::new(&plan, &disks, loads).map_err(|error| fail(FAILED, error))
}

fn settings(args: &Args, profile: Profile, disk: &Disk) -> Settings {
    Settings {
        profile,
        region_bytes: args.region.unwrap_or(u64::MAX).min(disk.capacity().bytes()),
        sector_bytes: disk.capacity().block_bytes.into(),
        depth: args.depth as usize,
        seed: args.seed,
        checkpoint: args.checkpoint,
        warmup: args.warmup,
        time: args.time,
        unit: Unit::new(disk, args.client.timeout),
    }
}

fn plan(args: &Args, disk: &Disk) -> Result<Plan, ExitCode> {
    let capacity = disk.capacity();
    let sector = u64::from(capacity.block_bytes);
    if !args.block.is_multiple_of(sector) {
        return Err(fail(
            MISUSED,
            format_args!("the LUN has blocks of {sector} bytes; --block is a multiple of it"),
        ));
    }
    if let Some(most) = disk.info().max_transfer_blocks
        && args.block > u64::from(most) * sector
    {
        let most = u64::from(most) * sector;
        return Err(fail(MISUSED, format_args!("the LUN takes at most {most} bytes in one command")));
    }
    let region = args.region.unwrap_or(u64::MAX).min(capacity.bytes());
    let places = region / args.block;
    if places == 0 {
        return Err(fail(MISUSED, "the LUN, or the region of it, is smaller than one block"));
    }
    Ok(Plan {
        block_bytes: args.block as usize,
        sectors_per_block: (args.block / sector) as u32,
        places,
        depth: args.depth as usize,
        read_percent: match args.rw {
            Direction::Read => 100,
            Direction::Write => 0,
            Direction::Mix => args.read_percent,
        },
        direction: args.rw,
        pattern: args.pattern,
        warmup: args.warmup,
        time: args.time,
        unit: Unit::new(disk, args.client.timeout),
    })
}
