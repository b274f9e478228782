//! Mean, spread and confidence of samples.
//!
//! Not here: tests of hypotheses, and more samples than fit into memory.

use serde::Serialize;

/// The summary of samples, in their unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many there are.
    pub samples: usize,
    /// The arithmetic mean.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval of the mean: mean ± this. 0 for a single sample.
    pub ci95: f64,
    /// The sample standard deviation (n - 1). 0 for a single sample.
    pub sd: f64,
    /// The mean without the fastest and the slowest twentieth: not moved by an interrupt, and not bound to the steps of a
    /// coarse counter as the median is.
    pub trimmed_mean: f64,
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
}

impl Summary {
    /// The summary of `samples`, of which there is at least one.
    pub fn of(samples: &[f64]) -> Self {
        assert!(!samples.is_empty(), "a summary of nothing");
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
        let (sd, ci95) = match samples.len() {
            1 => (0.0, 0.0),
            count => {
                let sd = (squares / (n - 1.0)).sqrt();
                (sd, t_quantile_975(count - 1) * sd / n.sqrt())
            }
        };
        let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let trimmed_mean = trimmed_mean(samples);
        Self { samples: samples.len(), mean, ci95, sd, trimmed_mean, median: median(samples), min }
    }

    /// The same samples in another unit, which is `factor` times this one's number.
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            samples: self.samples,
            mean: self.mean * factor,
            ci95: self.ci95 * factor,
            sd: self.sd * factor,
            trimmed_mean: self.trimmed_mean * factor,
            median: self.median * factor,
            min: self.min * factor,
        }
    }
}

/// The median of `samples`; the mean of the middle two if there are two; 0 if there are none.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The mean of what is left when a twentieth was taken away at either end; of which there is at least one.
fn trimmed_mean(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let out = sorted.len() / 20;
    let kept = &sorted[out..sorted.len() - out];
    kept.iter().sum::<f64>() / kept.len() as f64
}

/// The quantile of Student's t distribution that 97.5 % lie below: two-sided 95 %, for `freedom` >= 1 degrees.
///
/// Closed forms for 1 and 2; from 3 on the expansion of Cornish and Fisher about the normal quantile (Abramowitz and
/// Stegun, 26.7.5), which is off by less than 0.5 % at 3 and 0.02 % at 10.
fn t_quantile_975(freedom: usize) -> f64 {
    match freedom {
        0 => f64::INFINITY,
        1 => 12.706_204_736,
        2 => 4.302_652_730,
        _ => {
            let x: f64 = 1.959_963_985;
            let n = freedom as f64;
            let g1 = (x.powi(3) + x) / 4.0;
            let g2 = (5.0 * x.powi(5) + 16.0 * x.powi(3) + 3.0 * x) / 96.0;
            let g3 = (3.0 * x.powi(7) + 19.0 * x.powi(5) + 17.0 * x.powi(3) - 15.0 * x) / 384.0;
            let g4 =
                (79.0 * x.powi(9) + 776.0 * x.powi(7) + 1482.0 * x.powi(5) - 1920.0 * x.powi(3) - 945.0 * x)
                    / 92_160.0;
            x + g1 / n + g2 / n.powi(2) + g3 / n.powi(3) + g4 / n.powi(4)
        }
    }
}

/// The interval of 95 % by Wilson for a share of which `hits` of `trials` were counted.
pub fn wilson(hits: u64, trials: u64) -> [f64; 2] {
    const Z: f64 = 1.96;
    if trials == 0 {
        return [0.0, 1.0];
    }
    let (n, p) = (trials as f64, hits as f64 / trials as f64);
    let centre = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    [(centre - half).max(0.0), (centre + half).min(1.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (freedom, table) in [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (10, 2.228),
            (30, 2.042),
            (120, 1.980),
            (999, 1.962),
        ] {
            let quantile = t_quantile_975(freedom);
            assert!((quantile / table - 1.0).abs() < 0.005, "{freedom}: {quantile}, {table}");
        }
    }

    #[test]
    fn a_summary_is_what_one_works_out_by_hand() {
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((summary.samples, summary.mean, summary.median, summary.min), (8, 5.0, 4.5, 2.0));
        assert!((summary.sd - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert!((summary.ci95 - 2.3646 * summary.sd / 8f64.sqrt()).abs() < 1e-3);
        let scaled = summary.scaled(0.5);
        assert_eq!((scaled.mean, scaled.sd, scaled.samples), (2.5, summary.sd / 2.0, 8));
    }

    /// Calls of 80 ticks, on a counter that moves in steps of 26, and now and then an interrupt.
    #[test]
    fn a_trimmed_mean_sees_between_the_steps_of_a_counter() {
        let mut ticks: Vec<f64> = (0..1000).map(|n| f64::from((n * 7 % 26 + 80) / 26 * 26)).collect();
        for n in 0..20 {
            ticks[n * 50] = 50_000.0;
        }
        let summary = Summary::of(&ticks);
        assert_eq!(summary.median, 78.0);
        assert!((summary.trimmed_mean / 80.0 - 1.0).abs() < 0.02, "{summary:?}");
        assert!(summary.mean > 1000.0, "{summary:?}");
    }

    #[test]
    fn one_sample_has_no_spread_and_none_has_no_summary() {
        let one = Summary::of(&[3.0]);
        assert_eq!((one.mean, one.ci95, one.sd, one.median), (3.0, 0.0, 0.0, 3.0));
        assert_eq!(median(&[]), 0.0);
        assert!(std::panic::catch_unwind(|| Summary::of(&[])).is_err());
    }
}
