//! Verdicts: is one impl faster than another, and what is the smallest difference these rows could have shown?
//!
//! The unit is the round, not the sample: samples of one visit share the machine's mood, rounds share less. In each
//! round every impl is visited twice, in balanced order. The two visits of one impl are an A/A comparison and give its
//! noise; the rounds' ratios give the spread of the difference. A difference counts only when its mean over the rounds,
//! a tenth left aside at each end, is beyond both, at the 99.98 % level, and the times that are shown differ the same
//! way; or when it is more than a factor of two and all visits of one impl lie below all visits of the other. `visible`
//! is twice that limit: a true difference of that size is found with near certainty, so a "same" means "no difference as
//! large as `visible`".

use crate::stats::{Trimmed, quantile, t_9998};
use serde::{Deserialize, Serialize};

/// One impl's two visits in one round: the mean of the middle half of each, in ns.
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
    /// Of a log ratio, by how far it must be from 0 and the smallest difference that would have been seen.
    pub(crate) fn of(difference: f64, enough: f64, visible: f64) -> Verdict {
        match difference {
            d if d > enough => Verdict::Faster,
            d if d < -enough => Verdict::Slower,
            _ if visible <= SAME_NEEDS => Verdict::Same,
            _ => Verdict::Ambiguous,
        }
    }

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
pub(crate) const LEAST: f64 = 0.002;
/// A factor of two. Below it, two processes of the same code can fall apart by the luck of their memory's places.
const LARGE: f64 = std::f64::consts::LN_2;
/// One round in so many may be disturbed at each end: neither it nor its noise counts.
const DISTURBED: usize = 10;
/// A run that cannot see this much says "ambiguous", not "same".
const SAME_NEEDS: f64 = 0.05;

/// Clocks of a core that are further apart are not the same.
const SAME_CLOCK: f64 = 0.05;
/// Up to this factor a difference between two rows on a CPU may come from the state of the core, which its clock shows: on
/// a Xeon the same launch took 41 µs at 2.4 GHz and 60 to 92 µs at 3.0 GHz, visit after visit.
const CLOCK_EXPLAINS: f64 = 3.0;
pub const OTHER_CLOCK: &str = "the clock of the core was not the same";

/// Whether two rows on a CPU were timed while its cores had different clocks.
fn clocks_differ(a: Option<f64>, b: Option<f64>) -> bool {
    a.zip(b).is_some_and(|(a, b)| (a / b).ln().abs() > SAME_CLOCK)
}

/// Whether their clocks explain that one row on a CPU is so many times as fast as another.
pub fn clocks_explain(speedup: f64, a: Option<f64>, b: Option<f64>) -> bool {
    speedup.max(1.0 / speedup) < CLOCK_EXPLAINS && clocks_differ(a, b)
}

/// Up to which difference, in ns, the clocks of two rows on a CPU explain it; each is the time that is shown and the clock.
pub fn clocks_explain_ns(a: (f64, Option<f64>), b: (f64, Option<f64>)) -> f64 {
    if clocks_differ(a.1, b.1) { (CLOCK_EXPLAINS - 1.0) * a.0.min(b.0) } else { 0.0 }
}

/// What a row has to say: the time that is shown for it, and its rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub time_ns: f64,
    pub rounds: Vec<Round>,
}

/// Compares rows that were interleaved with each other. The ratio is that of the times that are shown. `apart_ns` is
/// what the same launch may differ between the two for reasons that no round shows, such as another process.
pub fn compare(this: &Series, base: &Series, apart_ns: f64) -> Comparison {
    let rounds = this.rounds.len().min(base.rounds.len());
    let speedup = base.time_ns / this.time_ns;
    if rounds < 2 {
        return Comparison { speedup, lo: speedup, hi: speedup, visible: None, verdict: Verdict::Ambiguous };
    }
    let (ours, theirs) = (&this.rounds[..rounds], &base.rounds[..rounds]);
    let differences: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| b.log_time() - a.log_time()).collect();
    let apart = (apart_ns / this.time_ns.min(base.time_ns)).ln_1p();
    let between = Trimmed::of(&differences, rounds / DISTURBED);
    let limit = reach(&between).max(within_rounds(ours, theirs)).max(apart).max(LEAST);
    let visible = (2.0 * limit).exp_m1();
    let enough = if separated(ours, theirs) { limit.min(LARGE.max(apart)) } else { limit };
    let (difference, shown) = (between.mean, speedup.ln());
    // What the times shown do not show is no difference.
    let agree = shown.abs() > LEAST && shown.signum() == difference.signum();
    let verdict = Verdict::of(if agree { difference } else { 0.0 }, enough, visible);
    // Around the ratio that is shown, and wide enough for the one that was tested.
    let reach = limit + (shown - difference).abs();
    Comparison { speedup, lo: (shown - reach).exp(), hi: (shown + reach).exp(), visible: Some(visible), verdict }
}

/// Whether every visit of one impl was faster than every visit of the other, in three rounds or more. If the two were
/// the same, 6 visits against 6 would fall apart like that in 2 of 924 orders, whatever the distribution. It tells large differences on machines whose noise has long tails.
fn separated(this: &[Round], base: &[Round]) -> bool {
    let visits = |rounds: &[Round]| -> Vec<f64> { rounds.iter().flat_map(|r| [r.first, r.second]).collect() };
    let least = |v: &[f64]| v.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |v: &[f64]| v.iter().copied().fold(0.0, f64::max);
    let (a, b) = (visits(this), visits(base));
    this.len() >= 3 && (most(&a) < least(&b) || most(&b) < least(&a))
}

/// Half-width of the interval of a mean at the level of a verdict.
fn reach(of: &Trimmed) -> f64 {
    t_9998(of.degrees) * of.error
}

/// The same for the mean difference as the A/A differences predict it. If one visit's log time varies by s, an A/A difference
/// varies by s*sqrt(2), and so their mean over the n rounds of two impls by s/sqrt(n); so does the mean over n rounds
/// of the difference of two impls, each the mean of two visits.
fn within_rounds(this: &[Round], base: &[Round]) -> f64 {
    let aa: Vec<f64> = this.iter().chain(base).map(Round::aa).collect();
    reach(&Trimmed::of(&aa, aa.len() / DISTURBED))
}

/// An impl against itself: by how much the two visits of a round typically differ, whichever way, as a log ratio.
pub fn aa_difference(rounds: &[Round]) -> Option<f64> {
    let apart: Vec<f64> = rounds.iter().map(|r| r.aa().abs()).collect();
    (rounds.len() >= 2).then(|| quantile(&apart, 0.5))
}

/// The run's noise floor from the A/A differences of all its rows: the 95 % quantile. `None` for no rows.
pub fn noise_floor(aa: &[f64]) -> Option<f64> {
    (!aa.is_empty()).then(|| quantile(aa, 0.95))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::stats::midmean;

    /// A small generator of noise with heavy tails: a sum of uniforms, and one visit in ten disturbed by up to fifteen sigma.
    pub(crate) struct Noise(pub u64);

    impl Noise {
        fn unit(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
        pub(crate) fn gauss(&mut self) -> f64 {
            (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
        }
        fn visit(&mut self, time: f64, sigma: f64, tails: bool) -> f64 {
            let tail = if tails && self.unit() < 0.1 { 15.0 * self.unit() } else { 0.0 };
            time * (sigma * (self.gauss() + tail)).exp()
        }
        fn series(&mut self, n: usize, time: f64, sigma: f64, tails: bool) -> Series {
            let visit = |noise: &mut Noise| noise.visit(time, sigma, tails);
            series((0..n).map(|_| (visit(self), visit(self))).collect::<Vec<_>>())
        }
    }

    /// What is shown is made of all visits.
    fn series(rounds: Vec<(f64, f64)>) -> Series {
        let all: Vec<f64> = rounds.iter().flat_map(|r| [r.0, r.1]).collect();
        let rounds = rounds.into_iter().map(|(first, second)| Round { first, second }).collect();
        Series { time_ns: midmean(&all), rounds }
    }

    fn is_called(c: &Comparison) -> bool {
        matches!(c.verdict, Verdict::Faster | Verdict::Slower)
    }

    #[test]
    fn identical_impls_are_almost_never_told_apart() {
        let mut noise = Noise(7);
        let mut false_calls = 0;
        for trial in 0..20_000 {
            let n = 3 + trial % 8;
            let tails = trial % 2 == 0;
            let (a, b) = (noise.series(n, 100.0, 0.02, tails), noise.series(n, 100.0, 0.02, tails));
            false_calls += usize::from(is_called(&compare(&a, &b, 0.0)));
        }
        assert!(false_calls <= 4, "{false_calls} of 20000");
    }

    #[test]
    fn ten_rounds_find_three_percent_through_noise_of_one() {
        let mut noise = Noise(5);
        let found = |noise: &mut Noise, slower: f64, sigma: f64| {
            let one = |noise: &mut Noise, time| noise.series(10, time, sigma, false);
            (0..1000)
                .filter(|_| compare(&one(noise, slower), &one(noise, 100.0), 0.0).verdict == Verdict::Slower)
                .count()
        };
        let (coarse, fine) = (found(&mut noise, 103.0, 0.008), found(&mut noise, 101.0, 0.002));
        assert!(coarse >= 950 && fine >= 990, "{coarse}, {fine}");
    }

    #[test]
    fn a_slow_down_is_found_whenever_the_run_says_it_could_see_it() {
        let mut noise = Noise(11);
        let (mut able, mut found) = (0, 0);
        for trial in 0..4000 {
            let sigma = 0.0005 * (1 + trial % 40) as f64;
            let (a, b) = (noise.series(10, 105.0, sigma, true), noise.series(10, 100.0, sigma, true));
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
        let steady = |time: f64| series(vec![(time, time); 5]);
        let verdict = |a: f64, b: f64, apart: f64| compare(&steady(a), &steady(b), apart).verdict;
        assert_eq!(verdict(105.0, 100.0, 0.0), Verdict::Slower);
        assert_eq!(verdict(99.0, 100.0, 0.0), Verdict::Faster);
        assert_eq!(verdict(100.0, 100.0, 0.0), Verdict::Same);
        assert_eq!(verdict(99.0, 100.0, 2.0), Verdict::Same, "less than two processes differ by");
    }

    /// Launches of one kernel fall into two heaps, 2 % apart: the medians of visits jump between them.
    #[test]
    fn one_percent_is_found_through_two_heaps() {
        let mut noise = Noise(3);
        let mut one = |time: f64| {
            let mut sample = || time * (1.0 + if noise.unit() < 0.5 { 0.0 } else { 0.02 } + 0.002 * noise.gauss());
            let visits: Vec<Vec<f64>> = (0..40).map(|_| (0..10).map(|_| sample()).collect()).collect();
            series(visits.chunks(2).map(|v| (midmean(&v[0]), midmean(&v[1]))).collect())
        };
        let found = (0..200).filter(|_| compare(&one(101.0), &one(100.0), 0.0).verdict == Verdict::Slower).count();
        let invented = (0..200).filter(|_| is_called(&compare(&one(100.0), &one(100.0), 0.0))).count();
        assert!(found >= 190 && invented == 0, "{found}, {invented}");
    }

    #[test]
    fn a_verdict_never_contradicts_the_times_shown() {
        let (slow, fast) = (series(vec![(105.0, 105.0); 5]), series(vec![(100.0, 100.0); 5]));
        let c = compare(&slow, &Series { time_ns: 105.0, ..fast }, 0.0);
        assert_eq!((c.verdict, c.speedup), (Verdict::Same, 1.0));
        assert!(c.lo <= 100.0 / 105.0 && c.hi >= 1.0, "{c:?}");
    }

    #[test]
    fn the_ratio_is_that_of_the_times_shown() {
        let (a, b) = (series(vec![(90.0, 110.0); 4]), Series { time_ns: 150.0, ..series(vec![(140.0, 170.0); 4]) });
        assert_eq!(compare(&a, &b, 0.0).speedup, 1.5);
    }

    #[test]
    fn a_large_difference_is_seen_through_long_tails() {
        let slow = [(400.0, 900.0), (410.0, 430.0), (1500.0, 405.0)];
        let fast = [(10.0, 11.0), (50.0, 12.0), (10.0, 10.0)];
        let verdict =
            |a: &[(f64, f64)], b: &[(f64, f64)]| compare(&series(a.to_vec()), &series(b.to_vec()), 3.0).verdict;
        assert_eq!(verdict(&fast, &slow), Verdict::Faster);
        assert_eq!(verdict(&slow, &fast), Verdict::Slower);
        let half: Vec<(f64, f64)> = slow.iter().map(|r| (r.0 * 0.6, r.1 * 0.6)).collect();
        assert_eq!(verdict(&half, &slow), Verdict::Ambiguous, "not a factor of two");
        assert_eq!(verdict(&fast[..2], &slow[..2]), Verdict::Ambiguous, "two rounds are too few");
    }

    #[test]
    fn what_goes_up_and_down_is_noise_all_the_same() {
        let (up, down) = (Round { first: 1.0, second: 1.64 }, Round { first: 1.64, second: 1.0 });
        let apart = aa_difference(&[up, down, up, down]).unwrap();
        assert!((apart.exp() - 1.64).abs() < 1e-9, "{apart}");
        assert_eq!(aa_difference(&[up]), None);
    }

    #[test]
    fn one_round_proves_nothing() {
        let c = compare(&series(vec![(50.0, 50.0)]), &series(vec![(100.0, 100.0)]), 0.0);
        assert_eq!((c.verdict, c.visible), (Verdict::Ambiguous, None));
        assert!((c.speedup - 2.0).abs() < 1e-12);
    }
}
