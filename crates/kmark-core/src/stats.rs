//! Statistics of raw samples: numbers in, numbers out. Outliers are never removed.

/// Quantile by linear interpolation between order statistics (type 7). `values` need not be sorted.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    quantile_sorted(&sorted(values), q)
}

/// The median, finer than the steps of the clock: samples that read the same lie spread over the step around it, and the
/// middle one of them is where their number says. Without it, two medians of a 4 µs kernel on a timer of 32 ns steps
/// are equal or differ by 0.8 %.
pub fn median(values: &[f64]) -> f64 {
    median_sorted(&sorted(values))
}

/// Median absolute deviation from the median, unscaled.
pub fn mad(values: &[f64]) -> f64 {
    let m = quantile(values, 0.5);
    quantile(&values.iter().map(|v| (v - m).abs()).collect::<Vec<_>>(), 0.5)
}

pub fn geomean(values: &[f64]) -> f64 {
    (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// A median with the 95 % interval of its bootstrap distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    pub value: f64,
    pub lo: f64,
    pub hi: f64,
}

impl Median {
    /// `None` for no samples.
    pub fn of(values: &[f64]) -> Option<Median> {
        if values.is_empty() {
            return None;
        }
        let s = sorted(values);
        let (lo, hi) = median_interval(&s);
        let value = median_sorted(&s);
        Some(Median { value, lo: lo.min(value), hi: hi.max(value) })
    }

    /// Width of the interval relative to the median.
    pub fn width(&self) -> f64 {
        (self.hi - self.lo) / self.value
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut s = values.to_vec();
    s.sort_by(f64::total_cmp);
    s
}

fn median_sorted(s: &[f64]) -> f64 {
    let plain = quantile_sorted(s, 0.5);
    let (below, at) = (s.partition_point(|v| *v < plain), s.partition_point(|v| *v <= plain));
    let (same, step) =
        (at - below, s.windows(2).map(|w| w[1] - w[0]).filter(|d| *d > 0.0).fold(f64::INFINITY, f64::min));
    if same < 2 || !step.is_finite() {
        return plain; // nothing reads the same, or everything does
    }
    plain + step * ((s.len() as f64 / 2.0 - below as f64) / same as f64 - 0.5)
}

fn quantile_sorted(s: &[f64], q: f64) -> f64 {
    assert!(!s.is_empty(), "no samples");
    let at = q * (s.len() - 1) as f64;
    let (i, frac) = (at.floor() as usize, at.fract());
    if frac == 0.0 { s[i] } else { s[i] + frac * (s[i + 1] - s[i]) }
}

/// The 2.5 % and 97.5 % points of the bootstrap distribution of the median. Resampling at random is not needed: the
/// median of a resample is at most the k-th order statistic when at least half of its n draws fall among the first k,
/// and the number that do is binomial(n, k/n). For an even n the lower middle gives the low end, the upper the high.
fn median_interval(s: &[f64]) -> (f64, f64) {
    let n = s.len();
    if n > 256 {
        // The binomial is normal here; 0.98 = 1.96 / 2 standard deviations in ranks.
        let half = 0.98 * (n as f64).sqrt();
        let mid = (n as f64 - 1.0) / 2.0;
        return (s[(mid - half).floor() as usize], s[(mid + half).ceil() as usize]);
    }
    let first_reaching = |need: usize, p: f64| (1..=n).find(|&k| at_least(n, k, need) >= p).unwrap_or(n) - 1;
    (s[first_reaching(n.div_ceil(2), 0.025)], s[first_reaching(n / 2 + 1, 0.975)])
}

/// P(X >= need) for X binomial(n, k/n).
fn at_least(n: usize, k: usize, need: usize) -> f64 {
    if k == n {
        return 1.0;
    }
    let p = k as f64 / n as f64;
    let (lp, lq) = (p.ln(), (1.0 - p).ln());
    let mut log_choose = 0.0;
    let mut total = 0.0;
    for i in 0..=n {
        if i >= need {
            total += (log_choose + i as f64 * lp + (n - i) as f64 * lq).exp();
        }
        log_choose += ((n - i) as f64).ln() - ((i + 1) as f64).ln();
    }
    total
}

/// Student's t at the two-sided 99.98 % level (one-sided 0.9999) for 1, 2, … degrees of freedom: of ten thousand
/// comparisons of a thing with itself, two may be called a difference.
pub fn t_9998(degrees: usize) -> f64 {
    const T: [f64; 30] = [
        3183.099, 70.700, 22.204, 13.034, 9.678, 8.025, 7.063, 6.442, 6.010, 5.694, 5.453, 5.263, 5.111, 4.985, 4.880,
        4.791, 4.714, 4.648, 4.590, 4.539, 4.493, 4.452, 4.415, 4.382, 4.352, 4.324, 4.299, 4.275, 4.254, 4.234,
    ];
    match degrees {
        0 => f64::INFINITY,
        d if d <= 30 => T[d - 1],
        d => 3.719 + (4.234 - 3.719) * 30.0 / d as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_match_the_usual_definition() {
        let v = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&v), 2.5);
        assert_eq!(quantile(&v, 0.25), 1.75);
        assert_eq!(quantile(&v, 1.0), 4.0);
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), 1.0);
        assert!((geomean(&[1.0, 4.0, 16.0]) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_median_is_finer_than_the_steps_of_the_clock() {
        // Durations around 4300.0 and 4304.0 ns on a clock that counts in steps of 32 ns.
        let read = |centre: f64| -> f64 {
            let spread = (0..1000).map(|i| centre + 60.0 * ((i * 617 % 1000) as f64 / 1000.0 - 0.5));
            median(&spread.map(|v| (v / 32.0).round() * 32.0).collect::<Vec<_>>())
        };
        for centre in [4300.0, 4304.0, 4311.0, 4320.0] {
            assert!((read(centre) - centre).abs() < 2.0, "{centre}: {}", read(centre));
        }
        assert_eq!(median(&[5.0; 7]), 5.0);
    }

    /// The closed form against a plain bootstrap with a small deterministic generator.
    #[test]
    fn the_interval_is_the_bootstrap_interval() {
        let values: Vec<f64> = (0..41).map(|i| ((i * 37) % 41) as f64).collect();
        let m = Median::of(&values).unwrap();
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        let mut medians: Vec<f64> =
            (0..20_000).map(|_| median(&(0..41).map(|_| values[next() % 41]).collect::<Vec<_>>())).collect();
        medians.sort_by(f64::total_cmp);
        assert!((m.lo - medians[500]).abs() <= 1.0, "{} {}", m.lo, medians[500]);
        assert!((m.hi - medians[19_500]).abs() <= 1.0, "{} {}", m.hi, medians[19_500]);
    }

    #[test]
    fn the_t_table_is_student_s() {
        // The tail beyond t, by Simpson's rule on the density over t = tan(u), must be 0.0001.
        for degrees in [1usize, 2, 4, 9, 30, 60] {
            let nu = degrees as f64;
            let density = |t: f64| (1.0 + t * t / nu).powf(-(nu + 1.0) / 2.0);
            let integrate = |a: f64, b: f64| {
                let n = 20_000;
                let h = (b - a) / n as f64;
                let g = |i: usize| {
                    let u = a + h * i as f64;
                    density(u.tan()) / u.cos().powi(2)
                };
                (0..n).step_by(2).map(|i| (g(i) + 4.0 * g(i + 1) + g(i + 2)) * h / 3.0).sum::<f64>()
            };
            let end = std::f64::consts::FRAC_PI_2 - 1e-9;
            let tail = integrate(t_9998(degrees).atan(), end) / (2.0 * integrate(0.0, end));
            assert!((tail - 0.0001).abs() < 6e-6, "{degrees}: {tail}");
        }
    }

    proptest! {
        #[test]
        fn the_interval_holds_the_median(v in prop::collection::vec(1.0f64..1e6, 1..400)) {
            let m = Median::of(&v).unwrap();
            prop_assert!(m.lo <= m.value && m.value <= m.hi);
        }
    }
}
