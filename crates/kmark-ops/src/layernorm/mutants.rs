//! LayerNorm done wrong.

use crate::mutants::{Mutant, Spoiled, WORKS, after, edited, read, shared, write};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

/// Mean and rstd of a row, eps and the accumulator's type.
type Stats = fn(&[f64], f64, DType) -> (f64, f64);

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "unbiased-variance",
        about: "the sum of squares is divided by n - 1",
        // A row of one has no such variance; in a very long one the sum's own roundoff hides it.
        applies: |c| {
            let n = c.axis("n");
            n > 1 && (n <= 16384 || c.dtype == DType::F64) && (c.flag("stats") || shared::resolves(c, 0.5 / n as f64))
        },
        spoil: |right, c, b| {
            with_stats(right, c, b, |x, eps, _| {
                let mean = mean(x);
                let n = x.len() as f64;
                (mean, 1.0 / (variance(x, mean) * n / (n - 1.0) + eps).sqrt())
            })
        },
    },
    Mutant {
        name: "variance-without-mean",
        about: "the mean square stands for the variance",
        applies: |c| c.axis("n") > 1,
        spoil: |right, c, b| with_stats(right, c, b, |x, eps, _| (mean(x), 1.0 / (variance(x, 0.0) + eps).sqrt())),
    },
    Mutant {
        name: "variance-by-difference",
        about: "the variance is the mean square less the square of the mean, which cancels where the mean is far from zero",
        applies: |_| true,
        spoil: |right, c, b| {
            with_stats(right, c, b, |x, eps, acc| {
                let mean = acc.round(mean(x));
                let difference = acc.round(acc.round(variance(x, 0.0)) - acc.round(mean * mean));
                (mean, 1.0 / (difference.max(0.0) + eps).sqrt())
            })
        },
    },
    Mutant {
        name: "eps-outside-the-root",
        about: "eps is added to the deviation, not to the variance",
        applies: |c| c.axis("n") > 1,
        spoil: |right, c, b| with_stats(right, c, b, |x, eps, _| (mean(x), 1.0 / (variance(x, mean(x)).sqrt() + eps))),
    },
    Mutant {
        name: "mean-over-padded-n",
        about: "the mean divides by n rounded up to a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8),
        spoil: |right, c, b| {
            with_stats(right, c, b, |x, eps, _| {
                let padded = x.iter().sum::<f64>() / x.len().next_multiple_of(8) as f64;
                (padded, 1.0 / (variance(x, padded) + eps).sqrt())
            })
        },
    },
    Mutant {
        name: "bias-weighted",
        about: "the bias is added before the weight is multiplied",
        applies: |c| c.flag("bias") && c.axis("n") >= 8,
        spoil: |right, _, b| {
            let (w, b, y) = (b.get("w"), b.get("b"), b.get("y"));
            after(right, move || {
                let (w, b, mut out) = (read(&w), read(&b), read(&y));
                out.iter_mut().enumerate().for_each(|(i, v)| *v += b[i % b.len()] * (w[i % w.len()] - 1.0));
                write(&y, &out);
            })
        },
    },
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "row-rounded",
    about: "the normalised row is rounded to the 16-bit type before it is multiplied by the weight",
    applies: shared::rounds,
    spoil: |right, c, b| {
        let (n, eps, dtype) = (c.axis("n"), c.number("eps"), c.dtype);
        let (x, w, bias) = (b.get("x"), b.get("w"), c.flag("bias").then(|| b.get("b")));
        edited(right, b, "y", move |y| {
            let (w, bias) = (read(&w), bias.as_ref().map_or(vec![0.0; n], read));
            for (y, x) in y.chunks_mut(n).zip(read(&x).chunks(n)) {
                let mean = mean(x);
                let r = 1.0 / (variance(x, mean) + eps).sqrt();
                for i in 0..n {
                    y[i] = dtype.round((x[i] - mean) * r) * w[i] + bias[i];
                }
            }
        })
    },
}];

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn variance(x: &[f64], around: f64) -> f64 {
    x.iter().map(|v| (v - around).powi(2)).sum::<f64>() / x.len() as f64
}

/// Replaces y, mean and rstd by those of other statistics, which `stats` makes of a row, eps and the accumulator's type.
/// Where no rstd or mean is visibly another, it is no mutant: a difference may by chance not cancel.
fn with_stats(mut right: Box<dyn Launch>, c: &Case, b: &Buffers, stats: Stats) -> Box<dyn Launch> {
    let (c, b) = (c.clone(), b.clone());
    Box::new(Spoiled(move || {
        right.launch().expect(WORKS);
        let (n, eps) = (c.axis("n"), c.number("eps"));
        let (x, w) = (read(&b.get("x")), read(&b.get("w")));
        let bias = if c.flag("bias") { read(&b.get("b")) } else { vec![0.0; n] };
        let (mut y, mut means, mut rstds, mut shows) = (Vec::new(), Vec::new(), Vec::new(), false);
        for row in x.chunks(n) {
            let (mean, r) = stats(row, eps, c.acc());
            let (right_mean, right_r) = (self::mean(row), 1.0 / (variance(row, self::mean(row)) + eps).sqrt());
            let limit = if c.flag("stats") || c.dtype.size() > 2 { 1e-9 } else { 8.0 * c.dtype.unit() };
            shows |= (r / right_r - 1.0).abs() > limit && row.iter().any(|x| x - mean != 0.0);
            shows |= ((mean - right_mean) * r).abs() > limit;
            y.extend((0..n).map(|i| (row[i] - mean) * r * w[i] + bias[i]));
            means.push(mean);
            rstds.push(r);
        }
        write(&b.get("y"), &y);
        if c.flag("stats") {
            write(&b.get("mean"), &means);
            write(&b.get("rstd"), &rstds);
        }
        shows
    }))
}
