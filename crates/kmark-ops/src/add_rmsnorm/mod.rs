//! Residual addition fused with RMSNorm, in place as inference engines run it, or into new tensors.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("add_rmsnorm"),
    cuda: &[&kernel!("add_rmsnorm", "01_rows")],
    mutants: plain::MUTANTS,
    loose: plain::LOOSE,
};

/// The tensors that hold the normalised row and the sum: the inputs themselves in place, else `y` and `z`.
fn outputs(c: &Case) -> (&'static str, &'static str) {
    if c.attr("form") == "inplace" { ("x", "residual") } else { ("y", "z") }
}

const OP: Op = Op {
    name: "add-rmsnorm",
    about: "z = x + residual, y = z * rstd(z) * w with z as it is stored or as it was before; in place y becomes x and z becomes residual",
    axes: MATRIX,
    attrs: &[
        Attr { name: "w", kind: WEIGHT_DTYPES, default: "same", about: "dtype of the weight" },
        Attr { name: "eps", kind: AttrKind::Positive, default: "1e-6", about: "added to the mean square" },
        Attr {
            name: "form",
            kind: AttrKind::OneOf(&["inplace", "out"]),
            default: "inplace",
            about: "whether x and residual are overwritten or y and z written",
        },
        Attr {
            name: "sum",
            kind: AttrKind::OneOf(&["rounded", "exact"]),
            default: "rounded",
            about: "whether y is made from the sum as z holds it or from the sum before it is rounded",
        },
        MEMORY,
    ],
    tensors,
    cost: |c, tensors| Cost::of(tensors, 5 * rows_by_columns(c)),
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (m, n, memory) = (c.axis("m"), c.axis("n"), c.attr("memory"));
    let fill = Fill::norm_rows(0.0, c.dtype);
    let w = TensorSpec::input("w", c.attr_dtype("w"), &[n], Fill::Normal { mean: 1.0, std: 0.25 });
    if c.attr("form") == "inplace" {
        let inout = |name| TensorSpec::inout(name, c.dtype, &[m, n], fill).laid_out(memory);
        return vec![inout("x"), inout("residual"), w];
    }
    let input = |name| TensorSpec::input(name, c.dtype, &[m, n], fill).laid_out(memory);
    let output = |name| TensorSpec::output(name, c.dtype, &[m, n]).laid_out(memory);
    vec![input("x"), input("residual"), w, output("y"), output("z")]
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
