//! Residual addition fused with RMSNorm, in place as inference engines run it, or into new tensors.

mod cpu;
mod plain;

use crate::contract::*;
use kmark_core::tensor::Role;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&plain::RIGHT, text!("plain.rs", "mod.rs")), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("add_rmsnorm"),
    cuda: kernels!("add_rmsnorm", "01_rows"),
    mutants: &[plain::MUTANTS],
};

/// The tensors that hold the normalised row and the sum: the inputs themselves in place, else `y` and `z`.
fn outputs(c: &Case) -> (&'static str, &'static str) {
    if c.attr("form") == "inplace" { ("x", "residual") } else { ("y", "z") }
}

const OP: Op = Op {
    name: "add-rmsnorm",
    about: "z = x + residual, y = z * rstd(z) * w with z as it is stored or as it was before; in place y becomes x and z becomes residual",
    attrs: &[
        dtype("w", "dtype of the weight"),
        positive("eps", "1e-6", "added to the mean square"),
        one_of("form", &["inplace", "out"], "whether x and residual are overwritten or y and z written"),
        one_of(
            "sum",
            &["rounded", "exact"],
            "whether y is made from the sum as z holds it or from the sum before it is rounded",
        ),
        MEMORY,
    ],
    tensors,
    cost: |c, tensors| Cost::of(tensors, 5 * rows_by_columns(c)),
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let [x, residual] = ["x", "residual"].map(|name| matrix_in(c, name, Fill::norm_rows(0.0, c.dtype)));
    if c.attr("form") == "inplace" {
        let [x, residual] = [x, residual].map(|t| TensorSpec { role: Role::InOut, ..t });
        return vec![x, residual, weight(c)];
    }
    vec![x, residual, weight(c), matrix_out(c, "y"), matrix_out(c, "z")]
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, eps, w) = (c.axis("n"), c.number("eps"), inputs.all("w"));
    let rounds = c.attr("sum") == "rounded";
    let rounding = truth::Rounding::to(c.dtype);
    truth::by_row(c, inputs, sink, outputs(c).into(), |row, [y, z]| {
        let (x, residual) = (inputs.take("x", row * n, n), inputs.take("residual", row * n, n));
        let sum: Vec<f64> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
        let normed: Vec<f64> = sum.iter().map(|z| if rounds { c.dtype.round(*z) } else { *z }).collect();
        let k = sum_slack(c.acc(), truth::nonzero(&normed));
        let squares = truth::sum(normed.iter().map(|v| v * v)) + n as f64 * eps;
        let r = 1.0 / (squares / n as f64).sqrt();
        // The mean square, if the sum or the squares are rounded on the way.
        let off = normed.iter().map(|z| rounding.square(z * z)).sum::<f64>().sqrt() / squares;
        for (z, w) in normed.iter().zip(&w) {
            let expect = z * r * w;
            let loose = rounding.of(z * r) * w.abs() + rounding.of(expect) + 1.25 * expect.abs() * off;
            y.put(expect, k * expect.abs(), loose);
        }
        // One addition and one rounding. A sum in f32 on the way does no harm: with 24 bits, at least twice the 11
        // of f16 and two more, rounding twice is rounding once.
        sum.iter().for_each(|sum| z.put(*sum, 0.0, 0.0));
    });
}
