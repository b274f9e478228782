//! `cargo xtask bench backup`: the load of a database alone, and beside `intact cp` of the same unit, as fast as it can and at half of what a
//! copy to a file in memory has alone.
//!
//! The target and the database's client have a core each, and both sessions are on the same shard. The backup's client takes what the target
//! leaves of its core, which takes nothing from the other two, as if it were on another host; so the target does not poll before it
//! sleeps. First of all a client on its own core makes backups and reads of the same size, in turn.
//! The backup is started again whenever it is done, and writes to `/dev/null`, so that its own medium does not matter. What it moves is what
//! its copies that are done say, and what the last one has written so far. The runs take turns within each round, and the load alone is
//! measured twice (the judge).

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::judge::{Judge, Rounds};
use super::place::{self, PLACEMENTS, Surroundings};
use super::rows::{Row, row};
use super::servers::{self, Server, VOLUME_BYTES};
use super::{REGION_BYTES, median, progress, report};

/// Where backups go while their own medium should not matter.
const NOWHERE: &str = "/dev/null";
/// Size of the unit whose backup is compared with plain reads, bytes: large enough that the first milliseconds do not count.
const SEQUENTIAL_BYTES: u64 = 2 << 30;
/// Where the table goes in docs/database.md.
const BEGIN: &str = "<!-- begin: cargo xtask bench backup -->";
/// How much longer a command may take beside a backup at half of its speed, in the 99th percentile.
const P99_MAX: f64 = 1.5;
/// How much of its limit a backup must move; below that it does not show what a backup at half speed costs.
const REACHED_MIN: f64 = 0.9;
/// How much of the speed of plain sequential reads a backup must have.
const SEQUENTIAL_MIN: f64 = 0.9;
/// Those reads: as long as those of a backup.
const SEQUENTIAL: Row = row("1 MiB sequential read", "read", "sequential", 1 << 20, 8);
const RATE_JUDGE: Judge = Judge { median_max: 0.04, quarters_max: 0.12 };
const P99_JUDGE: Judge = Judge { median_max: 0.08, quarters_max: 0.25 };
/// Measured seconds of those reads.
const READ_SECONDS: f64 = 0.5;
/// How often a backup is looked after.
const LOOK: Duration = Duration::from_millis(5);

/// Options of `cargo xtask bench backup`.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub surroundings: Surroundings,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Measured seconds of each run; a checkpoint begins every two
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Pages of the database outstanding at a time; with more than one or two it leaves little of the target's core
    #[arg(long, default_value_t = 1)]
    depth: u32,
    /// Only volumes whose name contains this: RAM or file. A disk that varies makes its part untrusted, and not that of memory
    #[arg(long)]
    only: Option<String>,
    /// A folder for the volume in a file
    #[arg(long, default_value = "target")]
    files: PathBuf,
    #[command(flatten)]
    pub output: report::Output,
}

/// What is beside the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Beside {
    Nothing,
    NothingAgain,
    /// A backup at half of the speed that one to a file in memory has alone.
    HalfBackup,
    /// A backup without a limit.
    Backup,
}

const BESIDE: [Beside; 4] = [Beside::Nothing, Beside::HalfBackup, Beside::Backup, Beside::NothingAgain];

impl Beside {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "alone",
            Self::NothingAgain => "alone, again",
            Self::HalfBackup => "beside a backup at half speed",
            Self::Backup => "beside a backup without a limit",
        }
    }
}

/// Latencies, microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Latency {
    p50: f64,
    p99: f64,
    p999: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kind {
    latency_us: Latency,
}

/// What the load of the database says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sample {
    transactions_per_s: f64,
    log: Kind,
    data: Kind,
    errors: u64,
    digests_failed: u64,
    /// Of the backup meanwhile, 10^6 bytes per second; 0 without one.
    #[serde(default)]
    backup_mb_per_s: f64,
}

/// What a copy says of itself.
#[derive(Deserialize)]
struct Copied {
    read_bytes: u64,
    seconds: f64,
}

/// Everything that was measured.
#[derive(Serialize)]
struct Figures {
    /// By rounds.
    alone: Vec<Alone>,
    tables: Vec<Table>,
}

/// What one client moves that has a core of its own and the target for itself, 10^6 bytes per second.
#[derive(Clone, Serialize)]
struct Alone {
    /// By a backup to `/dev/null`.
    to_nowhere: f64,
    /// By one to a new file in memory.
    to_memory: f64,
    /// By reads that keep nothing.
    reads: f64,
}

/// A figure of these.
type MbPerS = fn(&Alone) -> f64;

/// A volume and its runs: by what is beside the database.
#[derive(Serialize)]
struct Table {
    store: &'static str,
    /// Of a backup alone, to a file in memory, 10^6 bytes per second.
    backup_mb_per_s: f64,
    samples: [Vec<Sample>; BESIDE.len()],
}

/// Measures, and prints the table.
pub fn run(root: &Path, built: &Path, options: &Options) -> Result<()> {
    let intact = options.output.binary(built);
    let scratch = tempfile::tempdir_in(root.join(&options.files)).context("no place for the volume")?;
    let file = format!("file:{},size={VOLUME_BYTES}", scratch.path().join("volume").display());
    let mut figures = Figures { alone: alone(intact, options)?, tables: Vec::new() };
    for (store, volume) in [("RAM", format!("ram:{VOLUME_BYTES}")), ("file", file)] {
        if options.only.as_deref().is_none_or(|part| store.contains(part)) {
            figures.tables.push(measure(intact, store, &volume, options)?);
        }
    }
    options.output.keep(&figures)?;
    let text = markdown(&figures, &report::machine(root), options);
    options.output.publish(root, "docs/database.md", BEGIN, &text).map(drop)
}

/// A target with this volume, on its core.
fn serve(intact: &Path, folder: &Path, volume: &str) -> Result<Server> {
    let tables = format!(
        "[limits]\nshards = 1\npoll_us = 0\n[[target]]\nname = \"iqn.2026-01.org.example:backup\"\n\
         [[target.lun]]\nstore = \"{volume}\"\n"
    );
    servers::configured(place::target(intact), folder, &tables)
}

/// The speed of one backup by `program`, 10^6 bytes per second.
fn once(program: Command, server: &Server, to: &Path) -> Result<f64> {
    let mut backup = Backup::start(program, server, to, None)?;
    backup.finish()?;
    backup.mb_per_s()
}

/// Backups and plain reads in turn, by a client on its own core.
fn alone(intact: &Path, options: &Options) -> Result<Vec<Alone>> {
    let folder = tempfile::tempdir_in(servers::memory().unwrap_or(Path::new("/tmp")))?;
    let (volume, copy) = (folder.path().join("volume"), folder.path().join("copy"));
    let server = serve(intact, folder.path(), &format!("ram:{SEQUENTIAL_BYTES}"))?;
    write_random(&volume)?;
    let client = || PLACEMENTS[1].client(intact);
    let mut fill = client();
    fill.args(["cp", "--quiet"]).arg(&volume).arg(&server.url).stdout(Stdio::null());
    if !fill.status()?.success() {
        bail!("the volume cannot be filled");
    }
    fs::remove_file(&volume)?;
    let mut all = Vec::new();
    for round in 0..options.rounds {
        let to_nowhere = once(client(), &server, Path::new(NOWHERE))?;
        let to_memory = once(client(), &server, &copy)?;
        fs::remove_file(&copy)?;
        let reads = super::measure(client(), &server, "", &SEQUENTIAL, true, READ_SECONDS)?.mb_per_s;
        all.push(Alone { to_nowhere, to_memory, reads });
        progress::show(format_args!("backups alone: round {} of {}", round + 1, options.rounds));
    }
    progress::end();
    Ok(all)
}

/// A file of [`SEQUENTIAL_BYTES`] without zeros, which a backup would not write.
fn write_random(path: &Path) -> Result<()> {
    let mut random = std::io::Read::take(fs::File::open("/dev/urandom")?, SEQUENTIAL_BYTES);
    std::io::copy(&mut random, &mut fs::File::create(path)?)?;
    Ok(())
}

fn measure(intact: &Path, store: &'static str, volume: &str, options: &Options) -> Result<Table> {
    let folder = tempfile::tempdir_in(servers::memory().unwrap_or(Path::new("/tmp")))?;
    let file = folder.path().join("copy");
    let server = serve(intact, folder.path(), volume)?;
    place::fill(intact, &server)?;
    let behind = || place::behind_target(intact);
    let mut alone = Vec::new();
    for _ in 0..3 {
        alone.push(once(behind(), &server, &file)?);
        fs::remove_file(&file)?;
    }
    let full = median(alone);
    let mut table = Table { store, backup_mb_per_s: full, samples: Default::default() };
    for round in 0..options.rounds {
        for turn in 0..BESIDE.len() {
            // Another one goes first in each round.
            let at = (turn + round) % BESIDE.len();
            let begin = |rate| Backup::start(behind(), &server, Path::new(NOWHERE), rate).map(Some);
            let mut backup = match BESIDE[at] {
                Beside::Nothing | Beside::NothingAgain => None,
                Beside::HalfBackup => begin(Some((full * 5e5) as u64))?,
                Beside::Backup => begin(None)?,
            };
            let mut sample = database(intact, &server, backup.as_mut(), options)?;
            if let Some(backup) = &mut backup {
                backup.look_after()?;
                sample.backup_mb_per_s = backup.mb_per_s()?;
            }
            table.samples[at].push(sample);
            progress::show(format_args!(
                "{store}: round {} of {}, {}",
                round + 1,
                options.rounds,
                BESIDE[at].name()
            ));
        }
    }
    progress::end();
    Ok(table)
}

/// One run of the database's load, while the backup goes on.
fn database(
    intact: &Path,
    server: &Server,
    mut backup: Option<&mut Backup>,
    options: &Options,
) -> Result<Sample> {
    let mut load = PLACEMENTS[1].client(intact);
    load.args(["bench", "lun", "--profile", "oltp", "--overwrite", "--json", "--digests", "on"]);
    load.args(["--checkpoint", "2s", "--region", &REGION_BYTES.to_string()]);
    load.args(["--depth", &options.depth.to_string()]);
    load.args(["--time", &format!("{}s", options.seconds), &server.url]);
    let mut load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    while load.try_wait()?.is_none() {
        if let Some(backup) = backup.as_mut() {
            backup.look_after()?;
        }
        std::thread::sleep(LOOK);
    }
    let output = load.wait_with_output()?;
    if !output.status.success() {
        bail!("the load of the database: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let mut samples: Vec<Sample> = serde_json::from_slice(&output.stdout)?;
    let sample = samples.pop().context("it measured nothing")?;
    match (sample.errors, sample.digests_failed) {
        (0, 0) => Ok(sample),
        (errors, digests) => bail!("{errors} commands and {digests} digests of the database failed"),
    }
}

/// A backup that is begun again whenever it is done; ended when dropped.
struct Backup {
    command: Command,
    process: Child,
    began: Instant,
    /// Of the copies that are done.
    read_bytes: u64,
    seconds: f64,
}

impl Backup {
    fn start(mut command: Command, server: &Server, to: &Path, rate: Option<u64>) -> Result<Self> {
        command.args(["cp", "--quiet", "--json"]);
        if let Some(rate) = rate {
            command.args(["--rate", &rate.to_string()]);
        }
        let url = format!("{}?header_digest=crc32c&data_digest=crc32c", server.url);
        command.arg(url).arg(to).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::begin(command)
    }

    fn begin(mut command: Command) -> Result<Self> {
        let process = command.spawn().context("cannot run intact cp")?;
        Ok(Self { command, process, began: Instant::now(), read_bytes: 0, seconds: 0.0 })
    }

    /// Begins it again if it is done.
    fn look_after(&mut self) -> Result<()> {
        if self.process.try_wait()?.is_none() {
            return Ok(());
        }
        self.finish()?;
        self.process = self.command.spawn()?;
        self.began = Instant::now();
        Ok(())
    }

    /// Waits until it is done.
    fn finish(&mut self) -> Result<()> {
        let (mut out, mut errors) = (String::new(), String::new());
        let missing = "the backup has no output";
        std::io::Read::read_to_string(self.process.stdout.as_mut().context(missing)?, &mut out)?;
        std::io::Read::read_to_string(self.process.stderr.as_mut().context(missing)?, &mut errors)?;
        if !self.process.wait()?.success() {
            bail!("the backup failed: {}", errors.trim());
        }
        let copied: Copied = serde_json::from_str(&out).context("the backup printed no JSON")?;
        self.read_bytes += copied.read_bytes;
        self.seconds += copied.seconds;
        Ok(())
    }

    /// Of the copies that are done, and of what the one under way has written; 10^6 bytes per second.
    fn mb_per_s(&mut self) -> Result<f64> {
        let (mut bytes, mut seconds) = (self.read_bytes, self.seconds);
        if self.process.try_wait()?.is_none() {
            bytes += written_bytes(&self.process)?;
            seconds += self.began.elapsed().as_secs_f64();
        }
        if bytes == 0 {
            bail!("the backup has moved nothing: measure for longer (--seconds)");
        }
        Ok(bytes as f64 / 1e6 / seconds)
    }
}

/// What a process has written to files; what it has sent does not count (`wchar`, proc_pid_io(5)).
fn written_bytes(process: &Child) -> Result<u64> {
    let counts = fs::read_to_string(format!("/proc/{}/io", process.id()))?;
    let written = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
    written.and_then(|bytes| bytes.parse().ok()).context("the kernel does not count what a process writes")
}

impl Drop for Backup {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The table, and what it says.
fn markdown(figures: &Figures, machine: &str, options: &Options) -> String {
    let mut text = format!(
        "{machine}\n{} rounds of {} s for each run, in turn within each round; the target with one shard on one core, the database's client \
         on another; {} pages outstanding; digests on; a checkpoint every 2 s. Latencies in µs, medians; ratios to the load alone within the rounds, and in brackets the \
         interval that contains the median with 95 %. The bar is {P99_MAX} for a backup at half of the speed that one to a file in memory has alone.\n\n",
        options.rounds, options.seconds, options.depth
    );
    let again = BESIDE.iter().position(|beside| *beside == Beside::NothingAgain).unwrap_or(0);
    for table in &figures.tables {
        let same = |figure: fn(&Sample) -> f64| ratios(&table.samples[again], &table.samples[0], figure);
        let load = format!("{}, alone", table.store);
        text.push_str(&RATE_JUDGE.says(&load, "transactions per second", &same(|s| s.transactions_per_s)));
        text.push_str(&P99_JUDGE.says(&load, "p99 of the data", &same(|s| s.data.latency_us.p99)));
        text.push('\n');
    }
    text.push_str(
        "| volume | the database | transactions/s | log p50 | p99 | ratio | data p50 | p99 | ratio | p99.9 | within the bar | backup, MB/s |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|\n",
    );
    for table in &figures.tables {
        for (beside, samples) in BESIDE.iter().zip(&table.samples) {
            line(&mut text, table, *beside, samples);
        }
    }
    for table in &figures.tables {
        let _ = write!(
            text,
            "\nA backup alone to a file in memory, {}: {:.0} MB/s.",
            table.store, table.backup_mb_per_s
        );
    }
    let of = |figure: MbPerS| figures.alone.iter().map(figure);
    let (reads, size) = (median(of(|alone| alone.reads)), SEQUENTIAL_BYTES >> 30);
    let _ = write!(
        text,
        "\n\nBackups of {size} GiB in memory from the client's own core, and reads of 1 MiB that keep nothing ({reads:.0} MB/s); at least \
         {SEQUENTIAL_MIN} of them is asked for:\n\n| to | MB/s | of those reads | within the bar |\n|---|--:|--:|---|\n"
    );
    let rows: [(&str, MbPerS); 2] =
        [(NOWHERE, |alone| alone.to_nowhere), ("a new file in memory", |alone| alone.to_memory)];
    for (to, moved) in rows {
        let ratio = Rounds::ratios(of(moved), of(|alone| alone.reads));
        let within = if ratio.median() >= SEQUENTIAL_MIN { "yes" } else { "**no**" };
        let _ = writeln!(text, "| {to} | {:.0} | {} | {within} |", median(of(moved)), ratio.with_interval());
    }
    text
}

fn ratios(these: &[Sample], alone: &[Sample], figure: fn(&Sample) -> f64) -> Rounds {
    Rounds::ratios(these.iter().map(figure), alone.iter().map(figure))
}

fn line(text: &mut String, table: &Table, beside: Beside, samples: &[Sample]) {
    let middle = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure));
    let log = ratios(samples, &table.samples[0], |s| s.log.latency_us.p99);
    let data = ratios(samples, &table.samples[0], |s| s.data.latency_us.p99);
    let reached = middle(|s| s.backup_mb_per_s) >= REACHED_MIN * table.backup_mb_per_s / 2.0;
    let within = match beside {
        Beside::HalfBackup if !reached => "**not answered**: too slow a backup",
        Beside::HalfBackup if log.median().max(data.median()) <= P99_MAX => "yes",
        Beside::HalfBackup => "**no**",
        _ => "",
    };
    let _ = writeln!(
        text,
        "| {} | {} | {:.0} | {:.0} | {:.0} | {} | {:.0} | {:.0} | {} | {:.0} | {within} | {:.0} |",
        table.store,
        beside.name(),
        middle(|s| s.transactions_per_s),
        middle(|s| s.log.latency_us.p50),
        middle(|s| s.log.latency_us.p99),
        log.with_interval(),
        middle(|s| s.data.latency_us.p50),
        middle(|s| s.data.latency_us.p99),
        data.with_interval(),
        middle(|s| s.data.latency_us.p999),
        middle(|s| s.backup_mb_per_s),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn sample(p99: f64) -> Sample {
        let kind = |p99| Kind { latency_us: Latency { p50: 50.0, p99, p999: 900.0 } };
        Sample {
            transactions_per_s: 1000.0,
            log: kind(200.0),
            data: kind(p99),
            errors: 0,
            digests_failed: 0,
            backup_mb_per_s: 0.0,
        }
    }

    fn text(half: f64, again: f64) -> String {
        table(half, again, 480.0)
    }

    fn table(half: f64, again: f64, backup_mb_per_s: f64) -> String {
        let samples =
            [100.0, half, 300.0, again].map(|p99| vec![Sample { backup_mb_per_s, ..sample(p99) }; 3]);
        let tables = vec![Table { store: "RAM", backup_mb_per_s: 1000.0, samples }];
        let figures =
            Figures { alone: vec![Alone { to_nowhere: 900.0, to_memory: 400.0, reads: 1000.0 }; 3], tables };
        markdown(&figures, "M", &Cli::parse_from(["backup"]).options)
    }

    #[test]
    fn the_worse_of_log_and_data_is_judged() {
        assert!(text(150.0, 100.0).contains("| 1.50 [1.50, 1.50] | 900 | yes |"), "{}", text(150.0, 100.0));
        let slow = text(160.0, 100.0);
        assert!(
            slow.contains("| 200 | 1.00 [1.00, 1.00] | 50 | 160 | 1.60 [1.60, 1.60] | 900 | **no** |"),
            "{slow}"
        );
    }

    #[test]
    fn a_backup_that_stays_below_its_limit_answers_nothing() {
        let slow = table(150.0, 100.0, 440.0);
        assert!(slow.contains("| 900 | **not answered**") && !slow.contains("| 900 | yes |"), "{slow}");
    }

    #[test]
    fn a_backup_is_as_fast_as_reads_that_keep_nothing_or_nearly() {
        let text = text(150.0, 100.0);
        let bars =
            ["| /dev/null | 900 | 0.90 [0.90, 0.90] | yes |", "memory | 400 | 0.40 [0.40, 0.40] | **no** |"];
        assert!(bars.iter().all(|bar| text.contains(bar)), "{text}");
    }

    #[test]
    fn a_load_that_differs_from_itself_makes_the_page_untrusted() {
        assert!(crate::tidy::distrust(&text(150.0, 100.0)).is_empty());
        assert_eq!(crate::tidy::distrust(&text(150.0, 120.0)).len(), 1);
    }

    #[test]
    fn a_backup_is_begun_again_and_its_failure_is_an_error() {
        let script = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
            Backup::begin(command).unwrap()
        };
        let mut backup = script("echo '{\"read_bytes\": 2000000, \"seconds\": 0.5}'");
        backup.finish().unwrap();
        backup.process = backup.command.spawn().unwrap();
        backup.finish().unwrap();
        assert_eq!((backup.mb_per_s().unwrap(), backup.read_bytes), (4.0, 4_000_000));
        assert!(script("exec sleep 60").mb_per_s().is_err(), "nothing is moved yet");
        // One that is not done counts by what it has written.
        let mut half = script("head -c 1000000 /dev/zero > /dev/null; echo; exec sleep 60");
        std::io::Read::read_exact(half.process.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        half.began = Instant::now() - Duration::from_secs(1);
        let moved = half.mb_per_s().unwrap();
        assert!((0.5..1.1).contains(&moved), "{moved} MB/s");
        let failure = script("echo broken >&2; exit 1").finish().unwrap_err().to_string();
        assert!(failure.contains("broken"), "{failure}");
    }
}
