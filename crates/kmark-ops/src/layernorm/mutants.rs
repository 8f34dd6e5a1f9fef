//! LayerNorm done wrong.

use crate::mutants::{Mutant, after, read, shared, write};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "unbiased-variance",
        about: "the sum of squares is divided by n - 1",
        // A row of one has no such variance; in a very long one it is the same.
        applies: |c| (2..=8192).contains(&c.axis("n")),
        spoil: |right, c, b| {
            with_stats(right, c, b, |x, eps| {
                let mean = mean(x);
                let n = x.len() as f64;
                (mean, 1.0 / (variance(x, mean) * n / (n - 1.0) + eps).sqrt())
            })
        },
    },
    Mutant {
        name: "variance-without-mean",
        about: "the mean square stands for the variance",
        // A short row may have a mean near zero; sixteen do not.
        applies: |c| c.axis("n") >= 64 || (c.axis("n") > 1 && c.axis("m") > 15),
        spoil: |right, c, b| with_stats(right, c, b, |x, eps| (mean(x), 1.0 / (variance(x, 0.0) + eps).sqrt())),
    },
    Mutant {
        name: "eps-outside-the-root",
        about: "eps is added to the deviation, not to the variance",
        applies: |c| c.axis("n") > 1 && c.axis("m") > 5,
        spoil: |right, c, b| with_stats(right, c, b, |x, eps| (mean(x), 1.0 / (variance(x, mean(x)).sqrt() + eps))),
    },
    Mutant {
        name: "mean-over-padded-n",
        about: "the mean divides by n rounded up to a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") < 16384 && c.axis("m") * c.axis("n") >= 64,
        spoil: |right, c, b| {
            with_stats(right, c, b, |x, eps| {
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

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn variance(x: &[f64], around: f64) -> f64 {
    x.iter().map(|v| (v - around).powi(2)).sum::<f64>() / x.len() as f64
}

/// Replaces y by that of other statistics; `stats` gives mean and rstd of a row.
fn with_stats(right: Box<dyn Launch>, c: &Case, b: &Buffers, stats: fn(&[f64], f64) -> (f64, f64)) -> Box<dyn Launch> {
    let (n, eps) = (c.axis("n"), c.number("eps"));
    let (x, w, y) = (b.get("x"), b.get("w"), b.get("y"));
    let bias = c.flag("bias").then(|| b.get("b"));
    after(right, move || {
        let (x, w) = (read(&x), read(&w));
        let b = bias.as_ref().map_or(vec![0.0; n], read);
        let mut out = Vec::new();
        for row in x.chunks(n) {
            let (mean, r) = stats(row, eps);
            out.extend((0..n).map(|i| (row[i] - mean) * r * w[i] + b[i]));
        }
        write(&y, &out);
    })
}
