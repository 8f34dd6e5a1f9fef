//! Backward of SwiGLU: the gradients of gate and up.

mod cpu;
mod mutants;

use crate::cuda::{kernel, oracle};
use crate::{Entry, truth};
use kmark_core::case::Case;
use kmark_core::cost::Cost;
use kmark_core::fill::Fill;
use kmark_core::gate::{Block, Region, Sink};
use kmark_core::op::{Attr, AttrKind, MATRIX, MEMORY, Op, by_rows, rows_by_columns};
use kmark_core::tensor::{TensorSpec, View};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("swiglu_bwd"),
    cuda: &[&kernel!(
        "swiglu_bwd",
        "01_vectors",
        "Two vectors of each of gate, up and dy per thread, both gradients from one sigmoid"
    )],
    mutants: mutants::MUTANTS,
    loose: mutants::LOOSE,
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
    let (m, n, u) = (c.axis("m"), c.axis("n"), c.acc().unit());
    let (region, rounding) = (Region::One(0), truth::Rounding::to(c.dtype));
    by_rows(m, n, |rows| {
        for row in rows {
            let (gate, up) = truth::gate_and_up(c, inputs, row);
            let dy = inputs.take("dy", row * n, n);
            // First the gradients of the gate, then those of up: a row of dx.
            let (mut dx, mut slack, mut loose) = (vec![0.0; 2 * n], vec![0.0; 2 * n], vec![0.0; 2 * n]);
            for i in 0..n {
                let (gate, up, dy) = (gate[i], up[i], dy[i]);
                let g = truth::gate(gate, c.acc());
                let factor = 1.0 + gate * g.rest;
                dx[i] = dy * up * g.sigmoid * factor;
                // 1 - s is off by what s is off, and is rounded; the sum with 1 may cancel; then three products.
                let factor_off = gate.abs() * (g.sigmoid * g.off + 2.0 * u * g.rest) + u;
                let relative = factor.abs() * (g.off + 3.0 * u) + factor_off;
                slack[i] = (dy * up).abs() * (g.sigmoid * relative + g.flush * (1.0 + gate.abs()));
                dx[n + i] = dy * gate * g.sigmoid;
                slack[n + i] = (dy * gate).abs() * (g.sigmoid * (g.off + 2.0 * u) + g.flush);
                (loose[i], loose[n + i]) = g.loose(gate, up, dy, rounding);
            }
            if c.attr("form") == "packed" {
                let (start, loose) = (row * 2 * n, rounding.loose(&loose));
                sink.put(Block { tensor: "dx", start, expect: &dx, slack: &slack, loose, region });
            } else {
                let (start, dx, slack) = (row * n, dx.split_at(n), slack.split_at(n));
                let loose = [&loose[..n], &loose[n..]].map(|half| rounding.loose(half));
                sink.put(Block { tensor: "dgate", start, expect: dx.0, slack: slack.0, loose: loose[0], region });
                sink.put(Block { tensor: "dup", start, expect: dx.1, slack: slack.1, loose: loose[1], region });
            }
        }
    });
}
