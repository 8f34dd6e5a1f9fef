//! Statistics of raw samples: numbers in, numbers out. Outliers are never removed.

/// Quantile by linear interpolation between order statistics (type 7). `values` need not be sorted.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    Sorted::of(values).quantile(q)
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Values in order, for whoever wants more than one quantile of them.
pub struct Sorted(Vec<f64>);

impl Sorted {
    pub fn of(values: &[f64]) -> Sorted {
        Sorted(sorted(values))
    }

    pub fn quantile(&self, q: f64) -> f64 {
        quantile_sorted(&self.0, q)
    }

    /// Median absolute deviation from the median, unscaled.
    pub fn mad(&self) -> f64 {
        let m = self.quantile(0.5);
        // From the median outwards both ways, deviations come in order.
        let (below, above) = self.0.split_at(self.0.partition_point(|v| *v < m));
        let (mut below, mut above) = (below.iter().rev().peekable(), above.iter().peekable());
        let mut next = || match (below.peek(), above.peek()) {
            (Some(b), Some(a)) if m - **b < **a - m => below.next(),
            (_, Some(_)) => above.next(),
            _ => below.next(),
        };
        let n = self.0.len();
        let half: Vec<f64> = std::iter::from_fn(|| next().map(|v| (v - m).abs())).take(n / 2 + 1).collect();
        quantile_sorted(&half[(n - 1) / 2..], 0.5)
    }
}

/// Mean of the middle half. Nearly as robust as the median, and much steadier where values fall into two heaps or on the
/// steps of a clock: a median jumps from one to the next.
pub fn midmean(values: &[f64]) -> f64 {
    let aside = quarter(values.len());
    mean(&sorted(values)[aside..values.len() - aside])
}

/// So many of `n` values lie beyond the middle half at each end. Of three, the middle one is left.
fn quarter(n: usize) -> usize {
    (n + 1) / 4
}

/// A mean that leaves some values at each end aside, with its standard error after Tukey and McLaughlin: what was left
/// aside counts as if it lay where the rest ends.
pub struct Trimmed {
    pub mean: f64,
    pub error: f64,
    /// Degrees of freedom for Student's t.
    pub degrees: usize,
}

impl Trimmed {
    /// Leaves `aside` values aside at each end.
    pub fn of(values: &[f64], aside: usize) -> Trimmed {
        let (all, n) = (sorted(values), values.len());
        let rest = &all[aside..n - aside];
        let pulled_in: Vec<f64> = all.iter().map(|v| v.clamp(rest[0], rest[rest.len() - 1])).collect();
        let centre = mean(&pulled_in);
        let variance = pulled_in.iter().map(|v| (v - centre).powi(2)).sum::<f64>() / n.saturating_sub(1).max(1) as f64;
        let error = (variance / n as f64).sqrt() * n as f64 / rest.len() as f64;
        Trimmed { mean: mean(rest), error, degrees: rest.len() - 1 }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub fn geomean(values: &[f64]) -> f64 {
    (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// The time of a row with its 95 % interval: the midmean of the visits' midmeans. Visits count alike, however many samples
/// they took, and neither a disturbed sample nor a disturbed visit moves it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Typical {
    pub value: f64,
    pub lo: f64,
    pub hi: f64,
}

/// Fewer visits say little about how much visits differ.
const FEWEST_VISITS: usize = 4;

impl Typical {
    /// Of the samples of each visit; `None` for no samples.
    pub fn of<'a>(visits: impl IntoIterator<Item = &'a [f64]>) -> Option<Typical> {
        let visits: Vec<&[f64]> = visits.into_iter().filter(|v| !v.is_empty()).collect();
        let times: Vec<f64> = visits.iter().map(|v| midmean(v)).collect();
        Typical::of_times(&times, &visits.concat())
    }

    /// Of each visit's midmean, and all samples, which count where visits are few.
    pub fn of_times(times: &[f64], samples: &[f64]) -> Option<Typical> {
        if times.is_empty() {
            return None;
        }
        let value = midmean(times);
        let of = if times.len() < FEWEST_VISITS { samples } else { times };
        let Trimmed { error, degrees, .. } = Trimmed::of(of, quarter(of.len()));
        let half = if degrees == 0 { 0.0 } else { t_95(degrees) * error };
        Some(Typical { value, lo: (value - half).max(0.0), hi: value + half })
    }

    /// Width of the interval relative to the time.
    pub fn width(&self) -> f64 {
        (self.hi - self.lo) / self.value
    }
}

/// In the order of `f64::total_cmp`, by way of whole numbers of that order, which are sorted much faster.
fn sorted(values: &[f64]) -> Vec<f64> {
    // With the sign set, the other bits count downwards. Done twice, it is undone.
    let turn = |bits: i64| bits ^ (((bits >> 63) as u64) >> 1) as i64;
    let mut keys: Vec<i64> = values.iter().map(|v| turn(v.to_bits() as i64)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|key| f64::from_bits(turn(key) as u64)).collect()
}

fn quantile_sorted(s: &[f64], q: f64) -> f64 {
    assert!(!s.is_empty(), "no samples");
    let at = q * (s.len() - 1) as f64;
    let (i, frac) = (at.floor() as usize, at.fract());
    if frac == 0.0 { s[i] } else { s[i] + frac * (s[i + 1] - s[i]) }
}

/// Student's t at the two-sided 95 % level.
fn t_95(degrees: usize) -> f64 {
    const T: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match degrees {
        0 => f64::INFINITY,
        d if d <= T.len() => T[d - 1],
        d => 1.960 + 2.68 / d as f64,
    }
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

    #[test]
    fn quantiles_match_the_usual_definition() {
        let v = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&v), 2.5);
        assert_eq!(quantile(&v, 0.25), 1.75);
        assert_eq!(quantile(&v, 1.0), 4.0);
        assert_eq!(Sorted::of(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]).mad(), 1.0);
        assert_eq!(Sorted::of(&[9.0, 1.0, 4.0, 3.0]).mad(), 1.5);
        assert_eq!(Sorted::of(&[5.0]).mad(), 0.0);
        assert!((geomean(&[1.0, 4.0, 16.0]) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_time_is_that_of_the_middle_half_of_its_visits() {
        let visits = [vec![10.0; 3], vec![12.0; 50], vec![11.0, 11.0, 900.0], vec![700.0; 9]];
        let time = Typical::of(visits.iter().map(Vec::as_slice)).unwrap();
        assert_eq!(time.value, 11.5, "a long visit counts no more than a short one, a disturbed one not at all");
        let one = Typical::of([[5.0].as_slice()]).unwrap();
        assert_eq!((one.value, one.lo, one.hi), (5.0, 5.0, 5.0));
        assert!(Typical::of([[].as_slice()]).is_none());
    }

    #[test]
    fn nineteen_of_twenty_intervals_hold_the_true_time() {
        let mut state = 1u64;
        let mut unit = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut gauss = || (0..12).map(|_| unit()).sum::<f64>() - 6.0;
        for (rounds, samples) in [(3, 8), (20, 5), (1, 40)] {
            let mut inside = 0;
            for _ in 0..2000 {
                // Visits differ by more than their samples explain; where there are few, nobody can see it.
                let moods = if rounds == 1 { 0.0 } else { 1.0 };
                let mut visit = || -> Vec<f64> {
                    let mood = moods * gauss();
                    (0..samples).map(|_| 100.0 + mood + gauss()).collect()
                };
                let visits: Vec<Vec<f64>> = (0..2 * rounds).map(|_| visit()).collect();
                let time = Typical::of(visits.iter().map(Vec::as_slice)).unwrap();
                inside += usize::from(time.lo <= 100.0 && 100.0 <= time.hi);
            }
            assert!((1860..1960).contains(&inside), "{rounds} rounds: {inside} of 2000");
        }
    }

    #[test]
    fn the_midmean_leaves_a_quarter_aside_at_each_end() {
        assert_eq!(midmean(&[900.0, 1.0, 3.0, 2.0, 4.0, 5.0, 6.0, -70.0]), 3.5);
        assert_eq!((midmean(&[7.0]), midmean(&[1.0, 3.0]), midmean(&[100.0, 2.0, 1.0])), (7.0, 2.0, 2.0));
    }

    #[test]
    fn a_time_is_finer_than_the_steps_of_the_clock() {
        // Durations around 4300.0 and 4304.0 ns on a clock that counts in steps of 32 ns.
        let read = |centre: f64| -> f64 {
            let spread = (0..1000).map(|i| centre + 60.0 * ((i * 617 % 1000) as f64 / 1000.0 - 0.5));
            midmean(&spread.map(|v| (v / 32.0).round() * 32.0).collect::<Vec<_>>())
        };
        for centre in [4300.0, 4304.0, 4311.0, 4320.0] {
            assert!((read(centre) - centre).abs() < 4.0, "{centre}: {}", read(centre));
        }
    }

    #[test]
    fn the_t_table_is_student_s() {
        // The tail beyond t, by Simpson's rule on the density over t = tan(u).
        for degrees in [1usize, 2, 4, 9, 15, 30, 60] {
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
            let tail = |t: f64| integrate(t.atan(), end) / (2.0 * integrate(0.0, end));
            assert!((tail(t_9998(degrees)) - 0.0001).abs() < 6e-6, "{degrees}: {}", tail(t_9998(degrees)));
            assert!((tail(t_95(degrees)) - 0.025).abs() < 1e-3, "{degrees}: {}", tail(t_95(degrees)));
        }
    }

    /// Draws from a generator that is the same everywhere.
    fn draws() -> impl FnMut() -> u64 {
        let mut state = 7u64;
        move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 32) ^ (state << 31)
        }
    }

    #[test]
    fn sorting_is_that_of_floats() {
        let special = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, 5e-324];
        let mut draw = draws();
        for _ in 0..500 {
            let any = |draw: &mut dyn FnMut() -> u64| match draw() % 16 {
                n if n < 8 => special[n as usize],
                _ => f64::from_bits(draw()),
            };
            let mut v: Vec<f64> = (0..draw() % 60).map(|_| any(&mut draw)).collect();
            let fast = sorted(&v);
            v.sort_by(f64::total_cmp);
            let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&v), bits(&fast));
        }
    }

    #[test]
    fn the_interval_holds_the_time() {
        let mut draw = draws();
        for _ in 0..500 {
            let v: Vec<f64> = (0..1 + draw() % 400).map(|_| 1.0 + (draw() % 1_000_000) as f64).collect();
            let t = Typical::of(v.chunks(7)).unwrap();
            assert!(t.lo <= t.value && t.value <= t.hi, "{v:?}");
        }
    }
}
