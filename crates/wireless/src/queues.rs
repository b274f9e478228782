//! Queues (thesis 4.3.4): one connection as M/M/1, several as M/M/m, and the closed model with a bounded number of commands.

/// T_1 (4.1): the mean time in a queue with one server. Nothing if the server is overloaded.
pub fn mm1_time(lambda: f64, mu: f64) -> Option<f64> {
    (lambda < mu).then(|| 1.0 / (mu - lambda))
}

/// P_Q (4.3): the probability that an arrival finds all of `m` servers busy (Erlang's formula C). Nothing if they are overloaded.
pub fn p_queueing(lambda: f64, mu: f64, m: u32) -> Option<f64> {
    let offered = lambda / mu;
    let rho = offered / f64::from(m);
    if m == 0 || rho >= 1.0 {
        return None;
    }
    // Erlang's formula B by its recursion, which unlike powers and factorials does not overflow; C follows from it.
    let blocked = (1..=m).fold(1.0, |blocked, k| offered * blocked / (f64::from(k) + offered * blocked));
    Some(blocked / (1.0 - rho * (1.0 - blocked)))
}

/// T_m (4.2): the mean time in a queue with `m` servers of rate `mu` each.
pub fn mmm_time(lambda: f64, mu: f64, m: u32) -> Option<f64> {
    Some(1.0 / mu + p_queueing(lambda, mu, m)? / (f64::from(m) * mu - lambda))
}

/// T_m of a lightly loaded system (4.4).
pub fn mmm_light_limit(mu: f64) -> f64 {
    1.0 / mu
}

/// T_m of a heavily loaded system (4.5). Nothing if it is overloaded.
pub fn mmm_heavy_limit(lambda: f64, mu: f64, m: u32) -> Option<f64> {
    mm1_time(lambda, f64::from(m) * mu)
}

/// A station of the closed model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Station {
    /// Commands queue for it and are served one at a time: the medium, a processor. Mean service time of a command, µs.
    Queue(f64),
    /// Every command is served at once: propagation, work done in parallel. Time in µs.
    Delay(f64),
}

/// The prediction of the closed model.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// Commands per second.
    pub throughput_per_s: f64,
    /// Mean time per command, µs.
    pub command_us: f64,
    /// Mean number of commands at each station.
    pub at_station: Vec<f64>,
}

/// Mean value analysis of `depth` commands that circulate through the stations forever, each starting again once it has completed: the
/// behaviour of an initiator with a fixed queue depth. Exact for exponential service times.
pub fn mean_value_analysis(stations: &[Station], depth: u32) -> Closed {
    let mut at_station = vec![0.0; stations.len()];
    let (mut per_us, mut command_us) = (0.0, 0.0);
    for commands in 1..=depth {
        let times: Vec<f64> = stations
            .iter()
            .zip(&at_station)
            .map(|(station, waiting)| match station {
                Station::Queue(service_us) => service_us * (1.0 + waiting),
                Station::Delay(us) => *us,
            })
            .collect();
        command_us = times.iter().sum();
        per_us = f64::from(commands) / command_us;
        at_station = times.iter().map(|time| per_us * time).collect();
    }
    Closed { throughput_per_s: per_us * 1e6, command_us, at_station }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADS: [f64; 4] = [0.01, 0.5, 0.9, 0.99];

    fn rounded(times: [f64; 4]) -> [f64; 4] {
        times.map(|time| (time * 100.0).round() / 100.0)
    }

    #[test]
    fn splitting_a_link_makes_every_load_slower() {
        // The thesis' own premise: m connections share one physical link.
        let one = LOADS.map(|load| mm1_time(load, 1.0).unwrap());
        let split = LOADS.map(|load| mmm_time(load, 0.5, 2).unwrap());
        assert_eq!(rounded(one), [1.01, 2.0, 10.0, 100.0]);
        assert_eq!(rounded(split), [2.0, 2.67, 10.53, 100.5]);
        assert!(one.iter().zip(split).all(|(one, split)| *one < split));
    }

    #[test]
    fn only_a_second_link_is_faster() {
        let two = LOADS.map(|load| mmm_time(load, 1.0, 2).unwrap());
        assert_eq!(rounded(two), [1.0, 1.07, 1.25, 1.32]);
        // The closed form of two servers: 1 / (1 - (λ / 2)²). So 1.3245 at a load of 0.99; 4/3 is the limit at 1.
        for (load, time) in LOADS.iter().zip(two) {
            assert!((time - 1.0 / (1.0 - load * load / 4.0)).abs() < 1e-12);
        }
    }

    #[test]
    fn much_less_delay_when_lightly_loaded_does_not_follow() {
        // 4.4 against 4.1: both go to 1 / µ.
        let (one, two) = (mm1_time(1e-6, 1.0).unwrap(), mmm_time(1e-6, 1.0, 2).unwrap());
        assert!((one - mmm_light_limit(1.0)).abs() < 1e-5 && (two - mmm_light_limit(1.0)).abs() < 1e-5);
        // And 4.5 is 4.1 where the link is split.
        assert_eq!(mmm_heavy_limit(0.9, 0.5, 2), mm1_time(0.9, 1.0));
    }

    #[test]
    fn limits_are_reached() {
        let heavy = mmm_time(1.9999, 1.0, 2).unwrap() / mmm_heavy_limit(1.9999, 1.0, 2).unwrap();
        assert!((heavy - 1.0).abs() < 1e-3);
        assert_eq!((mm1_time(1.0, 1.0), mmm_time(2.0, 1.0, 2), p_queueing(1.0, 1.0, 0)), (None, None, None));
    }

    #[test]
    fn one_server_of_m_is_the_single_queue() {
        for load in LOADS {
            assert!((mmm_time(load, 1.0, 1).unwrap() - mm1_time(load, 1.0).unwrap()).abs() < 1e-9);
        }
    }

    #[test]
    fn p_queueing_is_the_printed_formula() {
        // 4.3 with p_0 written out, m = 3, ρ = 0.7.
        let (m, rho) = (3.0, 0.7);
        let offered: f64 = m * rho;
        let p_0 = 1.0 / (1.0 + offered + offered.powi(2) / 2.0 + offered.powi(3) / 6.0 / (1.0 - rho));
        let printed = p_0 * offered.powi(3) / 6.0 / (1.0 - rho);
        assert!((p_queueing(2.1, 1.0, 3).unwrap() - printed).abs() < 1e-12);
    }

    /// A closed system event by event: `depth` commands circulate through a delay and a queue, both exponential. Returns commands per
    /// second.
    fn counted_per_s(delay_us: f64, queue_us: f64, depth: usize, commands: u32) -> f64 {
        let mut random = fastrand::Rng::with_seed(7);
        let mut exponential = |mean: f64| -mean * (1.0 - random.f64()).ln();
        let mut arrivals: Vec<f64> = (0..depth).map(|_| exponential(delay_us)).collect();
        let mut free_at = 0.0f64;
        for _ in 0..commands {
            let (first, _) = arrivals.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
            free_at = free_at.max(arrivals[first]) + exponential(queue_us);
            arrivals[first] = free_at + exponential(delay_us);
        }
        f64::from(commands) / free_at * 1e6
    }

    #[test]
    fn mean_value_analysis_is_what_events_show() {
        let stations = [Station::Delay(4000.0), Station::Queue(3400.0)];
        for depth in [1, 2, 4, 8] {
            let expected = mean_value_analysis(&stations, depth).throughput_per_s;
            let got = counted_per_s(4000.0, 3400.0, depth as usize, 200_000);
            assert!((got / expected - 1.0).abs() < 0.02, "depth {depth}: {got}, expected {expected}");
        }
    }

    #[test]
    fn two_connections_of_depth_one_are_one_of_depth_two() {
        // The closed model depends only on the number of outstanding commands, not on the number of connections that carry them.
        let stations = [Station::Delay(1600.0), Station::Queue(3400.0), Station::Delay(1600.0)];
        let one = mean_value_analysis(&stations, 1);
        assert!((one.command_us - 6600.0).abs() < 1e-9);
        let two = mean_value_analysis(&stations, 2);
        assert!(two.throughput_per_s > one.throughput_per_s * 1.3);
        // However many commands there are, the medium is the bound.
        let many = mean_value_analysis(&stations, 64);
        assert!(many.throughput_per_s < 1e6 / 3400.0 && many.throughput_per_s > 0.999 * 1e6 / 3400.0);
        assert!((many.at_station.iter().sum::<f64>() - 64.0).abs() < 1e-6, "no command is lost");
    }
}
