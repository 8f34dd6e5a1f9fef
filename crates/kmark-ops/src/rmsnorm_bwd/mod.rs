//! Backward of RMSNorm: the gradients of the input and of the weight, from the saved rstd.

mod cpu;
mod mutants;

use crate::cuda::{kernel, oracle};
use crate::{Entry, truth};
use kmark_core::case::Case;
use kmark_core::cost::Cost;
use kmark_core::fill::Fill;
use kmark_core::gate::{Block, Region, Sink, sum_slack};
use kmark_core::op::{Attr, AttrKind, Axis, MATRIX, MEMORY, Op, WEIGHT_DTYPES};
use kmark_core::tensor::{TensorSpec, View};
use std::ops::Range;

pub const ENTRY: Entry = Entry {
    op: &RmsNormBwd,
    cpu: cpu::IMPLS,
    cuda: &[&kernel!(
        "rmsnorm_bwd",
        "01_rows",
        "Blocks walk over rows with x and dout in registers, the next row on its way, and sum dw of their columns as they go; a second kernel adds the blocks' sums"
    )],
    mutants: mutants::MUTANTS,
    loose: &[],
};

struct RmsNormBwd;

impl Op for RmsNormBwd {
    fn name(&self) -> &'static str {
        "rmsnorm-bwd"
    }
    fn cuda_oracle(&self) -> &'static str {
        oracle!("rmsnorm_bwd")
    }
    fn about(&self) -> &'static str {
        "dx = (g - xh * mean(xh * g)) * rstd per row, dw = sum over rows of dout * xh; xh = x * rstd, g = dout * w"
    }
    fn axes(&self) -> &'static [Axis] {
        MATRIX
    }
    fn attrs(&self) -> &'static [Attr] {
        &[
            Attr { name: "w", kind: WEIGHT_DTYPES, default: "same", about: "dtype of the weight and its gradient" },
            Attr { name: "eps", kind: AttrKind::Positive, default: "1e-6", about: "added to the mean square" },
            MEMORY,
        ]
    }
    fn tensors(&self, c: &Case) -> Vec<TensorSpec> {
        let (m, n, w) = (c.axis("m"), c.axis("n"), c.attr_dtype("w"));
        vec![
            TensorSpec::input("x", c.dtype, &[m, n], Fill::norm_rows(0.0, c.dtype)).laid_out(c.attr("memory")),
            TensorSpec::input("w", w, &[n], Fill::Normal { mean: 1.0, std: 0.25 }),
            TensorSpec::input("dout", c.dtype, &[m, n], Fill::Normal { mean: 0.0, std: 1.0 })
                .laid_out(c.attr("memory")),
            TensorSpec::input("rstd", c.acc(), &[m], Fill::Derived),
            TensorSpec::output("dx", c.dtype, &[m, n]).laid_out(c.attr("memory")),
            TensorSpec::output("dw", w, &[n]),
        ]
    }
    fn cost(&self, c: &Case) -> Cost {
        let (m, n) = (c.axis("m") as u64, c.axis("n") as u64);
        let (e, w) = (c.dtype.size() as u64, c.attr_dtype("w").size() as u64);
        let read = 2 * m * n * e + n * w + m * c.acc().size() as u64;
        // g, xh and their product summed; the product with the mean, difference and scale; dw's product and sum.
        Cost { bytes_read: read, bytes_written: m * n * e + n * w, flops: 9 * m * n }
    }
    fn derive(&self, c: &Case, _: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
        let (n, eps) = (c.axis("n"), c.number("eps"));
        for (row, r) in rows.zip(out) {
            let x = inputs.take("x", row * n, n);
            *r = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / n as f64 + eps).sqrt();
        }
    }
    fn oracle(&self, c: &Case, inputs: &View, sink: &dyn Sink) {
        let (m, n) = (c.axis("m"), c.axis("n"));
        let (w, rstd) = (inputs.all("w"), inputs.all("rstd"));
        let k = sum_slack(c.acc(), n);
        let region = Region::One(0);
        let [dw] = truth::by_rows_summed(m, n, |rows, [dw]| {
            let (mut dx, mut slack) = (Vec::new(), Vec::new());
            for row in rows.clone() {
                let r = rstd[row];
                let (x, dout) = (inputs.take("x", row * n, n), inputs.take("dout", row * n, n));
                let (mut mean, mut size) = (0.0, 0.0);
                for i in 0..n {
                    let term = x[i] * r * dout[i] * w[i];
                    mean += term / n as f64;
                    size += term.abs() / n as f64;
                    dw.add(i, dout[i] * x[i] * r);
                }
                for i in 0..n {
                    let (g, xh) = (dout[i] * w[i], x[i] * r);
                    dx.push((g - xh * mean) * r);
                    slack.push(k * (g.abs() + xh.abs() * size) * r);
                }
            }
            sink.put(Block { tensor: "dx", start: rows.start * n, expect: &dx, slack: &slack, loose: &[], region });
        });
        let k = sum_slack(c.acc(), m);
        let slack: Vec<f64> = dw.size.iter().map(|s| k * s).collect();
        sink.put(Block { tensor: "dw", start: 0, expect: &dw.value, slack: &slack, loose: &[], region });
    }
}
