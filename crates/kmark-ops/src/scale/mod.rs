//! Rows times a number: y = a * x.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry =
    Entry { op: &OP, cpu: cpu::IMPLS, oracle: oracle!("scale"), cuda: &[], mutants: plain::MUTANTS, loose: &[] };

const OP: Op = Op {
    name: "scale",
    about: "y = a * x",
    attrs: &[MEMORY],
    tensors,
    cost: |c, tensors| Cost::of(tensors, rows_by_columns(c)),
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (shape, memory) = ([c.axis("m"), c.axis("n")], c.attr("memory"));
    vec![
        TensorSpec::input("x", c.dtype, &shape, Fill::norm_rows(0.0, c.dtype)).laid_out(memory),
        TensorSpec::input("a", c.dtype, &[1], Fill::Normal { mean: 1.5, std: 0.1 }),
        TensorSpec::output("y", c.dtype, &shape).laid_out(memory),
    ]
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, a) = (c.axis("n"), inputs.all("a")[0]);
    truth::by_row(c, inputs, sink, ["y"], |row, [y]| {
        for x in inputs.take("x", row * n, n) {
            // One rounding in the accumulator before the final one; nothing to round on the way.
            y.put(a * x, c.acc().unit() * (a * x).abs(), 0.0);
        }
    });
}
