//! SwiGLU (Shazeer 2020): a gate that opens by its own sigmoid, times another projection.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&plain::RIGHT, text!("plain.rs", "mod.rs")), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("swiglu"),
    cuda: kernels!("swiglu", "01_vectors"),
    mutants: &[plain::MUTANTS],
};

const OP: Op = Op {
    name: "swiglu",
    about: "y = gate * sigmoid(gate) * up; packed: gate and up are the first and the last n columns of x",
    attrs: &[
        one_of("form", &["separate", "packed"], "whether gate and up are tensors of their own or halves of one"),
        MEMORY,
    ],
    default_configs: &["2048x11008", "8192x14336"],
    tensors,
    // Exponential, sum, division; two products.
    cost: |c, tensors| Cost::of(tensors, 5 * rows_by_columns(c)),
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let mut t = truth::gate_and_up_tensors(c);
    t.push(matrix_out(c, "y"));
    t
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (u, rounding) = (c.acc().unit(), truth::Rounding::to(c.dtype));
    truth::by_row(c, inputs, sink, ["y"], |row, [y]| {
        let (gate, up) = truth::gate_and_up(c, inputs, row);
        for (gate, up) in gate.iter().zip(&up) {
            let g = truth::gate(*gate, c.acc());
            // The sigmoid, then two products.
            let slack = (gate * up).abs() * (g.sigmoid * (g.off + 2.0 * u) + g.flush);
            // Rounded on the way: the sigmoid, and its product with the gate.
            let loose = rounding.of(gate * g.sigmoid) * up.abs() + rounding.of(g.sigmoid) * (gate * up).abs();
            y.put(gate * g.sigmoid * up, slack, loose);
        }
    });
}
