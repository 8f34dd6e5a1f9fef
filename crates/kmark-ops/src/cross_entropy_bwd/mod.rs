//! Backward of cross entropy, from the saved log-sum-exp.

mod cpu;

use crate::contract::*;
use crate::plain::softmax::{self, How, RIGHT};
use crate::truth::{classes, exp_of_difference};
use std::f64::consts::LN_2;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&softmax::RIGHT, softmax::SOURCE), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("cross_entropy_bwd"),
    cuda: kernels!("cross_entropy_bwd", "01_tiles"),
    mutants: &[softmax::GRADIENTS, softmax::CLASSES_IGNORED, &[LSE_BASE_TWO]],
};

const OP: Op = Op {
    name: "cross-entropy-bwd",
    about: "dx = dloss * (exp(x - lse) - onehot(target)) per row, lse as the forward saved it; an ignored row is 0",
    axes: classes::AXES,
    attrs: &[classes::IGNORE, MEMORY],
    tensors,
    // Difference, exponential, scale.
    cost: |c, tensors| Cost::of(tensors, 3 * rows_by_columns(c)),
    derive,
    regions: truth::CLASS_REGIONS,
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let of_rows = [per_row_in(c, "dloss", NORMAL), per_row_in(c, "lse", Fill::Derived), matrix_out(c, "dx")];
    [classes::inputs(c), of_rows.into()].concat()
}

fn derive(c: &Case, _: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let n = c.axis("n");
    for (row, lse) in rows.zip(out) {
        *lse = truth::softmax(&inputs.take("x", row * n, n)).lse();
    }
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, u, lse) = (c.axis("n"), c.acc().unit(), inputs.all("lse"));
    truth::class_gradients(c, inputs, sink, |row| {
        let (x, lse) = (inputs.take("x", row * n, n), lse[row]);
        // A few roundings, and the rounded argument of exp: kernels scale x and lse to base 2 each for itself.
        let off = |x: f64| u * (8.0 + truth::ARGUMENT * (x.abs() + lse.abs()));
        x.iter().map(|x| (exp_of_difference(*x, lse), off(*x))).collect()
    });
}

const LSE_BASE_TWO: Mutant = Mutant::new("lse-base-two", "the saved lse is taken for a logarithm to base 2")
    .plain(&How { exp: |x, lse| exp_of_difference(x, lse * LN_2), ..RIGHT });
