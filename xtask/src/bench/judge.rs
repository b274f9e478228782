//! What the rounds of a comparison say: the middle of a figure, how far to trust it, and whether the machine was quiet.

use std::fmt::Write as _;

use crate::tidy::DISTRUST;

/// Probability with which an interval contains the median.
const CONFIDENCE: f64 = 0.95;

/// A figure of every round, or the ratio of two figures of the same round, sorted.
pub struct Rounds(Vec<f64>);

impl Rounds {
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self(sorted)
    }

    /// Ratios of `these` to `those` of the same round: what disturbs a whole round cancels out.
    pub fn ratios(these: impl IntoIterator<Item = f64>, those: impl IntoIterator<Item = f64>) -> Self {
        Self::new(these.into_iter().zip(those).map(|(this, that)| this / that))
    }

    /// The figure that `n` quarters of the rounds are below.
    pub fn quarter(&self, n: usize) -> f64 {
        self.0.get(self.0.len().saturating_sub(1) * n / 4).copied().unwrap_or(f64::NAN)
    }

    pub fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The median and the quarters next to it, as cells of a table.
    pub fn cells(&self) -> String {
        format!("**{:.3}** | {:.3} - {:.3}", self.median(), self.quarter(1), self.quarter(3))
    }

    /// The median, and in brackets [`Rounds::interval`].
    pub fn with_interval(&self) -> String {
        let [low, high] = self.interval();
        format!("{:.2} [{low:.2}, {high:.2}]", self.median())
    }

    /// The interval that contains the median of all possible rounds with [`CONFIDENCE`], whatever their distribution; the whole range
    /// if there are too few rounds for that. With 9 rounds it is from the second to the eighth.
    pub fn interval(&self) -> [f64; 2] {
        let rounds = self.0.len();
        // Each round is below the median like the toss of a coin: so many outcomes have at most `cut` rounds on one side.
        let (mut outcomes, mut outside, mut cut) = (1.0, 1.0, 0);
        while cut + 1 < rounds.div_ceil(2) {
            outcomes *= (rounds - cut) as f64 / (cut + 1) as f64;
            if 2.0 * (outside + outcomes) / 2f64.powi(rounds as i32) > 1.0 - CONFIDENCE {
                break;
            }
            outside += outcomes;
            cut += 1;
        }
        let at = |n: usize| self.0.get(n).copied().unwrap_or(f64::NAN);
        [at(cut), at(rounds.saturating_sub(cut + 1))]
    }
}

/// How far a load that is measured twice in each round may differ from itself.
pub struct Judge {
    /// In the median of its ratios.
    pub median_max: f64,
    /// Between the quarters of its ratios.
    pub quarters_max: f64,
}

impl Judge {
    /// What a load that was measured twice says of the machine; a page that is not to be trusted is not kept. `same` has the ratios of
    /// the second time to the first, of what `figure` names.
    pub fn says(&self, load: &str, figure: &str, same: &Rounds) -> String {
        let (off, quarters) = ((same.median() - 1.0).abs(), same.quarter(3) - same.quarter(1));
        let mut text = format!(
            "The judge: *{load}*, measured again in each round, had {:.3} times the {figure} ({:.3} - {:.3}).\n",
            same.median(),
            same.quarter(1),
            same.quarter(3)
        );
        // A figure that is not a number is no proof either.
        if !(off <= self.median_max && quarters <= self.quarters_max) {
            let _ = write!(
                text,
                "\n{DISTRUST} the same load differed from itself by {:.1} % in the median, {:.1} % between the quarters (at \
                 most {:.0} % and {:.0} %).\n",
                off * 100.0,
                quarters * 100.0,
                self.median_max * 100.0,
                self.quarters_max * 100.0
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_rounds_leave_one_out_at_each_end_and_five_none() {
        assert_eq!(Rounds::new((1..=9).rev().map(f64::from)).interval(), [2.0, 8.0]);
        assert_eq!(Rounds::new((1..=5).map(f64::from)).interval(), [1.0, 5.0]);
        // Conover's table for the median: the 6th and the 15th of 20 at 95 %.
        assert_eq!(Rounds::new((1..=20).map(f64::from)).interval(), [6.0, 15.0]);
        assert!(Rounds::new([]).interval()[0].is_nan() && Rounds::new([]).median().is_nan());
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let rounds = Rounds::ratios([2.0, 4.0, 9.0], [1.0, 2.0, 3.0]);
        assert_eq!((rounds.median(), rounds.interval()), (2.0, [2.0, 3.0]));
    }

    #[test]
    fn a_load_that_differs_from_itself_is_not_trusted() {
        let judge = Judge { median_max: 0.03, quarters_max: 0.10 };
        let says = |ratios: &[f64]| judge.says("a load", "rate", &Rounds::new(ratios.iter().copied()));
        let untrusted = |ratios: &[f64]| !crate::tidy::distrust(&says(ratios)).is_empty();
        assert!(!untrusted(&[0.98, 1.0, 1.02]), "{}", says(&[0.98, 1.0, 1.02]));
        assert!(untrusted(&[1.04, 1.05, 1.06]));
        assert!(untrusted(&[0.8, 0.9, 1.0, 1.1, 1.2]));
        assert!(untrusted(&[]));
    }
}
