//! Softmax over each row.

mod cpu;
mod mutants;

use crate::cuda::{kernel, oracle};
use crate::{Entry, truth};
use kmark_core::case::Case;
use kmark_core::cost::Cost;
use kmark_core::fill::Fill;
use kmark_core::gate::{Block, Invariant, Region, Sink, sum_slack};
use kmark_core::op::{Attr, Axis, MATRIX, MEMORY, Op, by_rows};
use kmark_core::tensor::{TensorSpec, View};

pub const ENTRY: Entry = Entry {
    op: &Softmax,
    cpu: cpu::IMPLS,
    cuda: &[&kernel!(
        "softmax",
        "01_rows",
        "A row in the registers of a block, a short one in those of a warp or less: maximum, sum, result in one pass over memory"
    )],
    mutants: mutants::MUTANTS,
    loose: &[],
};

struct Softmax;

impl Op for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }
    fn cuda_oracle(&self) -> &'static str {
        oracle!("softmax")
    }
    fn about(&self) -> &'static str {
        "y = exp(x - max) / sum(exp(x - max)) per row"
    }
    fn axes(&self) -> &'static [Axis] {
        MATRIX
    }
    fn attrs(&self) -> &'static [Attr] {
        &[MEMORY]
    }
    fn tensors(&self, c: &Case) -> Vec<TensorSpec> {
        let (shape, memory) = ([c.axis("m"), c.axis("n")], c.attr("memory"));
        // Logits as a trained model has them: some columns matter, most do not.
        let x = TensorSpec::input("x", c.dtype, &shape, Fill::logits(c.dtype));
        vec![x.laid_out(memory), TensorSpec::output("y", c.dtype, &shape).laid_out(memory)]
    }
    fn cost(&self, c: &Case) -> Cost {
        let (m, n, e) = (c.axis("m") as u64, c.axis("n") as u64, c.dtype.size() as u64);
        // Maximum, difference, exponential, sum, division.
        Cost { bytes_read: m * n * e, bytes_written: m * n * e, flops: 5 * m * n }
    }
    fn invariants(&self, _: &Case) -> Vec<Invariant> {
        vec![Invariant::RowSum { tensor: "y", to: 1.0 }]
    }
    fn oracle(&self, c: &Case, inputs: &View, sink: &dyn Sink) {
        let (m, n) = (c.axis("m"), c.axis("n"));
        let k = sum_slack(c.acc(), n);
        by_rows(m, n, |rows| {
            let (mut y, mut slack) = (Vec::new(), Vec::new());
            for row in rows.clone() {
                let x = inputs.take("x", row * n, n);
                let s = truth::softmax(&x);
                slack.extend(x.iter().zip(&s.p).map(|(x, p)| s.off(*x, *p, k, c.acc())));
                y.extend(s.p);
            }
            let region = Region::One(0);
            sink.put(Block { tensor: "y", start: rows.start * n, expect: &y, slack: &slack, loose: &[], region });
        });
    }
}
