//! Rows times a number: y = a * x.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&plain::RIGHT, text!("plain.rs")), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("scale"),
    cuda: &[],
    mutants: &[plain::MUTANTS],
};

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
    vec![
        matrix_in(c, "x", Fill::norm_rows(0.0, c.dtype)),
        TensorSpec::input("a", c.dtype, &[1], Fill::Normal { mean: 1.5, std: 0.1 }),
        matrix_out(c, "y"),
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
