//! Backward of softmax, from its saved output.

mod cpu;
mod mutants;

use crate::contract::*;
use kmark_core::inputs;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("softmax_bwd"),
    cuda: &[&kernel!("softmax_bwd", "01_rows")],
    mutants: mutants::MUTANTS,
    loose: mutants::LOOSE,
};

const OP: Op = Op {
    name: "softmax-bwd",
    about: "dx = y * (dy - sum(dy * y)) per row, y as softmax saved it",
    axes: MATRIX,
    attrs: &[MEMORY],
    distinct_rows: Some(distinct_rows),
    tensors,
    // Product and sum; difference and product.
    cost: |c, tensors| Cost::of(tensors, 4 * rows_by_columns(c)),
    derive,
    invariants,
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (shape, memory) = ([c.axis("m"), c.axis("n")], c.attr("memory"));
    vec![
        TensorSpec::input("y", c.dtype, &shape, Fill::Derived).laid_out(memory),
        TensorSpec::input("dy", c.dtype, &shape, Fill::Normal { mean: 0.0, std: 1.0 }).laid_out(memory),
        TensorSpec::output("dx", c.dtype, &shape).laid_out(memory),
    ]
}

/// The softmax of logits that are no tensor of this op, but distributed as those of the forward op are.
fn derive(c: &Case, _: &str, _: &View, rows: Range<usize>, out: &mut [f64]) {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let logits = TensorSpec::input("logits", c.dtype, &[m, n], Fill::logits(c.dtype));
    inputs::values(&logits, c.seed, rows.start * n, out);
    for row in out.chunks_mut(n) {
        row.copy_from_slice(&truth::softmax(row).p);
    }
}

fn distinct_rows(c: &Case) -> usize {
    c.axis("m")
}

fn invariants(c: &Case) -> Vec<Invariant> {
    // Rows of dx add up to zero as far as those of y add up to one, which 16 bits do not say well enough.
    if c.dtype == c.acc() { vec![Invariant::RowSum { tensor: "dx", to: 0.0 }] } else { Vec::new() }
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, rounding) = (c.axis("n"), truth::Rounding::to(c.dtype));
    truth::by_row(c, inputs, sink, ["dx"], |row, [dx]| {
        let (y, dy) = (inputs.take("y", row * n, n), inputs.take("dy", row * n, n));
        let k = sum_slack(c.acc(), truth::nonzero(&y));
        let dot = truth::dot(&y, &dy);
        let size: f64 = y.iter().zip(&dy).map(|(y, dy)| y * dy.abs()).sum();
        let dot_off = truth::loose_dot(&y, &dy, rounding);
        for (y, dy) in y.iter().zip(&dy) {
            // What is below the normal numbers may be flushed, y or a product of it.
            let slack = k * y * (dy.abs() + size) + truth::least(c.acc()) * (1.0 + dy.abs() + size);
            // Rounded on the way: the product, the sum, the difference.
            let loose = rounding.of(y * dy) + y * (dot_off + rounding.of(dy - dot));
            dx.put(y * (dy - dot), slack, loose);
        }
    });
}
