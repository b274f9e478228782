//! The sandbox on several threads, each with a session of its own: whether anything is shared that makes them wait for each other
//! (section 7 of the paper expects that throughput grows with the cores).

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
use crate::cmd::bench::kit::clock::Frequency;
use crate::cmd::bench::kit::noise::voluntary_switches;
use crate::cmd::bench::kit::statistics::median;

/// Everything of a thread fits into its second-level cache.
const SHAPE: Shape = Shape {
    connections: 1,
    commands: 16,
    pdus: 1,
    pdu_bytes: LARGE_PDU_BYTES,
    segment_bytes: SEGMENT_BYTES[0],
    in_order: true,
};

/// PDUs in a tick of the counter and waits of all threads: for each number of threads, in each round.
pub type Rounds = Vec<Vec<(f64, u64)>>;

/// The result of several threads at the same time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Together {
    pub threads: usize,
    /// 10^6 bytes per second of all threads: the median of the rounds.
    pub mb_per_s: f64,
    /// The same over that of one thread, in the same round: the median.
    pub over_one: f64,
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
pub fn run(contender: &Contender, most: usize, rounds: u32, turn: Duration) -> Result<Rounds, String> {
    let mut rates = vec![Vec::new(); most];
    for _ in 0..rounds {
        for (n, rates) in rates.iter_mut().enumerate() {
            rates.push(together(contender, n + 1, turn)?);
        }
    }
    Ok(rates)
}

/// The result of the rounds.
pub fn summary(rates: &[Vec<(f64, u64)>], frequency: &Frequency) -> Vec<Together> {
    let one: Vec<f64> = rates.first().map_or(Vec::new(), |one| one.iter().map(|(rate, _)| *rate).collect());
    let of = |(n, rounds): (usize, &Vec<(f64, u64)>)| {
        let all: Vec<f64> = rounds.iter().map(|(rate, _)| *rate).collect();
        let over: Vec<f64> = all.iter().zip(&one).map(|(all, one)| all / one).collect();
        let ticks_per_s = frequency.counter_hz;
        Together {
            threads: n + 1,
            mb_per_s: median(&all) * LARGE_PDU_BYTES as f64 * ticks_per_s / 1e6,
            over_one: median(&over),
            waits: rounds.iter().map(|(_, waits)| waits).sum(),
        }
    };
    rates.iter().enumerate().map(of).collect()
}

/// PDUs per tick of so many threads at the same time, and how often they waited.
fn together(contender: &Contender, threads: usize, turn: Duration) -> Result<(f64, u64), String> {
    let start = Barrier::new(threads);
    let turns: Vec<Result<Turn, String>> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| alone(contender, &start, turn))).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.map(|turn| turn.unwrap_or_else(|_| Err("a thread panicked".to_owned()))).collect()
    });
    let turns: Vec<Turn> = turns.into_iter().collect::<Result<_, _>>()?;
    Ok((turns.iter().map(|turn| turn.rate).sum(), turns.iter().map(|turn| turn.waits).sum()))
}

/// Receives for `time` together with the others. Building what is received counts as work as well: it is the same for any number of threads.
fn alone(contender: &Contender, start: &Barrier, time: Duration) -> Result<Turn, String> {
    let (purge, mut whole) = (Purge::of(0), Whole::default());
    let mut sandbox = Sandbox::new(SHAPE, true);
    let work = Work { way: Way::AsBuilt, contender, crc: true, copy: true };
    let mut batch = |whole: &mut Whole| {
        sandbox.load();
        sandbox.receive_all(&work, Regime::Warm, &purge, whole)
    };
    // The first batch finds nothing warm.
    batch(&mut Whole::default())?;
    start.wait();
    let (waits, began, first) = (voluntary_switches(), Instant::now(), cycles::now());
    while began.elapsed() < time {
        batch(&mut whole)?;
    }
    let ticks = cycles::now().wrapping_sub(first);
    Ok(Turn { rate: whole.pdus as f64 / ticks as f64, waits: voluntary_switches() - waits })
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
        assert!(rates.iter().flatten().all(|(rate, _)| *rate > 0.0));
    }
}
