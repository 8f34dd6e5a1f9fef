//! Softmax over each row.

mod cpu;
mod mutants;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("softmax"),
    cuda: &[&kernel!("softmax", "01_rows")],
    mutants: mutants::MUTANTS,
    loose: &[],
};

const OP: Op = Op {
    name: "softmax",
    about: "y = exp(x - max) / sum(exp(x - max)) per row",
    axes: MATRIX,
    attrs: &[MEMORY],
    tensors,
    // Maximum, difference, exponential, sum, division.
    cost: |c, tensors| Cost::of(tensors, 5 * rows_by_columns(c)),
    invariants,
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (shape, memory) = ([c.axis("m"), c.axis("n")], c.attr("memory"));
    // Logits as a trained model has them: some columns matter, most do not.
    let x = TensorSpec::input("x", c.dtype, &shape, Fill::logits(c.dtype));
    vec![x.laid_out(memory), TensorSpec::output("y", c.dtype, &shape).laid_out(memory)]
}

fn invariants(_: &Case) -> Vec<Invariant> {
    vec![Invariant::RowSum { tensor: "y", to: 1.0 }]
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let n = c.axis("n");
    let k = sum_slack(c.acc(), n);
    truth::by_row(c, inputs, sink, ["y"], |row, [y]| {
        let x = inputs.take("x", row * n, n);
        let s = truth::softmax(&x);
        x.iter().zip(&s.p).for_each(|(x, p)| y.put(*p, s.off(*x, *p, k, c.acc()), 0.0));
    });
}
