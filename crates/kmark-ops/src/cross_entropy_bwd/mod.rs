//! Backward of cross entropy, from the saved log-sum-exp.

mod cpu;
mod mutants;

use crate::contract::*;
use crate::truth::classes;

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
    let lse = TensorSpec::input("lse", c.acc(), &[c.axis("m")], Fill::Derived);
    [classes::inputs(c), vec![classes::dloss(c), lse, classes::dx(c)]].concat()
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
