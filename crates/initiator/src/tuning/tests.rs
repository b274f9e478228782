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

impl Run {
    /// Until another number than the best so far is in use.
    fn until_a_trial(&mut self, net: &Net<impl Fn(u16) -> f64>) {
        for _ in 0..2 * AGE_MAX {
            if self.is_trying() {
                return;
            }
            self.interval(net);
        }
        panic!("no other number is tried any more");
    }

    fn is_trying(&self) -> bool {
        self.tuner.used != self.tuner.leader
    }
}

#[test]
fn without_losses_on_a_short_path_nothing_is_tried() {
    let net = Net { loses: false, ..lossy(|n| 1e6 * f64::from(n)) };
    let mut run = Run::new(8, 1);
    run.intervals(2000, &net);
    assert_eq!(run.tuner.info(), TuningInfo { most: 8, wanted: 1, ..TuningInfo::default() });
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
    // Nothing tells them apart, so they share the time; but visits become longer.
    assert!((3..=400).contains(&run.changes.len()), "{} changes", run.changes.len());
}

#[test]
fn another_network_is_learned_soon() {
    let mut run = Run::new(8, 3);
    run.intervals(5000, &lossy(|_| 4e6));
    let many = lossy(|n| 1e6 * f64::from(n));
    run.intervals(100, &many);
    assert!(run.rate(200, &many) > 0.95 * 8e6);
    let one = lossy(|n| 20e6 / f64::from(n));
    run.intervals(100, &one);
    assert!(run.rate(200, &one) > 0.95 * 20e6);
}

#[test]
fn a_trial_under_another_load_teaches_nothing() {
    let mut run = Run::new(8, 3);
    let net = lossy(|_| 1e6);
    run.until_a_trial(&net);
    // Four times the commands: four times the throughput, but not because of the connections.
    run.intervals(8, &Net { outstanding: 4 << 20, ..lossy(|_| 4e6) });
    assert_eq!((run.tuner.wanted(), run.tuner.info().won), (1, 0));
}

#[test]
fn under_a_load_that_changes_all_the_time_trials_become_rare() {
    let mut run = Run::new(8, 3);
    // Longer than the first pause without trials, and shorter than what it becomes.
    for round in 0..250 {
        let outstanding = if round % 2 == 0 { 1 << 20 } else { 4 << 20 };
        run.intervals(40, &Net { outstanding, ..lossy(|_| 1e6) });
    }
    assert!(run.tuner.info().trials < 40, "{:?}", run.tuner.info());
}

#[test]
fn a_disaster_is_ended_at_once() {
    let mut run = Run::new(8, 3);
    let net = Net { noise: 0.5, ..lossy(|n| if n == 1 { 1e6 } else { 1e5 }) };
    run.until_a_trial(&net);
    let begun = run.intervals;
    while run.is_trying() {
        run.interval(&net);
    }
    assert!(run.intervals - begun <= SETTLING + DISASTER_AFTER as u32, "{}", run.intervals - begun);
    let trials = run.tuner.info().trials;
    run.intervals(1000, &net);
    assert_eq!(run.tuner.info().trials, trials, "and not tried again soon");
    run.intervals(AGE_MAX as u32, &net);
    assert!(run.tuner.info().trials > trials, "but once its figures are old");
}

/// New connections carry much until their first losses: a number looks better than it is, until more is known of it.
#[test]
fn what_only_looked_better_is_given_up() {
    let lasting = |n: u16| 1e6 * (1.0 - 0.1 * f64::from(n - 1));
    let mut run = Run::new(8, 3);
    run.until_a_trial(&lossy(lasting));
    run.intervals(5, &lossy(|n| if n == 2 { 2e6 } else { 1e6 }));
    assert_eq!((run.tuner.choices[run.tuner.leader].connections, run.tuner.info().won), (2, 1));
    run.intervals(60, &lossy(lasting));
    assert_eq!(run.tuner.wanted(), 1);
}

/// What is left of a good start is worth nothing, and is no reason to stay.
#[test]
fn what_a_number_carried_once_is_forgotten_when_it_carries_less() {
    let mut run = Run::new(8, 3);
    run.intervals(4, &lossy(|_| 8e6));
    run.intervals(100, &lossy(|n| 1e6 * f64::from(n)));
    assert_eq!(run.tuner.wanted(), 8);
    assert!(run.rate(200, &lossy(|n| 1e6 * f64::from(n))) > 7.8e6);
}

/// Two are better by a tenth, and the noise of an interval is five times that: the difference is found in time.
#[test]
fn a_small_difference_is_found_in_much_noise() {
    for seed in 1..=10 {
        let net = Net { noise: 1.0, ..lossy(|n| [1.0e6, 1.1e6, 0.9e6, 0.8e6][n.ilog2() as usize]) };
        let mut run = Run::new(8, seed);
        run.intervals(300, &net);
        let kept = run.rate(3000, &net) / 1.1e6;
        assert!(kept > 0.97, "{kept} of the best throughput: seed {seed}");
    }
}

#[test]
fn connections_that_do_not_come_are_not_waited_for() {
    let mut run = Run::new(8, 3);
    let net = Net { open_max: 2, ..lossy(|n| 1e6 * f64::from(n)) };
    run.intervals(PATIENCE + 25, &net);
    assert_eq!((run.tuner.wanted(), run.open), (2, 2));
    run.intervals(1000, &net);
    assert_eq!((run.tuner.wanted(), run.open), (2, 2), "and are not asked for again soon");
}

#[test]
fn a_lost_connection_is_waited_for() {
    let mut run = Run::new(8, 3);
    let net = lossy(|n| 1e6 * f64::from(n));
    run.intervals(80, &net);
    assert_eq!(run.tuner.wanted(), 8);
    // Seven carry less than eight, and more than four.
    for _ in 0..PATIENCE - 1 {
        run.open = run.open.min(7);
        run.interval(&net);
    }
    run.intervals(20, &net);
    assert!(run.rate(200, &net) > 0.97 * 8e6);
}

#[test]
fn what_it_costs_that_connections_are_lost_counts() {
    // More than two carry more while all are there; but one of them is lost all the time, and nothing is carried until it is back.
    let mut run = Run::new(8, 3);
    let net = lossy(|n| [1.0e6, 2.0e6, 0.0, 2.2e6, 0.0, 0.0, 0.0, 2.4e6][usize::from(n) - 1]);
    for interval in 0..600 {
        if interval % 2 == 0 && run.open > 2 && run.tuner.settling < SETTLING {
            run.open -= 1;
        }
        run.interval(&net);
    }
    assert_eq!(run.tuner.wanted(), 2);
}

#[test]
fn a_new_session_opens_what_the_last_had_found() {
    let mut run = Run::new(8, 3);
    let net = lossy(|n| 1e6 * if n > 4 { 3.0 } else { f64::from(n) });
    run.intervals(80, &net);
    assert_eq!(run.tuner.wanted(), 4);
    run.until_a_trial(&net);
    run.tuner.session_begins(8, run.now);
    assert_eq!((run.tuner.wanted(), run.is_trying()), (4, false));
    assert_eq!(run.tuner.depth(), u64::MAX, "what the new one carries is not known");
    run.tuner.session_begins(2, run.now);
    assert_eq!(run.tuner.wanted(), 2, "the target allows fewer now");
}

/// So a number that was better by chance is soon compared again.
#[test]
fn a_visit_lasts_half_as_many_intervals_as_are_known() {
    let mut run = Run::new(1, 3);
    let mut longest: f64 = 0.0;
    for _ in 0..400 {
        let before = run.tuner.stay;
        run.interval(&lossy(|_| 1e6));
        if run.tuner.stay > before {
            longest = longest.max(run.tuner.stay);
            assert_eq!(run.tuner.stay, (run.tuner.choices[0].before.intervals / 2.0).clamp(3.0, 128.0));
        }
    }
    assert!(longest > 30.0, "{longest}");
}

/// What waits longer than two seconds is taken for lost, and sent again.
#[test]
fn no_more_is_outstanding_than_is_carried_soon() {
    let slow = Net { outstanding: 4 << 20, loses: false, ..lossy(|_| 0.3e6) };
    let mut run = Run::new(8, 3);
    assert_eq!(run.tuner.depth(), u64::MAX, "nothing is known yet");
    run.intervals(20, &slow);
    assert!((590_000..610_000).contains(&run.tuner.depth()), "{}", run.tuner.depth());
    let slower = |rate: f64| Net { outstanding: 4 << 20, ..lossy(move |n| rate * f64::from(n)) };
    run.intervals(100, &slower(1_000.0));
    assert_eq!((run.tuner.wanted(), run.tuner.depth()), (8, DEPTH_ALL), "each connection needs a command");
    run.tuner.session_begins(1, run.now);
    run.intervals(20, &slower(1_000.0));
    assert_eq!((run.tuner.wanted(), run.tuner.depth()), (1, DEPTH_EACH));
    run.tuner.session_begins(8, run.now);
    run.intervals(100, &Net { outstanding: 4 << 20, ..lossy(|_| 1.5e6) });
    assert!((2_800_000..3_200_000).contains(&run.tuner.depth()), "{}", run.tuner.depth());
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

/// Whatever is measured: bounds, small steps, and no change while the last one is being measured.
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
                let level = |n: u16| n.next_power_of_two().ilog2();
                let near = level(before).abs_diff(level(wanted)) <= 2;
                assert!(near || wanted == open, "seed {seed}: from {before} to {wanted}");
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
        assert!(tuner.info().trials < 150, "seed {seed}: {:?}", tuner.info());
    }
}
