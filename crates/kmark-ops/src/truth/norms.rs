//! Statistics of a row, and the gradients of what is normalised by them: of LayerNorm, and of RMSNorm, which does not centre.

use super::{Out, Rounding, SURE, Sum, by_rows_summed, nonzero, sum};
use kmark_core::case::Case;
use kmark_core::gate::{Sink, sum_slack};
use kmark_core::tensor::View;

pub fn mean(x: &[f64]) -> f64 {
    sum(x.iter().copied()) / x.len() as f64
}

/// The mean square of how far `x` is from `around`.
pub fn variance(x: &[f64], around: f64) -> f64 {
    sum(x.iter().map(|v| (v - around).powi(2))) / x.len() as f64
}

/// 1/sqrt(mean(x^2) + eps).
pub fn rms_rstd(x: &[f64], eps: f64) -> f64 {
    1.0 / (sum(x.iter().map(|v| v * v)) / x.len() as f64 + eps).sqrt()
}

/// A mean of `n` terms, that of their magnitudes, and the sum of squares of what rounding them costs.
#[derive(Default)]
struct Mean {
    sum: Sum,
    size: f64,
    off2: f64,
}

impl Mean {
    fn add(&mut self, term: f64, n: f64, rounding: Rounding) {
        self.sum.add(term);
        self.size += term.abs() / n;
        self.off2 += rounding.square(term);
    }

    /// The mean, and how far it is off if it is rounded on the way, and each of its terms so many times.
    fn finish(&self, n: f64, roundings: f64, rounding: Rounding) -> (f64, f64) {
        let mean = self.sum.total() / n;
        (mean, rounding.of(mean) + SURE * (roundings * self.off2).sqrt() / n)
    }
}

/// The gradients of the input, the weight and the bias from the saved rstd and, where rows are centred, mean.
pub fn backward(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (m, n, centred) = (c.axis("m"), c.axis("n"), inputs.specs.iter().any(|s| s.name == "mean"));
    let (w, rstd, r16) = (inputs.all("w"), inputs.all("rstd"), Rounding::to(c.dtype));
    let means = if centred { inputs.all("mean") } else { vec![0.0; m] };
    let [dw, dbias] = by_rows_summed(m, n, |rows, [dw, dbias]| {
        let (mut dx, len) = (Out::default(), n as f64);
        for row in rows.clone() {
            let (r, x, dout) = (rstd[row], inputs.take("x", row * n, n), inputs.take("dout", row * n, n));
            let xh: Vec<f64> = x.iter().map(|x| (x - means[row]) * r).collect();
            let k = sum_slack(c.acc(), if centred { n } else { nonzero(&x) });
            let (mut of_g, mut of_dot) = (Mean::default(), Mean::default());
            for i in 0..n {
                let (g, product) = (dout[i] * w[i], dout[i] * xh[i]);
                if centred {
                    of_g.add(g, len, r16);
                }
                of_dot.add(if centred { g * xh[i] } else { product * w[i] }, len, r16);
                dw.add(i, product, r16.square(xh[i]) * dout[i].powi(2) + r16.square(product));
                dbias.add(i, dout[i], 0.0);
            }
            // Rounded on the way: the means themselves, g in the terms of one, and g, xh and their product in those of the other.
            let ((g_mean, g_off), (dot_mean, dot_off)) = (of_g.finish(len, 1.0, r16), of_dot.finish(len, 3.0, r16));
            for i in 0..n {
                let g = dout[i] * w[i];
                let rest = g - g_mean - xh[i] * dot_mean;
                let (twice, moved) = (2.0 * r16.of(xh[i] * dot_mean), xh[i].abs() * dot_off);
                let loose = match centred {
                    true => r16.of(g) + r16.of(g - g_mean) + r16.of(rest) + (twice + moved + g_off),
                    false => r16.of(g) + r16.of(rest) + twice + moved,
                };
                let slack = k * (g.abs() + of_g.size + xh[i].abs() * of_dot.size) * r;
                dx.put(rest * r, slack, r * loose + r16.of(rest * r));
            }
        }
        dx.flush(sink, "dx", rows.start * n, c.dtype.size() == 2);
    });
    let (k, halves) = (sum_slack(c.acc(), m), c.dtype.size() == 2 && c.attr_dtype("w").size() == 2);
    dw.put("dw", k, halves, sink);
    if inputs.specs.iter().any(|s| s.name == "dbias") {
        dbias.put("dbias", k, false, sink);
    }
}
