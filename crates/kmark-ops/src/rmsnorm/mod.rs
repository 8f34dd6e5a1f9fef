//! RMSNorm: r = 1/sqrt(mean(x^2) + eps), y = x * r * w, each row on its own.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&plain::RIGHT, text!("plain.rs", "mod.rs")), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("rmsnorm"),
    cuda: kernels!("rmsnorm", "01_rows"),
    mutants: &[plain::MUTANTS],
};

const OP: Op = Op {
    name: "rmsnorm",
    about: "y = x * rstd * w with rstd = 1/sqrt(mean(x^2) + eps) per row; rstd saved on request",
    attrs: &[
        dtype("w", "dtype of the weight"),
        positive("eps", "1e-6", "added to the mean square"),
        yes_no("rstd", "whether rstd is an output"),
        MEMORY,
    ],
    tensors,
    cost: |c, tensors| Cost::of(tensors, 4 * rows_by_columns(c)),
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let mut t = vec![matrix_in(c, "x", Fill::norm_rows(0.0, c.dtype)), weight(c), matrix_out(c, "y")];
    t.extend(c.flag("rstd").then(|| per_row_out(c, "rstd")));
    t
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, eps, w) = (c.axis("n"), c.number("eps"), inputs.all("w"));
    let rounding = truth::Rounding::to(c.dtype);
    truth::by_row(c, inputs, sink, ["y", "rstd"], |row, [y, rstd]| {
        let x = inputs.take("x", row * n, n);
        let k = sum_slack(c.acc(), truth::nonzero(&x));
        let r = truth::norms::rms_rstd(&x, eps);
        rstd.put(r, k * r, 0.0);
        for (x, w) in x.iter().zip(&w) {
            // Rounded on the way: x * rstd, and rstd itself.
            let loose = rounding.of(x * r) * w.abs() + rounding.of(x * r * w);
            y.put(x * r * w, k * (x * r * w).abs(), loose);
        }
    });
}
