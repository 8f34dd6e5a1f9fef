//! Scales: from values to pixels, and round numbers for the ticks.

/// A scale, linear or logarithmic, between two pixels.
#[derive(Clone, Copy)]
pub struct Scale {
    log: bool,
    values: (f64, f64),
    pixels: (f64, f64),
}

impl Scale {
    /// From 0 to the largest value, and a little room.
    pub fn from_zero(values: impl Iterator<Item = f64>, pixels: (f64, f64)) -> Scale {
        let most = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
        Scale { log: false, values: (0.0, if most > 0.0 { 1.06 * most } else { 1.0 }), pixels }
    }

    pub fn linear(values: (f64, f64), pixels: (f64, f64)) -> Scale {
        Scale { log: false, values, pixels }
    }

    /// Over all values that have a logarithm, and a little room.
    pub fn log(values: impl Iterator<Item = f64>, pixels: (f64, f64)) -> Scale {
        let (mut lo, mut hi) = (f64::INFINITY, 0.0_f64);
        for v in values.filter(|v| v.is_finite() && *v > 0.0) {
            (lo, hi) = (lo.min(v), hi.max(v));
        }
        let (lo, hi) = if lo > hi { (1.0, 10.0) } else { (lo / 1.15, hi * 1.15) };
        Scale { log: true, values: (lo, hi), pixels }
    }

    pub fn at(&self, value: f64) -> f64 {
        let place = |v: f64| if self.log { v.max(1e-300).ln() } else { v };
        let (lo, hi) = (place(self.values.0), place(self.values.1));
        let share = ((place(value) - lo) / (hi - lo)).clamp(0.0, 1.0);
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    pub fn ends(&self) -> (f64, f64) {
        self.values
    }

    /// Some five round values.
    pub fn ticks(&self) -> Vec<f64> {
        let (lo, hi) = self.values;
        if !self.log {
            let rough = (hi - lo) / 5.0;
            let unit = 10f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * unit).into_iter().find(|s| *s >= rough).unwrap_or(rough);
            let first = (lo / step).ceil() as i64;
            return (first..).map(|i| i as f64 * step).take_while(|v| *v <= hi * (1.0 + 1e-9)).collect();
        }
        let decades = (hi / lo).log10();
        let steps: &[f64] = if decades < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = (decades / 7.0).ceil().max(1.0) as i32;
        let powers = lo.log10().floor() as i32..=hi.log10().ceil() as i32;
        let all =
            powers.filter(|p| p.rem_euclid(every) == 0).flat_map(|p| steps.iter().map(move |s| s * 10f64.powi(p)));
        all.filter(|v| *v >= lo && *v <= hi).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let scale = Scale::from_zero([4300.0].into_iter(), (0.0, 100.0));
        assert_eq!(scale.ticks(), [0.0, 1000.0, 2000.0, 3000.0, 4000.0]);
        assert_eq!((scale.at(0.0), scale.at(1e9)), (0.0, 100.0));
        let scale = Scale::log([3.0, 900.0].into_iter(), (0.0, 100.0));
        assert_eq!(scale.ticks(), [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert!((scale.at(52.0) - 50.0).abs() < 1.0);
    }

    #[test]
    fn nothing_and_nonsense_have_a_scale_too() {
        for values in [vec![], vec![f64::NAN, f64::INFINITY, -1.0, 0.0]] {
            assert!(Scale::from_zero(values.iter().copied(), (0.0, 1.0)).at(5.0).is_finite());
            assert!(Scale::log(values.iter().copied(), (0.0, 1.0)).at(f64::MIN).is_finite());
        }
    }
}
