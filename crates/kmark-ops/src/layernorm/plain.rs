//! LayerNorm in plain loops, right and wrong.

use crate::contract::*;
use crate::truth::norms::{mean, variance};
use crate::truth::sum;

/// Mean and rstd of a row, eps and the accumulator's type.
type Stats = fn(&[f64], f64, DType) -> (f64, f64);

/// What kernels get wrong, each as it is right.
pub struct How {
    stats: Stats,
    /// From a normalised element, its weight and its bias.
    y: fn(f64, f64, f64) -> f64,
    /// Whether the normalised row is rounded.
    rounds: bool,
}

pub const RIGHT: How = How {
    stats: |x, eps, _| (mean(x), 1.0 / (variance(x, mean(x)) + eps).sqrt()),
    y: |xh, w, b| xh * w + b,
    rounds: false,
};

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let (n, eps) = (c.axis("n"), c.number("eps"));
        let (x, w) = (t.get("x"), t.get("w"));
        let b = if t.has("b") { t.get("b") } else { vec![0.0; n] };
        let round = |v: f64| if self.rounds { c.dtype.round(v) } else { v };
        let (mut y, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
        for x in x.chunks(n) {
            let (mean, r) = (self.stats)(x, eps, c.acc());
            y.extend((0..n).map(|i| (self.y)(round((x[i] - mean) * r), w[i], b[i])));
            means.push(mean);
            rstds.push(r);
        }
        t.put("y", y);
        t.put("mean", means);
        t.put("rstd", rstds);
    }
}

/// With other statistics. Where no rstd or mean is visibly another, it is no mutant: a difference may by chance not cancel.
struct Other(Stats);

impl Plain for Other {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let limit = if c.flag("stats") || c.dtype.size() > 2 { 1e-9 } else { 8.0 * c.dtype.unit() };
        let shows = |x: &[f64]| {
            let [(mean, r), (right_mean, right_r)] = [self.0, RIGHT.stats].map(|s| s(x, c.number("eps"), c.acc()));
            (r / right_r - 1.0).abs() > limit && x.iter().any(|x| x - mean != 0.0)
                || ((mean - right_mean) * r).abs() > limit
        };
        if !t.get("x").chunks(c.axis("n")).any(shows) {
            t.is_harmless();
        }
        How { stats: self.0, ..RIGHT }.run(c, t)
    }
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("unbiased-variance", "the sum of squares is divided by n - 1")
        .plain(&Other(|x, eps, _| {
            let (mean, n) = (mean(x), x.len() as f64);
            (mean, 1.0 / (variance(x, mean) * n / (n - 1.0) + eps).sqrt())
        }))
        // A row of one has no such variance; in a very long one the sum's own roundoff hides it.
        .on(|c| {
            let n = c.axis("n");
            n > 1 && (n <= 16384 || c.dtype == DType::F64) && (c.flag("stats") || shared::resolves(c, 0.5 / n as f64))
        }),
    Mutant::new("variance-without-mean", "the mean square stands for the variance")
        .plain(&Other(|x, eps, _| (mean(x), 1.0 / (variance(x, 0.0) + eps).sqrt())))
        .on(|c| c.axis("n") > 1),
    Mutant::new(
        "variance-by-difference",
        "the variance is the mean square less the square of the mean, which cancels where the mean is far from zero",
    )
    .plain(&Other(|x, eps, acc| {
        let mean = acc.round(mean(x));
        let difference = acc.round(acc.round(variance(x, 0.0)) - acc.round(mean * mean));
        (mean, 1.0 / (difference.max(0.0) + eps).sqrt())
    })),
    Mutant::new("eps-outside-the-root", "eps is added to the deviation, not to the variance")
        .plain(&Other(|x, eps, _| (mean(x), 1.0 / (variance(x, mean(x)).sqrt() + eps))))
        .on(|c| c.axis("n") > 1),
    Mutant::new("mean-over-padded-n", "the mean divides by n rounded up to a multiple of 8")
        .plain(&Other(|x, eps, _| {
            let padded = sum(x.iter().copied()) / x.len().next_multiple_of(8) as f64;
            (padded, 1.0 / (variance(x, padded) + eps).sqrt())
        }))
        .on(|c| !c.axis("n").is_multiple_of(8)),
    Mutant::new("bias-weighted", "the bias is added before the weight is multiplied")
        .plain(&How { y: |xh, w, b| (xh + b) * w, ..RIGHT })
        .on(|c| c.flag("bias") && c.axis("n") >= 8),
    shared::PITCH_IGNORED,
    Mutant::loose(
        "row-rounded",
        "the normalised row is rounded to the 16-bit type before it is multiplied by the weight",
    )
    .plain(&How { rounds: true, ..RIGHT })
    .on(shared::rounds),
];
