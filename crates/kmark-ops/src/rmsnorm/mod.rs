//! RMSNorm: r = 1/sqrt(mean(x^2) + eps), y = x * r * w, each row on its own.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("rmsnorm"),
    cuda: &[&kernel!("rmsnorm", "01_rows")],
    mutants: plain::MUTANTS,
    loose: plain::LOOSE,
};

const OP: Op = Op {
    name: "rmsnorm",
    about: "y = x * rstd * w with rstd = 1/sqrt(mean(x^2) + eps) per row; rstd saved on request",
    axes: MATRIX,
    attrs: &[
        Attr { name: "w", kind: WEIGHT_DTYPES, default: "same", about: "dtype of the weight" },
        Attr { name: "eps", kind: AttrKind::Positive, default: "1e-6", about: "added to the mean square" },
        Attr { name: "rstd", kind: YES_NO, default: "no", about: "whether rstd is an output" },
        MEMORY,
    ],
    tensors,
    cost: |c, tensors| Cost::of(tensors, 4 * rows_by_columns(c)),
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (m, n, memory) = (c.axis("m"), c.axis("n"), c.attr("memory"));
    let mut t = vec![
        TensorSpec::input("x", c.dtype, &[m, n], Fill::norm_rows(0.0, c.dtype)).laid_out(memory),
        TensorSpec::input("w", c.attr_dtype("w"), &[n], Fill::Normal { mean: 1.0, std: 0.25 }),
        TensorSpec::output("y", c.dtype, &[m, n]).laid_out(memory),
    ];
    if c.flag("rstd") {
        t.push(TensorSpec::output("rstd", c.acc(), &[m]));
    }
    t
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, eps, w) = (c.axis("n"), c.number("eps"), inputs.all("w"));
    let rounding = truth::Rounding::to(c.dtype);
    truth::by_row(c, inputs, sink, ["y", "rstd"], |row, [y, rstd]| {
        let x = inputs.take("x", row * n, n);
        let k = sum_slack(c.acc(), truth::nonzero(&x));
        let r = 1.0 / (truth::sum(x.iter().map(|v| v * v)) / n as f64 + eps).sqrt();
        rstd.put(r, k * r, 0.0);
        for (x, w) in x.iter().zip(&w) {
            // Rounded on the way: x * rstd, and rstd itself.
            let loose = rounding.of(x * r) * w.abs() + rounding.of(x * r * w);
            y.put(x * r * w, k * (x * r * w).abs(), loose);
        }
    });
}
