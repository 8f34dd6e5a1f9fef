//! Cross entropy of logits against class indices: a loss for each row, and the row's log-sum-exp for the backward.

mod cpu;
mod mutants;

use crate::cuda::{kernel, oracle};
use crate::{Entry, truth};
use kmark_core::case::Case;
use kmark_core::cost::Cost;
use kmark_core::dtype::DType;
use kmark_core::fill::Fill;
use kmark_core::gate::{Sink, sum_slack};
use kmark_core::op::{Attr, AttrKind, Axis, MEMORY, Op, rows_by_columns};
use kmark_core::tensor::{TensorSpec, View};

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
    axes: &[Axis { name: "m", about: "rows", tries: &[] }, Axis { name: "n", about: "classes", tries: &[] }],
    attrs: &[
        Attr { name: "ignore", kind: AttrKind::Integer, default: "-100", about: "target of a row that is ignored" },
        MEMORY,
    ],
    tensors,
    // Maximum, difference, exponential, sum.
    cost: |c, tensors| Cost::of(tensors, 4 * rows_by_columns(c)),
    regions: &["counted", "ignored"],
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let classes = Fill::Classes { classes: n, ignore: c.number("ignore") as i64 };
    let x = TensorSpec::input("x", c.dtype, &[m, n], Fill::logits(c.dtype));
    vec![
        x.laid_out(c.attr("memory")),
        TensorSpec::input("target", DType::I64, &[m], classes),
        TensorSpec::output("loss", c.acc(), &[m]),
        TensorSpec::output("lse", c.acc(), &[m]),
    ]
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
