//! Backward of cross entropy, from the saved log-sum-exp.

mod cpu;
mod mutants;

use crate::cuda::{kernel, oracle};
use crate::{Entry, truth};
use kmark_core::case::Case;
use kmark_core::cost::Cost;
use kmark_core::dtype::DType;
use kmark_core::fill::Fill;
use kmark_core::gate::Sink;
use kmark_core::op::{Attr, AttrKind, Axis, MEMORY, Op, rows_by_columns};
use kmark_core::tensor::{TensorSpec, View};
use std::ops::Range;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("cross_entropy_bwd"),
    cuda: &[&kernel!("cross_entropy_bwd", "01_tiles")],
    mutants: mutants::MUTANTS,
    loose: mutants::LOOSE,
};

const OP: Op = Op {
    name: "cross-entropy-bwd",
    about: "dx = dloss * (exp(x - lse) - onehot(target)) per row, lse as the forward saved it; an ignored row is 0",
    axes: &[Axis { name: "m", about: "rows", tries: &[] }, Axis { name: "n", about: "classes", tries: &[] }],
    attrs: &[
        Attr { name: "ignore", kind: AttrKind::Integer, default: "-100", about: "target of a row that is ignored" },
        MEMORY,
    ],
    tensors,
    // Difference, exponential, scale.
    cost: |c, tensors| Cost::of(tensors, 3 * rows_by_columns(c)),
    derive,
    regions: truth::CLASS_REGIONS,
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let classes = Fill::Classes { classes: n, ignore: c.number("ignore") as i64 };
    vec![
        TensorSpec::input("x", c.dtype, &[m, n], Fill::logits(c.dtype)).laid_out(c.attr("memory")),
        TensorSpec::input("target", DType::I64, &[m], classes),
        TensorSpec::input("dloss", c.acc(), &[m], Fill::Normal { mean: 0.0, std: 1.0 }),
        TensorSpec::input("lse", c.acc(), &[m], Fill::Derived),
        TensorSpec::output("dx", c.dtype, &[m, n]).laid_out(c.attr("memory")),
    ]
}

fn derive(c: &Case, _: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let n = c.axis("n");
    for (row, lse) in rows.zip(out) {
        let s = truth::softmax(&inputs.take("x", row * n, n));
        *lse = s.max + s.total.ln();
    }
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, u, lse) = (c.axis("n"), c.acc().unit(), inputs.all("lse"));
    truth::class_gradients(c, inputs, sink, |row| {
        let (x, lse) = (inputs.take("x", row * n, n), lse[row]);
        // A few roundings, and the rounded argument of exp: kernels scale x and lse to base 2 each for itself.
        let off = |x: f64| u * (8.0 + truth::ARGUMENT * (x.abs() + lse.abs()));
        x.iter().map(|x| (truth::exp_of_difference(*x, lse), off(*x))).collect()
    });
}
