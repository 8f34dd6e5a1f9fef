//! Cross entropy of logits against class indices: a loss for each row, and the row's log-sum-exp for the backward.

mod cpu;
mod mutants;

use crate::contract::*;
use crate::truth::classes;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("cross_entropy"),
    cuda: &[&kernel!("cross_entropy", "01_online")],
    mutants: mutants::MUTANTS,
    loose: &[],
};

const COUNTED: u8 = 0;
const IGNORED: u8 = 1;

const OP: Op = Op {
    name: "cross-entropy",
    about: "lse = log(sum(exp(x))) and loss = lse - x[target] per row; the loss of an ignored row is 0",
    axes: classes::AXES,
    attrs: &[classes::IGNORE, MEMORY],
    tensors,
    // Maximum, difference, exponential, sum.
    cost: |c, tensors| Cost::of(tensors, 4 * rows_by_columns(c)),
    regions: &["counted", "ignored"],
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let output = |name| TensorSpec::output(name, c.acc(), &[c.axis("m")]);
    [classes::inputs(c), vec![output("loss"), output("lse")]].concat()
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, ignore, target) = (c.axis("n"), c.number("ignore"), inputs.all("target"));
    let (k, u) = (sum_slack(c.acc(), n), c.acc().unit());
    truth::by_row(c, inputs, sink, ["loss", "lse"], |row, [loss, lse]| {
        let x = inputs.take("x", row * n, n);
        let s = truth::softmax(&x);
        let log = s.total.ln();
        // The sum is off by k relatively and by the rounded arguments of exp; then a logarithm and a sum.
        let off = k + u * (s.drift + 2.0 * (s.max.abs() + log));
        let region = if target[row] == ignore { IGNORED } else { COUNTED };
        lse.put_in(region, s.max + log, off, 0.0);
        if region == IGNORED {
            loss.put_in(region, 0.0, 0.0, 0.0);
        } else {
            let x = x[target[row] as usize];
            loss.put_in(region, log + (s.max - x), off + u * ((s.max + log).abs() + x.abs()), 0.0);
        }
    });
}
