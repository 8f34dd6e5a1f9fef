//! Cross entropy of logits against class indices: a loss for each row, and the row's log-sum-exp for the backward.

mod cpu;

use crate::contract::*;
use crate::plain::softmax::{self, How, RIGHT};
use crate::truth::classes;
use std::f64::consts::LN_2;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&softmax::RIGHT, softmax::SOURCE), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("cross_entropy"),
    cuda: kernels!("cross_entropy", "01_online", "02_split", "03_ring"),
    mutants: &[MUTANTS, softmax::CLASSES_IGNORED, softmax::MAXIMA],
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
    [classes::inputs(c), vec![per_row_out(c, "loss"), per_row_out(c, "lse")]].concat()
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

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "ignored-counted",
        about: "the loss of an ignored row is its lse, not zero",
        ..softmax::IGNORED_NOT_ZEROED
    },
    Mutant { about: "the loss takes the logit after the target", ..softmax::TARGET_SHIFTED },
    Mutant::new("pitch-ignored", "rows are read as if they were adjacent, whatever the pitch")
        .of(|right, c, b| {
            let (n, x) = (c.axis("n"), b.get("x"));
            edited(right, b, "lse", move |lse| {
                let (spec, mut adjacent) = (x.spec(), vec![0.0; x.spec().elems()]);
                spec.dtype.decode(&x.read::<u8>()[..spec.elems() * spec.dtype.size()], &mut adjacent);
                for (lse, x) in lse.iter_mut().zip(adjacent.chunks(n)) {
                    *lse = truth::softmax(x).lse();
                }
            })
        })
        .on(|c| c.attr("memory") == "strided" && c.axis("m") > 1),
    Mutant::new("lse-base-two", "the saved lse is a logarithm to base 2; the loss is right")
        .plain(&How { lse: |max, log| (max + log) / LN_2, ..RIGHT }),
    Mutant { about: "lse leaves out the last columns beyond a multiple of 8", ..softmax::TAIL_NOT_SUMMED },
    Mutant::new("maximum-not-added-back", "the saved lse is that of x - max; the loss is right")
        .plain(&How { lse: |_, log| log, ..RIGHT }),
];
