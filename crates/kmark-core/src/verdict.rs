//! Verdicts: is one impl faster than another, and what is the smallest difference this run could have seen?
//!
//! The unit is the round, not the sample: samples of one visit share the machine's mood, rounds share less. In each
//! round every impl is visited twice, in random order. The two visits of one impl are an A/A comparison and give the
//! noise; the rounds' ratios give the difference and its spread. A difference counts only when it is beyond both, at
//! the 99.8 % level, and beyond the run's noise floor; or when it is more than a factor of two and all visits of
//! one impl lie below all visits of the other. `visible` is twice that limit: a true difference of that size
//! is found with near certainty, so a "same" means "no difference as large as `visible`".

use crate::stats::{quantile, t_998};
use serde::{Deserialize, Serialize};

/// The medians of one impl's two visits in one round, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    pub first: f64,
    pub second: f64,
}

impl Round {
    fn log_time(&self) -> f64 {
        0.5 * (self.first.ln() + self.second.ln())
    }
    fn aa(&self) -> f64 {
        (self.first / self.second).ln()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Faster,
    Slower,
    Same,
    Ambiguous,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Same => "same",
            Verdict::Ambiguous => "ambiguous",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Time of the base over time of this: above 1 is faster.
    pub speedup: f64,
    pub lo: f64,
    pub hi: f64,
    /// The smallest relative difference that would have been seen; `None` when rounds are too few to say.
    pub visible: Option<f64>,
    pub verdict: Verdict,
}

/// Differences below this do not matter to anybody and are never called one.
const LEAST: f64 = 0.002;
/// A factor of two. Below it, two processes of the same code can fall apart by the luck of their memory's places.
const LARGE: f64 = std::f64::consts::LN_2;
/// A run that cannot see this much says "ambiguous", not "same".
const SAME_NEEDS: f64 = 0.05;

/// Compares rounds that were interleaved with each other; `floor` is the run's noise floor (log ratio).
pub fn compare(this: &[Round], base: &[Round], floor: f64) -> Comparison {
    let rounds = this.len().min(base.len());
    let differences: Vec<f64> = (0..rounds).map(|r| base[r].log_time() - this[r].log_time()).collect();
    let mean = differences.iter().sum::<f64>() / rounds.max(1) as f64;
    if rounds < 2 {
        let speedup = if rounds == 0 { f64::NAN } else { mean.exp() };
        return Comparison { speedup, lo: speedup, hi: speedup, visible: None, verdict: Verdict::Ambiguous };
    }
    let limit = between_rounds(&differences, mean).max(within_rounds(&this[..rounds], &base[..rounds]));
    let limit = limit.max(floor).max(LEAST);
    let visible = (2.0 * limit).exp_m1();
    let enough = if separated(&this[..rounds], &base[..rounds]) { limit.min(LARGE.max(floor)) } else { limit };
    let verdict = match mean {
        d if d > enough => Verdict::Faster,
        d if d < -enough => Verdict::Slower,
        _ if visible <= SAME_NEEDS => Verdict::Same,
        _ => Verdict::Ambiguous,
    };
    Comparison {
        speedup: mean.exp(),
        lo: (mean - limit).exp(),
        hi: (mean + limit).exp(),
        visible: Some(visible),
        verdict,
    }
}

/// Whether every visit of one impl was faster than every visit of the other, in three rounds or more. If the two were
/// the same, 6 visits against 6 would fall apart like that in 2 of 924 orders: the 99.8 % level again, and whatever
/// the distribution. It tells large differences on machines whose noise has long tails.
fn separated(this: &[Round], base: &[Round]) -> bool {
    let visits = |rounds: &[Round]| -> Vec<f64> { rounds.iter().flat_map(|r| [r.first, r.second]).collect() };
    let least = |v: &[f64]| v.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |v: &[f64]| v.iter().copied().fold(0.0, f64::max);
    let (a, b) = (visits(this), visits(base));
    this.len() >= 3 && (most(&a) < least(&b) || most(&b) < least(&a))
}

/// Half-width of the interval of the mean difference, from its spread over the rounds.
fn between_rounds(differences: &[f64], mean: f64) -> f64 {
    let n = differences.len();
    let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    t_998(n - 1) * (variance / n as f64).sqrt()
}

/// The same from the A/A differences. If one visit's log median varies by s, an A/A difference varies by s*sqrt(2), and
/// the mean over n rounds of the difference of two impls, each the mean of two visits, by s/sqrt(n).
fn within_rounds(this: &[Round], base: &[Round]) -> f64 {
    let aa2: Vec<f64> = this.iter().chain(base).map(|r| r.aa().powi(2)).collect();
    let mean2 = aa2.iter().sum::<f64>() / aa2.len() as f64;
    t_998(aa2.len()) * (mean2 / aa2.len() as f64).sqrt()
}

/// An impl against itself: the mean A/A log ratio over its rounds, absolute.
pub fn aa_difference(rounds: &[Round]) -> Option<f64> {
    (rounds.len() >= 2).then(|| (rounds.iter().map(Round::aa).sum::<f64>() / rounds.len() as f64).abs())
}

/// The run's noise floor from the A/A differences of all its rows: the 95 % quantile. `None` for no rows.
pub fn noise_floor(aa: &[f64]) -> Option<f64> {
    (!aa.is_empty()).then(|| quantile(aa, 0.95))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of noise with heavy tails: a sum of uniforms, and one visit in ten disturbed by up to fifteen sigma.
    struct Noise(u64);

    impl Noise {
        fn unit(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
        fn visit(&mut self, time: f64, sigma: f64) -> f64 {
            let gauss = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
            let tail = if self.unit() < 0.1 { 15.0 * self.unit() } else { 0.0 };
            time * (sigma * (gauss + tail)).exp()
        }
        fn rounds(&mut self, n: usize, time: f64, sigma: f64) -> Vec<Round> {
            (0..n).map(|_| Round { first: self.visit(time, sigma), second: self.visit(time, sigma) }).collect()
        }
    }

    #[test]
    fn identical_impls_are_almost_never_told_apart() {
        let mut noise = Noise(7);
        let mut false_calls = 0;
        for trial in 0..4000 {
            let n = 3 + trial % 8;
            let (a, b) = (noise.rounds(n, 100.0, 0.02), noise.rounds(n, 100.0, 0.02));
            false_calls += usize::from(matches!(compare(&a, &b, 0.0).verdict, Verdict::Faster | Verdict::Slower));
        }
        assert!(false_calls <= 8, "{false_calls} of 4000");
    }

    #[test]
    fn a_five_percent_slow_down_is_found_whenever_the_run_says_it_could_see_it() {
        let mut noise = Noise(11);
        let (mut able, mut found) = (0, 0);
        for trial in 0..4000 {
            let sigma = 0.0005 * (1 + trial % 40) as f64;
            let (a, b) = (noise.rounds(10, 105.0, sigma), noise.rounds(10, 100.0, sigma));
            let c = compare(&a, &b, 0.0);
            if c.visible.unwrap() < 0.05 {
                able += 1;
                found += usize::from(c.verdict == Verdict::Slower);
            }
        }
        assert!(able > 300, "{able}");
        assert_eq!(able, found);
    }

    #[test]
    fn without_noise_small_differences_are_seen_and_none_are_invented() {
        let steady = |time: f64| vec![Round { first: time, second: time }; 5];
        assert_eq!(compare(&steady(105.0), &steady(100.0), 0.0).verdict, Verdict::Slower);
        assert_eq!(compare(&steady(99.0), &steady(100.0), 0.0).verdict, Verdict::Faster);
        assert_eq!(compare(&steady(100.0), &steady(100.0), 0.0).verdict, Verdict::Same);
        assert_eq!(compare(&steady(99.0), &steady(100.0), 0.02).verdict, Verdict::Same, "below the run's floor");
    }

    #[test]
    fn a_large_difference_is_seen_through_long_tails() {
        let round = |first, second| Round { first, second };
        let slow = [round(400.0, 900.0), round(410.0, 430.0), round(1500.0, 405.0)];
        let fast = [round(10.0, 11.0), round(50.0, 12.0), round(10.0, 10.0)];
        assert_eq!(compare(&fast, &slow, 0.3).verdict, Verdict::Faster);
        assert_eq!(compare(&slow, &fast, 0.3).verdict, Verdict::Slower);
        let half: Vec<Round> = slow.iter().map(|r| round(r.first * 0.6, r.second * 0.6)).collect();
        assert_eq!(compare(&half, &slow, 0.3).verdict, Verdict::Ambiguous, "not a factor of two");
        assert_eq!(compare(&fast[..2], &slow[..2], 0.3).verdict, Verdict::Ambiguous, "two rounds are too few");
    }

    #[test]
    fn one_round_proves_nothing() {
        let one = [Round { first: 50.0, second: 50.0 }];
        let c = compare(&one, &[Round { first: 100.0, second: 100.0 }], 0.0);
        assert_eq!((c.verdict, c.visible), (Verdict::Ambiguous, None));
        assert!((c.speedup - 2.0).abs() < 1e-12);
    }
}
