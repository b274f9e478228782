//! From ticks of [`engine::cycles`] to cycles and seconds, and how fast the core really goes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use engine::cycles::{self, COUNTER, Counter};
use serde::Serialize;

use harness::statistics::median;

/// Before this time has passed the measured frequency of the counter is not exact.
const SHORTEST: Duration = Duration::from_millis(100);
/// Steps of the chain that measures the core's clock, and the cycles that one step takes.
const CHAIN_STEPS: u32 = 100_000;
const CHAIN_CYCLES_PER_STEP: f64 = 2.0;
/// Readings of the counter that show its grain, and how much distances differ that are the same.
const GRAIN_READINGS: usize = 4096;
const JITTER_TICKS: u64 = 2;

/// Notes when it was made, and measures the counter against the monotonic clock from then on.
pub(crate) struct Clock {
    began: Instant,
    ticks: u64,
    core: Vec<f64>,
}

/// How figures in cycles were obtained.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Frequency {
    /// Which counter was read.
    pub counter: &'static str,
    /// What one cycle in the figures is.
    pub cycle: &'static str,
    /// Frequency of the counter, measured against the monotonic clock.
    pub counter_hz: f64,
    /// Frequency of the core, measured with a chain of dependent additions: median of all measurements.
    pub core_hz: f64,
    /// The slowest and the fastest of these measurements.
    pub core_hz_range: [f64; 2],
    /// Frequency of the cycles in the figures.
    pub cycle_hz: f64,
    /// Cycles, of the figures, from one reading of the counter to the next with nothing between.
    pub empty_sample_cycles: f64,
    /// The steps that the counter moves in, in ticks: 1 if it has no coarser ones. A median of single calls is about a
    /// multiple of it.
    pub grain_ticks: u64,
}

impl Clock {
    /// Starts measuring.
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), ticks: cycles::now(), core: Vec::new() }
    }

    /// Measures the core's clock once more: a tenth of a millisecond.
    pub(crate) fn measure_core(&mut self) {
        let start = Instant::now();
        black_box(chain(black_box(3), black_box(5), CHAIN_STEPS));
        let seconds = start.elapsed().as_secs_f64();
        self.core.push(f64::from(CHAIN_STEPS) * CHAIN_CYCLES_PER_STEP / seconds);
    }

    /// The core's clock relative to its median, at each measurement.
    pub(crate) fn core_drift(&self) -> Vec<f64> {
        let middle = median(&self.core);
        self.core.iter().map(|hz| hz / middle).collect()
    }

    /// The result; waits if too little time has passed since the start.
    pub(crate) fn frequency(&mut self) -> Frequency {
        while self.began.elapsed() < SHORTEST || self.core.len() < 5 {
            self.measure_core();
        }
        let elapsed = self.began.elapsed().as_secs_f64();
        let counter_hz = cycles::now().wrapping_sub(self.ticks) as f64 / elapsed;
        let core_hz = median(&self.core);
        let (counter, cycle, cycle_hz) = match COUNTER {
            Counter::TimeStamp => (
                "time stamp counter (rdtsc between lfence)",
                "a tick of the time stamp counter, as in the thesis; the core may run faster or slower",
                counter_hz,
            ),
            Counter::VirtualCount => (
                "virtual counter (CNTVCT_EL0 between isb)",
                "the counter's time times the measured clock of the core",
                core_hz,
            ),
            Counter::Nanoseconds => (
                "monotonic clock of the operating system",
                "the clock's time times the measured clock of the core",
                core_hz,
            ),
        };
        let empty: Vec<f64> = (0..1001)
            .map(|_| {
                let start = cycles::now();
                cycles::now().wrapping_sub(start) as f64
            })
            .collect();
        let readings = (0..GRAIN_READINGS).map(|n| {
            // Work of different lengths, for distances of different lengths.
            black_box(chain(3, 5, (n % 32) as u32 * 16));
            cycles::now()
        });
        let grain_ticks = grain(&readings.collect::<Vec<_>>());
        let (slowest, fastest) =
            self.core.iter().fold((f64::INFINITY, 0.0f64), |(min, max), hz| (min.min(*hz), max.max(*hz)));
        Frequency {
            counter,
            cycle,
            counter_hz,
            core_hz,
            core_hz_range: [slowest, fastest],
            cycle_hz,
            empty_sample_cycles: median(&empty) * cycle_hz / counter_hz,
            grain_ticks,
        }
    }
}

impl Frequency {
    /// Cycles of the figures in one tick of the counter.
    pub(crate) fn cycles_per_tick(&self) -> f64 {
        self.cycle_hz / self.counter_hz
    }

    /// 10^9 bytes per second at so many cycles per byte.
    pub(crate) fn gb_per_s(&self, cycles_per_byte: f64) -> f64 {
        self.cycle_hz / cycles_per_byte / 1e9
    }
}

/// The typical step between the distances that readings have from each other; 1 if there are no steps.
///
/// A hypervisor scales the counter, so that steps of 24.5 are now 24 and now 25 ticks: distances that differ by no more than
/// [`JITTER_TICKS`] are the same. The longest tenth is left out, which is rare and so has gaps without steps.
fn grain(readings: &[u64]) -> u64 {
    let mut distances: Vec<u64> = readings.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    distances.sort_unstable();
    distances.truncate(distances.len() * 9 / 10);
    distances.dedup();
    let gaps = distances.windows(2).map(|pair| pair[1] - pair[0]);
    let (steps, same): (Vec<u64>, Vec<u64>) = gaps.partition(|&gap| gap > JITTER_TICKS);
    match steps.len() > same.len() {
        true => median(&steps.iter().map(|&step| step as f64).collect::<Vec<_>>()) as u64,
        false => 1,
    }
}

/// Additions and exclusive ors in turn, each waiting for the one before. Both take one cycle on every processor of the
/// last decades; neither can be joined with the next, and the operands are unknown to the compiler.
#[inline(never)]
fn chain(add: u64, xor: u64, steps: u32) -> u64 {
    let mut value = 1u64;
    for _ in 0..steps / 16 {
        for _ in 0..16 {
            value = value.wrapping_add(add) ^ xor;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grain_is_the_step_between_distances() {
        // Distances of so many steps, as an EPYC has them under a hypervisor.
        let stepped = |step: f64| {
            let mut at = 0.0;
            let readings = (0..4000).map(move |n| {
                at += step * f64::from(2 + n * n % 7);
                at as u64
            });
            readings.collect::<Vec<_>>()
        };
        assert_eq!(grain(&stepped(24.5)), 24);
        assert_eq!(grain(&stepped(26.0)), 26);
        assert_eq!(grain(&stepped(1.0)), 1, "a counter without steps");
        assert_eq!((grain(&[7]), grain(&[7, 7])), (1, 1), "a counter that was not seen to move");
        assert!(Clock::start().frequency().grain_ticks >= 1);
    }

    #[test]
    fn frequencies_are_those_of_computers() {
        let frequency = Clock::start().frequency();
        assert!(frequency.counter_hz > 1e6 && frequency.counter_hz < 2e10, "{frequency:?}");
        assert!(frequency.core_hz > 1e7 && frequency.core_hz < 2e10, "{frequency:?}");
        assert!(frequency.core_hz_range[0] <= frequency.core_hz_range[1]);
        let there_and_back = frequency.gb_per_s(2.0) * 2.0 * 1e9;
        assert!((there_and_back / frequency.cycle_hz - 1.0).abs() < 1e-9);
    }
}
