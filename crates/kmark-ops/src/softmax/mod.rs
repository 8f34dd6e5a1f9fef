//! Softmax over each row.

mod cpu;

use crate::contract::*;
use crate::plain::softmax;
use std::cell::RefCell;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&softmax::RIGHT, softmax::SOURCE), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("softmax"),
    cuda: kernels!("softmax", "01_rows"),
    mutants: &[MUTANTS, softmax::MAXIMA],
};

const OP: Op = Op {
    name: "softmax",
    about: "y = exp(x - max) / sum(exp(x - max)) per row",
    attrs: &[MEMORY],
    // Logits as a trained model has them: some columns matter, most do not.
    tensors: |c| vec![matrix_in(c, "x", Fill::logits(c.dtype)), matrix_out(c, "y")],
    // Maximum, difference, exponential, sum, division.
    cost: |c, tensors| Cost::of(tensors, 5 * rows_by_columns(c)),
    invariants: |_| vec![Invariant::RowSum { tensor: "y", to: 1.0 }],
    oracle,
    ..Op::NEW
};

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let n = c.axis("n");
    let k = sum_slack(c.acc(), n);
    truth::by_row(c, inputs, sink, ["y"], |row, [y]| {
        let x = inputs.take("x", row * n, n);
        let s = truth::softmax(&x);
        x.iter().zip(&s.p).for_each(|(x, p)| y.put(*p, s.off(*x, *p, k, c.acc()), 0.0));
    });
}

const MUTANTS: &[Mutant] = &[
    Mutant::new("last-column-stale", "the last element of every row is what an earlier launch left there").of(
        |right, c, b| {
            let n = c.axis("n");
            let kept = RefCell::new(None::<Vec<f64>>);
            edited(right, b, "y", move |y| {
                let mut kept = kept.borrow_mut();
                let old = kept.get_or_insert_with(|| y.iter().skip(n - 1).step_by(n).copied().collect());
                // With one column every answer is 1; there the stale value is the poison of the output.
                for (row, v) in old.iter().enumerate() {
                    y[row * n + n - 1] = if n == 1 { f64::NAN } else { *v };
                }
            })
        },
    ),
    Mutant { about: "the sum leaves out the last columns beyond a multiple of 8", ..softmax::TAIL_NOT_SUMMED },
    softmax::BASE_TWO,
    Mutant::new(
        "small-values-flushed",
        "probabilities below 1e-3 become zero, which a fixed tolerance of 1e-2 does not see",
    )
    .of(|right, _, b| edited(right, b, "y", |y| y.iter_mut().filter(|v| **v < 1e-3).for_each(|v| *v = 0.0)))
    .on(|c| c.axis("n") > 100),
    shared::PITCH_IGNORED,
];
