//! Backward of SwiGLU: the gradients of gate and up.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&plain::RIGHT, text!("plain.rs", "mod.rs")), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("swiglu_bwd"),
    cuda: kernels!("swiglu_bwd", "01_vectors"),
    mutants: &[plain::MUTANTS],
};

const OP: Op = Op {
    name: "swiglu-bwd",
    about: "with s = sigmoid(gate): dup = dy * gate * s, dgate = dy * up * s * (1 + gate * (1 - s)); packed: halves of dx",
    attrs: &[
        one_of(
            "form",
            &["separate", "packed"],
            "whether gate and up, and their gradients, are tensors of their own or halves of one",
        ),
        MEMORY,
    ],
    default_configs: &["2048x11008", "8192x14336"],
    tensors,
    // Sigmoid in three; dup in two; dgate in five, dy * s being shared: 1 - s, two sums and products each.
    cost: |c, tensors| Cost::of(tensors, 10 * rows_by_columns(c)),
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let mut t = truth::gate_and_up_tensors(c);
    t.push(matrix_in(c, "dy", NORMAL));
    match c.attr("form") {
        "packed" => t.push(TensorSpec::output("dx", c.dtype, &t[0].shape).laid_out(c.attr("memory"))),
        _ => t.extend([matrix_out(c, "dgate"), matrix_out(c, "dup")]),
    }
    t
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, u, rounding) = (c.axis("n"), c.acc().unit(), truth::Rounding::to(c.dtype));
    truth::by_row(c, inputs, sink, ["dgate", "dup", "dx"], |row, [dgate, dup, dx]| {
        let (gate, up) = truth::gate_and_up(c, inputs, row);
        let (mut of_gate, mut of_up) = (Vec::new(), Vec::new());
        for ((gate, up), dy) in gate.into_iter().zip(up).zip(inputs.take("dy", row * n, n)) {
            let g = truth::gate(gate, c.acc());
            let loose = g.loose(gate, up, dy, rounding);
            let factor = 1.0 + gate * g.rest;
            // 1 - s is off by what s is off, and is rounded; the sum with 1 may cancel; then three products.
            let factor_off = gate.abs() * (g.sigmoid * g.off + 2.0 * u * g.rest) + u;
            let relative = factor.abs() * (g.off + 3.0 * u) + factor_off;
            let slack = (dy * up).abs() * (g.sigmoid * relative + g.flush * (1.0 + gate.abs()));
            of_gate.push((dy * up * g.sigmoid * factor, slack, loose.0));
            let slack = (dy * gate).abs() * (g.sigmoid * (g.off + 2.0 * u) + g.flush);
            of_up.push((dy * gate * g.sigmoid, slack, loose.1));
        }
        // A row of dx has first the gradients of the gate, then those of up.
        for (half, out) in [(of_gate, dgate), (of_up, dup)] {
            for (value, slack, loose) in half {
                out.put(value, slack, loose);
                dx.put(value, slack, loose);
            }
        }
    });
}
