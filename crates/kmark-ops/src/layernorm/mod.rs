//! LayerNorm (Ba et al. 2016) over each row, with the biased variance.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("layernorm"),
    cuda: &[&kernel!("layernorm", "01_rows")],
    mutants: plain::MUTANTS,
    loose: plain::LOOSE,
};

const OP: Op = Op {
    name: "layernorm",
    about: "y = (x - mean) * rstd * w + b with rstd = 1/sqrt(var + eps) per row; bias, saved mean and rstd on request",
    axes: MATRIX,
    attrs: &[
        Attr { name: "w", kind: WEIGHT_DTYPES, default: "same", about: "dtype of weight and bias" },
        Attr { name: "eps", kind: AttrKind::Positive, default: "1e-6", about: "added to the variance" },
        Attr { name: "bias", kind: YES_NO, default: "no", about: "whether there is a bias" },
        Attr { name: "stats", kind: YES_NO, default: "no", about: "whether mean and rstd are outputs" },
        MEMORY,
    ],
    tensors,
    cost,
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (m, n, w) = (c.axis("m"), c.axis("n"), c.attr_dtype("w"));
    let memory = c.attr("memory");
    // Off centre, so that a missing mean shows.
    let mut t = vec![
        TensorSpec::input("x", c.dtype, &[m, n], Fill::norm_rows(0.5, c.dtype)).laid_out(memory),
        TensorSpec::input("w", w, &[n], Fill::Normal { mean: 1.0, std: 0.25 }),
    ];
    if c.flag("bias") {
        t.push(TensorSpec::input("b", w, &[n], Fill::Normal { mean: 0.0, std: 0.25 }));
    }
    t.push(TensorSpec::output("y", c.dtype, &[m, n]).laid_out(memory));
    if c.flag("stats") {
        t.push(TensorSpec::output("mean", c.acc(), &[m]));
        t.push(TensorSpec::output("rstd", c.acc(), &[m]));
    }
    t
}

fn cost(c: &Case, tensors: &[TensorSpec]) -> Cost {
    // Sum; difference, square and sum; scale, weight, and the bias.
    let each = if c.flag("bias") { 7 } else { 6 };
    Cost::of(tensors, each * rows_by_columns(c))
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, eps, w) = (c.axis("n"), c.number("eps"), inputs.all("w"));
    let b = if c.flag("bias") { inputs.all("b") } else { vec![0.0; n] };
    let (k, u) = (sum_slack(c.acc(), n), c.acc().unit());
    let rounding = truth::Rounding::to(c.dtype);
    truth::by_row(c, inputs, sink, ["y", "mean", "rstd"], |row, [y, means, rstds]| {
        let x = inputs.take("x", row * n, n);
        let mean = truth::sum(x.iter().copied()) / n as f64;
        let r = 1.0 / (truth::sum(x.iter().map(|v| (v - mean).powi(2))) / n as f64 + eps).sqrt();
        // A kernel's mean is off by `off`. Its variance, summed around that mean, is off relatively by k, and
        // by off^2: the first power cancels, because deviations from the true mean add up to
        // zero; all but a random walk of it where the mean is a running one (Welford).
        let off = sum_slack(c.acc(), truth::nonzero(&x)) * x.iter().map(|v| v.abs()).sum::<f64>() / n as f64;
        let r_relative = k + (off * r).powi(2) + off * r / (n as f64).sqrt();
        for i in 0..n {
            let d = x[i] - mean;
            let slack = (off + r_relative * d.abs()) * r * w[i].abs() + 2.0 * u * b[i].abs();
            // Rounded on the way: the normalised row, and its product with the weight.
            let loose = rounding.of(d * r) * w[i].abs() + rounding.of(d * r * w[i]);
            y.put(d * r * w[i] + b[i], slack, loose);
        }
        means.put(mean, off, 0.0);
        rstds.put(r, r * r_relative, 0.0);
    });
}
