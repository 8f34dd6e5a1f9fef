//! Cross entropy and its backward in one: the gradient of the logits, nothing else leaves the kernel.

mod cpu;

use crate::contract::*;
use crate::plain::softmax;
use crate::truth::classes;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&softmax::RIGHT, softmax::SOURCE), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("cross_entropy_fwd_bwd"),
    cuda: kernels!("cross_entropy_fwd_bwd", "01_kept", "02_cluster", "03_short"),
    mutants: &[softmax::GRADIENTS, softmax::CLASSES_IGNORED, softmax::MAXIMA, &[softmax::TAIL_NOT_SUMMED]],
};

const OP: Op = Op {
    name: "cross-entropy-fwd-bwd",
    about: "dx = dloss * (softmax(x) - onehot(target)) per row; an ignored row is 0",
    axes: classes::AXES,
    attrs: &[classes::IGNORE, MEMORY],
    tensors: |c| [classes::inputs(c), vec![per_row_in(c, "dloss", NORMAL), matrix_out(c, "dx")]].concat(),
    // Maximum, difference, exponential, sum, scale.
    cost: |c, tensors| Cost::of(tensors, 5 * rows_by_columns(c)),
    regions: truth::CLASS_REGIONS,
    invariants: |_| vec![Invariant::RowSum { tensor: "dx", to: 0.0 }],
    oracle,
    ..Op::NEW
};

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let n = c.axis("n");
    let (k, u) = (sum_slack(c.acc(), n), c.acc().unit());
    truth::class_gradients(c, inputs, sink, |row| {
        let x = inputs.take("x", row * n, n);
        let s = truth::softmax(&x);
        let lse = s.lse();
        // As in softmax, with the sum's own share of the rounded arguments; and as in the backward alone, for
        // kernels that go by way of lse, and scale it and x to base 2 each for itself.
        let off = |x: f64| k + u * (truth::ARGUMENT * (s.max - x + x.abs() + lse.abs()) + s.drift);
        x.iter().zip(&s.p).map(|(x, p)| (*p, off(*x))).collect()
    });
}
