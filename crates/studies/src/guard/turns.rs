//! Taking turns: in each run every algorithm writes for a while, at every size, on every disk.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use harness::progress::ProgressBar;
use rustix::time::{ClockId, clock_gettime};

use super::algorithms::Algorithm;
use super::disks::Disk;
use super::report::Measurement;
use crate::clock::Clock;
use crate::oracle::{Answer, SECTOR_BYTES, right};
use harness::content::random;
use harness::noise;
use harness::statistics::Summary;

/// Different contents of the buffer: the time of sums depends on the data, and a disk must not see one block for ever.
const CONTENTS: usize = 4;

/// The extent of the measurement.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Bytes of an I/O, ascending, whole sectors.
    pub sizes: Vec<usize>,
    pub runs: u32,
    /// How long a turn is.
    pub turn: Duration,
    /// Bytes of each disk; no size is larger.
    pub region_bytes: u64,
}

/// The turns of one algorithm at one size on one disk.
#[derive(Debug)]
pub(super) struct Row {
    disk: usize,
    algorithm: usize,
    bytes: usize,
    writes: u64,
    /// 10^6 bytes per second, and the processor's share in percent, of each turn.
    mb_per_s: Vec<f64>,
    cpu_percent: Vec<f64>,
    /// Where the next turn begins.
    at: u64,
}

/// What is written, and the right guards.
struct Contents {
    data: Vec<Vec<u8>>,
    guards: HashMap<Answer, Vec<Vec<u16>>>,
}

/// All rows, in the order of tables.
pub(super) fn rows(disks: &[Disk], algorithms: &[Algorithm], plan: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    for (n, disk) in disks.iter().enumerate() {
        let in_memory = disk.store.in_place().is_some();
        for (algorithm, of) in algorithms.iter().enumerate() {
            if !of.suits(in_memory) {
                continue;
            }
            rows.extend(plan.sizes.iter().map(|&bytes| Row {
                disk: n,
                algorithm,
                bytes,
                writes: 0,
                mb_per_s: Vec::new(),
                cpu_percent: Vec::new(),
                at: 0,
            }));
        }
    }
    rows
}

/// Measures all rows.
///
/// # Errors
/// A disk that failed, wrong guards, or data that are not on the disk.
pub(super) fn run(
    mut rows: Vec<Row>,
    disks: &[Disk],
    algorithms: &[Algorithm],
    plan: &Plan,
    clock: &mut Clock,
    bar: &ProgressBar,
) -> Result<Vec<Row>, String> {
    let contents = Contents::new(algorithms, plan.sizes.iter().copied().max().unwrap_or(0));
    let mut guards = vec![0; contents.data[0].len() / SECTOR_BYTES];
    for _ in 0..plan.runs {
        clock.measure_core();
        for row in &mut rows {
            let (disk, algorithm) = (&disks[row.disk], &algorithms[row.algorithm]);
            bar.set_message(disk.kind.id());
            row.turn(disk, algorithm, &contents, &mut guards[..row.bytes / SECTOR_BYTES], plan.turn)?;
            bar.inc(1);
        }
    }
    Ok(rows)
}

/// For each run, how slow it was relative to all: 1 is typical.
pub(super) fn round_factors(rows: &[Row]) -> Vec<f64> {
    let rows: Vec<&[f64]> = rows.iter().map(|row| &row.mb_per_s[..]).collect();
    noise::round_factors(&rows, |speed, middle| middle / speed)
}

impl Contents {
    fn new(algorithms: &[Algorithm], largest: usize) -> Self {
        let mut state = 0x2545_f491_4f6c_dd1d;
        let data: Vec<Vec<u8>> = (0..CONTENTS).map(|_| random(largest, &mut state)).collect();
        let mut guards = HashMap::new();
        for answer in algorithms.iter().filter_map(|algorithm| algorithm.answer) {
            let of = |data: &Vec<u8>| data.chunks(SECTOR_BYTES).map(|s| right(answer, s) as u16).collect();
            guards.entry(answer).or_insert_with(|| data.iter().map(of).collect());
        }
        Self { data, guards }
    }
}

impl Row {
    /// Writes for `time`, and at least once; the first write does not count.
    fn turn(
        &mut self,
        disk: &Disk,
        algorithm: &Algorithm,
        contents: &Contents,
        guards: &mut [u16],
        time: Duration,
    ) -> Result<(), String> {
        let what = || format!("{} on {}, {} bytes", algorithm.name, disk.kind.id(), self.bytes);
        let right = algorithm.answer.map(|answer| &contents.guards[&answer]);
        let (mut at, mut number) = (self.at, 0);
        let mut write = |number: usize| -> Result<u64, String> {
            if at + self.bytes as u64 > disk.bytes {
                at = 0;
            }
            let (place, data) = (at, &contents.data[number % CONTENTS][..self.bytes]);
            algorithm
                .write(&*disk.store, place, data, guards, disk.durability())
                .map_err(|error| format!("{}: {error}", what()))?;
            if right.is_some_and(|right| right[number % CONTENTS][..guards.len()] != *guards) {
                return Err(format!("{}: a guard is wrong", what()));
            }
            at += self.bytes as u64;
            Ok(place)
        };
        write(number)?;
        let (start, cpu) = (Instant::now(), thread_cpu());
        let mut last;
        loop {
            number += 1;
            last = write(number)?;
            if start.elapsed() >= time {
                break;
            }
        }
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), (thread_cpu() - cpu).as_secs_f64());
        let mut read = vec![0; self.bytes];
        disk.store.read(last, &mut read).map_err(|error| format!("{}: {error}", what()))?;
        if read != contents.data[number % CONTENTS][..self.bytes] {
            return Err(format!("{}: what was written is not on the disk", what()));
        }
        self.at = at;
        self.writes += number as u64;
        self.mb_per_s.push((number * self.bytes) as f64 / 1e6 / seconds);
        self.cpu_percent.push(100.0 * cpu / seconds);
        Ok(())
    }

    /// The result of its turns.
    pub(super) fn measurement(&self, disks: &[Disk], algorithms: &[Algorithm]) -> Measurement {
        let Algorithm { name, title, source, origin, .. } = &algorithms[self.algorithm];
        let seconds_per_gb = |(rate, load): (&f64, &f64)| load / 100.0 * 1e3 / rate;
        let cpu: Vec<f64> = self.mb_per_s.iter().zip(&self.cpu_percent).map(seconds_per_gb).collect();
        Measurement {
            disk: disks[self.disk].kind.id(),
            name,
            title,
            source,
            origin: *origin,
            bytes: self.bytes,
            writes: self.writes,
            mb_per_s: Summary::of(&self.mb_per_s),
            cpu_percent: Summary::of(&self.cpu_percent),
            cpu_seconds_per_gb: Summary::of(&cpu),
        }
    }
}

/// CPU time of this thread, in user and in kernel mode.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use blockstore::{Fault, FaultRule, FaultStore, Op, RamStore};

    use super::super::algorithms;
    use super::super::disks::Kind;
    use super::*;

    fn plan() -> Plan {
        Plan { sizes: vec![1024, 4096], runs: 3, turn: Duration::from_micros(200), region_bytes: 9 * 1024 }
    }

    fn ram() -> Disk {
        Disk::open(Kind::Ram, std::path::Path::new("/nonexistent"), plan().region_bytes).unwrap()
    }

    #[test]
    fn every_row_has_every_turn() {
        let (disks, algorithms) = ([ram()], algorithms::all());
        let rows = rows(&disks, &algorithms, &plan());
        assert_eq!(rows.len(), algorithms.len() * 2);
        let rows =
            run(rows, &disks, &algorithms, &plan(), &mut Clock::start(), &ProgressBar::hidden()).unwrap();
        for row in &rows {
            let measurement = row.measurement(&disks, &algorithms);
            assert!(row.writes >= 3 && row.at <= plan().region_bytes, "{row:?}");
            assert_eq!((measurement.mb_per_s.samples, measurement.cpu_percent.samples), (3, 3));
            assert!(measurement.mb_per_s.min > 0.0 && measurement.cpu_seconds_per_gb.mean >= 0.0);
        }
        assert_eq!(round_factors(&rows).len(), 3);
    }

    #[test]
    fn wrong_guards_and_lost_writes_end_the_run() {
        let (disk, algorithms) = (ram(), algorithms::all());
        let t10 = algorithms.iter().find(|algorithm| algorithm.name == "t10-table").unwrap();
        let row = || Row {
            disk: 0,
            algorithm: 0,
            bytes: 1024,
            writes: 0,
            mb_per_s: Vec::new(),
            cpu_percent: Vec::new(),
            at: 0,
        };
        let mut contents = Contents::new(&algorithms, 1024);
        let time = Duration::from_micros(1);
        row().turn(&disk, t10, &contents, &mut [0; 2], time).unwrap();
        contents.guards.get_mut(&Answer::T10).unwrap()[1][1] ^= 1;
        let error = row().turn(&disk, t10, &contents, &mut [0; 2], time).unwrap_err();
        assert!(error.contains("t10-table on ram, 1024 bytes: a guard is wrong"), "{error}");

        let (store, faults) = FaultStore::new(RamStore::new(9 * 1024, 512).unwrap());
        faults.arm(FaultRule::new(Op::Write, Fault::Lost));
        let mut lossy = ram();
        lossy.store = Box::new(store);
        let none = &algorithms[0];
        let error = row().turn(&lossy, none, &contents, &mut [0; 2], time).unwrap_err();
        assert!(error.contains("not on the disk"), "{error}");
    }
}
