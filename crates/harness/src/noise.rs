//! Whether the machine was quiet enough for its figures to be trusted.
//!
//! Three kinds of evidence, each with its limit: how much the same work differed between the rounds of a run, what the kernel
//! counted of others meanwhile, and how the program was built.

use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::machine::Machine;
use crate::statistics::median;

/// How much slower the slowest round may be than the fastest.
const MAX_ROUND_SPREAD: f64 = 0.10;
/// How much the core's clock may vary between the rounds: the fastest tenth against the slowest.
const MAX_CLOCK_SPREAD: f64 = 0.10;
/// Share of time that a hypervisor may take away.
const MAX_STEAL: f64 = 0.01;
/// Processors that other programs may keep busy.
const MAX_OTHERS: f64 = 0.25;
/// Times per second that the scheduler may take the processor away.
const MAX_SWITCHES_PER_S: f64 = 20.0;
/// Ticks of `/proc/stat` in a second (USER_HZ, the same on every Linux architecture in use).
const USER_HZ: f64 = 100.0;

/// The kernel's counters at one time.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    at: Instant,
    /// All processors, in ticks of USER_HZ.
    busy: u64,
    steal: u64,
    all: u64,
    involuntary_switches: u64,
    own_cpu: Duration,
}

impl Snapshot {
    /// Reads `/proc`; a value that cannot be read counts as 0.
    pub fn take() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let (busy, steal, all) = cpu_ticks(&stat);
        let own = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            at: Instant::now(),
            busy,
            steal,
            all,
            involuntary_switches: involuntary_switches(),
            own_cpu: Duration::new(own.tv_sec as u64, own.tv_nsec as u32),
        }
    }

    /// Seconds that all processors together were busy since `before`, in whichever program or none (`/proc/stat`, in steps of 10 ms).
    pub fn busy_s_since(&self, before: &Self) -> f64 {
        self.busy.saturating_sub(before.busy) as f64 / USER_HZ
    }

    /// Seconds that the threads of this program have computed since `before`, with the interrupts that the kernel handled in their time.
    pub fn own_s_since(&self, before: &Self) -> f64 {
        self.own_cpu.saturating_sub(before.own_cpu).as_secs_f64()
    }

    /// This one, later by what was counted from `before` to `after`: so that [`Noise::judge`] can leave parts of a run out.
    pub fn and(self, before: &Self, after: &Self) -> Self {
        let later = |own: u64, before: u64, after: u64| own + after.saturating_sub(before);
        Self {
            at: self.at + (after.at - before.at),
            busy: later(self.busy, before.busy, after.busy),
            steal: later(self.steal, before.steal, after.steal),
            all: later(self.all, before.all, after.all),
            involuntary_switches: later(
                self.involuntary_switches,
                before.involuntary_switches,
                after.involuntary_switches,
            ),
            own_cpu: self.own_cpu + after.own_cpu.saturating_sub(before.own_cpu),
        }
    }
}

/// The disturbances between two snapshots and in the rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Noise {
    /// Between the snapshots.
    pub seconds: f64,
    /// How much slower the slowest round was than the fastest: 0.02 is 2 %. 0 if there was one round.
    pub round_spread: f64,
    /// How much the core's clock varied, between its 10th and its 90th percentile.
    pub clock_spread: f64,
    /// Share of the time of all processors that the hypervisor took away.
    pub steal_share: f64,
    /// Processors that others kept busy, on average.
    pub others_cpus: f64,
    /// How often the scheduler took the processor away.
    pub involuntary_switches_per_s: f64,
    /// Why the figures are not to be trusted; empty if they are.
    pub reasons: Vec<String>,
}

/// For each round, how slow it was relative to all: 1 is typical. Each row has a figure of every round; `slow(figure, middle)` says how much
/// slower a round with this figure was than the row's median round.
pub fn round_factors(rows: &[&[f64]], slow: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let middles: Vec<f64> = rows.iter().map(|row| median(row)).collect();
    let factor = |round: usize| {
        let factors = rows.iter().zip(&middles).map(|(row, middle)| slow(row[round], *middle));
        median(&factors.collect::<Vec<f64>>())
    };
    (0..rows.first().map_or(0, |row| row.len())).map(factor).collect()
}

impl Noise {
    /// Combines the evidence. `round_factors`: for each round, how slow it was relative to the whole run (1 is
    /// typical). `clock_drift`: measurements of the core's clock, relative to their median.
    pub fn judge(
        before: &Snapshot,
        after: &Snapshot,
        round_factors: &[f64],
        clock_drift: &[f64],
        machine: &Machine,
    ) -> Self {
        let seconds = (after.at - before.at).as_secs_f64().max(1e-3);
        let ticks = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let own = after.own_cpu.saturating_sub(before.own_cpu).as_secs_f64();
        let mut noise = Self {
            seconds,
            round_spread: spread(round_factors, 0.0),
            clock_spread: spread(clock_drift, 0.1),
            steal_share: ticks(after.steal, before.steal) / ticks(after.all, before.all).max(1.0),
            // Ticks are coarse: in a short run they say nothing.
            others_cpus: match seconds < 0.2 {
                true => 0.0,
                false => (ticks(after.busy, before.busy) / USER_HZ - own).max(0.0) / seconds,
            },
            involuntary_switches_per_s: ticks(after.involuntary_switches, before.involuntary_switches)
                / seconds,
            reasons: Vec::new(),
        };
        noise.reasons = noise.reasons_given(machine);
        noise
    }

    fn reasons_given(&self, machine: &Machine) -> Vec<String> {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let mut reasons = Vec::new();
        if !machine.optimised() {
            reasons.push("the program was built without optimisation: build it with --release".to_owned());
        }
        if self.round_spread > MAX_ROUND_SPREAD {
            reasons.push(format!(
                "the same work took {} longer in the slowest round than in the fastest (at most {})",
                percent(self.round_spread),
                percent(MAX_ROUND_SPREAD)
            ));
        }
        if self.clock_spread > MAX_CLOCK_SPREAD {
            reasons.push(format!(
                "the core's clock varied by {} (at most {}): fix its frequency",
                percent(self.clock_spread),
                percent(MAX_CLOCK_SPREAD)
            ));
        }
        if self.steal_share > MAX_STEAL {
            reasons.push(format!(
                "the hypervisor took away {} of the time (at most {})",
                percent(self.steal_share),
                percent(MAX_STEAL)
            ));
        }
        if self.others_cpus > MAX_OTHERS {
            reasons.push(format!(
                "other programs kept {:.2} of {} processors busy (at most {MAX_OTHERS})",
                self.others_cpus, machine.cpus
            ));
        }
        if self.involuntary_switches_per_s > MAX_SWITCHES_PER_S {
            reasons.push(format!(
                "the scheduler took the processor away {:.0} times per second (at most {MAX_SWITCHES_PER_S:.0})",
                self.involuntary_switches_per_s
            ));
        }
        reasons
    }

    /// Names and values, for people.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        vec![
            ("slowest round against fastest", percent(self.round_spread)),
            ("core clock varied by", percent(self.clock_spread)),
            ("taken by the hypervisor", percent(self.steal_share)),
            ("kept busy by others", format!("{:.2} processors", self.others_cpus)),
            ("involuntary context switches", format!("{:.1}/s", self.involuntary_switches_per_s)),
            ("duration", format!("{:.1} s", self.seconds)),
        ]
    }
}

/// How much larger the largest is than the smallest, after `cut` of them was left out at either end.
fn spread(factors: &[f64], cut: f64) -> f64 {
    let mut sorted = factors.to_vec();
    sorted.sort_by(f64::total_cmp);
    let out = (sorted.len() as f64 * cut) as usize;
    match sorted.get(out..sorted.len().saturating_sub(out)) {
        Some([first, .., last]) if *first > 0.0 => last / first - 1.0,
        _ => 0.0,
    }
}

/// Busy (neither idle nor stolen), stolen and all ticks, from the line of all processors in `/proc/stat`.
fn cpu_ticks(stat: &str) -> (u64, u64, u64) {
    let line = stat.lines().find(|line| line.starts_with("cpu ")).unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time, which follows, is in user already.
    let get = |n: usize| fields.get(n).copied().unwrap_or(0);
    let busy = get(0) + get(1) + get(2) + get(5) + get(6);
    (busy, get(7), busy + get(3) + get(4) + get(7))
}

/// How often the scheduler has taken the processor away from this thread. 0 if the kernel does not say.
pub fn involuntary_switches() -> u64 {
    switches_in(&own_status(), "nonvoluntary_ctxt_switches:")
}

/// How often this thread has given the processor up to wait, for example for a lock. 0 if the kernel does not say.
pub fn voluntary_switches() -> u64 {
    switches_in(&own_status(), "voluntary_ctxt_switches:")
}

fn own_status() -> String {
    fs::read_to_string("/proc/thread-self/status").unwrap_or_default()
}

fn switches_in(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fast_build() -> Machine {
        let mut machine = Machine::this();
        machine.opt_level = "3";
        machine.cpus = 2;
        machine
    }

    fn at(seconds: u64, busy: u64, steal: u64, all: u64, switches: u64, own_s: u64) -> Snapshot {
        // Any start will do: only differences count.
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let start = *START.get_or_init(Instant::now);
        Snapshot {
            at: start + Duration::from_secs(seconds),
            busy,
            steal,
            all,
            involuntary_switches: switches,
            own_cpu: Duration::from_secs(own_s),
        }
    }

    /// Ten seconds of two processors, on which only the program itself ran.
    fn quiet_after() -> Snapshot {
        at(10, 1000, 0, 2000, 10, 10)
    }

    fn judge(after: &Snapshot, rounds: &[f64], drift: &[f64]) -> Noise {
        Noise::judge(&at(0, 0, 0, 0, 0, 0), after, rounds, drift, &fast_build())
    }

    #[test]
    fn a_quiet_machine_is_trusted() {
        let noise = judge(&quiet_after(), &[1.0, 1.01, 0.99], &[1.0; 20]);
        assert!(noise.reasons.is_empty(), "{noise:?}");
        assert!((noise.round_spread - 0.0202).abs() < 1e-3, "{noise:?}");
        assert_eq!(noise.others_cpus, 0.0);
    }

    #[test]
    fn each_disturbance_is_named() {
        let drift: Vec<f64> = (0..20).map(|n| 1.0 + 0.02 * f64::from(n)).collect();
        for (words, after, rounds, drift) in [
            ("slowest round", quiet_after(), vec![1.0, 1.2], vec![]),
            ("core's clock", quiet_after(), vec![], drift),
            ("hypervisor", at(10, 1000, 100, 2000, 0, 10), vec![], vec![]),
            ("other programs kept 0.50 of 2", at(10, 1500, 0, 2000, 0, 10), vec![], vec![]),
            ("scheduler", at(10, 1000, 0, 2000, 1000, 10), vec![], vec![]),
        ] {
            let noise = judge(&after, &rounds, &drift);
            assert_eq!(noise.reasons.len(), 1, "{words}: {noise:?}");
            assert!(noise.reasons[0].contains(words), "{words}: {noise:?}");
        }
        let mut slow_build = fast_build();
        slow_build.opt_level = "0";
        let noise = Noise::judge(&at(0, 0, 0, 0, 0, 0), &quiet_after(), &[], &[], &slow_build);
        assert!(noise.reasons[0].contains("--release"), "{noise:?}");
    }

    #[test]
    fn parts_of_a_run_are_judged_without_the_rest() {
        let start = at(0, 0, 0, 0, 0, 0);
        // From second 10 to 90 the processors were busy, with what is measured.
        let quiet = start
            .and(&start, &at(10, 10, 0, 2000, 0, 0))
            .and(&at(90, 16_010, 0, 18_000, 0, 0), &at(100, 16_020, 0, 20_000, 0, 0));
        let noise = Noise::judge(&start, &quiet, &[], &[], &fast_build());
        assert!(noise.reasons.is_empty(), "{noise:?}");
        assert_eq!((noise.seconds, noise.others_cpus), (20.0, 0.01));
        let (before, after) = (at(10, 10, 0, 2000, 0, 3), at(90, 16_010, 0, 18_000, 0, 10));
        assert_eq!((after.busy_s_since(&before), after.own_s_since(&before)), (160.0, 7.0));
    }

    #[test]
    fn one_wild_measurement_of_the_clock_is_no_reason() {
        let mut drift = vec![1.0; 20];
        drift[7] = 0.5;
        assert!(judge(&quiet_after(), &[], &drift).reasons.is_empty());
    }

    #[test]
    fn the_kernels_words_are_understood() {
        let stat = "cpu  10 20 30 400 50 6 7 8 9 9\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(cpu_ticks(stat), (73, 8, 531));
        assert_eq!(cpu_ticks("cpu  10"), (10, 0, 10));
        assert_eq!(cpu_ticks(""), (0, 0, 0));
        let status = "a: 1\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t42\n";
        assert_eq!(switches_in(status, "nonvoluntary_ctxt_switches:"), 42);
        assert_eq!(switches_in(status, "voluntary_ctxt_switches:"), 7);
        assert_eq!(switches_in("nonvoluntary_ctxt_switches:\tmany", "nonvoluntary_ctxt_switches:"), 0);
    }
}
