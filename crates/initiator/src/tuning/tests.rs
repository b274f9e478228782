//! The rule on networks that are formulas: throughput by number of connections, with noise and losses.

use super::*;

/// xorshift64*: the same numbers on every machine.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }

    /// From 1 - `share` to 1 + `share`.
    fn around_one(&mut self, share: f64) -> f64 {
        1.0 + share * (self.below(2001) as f64 / 1000.0 - 1.0)
    }
}

/// A network on which `n` connections together carry `rate(n)` bytes per second.
struct Net<F> {
    rate: F,
    noise: f64,
    min_rtt: Duration,
    loses: bool,
    outstanding: u64,
    /// The most connections that the target allows.
    open_max: u16,
}

struct Run {
    tuner: Tuner,
    now: Time,
    open: u16,
    moved: u64,
    losses: u64,
    random: Noise,
    /// The intervals in which the wanted number changed.
    changes: Vec<u32>,
    intervals: u32,
}

const MS: Duration = Duration::from_millis(1);

fn lossy<F: Fn(u16) -> f64>(rate: F) -> Net<F> {
    Net { rate, noise: 0.05, min_rtt: MS, loses: true, outstanding: 1 << 20, open_max: u16::MAX }
}

impl Run {
    fn new(most: u16, seed: u64) -> Self {
        let random = Noise(seed * 2 + 1);
        let tuner = Tuner::new(most);
        Self {
            tuner,
            now: Time::ZERO,
            open: 1,
            moved: 0,
            losses: 0,
            random,
            changes: Vec::new(),
            intervals: 0,
        }
    }

    fn interval(&mut self, net: &Net<impl Fn(u16) -> f64>) {
        while !self.tuner.pass(self.now, net.outstanding) {
            let step = Duration::from_millis(10 + self.random.below(10));
            let rate = (net.rate)(self.open) * self.random.around_one(net.noise);
            self.moved += (rate * step.as_secs_f64()) as u64;
            self.now += step;
        }
        self.losses += u64::from(net.loses);
        let before = self.tuner.wanted();
        let reading =
            |cid| Reading { cid: Cid(cid), rtt: net.min_rtt, min_rtt: net.min_rtt, losses: self.losses };
        let readings: Vec<Reading> = (0..self.open).map(reading).collect();
        self.tuner.measured(self.moved, &readings);
        self.intervals += 1;
        if self.tuner.wanted() != before {
            self.changes.push(self.intervals);
        }
        let wanted = self.tuner.wanted().min(net.open_max);
        self.open = if self.open < wanted { self.open + 1 } else { wanted };
    }

    fn intervals(&mut self, count: u32, net: &Net<impl Fn(u16) -> f64>) {
        for _ in 0..count {
            self.interval(net);
        }
    }

    /// Throughput over this many intervals more.
    fn rate(&mut self, count: u32, net: &Net<impl Fn(u16) -> f64>) -> f64 {
        let (bytes, from) = (self.moved, self.now);
        self.intervals(count, net);
        (self.moved - bytes) as f64 / (self.now - from).as_secs_f64()
    }
}

#[test]
fn without_losses_on_a_short_path_nothing_is_tried() {
    let net = Net { loses: false, ..lossy(|n| 1e6 * f64::from(n)) };
    let mut run = Run::new(8, 1);
    run.intervals(2000, &net);
    assert_eq!(run.tuner.info(), TuningInfo { wanted: 1, most: 8, trials: 0, won: 0 });
}

#[test]
fn a_long_path_is_reason_enough() {
    let net = Net { loses: false, min_rtt: 40 * MS, ..lossy(|n| 1e6 * f64::from(n)) };
    let mut run = Run::new(8, 1);
    run.intervals(60, &net);
    assert_eq!(run.tuner.wanted(), 8);
}

#[test]
fn commands_that_do_not_wait_are_no_reason() {
    // All that is outstanding is carried within a round trip: more connections would have no more to carry.
    let net = Net { min_rtt: 10 * MS, outstanding: 10_000, noise: 0.01, ..lossy(|_| 1e6) };
    let mut run = Run::new(8, 1);
    run.intervals(1000, &net);
    assert_eq!(run.tuner.info().trials, 0);
    let deeper = Net { outstanding: 20_000, ..net };
    run.intervals(100, &deeper);
    assert!(run.tuner.info().trials > 0);
}

#[test]
fn the_best_number_is_found_and_kept() {
    // Each up to its best, then falling; the last one is best with all.
    for (seed, best) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 6)] {
        let most = if best == 6 { 6 } else { 8 };
        let rate = |n: u16| 1e6 * f64::from(n.min(best)) * if n > best { 0.8 } else { 1.0 };
        let net = lossy(rate);
        let mut run = Run::new(most, seed);
        run.intervals(70, &net);
        assert_eq!(run.tuner.wanted(), best, "best {best}");
        let kept = run.rate(4000, &net) / rate(best);
        assert!(kept > 0.97, "{kept} of the best throughput with {best}");
    }
}

#[test]
fn one_connection_is_never_missed_by_more_than_three_per_cent() {
    // Every further connection costs; with much noise as well.
    for seed in 1..=40 {
        for (cost, noise) in [(0.0, 0.05), (0.02, 0.05), (0.1, 0.3), (0.3, 0.6), (0.6, 0.6)] {
            let net = Net { noise, ..lossy(|n| 1e6 * (1.0 - cost * (1.0 - 1.0 / f64::from(n)))) };
            let mut run = Run::new(8, seed);
            let kept = run.rate(1000, &net) / 1e6;
            assert!(kept > 0.97, "{kept} of one connection's: seed {seed}, cost {cost}, noise {noise}");
        }
    }
}

#[test]
fn trials_become_rare() {
    let net = lossy(|_| 1e6);
    let mut run = Run::new(8, 7);
    run.intervals(20_000, &net);
    assert_eq!(run.tuner.wanted(), 1);
    // One each time the hold has doubled, and then one for each of the longest.
    assert!((3..=12).contains(&run.tuner.info().trials), "{:?}", run.tuner.info());
}

#[test]
fn another_network_is_learned_soon() {
    let mut run = Run::new(8, 3);
    run.intervals(5000, &lossy(|_| 4e6));
    assert_eq!(run.tuner.wanted(), 1);
    run.intervals(150, &lossy(|n| 1e6 * f64::from(n)));
    assert_eq!(run.tuner.wanted(), 8);
    run.intervals(300, &lossy(|n| 20e6 / f64::from(n)));
    assert_eq!(run.tuner.wanted(), 1);
}

#[test]
fn a_trial_under_another_load_teaches_nothing() {
    let mut run = Run::new(8, 3);
    let net = lossy(|_| 1e6);
    while run.tuner.trial.is_none() {
        run.interval(&net);
    }
    // Four times the commands: four times the throughput, but not because of the connections.
    run.intervals(20, &Net { outstanding: 4 << 20, ..lossy(|_| 4e6) });
    assert_eq!((run.tuner.wanted(), run.tuner.info().won), (1, 0));
}

#[test]
fn a_disaster_is_ended_at_once() {
    let mut run = Run::new(8, 3);
    let net = Net { noise: 0.5, ..lossy(|n| if n == 1 { 1e6 } else { 1e5 }) };
    while run.tuner.trial.is_none() {
        run.interval(&net);
    }
    let begun = run.intervals;
    while run.tuner.trial.is_some() {
        run.interval(&net);
    }
    assert!(run.intervals - begun <= SETTLING + 4, "{}", run.intervals - begun);
}

#[test]
fn connections_that_do_not_come_are_not_waited_for() {
    let mut run = Run::new(8, 3);
    let net = Net { open_max: 2, ..lossy(|n| 1e6 * f64::from(n)) };
    run.intervals(PATIENCE + 25, &net);
    assert_eq!((run.tuner.wanted(), run.open), (2, 2));
    assert!(run.tuner.trial.is_none());
}

#[test]
fn a_lost_connection_makes_no_verdict() {
    let mut run = Run::new(8, 3);
    let net = lossy(|n| 1e6 * f64::from(n));
    run.intervals(80, &net);
    assert_eq!(run.tuner.wanted(), 8);
    let trials = run.tuner.info();
    for _ in 0..PATIENCE - 1 {
        run.open = 7;
        run.interval(&net);
    }
    assert_eq!(run.tuner.info(), trials);
}

#[test]
fn a_new_session_opens_what_the_last_had_found() {
    let mut run = Run::new(8, 3);
    let net = lossy(|n| 1e6 * f64::from(n.min(4)));
    run.intervals(80, &net);
    assert_eq!(run.tuner.wanted(), 4);
    run.tuner.begin(8);
    run.tuner.session_begins(8, run.now);
    assert_eq!((run.tuner.wanted(), run.tuner.trial.is_none()), (4, true));
    run.tuner.session_begins(2, run.now);
    assert_eq!(run.tuner.wanted(), 2, "the target allows fewer now");
}

#[test]
fn time_without_commands_does_not_count() {
    let mut tuner = Tuner::new(8);
    assert!(!tuner.pass(Duration::from_secs(1), 0));
    assert!(!tuner.pass(Duration::from_secs(100), 1 << 20), "nothing was outstanding until now");
    assert!(!tuner.pass(Duration::from_secs(100) + 10 * MS, 0));
    assert!(!tuner.pass(Duration::from_secs(500), 0));
    assert!(tuner.busy == 10 * MS);
}

/// Whatever is measured: bounds, one step at a time, and no change while the last one is being measured.
#[test]
fn nothing_that_is_measured_leads_out_of_bounds_or_to_flapping() {
    for seed in 0..300 {
        let mut random = Noise(seed * 2 + 1);
        let most = 1 + random.below(12) as u16;
        let mut tuner = Tuner::new(most);
        let (mut now, mut open, mut changed_at, mut moved) = (Time::ZERO, 1u16, 0u32, 0u64);
        for interval in 1..2000u32 {
            while !tuner.pass(now, random.below(1 << 22)) {
                now += Duration::from_millis(random.below(400));
            }
            let magnitude = random.below(40);
            moved = moved.wrapping_add(random.below(1 << magnitude));
            let reading = |cid: u16, random: &mut Noise| Reading {
                cid: Cid(cid),
                rtt: Duration::from_micros(random.below(1 << 20)),
                min_rtt: Duration::from_micros(random.below(1 << 16)),
                losses: random.below(1 << 20),
            };
            let readings: Vec<Reading> = (0..open).map(|cid| reading(cid, &mut random)).collect();
            let before = tuner.wanted();
            tuner.measured(moved, &readings);
            let wanted = tuner.wanted();
            assert!((1..=most).contains(&wanted), "seed {seed}: {wanted} of {most}");
            if wanted != before {
                let doubled = wanted == before.saturating_mul(2).min(most) || wanted == before.div_ceil(2);
                let back = before == wanted.saturating_mul(2).min(most) || before == wanted.div_ceil(2);
                assert!(doubled || back || wanted == open, "seed {seed}: from {before} to {wanted}");
                assert!(
                    interval - changed_at > SETTLING,
                    "seed {seed}: again after {}",
                    interval - changed_at
                );
                changed_at = interval;
            }
            open = match random.below(20) {
                0 => random.below(u64::from(most) + 2) as u16,
                _ => tuner.wanted(),
            };
        }
        // Two changes for a trial, and a hold after each that was lost.
        assert!(tuner.info().trials < 150, "seed {seed}: {:?}", tuner.info());
    }
}
