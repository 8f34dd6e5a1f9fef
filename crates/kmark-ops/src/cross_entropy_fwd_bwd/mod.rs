//! Cross entropy and its backward in one: the gradient of the logits, nothing else leaves the kernel.

mod cpu;
mod mutants;

use crate::contract::*;
use crate::truth::classes;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("cross_entropy_fwd_bwd"),
    cuda: &[&kernel!("cross_entropy_fwd_bwd", "01_kept")],
    mutants: mutants::MUTANTS,
    loose: mutants::LOOSE,
};

const OP: Op = Op {
    name: "cross-entropy-fwd-bwd",
    about: "dx = dloss * (softmax(x) - onehot(target)) per row; an ignored row is 0",
    axes: classes::AXES,
    attrs: &[classes::IGNORE, MEMORY],
    tensors,
    // Maximum, difference, exponential, sum, scale.
    cost: |c, tensors| Cost::of(tensors, 5 * rows_by_columns(c)),
    regions: truth::CLASS_REGIONS,
    invariants,
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    [classes::inputs(c), vec![classes::dloss(c), classes::dx(c)]].concat()
}

fn invariants(_: &Case) -> Vec<Invariant> {
    vec![Invariant::RowSum { tensor: "dx", to: 0.0 }]
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let n = c.axis("n");
    let (k, u) = (sum_slack(c.acc(), n), c.acc().unit());
    truth::class_gradients(c, inputs, sink, |row| {
        let x = inputs.take("x", row * n, n);
        let s = truth::softmax(&x);
        let lse = s.max + s.total.ln();
        // As in softmax, with the sum's own share of the rounded arguments; and as in the backward alone, for
        // kernels that go by way of lse, and scale it and x to base 2 each for itself.
        let off = |x: f64| k + u * (truth::ARGUMENT * (s.max - x + x.abs() + lse.abs()) + s.drift);
        x.iter().zip(&s.p).map(|(x, p)| (*p, off(*x))).collect()
    });
}
