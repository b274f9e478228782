//! Several stations and frames with errors (thesis 3.3).

use crate::mac::{AckForm, Mac};

/// The stations of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// n: stations that always have a frame to send.
    pub stations: u32,
    /// W: the smallest window, in slots.
    pub window_slots: f64,
    /// m: how often the window doubles.
    pub doublings: u32,
    /// P_e: the chance that an error destroys a frame.
    pub p_error: f64,
}

/// Probabilities for a transmission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chances {
    /// P_f: it fails.
    pub p_failure: f64,
    /// P_c: it collides.
    pub p_collision: f64,
    /// P_e.
    pub p_error: f64,
}

impl Cell {
    /// A cell of `stations` stations with this MAC; `p_error`: the chance that an error destroys a frame.
    pub fn of(mac: &Mac, stations: u32, p_error: f64) -> Cell {
        Cell { stations, window_slots: f64::from(mac.cw_min + 1), doublings: mac.doublings, p_error }
    }

    /// The chance that a station sends in a slot if a share `p_failure` of its frames fails: the fraction of 3.15 with its common factor 1
    /// - 2 P_f cancelled, so that it is also defined for P_f = 1/2.
    pub fn attempt(&self, p_failure: f64) -> f64 {
        let x = 2.0 * p_failure;
        let powers: f64 = (0..self.doublings).map(|i| x.powi(i as i32)).sum();
        2.0 / (self.window_slots * (1.0 + p_failure * powers))
    }

    /// The attempt probability of 3.14 as printed, with a surplus W in the denominator.
    pub fn attempt_printed_3_14(&self, p_failure: f64) -> f64 {
        let x = 2.0 * p_failure;
        let denominator = 1.0 - p_failure - p_failure * x.powi(self.doublings as i32) * self.window_slots;
        2.0 * (1.0 - x) / denominator / self.window_slots
    }

    /// The fixed point of 3.15. The right side falls with P_f and the left side rises, so there is exactly one; bisection finds it.
    pub fn solve(&self) -> Chances {
        let p_collision =
            |p_failure: f64| 1.0 - (1.0 - self.attempt(p_failure)).powi(self.stations as i32 - 1);
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if p_collision(middle) + self.p_error > middle { low = middle } else { high = middle }
        }
        let p_failure = (low + high) / 2.0;
        Chances { p_failure, p_collision: (p_failure - self.p_error).max(0.0), p_error: self.p_error }
    }
}

impl Chances {
    /// The success rate times T_cycle (3.12): the share of cycles that deliver a frame.
    pub fn success_share(&self) -> f64 {
        2.0 * (1.0 - self.p_failure) / (2.0 - self.p_failure + self.p_error)
    }

    /// S (3.13): the share of time that payload takes.
    pub fn utilization(&self, t_payload_us: f64, t_cycle_us: f64) -> f64 {
        self.success_share() * t_payload_us / t_cycle_us
    }
}

/// The saturation throughput of Bianchi's model in Mbit/s, with which the medium is compared: `payload_bytes` in packets of `packet_bytes`;
/// a collision costs a frame and the time-out of its acknowledgement.
pub fn bianchi_mbit_s(mac: &Mac, stations: u32, payload_bytes: f64, packet_bytes: f64) -> f64 {
    let window = f64::from(mac.cw_min + 1);
    let n = stations as i32;
    let attempt = |p: f64| {
        let x = 2.0 * p;
        let powers: f64 = (0..mac.doublings).map(|i| x.powi(i as i32)).sum();
        2.0 / (1.0 + window + p * window * powers)
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..100 {
        let p = (low + high) / 2.0;
        if 1.0 - (1.0 - attempt(p)).powi(n - 1) > p { low = p } else { high = p }
    }
    let tau = attempt((low + high) / 2.0);
    let p_any = 1.0 - (1.0 - tau).powi(n);
    let p_one = f64::from(stations) * tau * (1.0 - tau).powi(n - 1);
    let data_us = mac.data_us(packet_bytes);
    let success_us =
        mac.t_difs_us + data_us + mac.t_sifs_us + mac.ack_us(AckForm::Standard) + 2.0 * mac.tau_us;
    let collision_us = mac.t_difs_us + data_us + mac.ack_timeout_us();
    let slot_us = (1.0 - p_any) * mac.t_slot_us + p_one * success_us + (p_any - p_one) * collision_us;
    p_one * 8.0 * payload_bytes / slot_us
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cell(stations: u32, p_error: f64) -> Cell {
        Cell::of(&Mac::B, stations, p_error)
    }

    #[test]
    fn failures_by_the_number_of_stations() {
        for (n, p_failure) in [(1, 0.0), (2, 0.0586), (5, 0.1812), (10, 0.2925), (20, 0.4007)] {
            let got = cell(n, 0.0).solve().p_failure;
            assert!((got - p_failure).abs() < 0.00005, "n = {n}: {got}");
        }
    }

    #[test]
    fn equation_3_12_follows_from_3_8_to_3_11() {
        // Rates in units of 1 / T_cycle: r_s + r_c + r_e = 1.
        for (n, p_error) in [(2, 0.0001), (5, 0.1), (20, 0.3)] {
            let chances = cell(n, p_error).solve();
            let r_success = chances.success_share();
            let r_transmit = r_success / (1.0 - chances.p_failure);
            // 3.9 and 3.10, with P_c + P_e = P_f.
            let r_error = (r_transmit - r_success) * p_error / chances.p_failure;
            let r_collision = (r_transmit - r_success - r_error) / 2.0;
            assert!((r_success + r_collision + r_error - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn two_stations_of_which_one_sends_have_errors_alone() {
        // The peer-to-peer case of the thesis: P_f = P_e.
        for p_error in [0.0, 0.1, 0.3] {
            assert!((cell(1, p_error).solve().p_failure - p_error).abs() < 1e-9);
        }
    }

    #[test]
    fn the_w_of_3_14_is_one_too_many() {
        // With it, the chance to send becomes negative; 3.15, without it, is right.
        let cell = Cell { doublings: 1, ..cell(2, 0.0) };
        let (printed, right) = (cell.attempt_printed_3_14(0.4), cell.attempt(0.4));
        assert!(printed < 0.0 && (0.0..1.0).contains(&right), "{printed} {right}");
    }

    #[test]
    fn bianchi_by_the_number_of_stations() {
        for (n, mbit_s) in [(1, 6.109), (2, 6.432), (5, 6.317), (10, 5.961), (20, 5.511)] {
            let got = bianchi_mbit_s(&Mac::B, n, 1472.0, 1500.0);
            assert!((got - mbit_s).abs() < 0.0015, "n = {n}: {got}");
        }
    }

    proptest! {
        #[test]
        fn the_fixed_point_is_one_for_any_number_of_stations(n in 1..101u32, p_error in 0.0..0.5f64, m in 0..8u32) {
            let cell = Cell { stations: n, window_slots: 32.0, doublings: m, p_error };
            let p = cell.solve().p_failure;
            let right = 1.0 - (1.0 - cell.attempt(p)).powi(n as i32 - 1) + p_error;
            // 3.15 drops P_c P_e, so its sum may exceed 1; in that case the end of the range is the answer.
            prop_assert!((right - p).abs() < 1e-6 || p > 0.999999);
        }

        #[test]
        fn utilization_falls_in_collisions_and_in_errors(p_c in 0.0..0.6f64, p_e in 0.0..0.3f64, more in 0.001..0.1f64) {
            let s = |p_collision: f64, p_error: f64| {
                Chances { p_failure: p_collision + p_error, p_collision, p_error }.utilization(1000.0, 2000.0)
            };
            prop_assert!(s(p_c + more, p_e) < s(p_c, p_e));
            prop_assert!(s(p_c, p_e + more) < s(p_c, p_e));
        }
    }
}
