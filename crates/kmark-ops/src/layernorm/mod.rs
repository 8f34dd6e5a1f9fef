//! LayerNorm (Ba et al. 2016) over each row, with the biased variance.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&plain::RIGHT, text!("plain.rs", "mod.rs")), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("layernorm"),
    cuda: kernels!("layernorm", "01_rows"),
    mutants: &[plain::MUTANTS],
};

const OP: Op = Op {
    name: "layernorm",
    about: "y = (x - mean) * rstd * w + b with rstd = 1/sqrt(var + eps) per row; bias, saved mean and rstd on request",
    attrs: &[
        dtype("w", "dtype of weight and bias"),
        positive("eps", "1e-6", "added to the variance"),
        yes_no("bias", "whether there is a bias"),
        yes_no("stats", "whether mean and rstd are outputs"),
        MEMORY,
    ],
    tensors,
    // Sum; difference, square and sum; scale, weight, and the bias.
    cost: |c, tensors| Cost::of(tensors, (6 + u64::from(c.flag("bias"))) * rows_by_columns(c)),
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    // Off centre, so that a missing mean shows.
    let mut t = vec![matrix_in(c, "x", Fill::norm_rows(0.5, c.dtype)), weight(c)];
    if c.flag("bias") {
        t.push(TensorSpec::input("b", c.attr_dtype("w"), &[c.axis("n")], Fill::Normal { mean: 0.0, std: 0.25 }));
    }
    t.push(matrix_out(c, "y"));
    if c.flag("stats") {
        t.extend(["mean", "rstd"].map(|name| per_row_out(c, name)));
    }
    t
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, eps, w) = (c.axis("n"), c.number("eps"), inputs.all("w"));
    let b = if c.flag("bias") { inputs.all("b") } else { vec![0.0; n] };
    let (k, u) = (sum_slack(c.acc(), n), c.acc().unit());
    let rounding = truth::Rounding::to(c.dtype);
    truth::by_row(c, inputs, sink, ["y", "mean", "rstd"], |row, [y, means, rstds]| {
        let x = inputs.take("x", row * n, n);
        let mean = truth::norms::mean(&x);
        let r = 1.0 / (truth::norms::variance(&x, mean) + eps).sqrt();
        // A kernel's mean is off by `off`: a running one (Welford) is rounded at every element, zeros among them, and
        // where a part of few elements is merged into one of many, at the size of the few. Its variance, summed around
        // that mean, is off relatively by k, and by off^2: the first power cancels, because deviations from the true mean
        // add up to zero; all but a random walk of it where the mean is a running one.
        let (sum, most) = x.iter().fold((0.0, 0.0), |(sum, most): (f64, f64), v| (sum + v.abs(), most.max(v.abs())));
        let off = k * sum / n as f64 + 2.0 * u * most;
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
