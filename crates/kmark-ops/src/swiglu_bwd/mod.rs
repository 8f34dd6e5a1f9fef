//! Backward of SwiGLU: the gradients of gate and up.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("swiglu_bwd"),
    cuda: &[&kernel!("swiglu_bwd", "01_vectors")],
    mutants: plain::MUTANTS,
    loose: plain::LOOSE,
};

const OP: Op = Op {
    name: "swiglu-bwd",
    about: "with s = sigmoid(gate): dup = dy * gate * s, dgate = dy * up * s * (1 + gate * (1 - s)); packed: halves of dx",
    axes: MATRIX,
    attrs: &[
        Attr {
            name: "form",
            kind: AttrKind::OneOf(&["separate", "packed"]),
            default: "separate",
            about: "whether gate and up, and their gradients, are tensors of their own or halves of one",
        },
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
    let (m, n, memory) = (c.axis("m"), c.axis("n"), c.attr("memory"));
    let input = |name, n| TensorSpec::input(name, c.dtype, &[m, n], Fill::Rows { mean: 0.0, std: 2.0, shift: 0.0 });
    let output = |name, n| TensorSpec::output(name, c.dtype, &[m, n]);
    let dy = TensorSpec::input("dy", c.dtype, &[m, n], Fill::Normal { mean: 0.0, std: 1.0 });
    let t = if c.attr("form") == "packed" {
        vec![input("x", 2 * n), dy, output("dx", 2 * n)]
    } else {
        vec![input("gate", n), input("up", n), dy, output("dgate", n), output("dup", n)]
    };
    t.into_iter().map(|t| t.laid_out(memory)).collect()
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, u, rounding) = (c.axis("n"), c.acc().unit(), truth::Rounding::to(c.dtype));
    truth::by_row(c, inputs, sink, ["dgate", "dup", "dx"], |row, [dgate, dup, dx]| {
        let (gate, up) = truth::gate_and_up(c, inputs, row);
        let mut halves = [Vec::new(), Vec::new()];
        for ((gate, up), dy) in gate.into_iter().zip(up).zip(inputs.take("dy", row * n, n)) {
            let g = truth::gate(gate, c.acc());
            let loose = g.loose(gate, up, dy, rounding);
            let factor = 1.0 + gate * g.rest;
            // 1 - s is off by what s is off, and is rounded; the sum with 1 may cancel; then three products.
            let factor_off = gate.abs() * (g.sigmoid * g.off + 2.0 * u * g.rest) + u;
            let relative = factor.abs() * (g.off + 3.0 * u) + factor_off;
            let slack = (dy * up).abs() * (g.sigmoid * relative + g.flush * (1.0 + gate.abs()));
            halves[0].push((dy * up * g.sigmoid * factor, slack, loose.0));
            let slack = (dy * gate).abs() * (g.sigmoid * (g.off + 2.0 * u) + g.flush);
            halves[1].push((dy * gate * g.sigmoid, slack, loose.1));
        }
        // A row of dx has first the gradients of the gate, then those of up.
        for (half, out) in halves.iter().zip([dgate, dup]) {
            for (value, slack, loose) in half {
                out.put(*value, *slack, *loose);
                dx.put(*value, *slack, *loose);
            }
        }
    });
}
