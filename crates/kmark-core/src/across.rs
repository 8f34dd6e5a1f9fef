//! Times of different runs, which nobody took in turns: is the new one faster, and what is the smallest difference that
//! these runs could have shown?
//!
//! Two things blur a time. Inside a run, visits differ; where they drift, neighbours are alike and count for less. And the
//! same thing takes another time in another run, for reasons that no visit of one run shows: processes, places of its
//! memory, the state of the machine. How much that is, is known from experience ([`Scatter`]), and seen where there are
//! several runs on a side.

use crate::stats::{Trimmed, geomean, t_9998};
use crate::verdict::{Comparison, LEAST, Series, Verdict};

/// By how much the time of the same thing differs from run to run: a standard deviation, in ns and as a share.
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    pub ns: f64,
    pub share: f64,
}

impl Scatter {
    /// Measured on an H200: a launch takes 50 ns more or less in another process.
    pub const GPU: Scatter = Scatter { ns: 50.0, share: 0.001 };
    /// A quiet machine; on a busy one visits differ so much that they set the limit.
    pub const CPU: Scatter = Scatter { ns: 0.0, share: 0.01 };
}

/// Fewer visits than this do not show how much they differ.
const FEWEST_VISITS: usize = 4;
/// Standard deviations at the level of a verdict, for what is known from experience.
const SURE: f64 = 4.0;

/// The runs of one side as one.
struct Side {
    /// Standard errors of its log time: by visits, with degrees of freedom, and by runs.
    error: f64,
    degrees: usize,
    scatter: f64,
}

/// Compares what runs say of one row; each side has one or more of them. The ratio is that of the times shown, or of their
/// geometric means.
pub fn compare(new: &[Series], base: &[Series], scatter: Scatter) -> Comparison {
    let time = |runs: &[Series]| geomean(&runs.iter().map(|r| r.time_ns).collect::<Vec<_>>());
    let speedup = time(base) / time(new);
    let (Some(ours), Some(theirs)) = (side(new, scatter), side(base, scatter)) else {
        return Comparison { speedup, lo: speedup, hi: speedup, visible: None, verdict: Verdict::Ambiguous };
    };
    let visits = t_9998(ours.degrees + theirs.degrees) * ours.error.hypot(theirs.error);
    let limit = visits.hypot(SURE * ours.scatter.hypot(theirs.scatter)).max(LEAST);
    let (difference, visible) = (speedup.ln(), (2.0 * limit).exp_m1());
    let verdict = Verdict::of(difference, limit, visible);
    let (lo, hi) = ((difference - limit).exp(), (difference + limit).exp());
    Comparison { speedup, lo, hi, visible: Some(visible), verdict }
}

fn side(runs: &[Series], scatter: Scatter) -> Option<Side> {
    let (mut squares, mut degrees, count) = (0.0, 0, runs.len() as f64);
    for run in runs {
        let visits: Vec<f64> = run.rounds.iter().flat_map(|r| [r.first.ln(), r.second.ln()]).collect();
        if visits.len() < FEWEST_VISITS {
            return None;
        }
        let of = Trimmed::of(&visits, visits.len() / 4);
        squares += (of.error * inflation(&visits)).powi(2);
        degrees += of.degrees;
    }
    let logs: Vec<f64> = runs.iter().map(|r| r.time_ns.ln()).collect();
    let log_time = logs.iter().sum::<f64>() / count;
    let seen = (logs.iter().map(|l| (l - log_time).powi(2)).sum::<f64>() / (count - 1.0).max(1.0)).sqrt();
    let expected = scatter.share.hypot(scatter.ns / log_time.exp());
    Some(Side { error: squares.sqrt() / count, degrees, scatter: seen.max(expected) / count.sqrt() })
}

/// By how much the standard error of a mean grows when neighbours are alike: by `(1 + r) / (1 - r)` under the root, r the
/// correlation of each visit with the next.
fn inflation(visits: &[f64]) -> f64 {
    const MOST: f64 = 0.95;
    let mean = visits.iter().sum::<f64>() / visits.len() as f64;
    let variance: f64 = visits.iter().map(|v| (v - mean).powi(2)).sum();
    let neighbours: f64 = visits.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    let r = if variance > 0.0 { (neighbours / variance).clamp(0.0, MOST) } else { 0.0 };
    ((1.0 + r) / (1.0 - r)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::midmean;
    use crate::verdict::Round;
    use crate::verdict::tests::Noise;

    impl Noise {
        /// A run of so many rounds: visits scatter by `visits`, the run as a whole by `runs`, both shares.
        fn run(&mut self, time: f64, rounds: usize, visits: f64, runs: f64, drift: f64) -> Series {
            let own = time * (runs * self.gauss()).exp();
            let mut at = 0;
            let mut visit = || {
                at += 1;
                own * (1.0 + visits * self.gauss() + drift * at as f64 / (2 * rounds) as f64)
            };
            let rounds: Vec<Round> = (0..rounds).map(|_| Round { first: visit(), second: visit() }).collect();
            let all: Vec<f64> = rounds.iter().flat_map(|r| [r.first, r.second]).collect();
            Series { time_ns: midmean(&all), rounds }
        }
    }

    fn word(new: &[Series], base: &[Series]) -> Verdict {
        compare(new, base, Scatter::GPU).verdict
    }

    #[test]
    fn the_same_kernel_in_two_runs_is_not_told_apart() {
        let mut noise = Noise(1);
        for time in [2e3, 20e3, 1e6] {
            // As far apart as experience says that runs are.
            let runs = Scatter::GPU.share.hypot(Scatter::GPU.ns / time);
            let called = (0..3000)
                .filter(|i| {
                    let visits = 0.001 * (1 + i % 20) as f64;
                    let mut one = || noise.run(time, 3 + i % 18, visits, runs, 0.0);
                    matches!(word(&[one()], &[one()]), Verdict::Faster | Verdict::Slower)
                })
                .count();
            assert!(called <= 2, "{called} of 3000 at {time} ns");
        }
    }

    #[test]
    fn one_percent_is_found_where_a_run_can_show_it() {
        let mut noise = Noise(2);
        let mut found = |time: f64, slower: f64, visits: f64| {
            let mut one = |factor: f64| noise.run(time * factor, 20, visits, 0.0, 0.0);
            (0..500).filter(|_| word(&[one(slower)], &[one(1.0)]) == Verdict::Slower).count()
        };
        assert!(found(100e3, 1.01, 0.002) >= 490);
        assert!(found(10e3, 1.05, 0.005) >= 490);
        assert_eq!(found(10e3, 1.01, 0.005), 0, "100 ns are within what two processes differ by");
    }

    #[test]
    fn what_drifts_proves_little() {
        let mut noise = Noise(3);
        let mut called = 0;
        for _ in 0..500 {
            let (drifting, steady) = (noise.run(1e5, 20, 0.002, 0.0, 0.06), noise.run(1e5, 20, 0.002, 0.0, 0.0));
            called += usize::from(word(&[drifting], &[steady]) != Verdict::Ambiguous);
        }
        assert!(called <= 5, "{called} of 500");
    }

    #[test]
    fn runs_that_scatter_widen_the_limit_and_more_of_them_narrow_it() {
        let mut noise = Noise(4);
        let sees = |new: &[Series], base: &[Series]| compare(new, base, Scatter::GPU).visible.unwrap();
        let mut runs = |n: usize, scatter: f64| -> Vec<Series> {
            (0..n).map(|_| noise.run(1e4, 20, 0.001, scatter, 0.0)).collect()
        };
        let (one, four, wild) = (runs(2, 0.0), runs(8, 0.0), runs(8, 0.03));
        assert!(sees(&four[..4], &four[4..]) < 0.6 * sees(&one[..1], &one[1..]));
        assert!(sees(&wild[..4], &wild[4..]) > 2.0 * sees(&four[..4], &four[4..]));
    }

    #[test]
    fn three_samples_prove_nothing() {
        let mut noise = Noise(5);
        let (few, many) = (noise.run(1e5, 1, 0.001, 0.0, 0.0), noise.run(2e5, 20, 0.001, 0.0, 0.0));
        let c = compare(&[few], &[many], Scatter::GPU);
        assert_eq!((c.verdict, c.visible), (Verdict::Ambiguous, None));
        assert!(c.speedup > 1.9);
    }
}
