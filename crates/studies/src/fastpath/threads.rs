//! The sandbox on several threads, each with a session of its own: whether anything is shared that makes them wait for each other
//! (section 7 of the paper expects that throughput grows with the cores). Beside them, threads that only compute, each in a cache of its own:
//! what such a machine's processors add to each other at best.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use engine::cycles;
use serde::Serialize;

use super::caches::{Purge, Regime};
use super::contenders::Contender;
use super::marks::Whole;
use super::sandbox::{Sandbox, Shape, Way, Work};
use super::turns::{LARGE_PDU_BYTES, SEGMENT_BYTES};
use crate::clock::Frequency;
use harness::noise::voluntary_switches;
use harness::statistics::median;

/// Everything of a thread fits into its second-level cache.
const SHAPE: Shape = Shape {
    connections: 1,
    commands: 16,
    pdus: 1,
    pdu_bytes: LARGE_PDU_BYTES,
    segment_bytes: SEGMENT_BYTES[0],
    in_order: true,
    markers: None,
};

/// What a thread that only computes digests again and again: it fits into any first-level cache.
const COMPUTED_BYTES: usize = 16 << 10;

/// What several threads did in one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// PDUs in a tick of the counter and waits, all threads together.
    received: Turn,
    /// The same of threads that only compute, in digests.
    computed: Turn,
}

/// For each number of threads, in each round.
pub(super) type Rounds = Vec<Vec<Round>>;

/// The result of several threads at the same time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Together {
    pub threads: usize,
    /// 10^6 bytes per second of all threads: the median of the rounds.
    pub mb_per_s: f64,
    /// The same over that of one thread, in the same round: the median.
    pub over_one: f64,
    /// The same for threads that only compute.
    pub computing_over_one: f64,
    /// How often a thread waited for anything while it received, all rounds together.
    pub waits: u64,
}

/// One turn of one thread.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// PDUs in a tick of the counter.
    rate: f64,
    waits: u64,
}

/// Measures 1 to `most` threads, in turn in each round.
///
/// # Errors
/// Wrong bytes, or commands that did not complete.
pub(super) fn run(contender: &Contender, most: usize, rounds: u32, turn: Duration) -> Result<Rounds, String> {
    let mut all = vec![Vec::new(); most];
    for _ in 0..rounds {
        for (n, rounds) in all.iter_mut().enumerate() {
            let received = together(n + 1, |start| receiving(contender, start, turn))?;
            let computed = together(n + 1, |start| Ok(computing(contender, start, turn)))?;
            rounds.push(Round { received, computed });
        }
    }
    Ok(all)
}

/// The result of the rounds.
pub(super) fn summary(all: &[Vec<Round>], frequency: &Frequency) -> Vec<Together> {
    let over_one = |rounds: &[Round], rate: fn(&Round) -> f64| {
        let one = all.first().map_or(&[][..], Vec::as_slice);
        median(&rounds.iter().zip(one).map(|(all, one)| rate(all) / rate(one)).collect::<Vec<f64>>())
    };
    let of = |(n, rounds): (usize, &Vec<Round>)| {
        let rates: Vec<f64> = rounds.iter().map(|round| round.received.rate).collect();
        let ticks_per_s = frequency.counter_hz;
        Together {
            threads: n + 1,
            mb_per_s: median(&rates) * LARGE_PDU_BYTES as f64 * ticks_per_s / 1e6,
            over_one: over_one(rounds, |round| round.received.rate),
            computing_over_one: over_one(rounds, |round| round.computed.rate),
            waits: rounds.iter().map(|round| round.received.waits).sum(),
        }
    };
    all.iter().enumerate().map(of).collect()
}

/// So many threads at the same time: what they did in a tick, and how often they waited.
fn together(threads: usize, each: impl Fn(&Barrier) -> Result<Turn, String> + Sync) -> Result<Turn, String> {
    let start = Barrier::new(threads);
    let turns: Vec<Result<Turn, String>> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| each(&start))).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.map(|turn| turn.unwrap_or_else(|_| Err("a thread panicked".to_owned()))).collect()
    });
    let turns: Vec<Turn> = turns.into_iter().collect::<Result<_, _>>()?;
    Ok(Turn {
        rate: turns.iter().map(|turn| turn.rate).sum(),
        waits: turns.iter().map(|turn| turn.waits).sum(),
    })
}

/// Receives for `time` together with the others. Building what is received counts as work as well: it is the same for any number of threads.
fn receiving(contender: &Contender, start: &Barrier, time: Duration) -> Result<Turn, String> {
    let (purge, mut whole) = (Purge::of(0), Whole::default());
    let mut sandbox = Sandbox::new(SHAPE, true);
    let work = Work { way: Way::AsBuilt, contender, crc: true, copy: true };
    let mut batch = |whole: &mut Whole| {
        sandbox.load();
        sandbox.receive_all(&work, Regime::Warm, &purge, whole)
    };
    // The first batch finds nothing warm.
    let ready = batch(&mut Whole::default());
    repeated(start, ready, time, || batch(&mut whole).map(|()| SHAPE.commands * SHAPE.pdus))
}

/// Computes for `time` together with the others.
fn computing(contender: &Contender, start: &Barrier, time: Duration) -> Turn {
    let data = vec![0x5a; COMPUTED_BYTES];
    let digest = || {
        black_box(contender.digest(black_box(&data)));
        Ok(1)
    };
    repeated(start, Ok(()), time, digest).unwrap_or(Turn { rate: f64::NAN, waits: 0 })
}

/// Does something until `time` is over: how much of it in a tick. `once` says how much it did. A thread that is not `ready` lets the
/// others begin all the same.
fn repeated(
    start: &Barrier,
    ready: Result<(), String>,
    time: Duration,
    mut once: impl FnMut() -> Result<usize, String>,
) -> Result<Turn, String> {
    start.wait();
    ready?;
    let (waits, began, first) = (voluntary_switches(), Instant::now(), cycles::now());
    let mut done = 0;
    while began.elapsed() < time {
        done += once()?;
    }
    let ticks = cycles::now().wrapping_sub(first);
    Ok(Turn { rate: done as f64 / ticks as f64, waits: voluntary_switches() - waits })
}

#[cfg(test)]
mod tests {
    use super::super::contenders;
    use super::*;

    #[test]
    fn threads_receive_at_the_same_time_and_wait_for_nothing() {
        let all = contenders::all();
        let rates = run(all.last().unwrap(), 2, 2, Duration::from_millis(2)).unwrap();
        assert_eq!(rates.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
        let turns = rates.iter().flatten().flat_map(|round| [round.received, round.computed]);
        assert!(turns.into_iter().all(|turn| turn.rate > 0.0));
    }
}
