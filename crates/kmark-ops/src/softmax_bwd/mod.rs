//! Backward of softmax, from its saved output.

mod cpu;

use crate::contract::*;
use crate::plain::softmax::{self, How, RIGHT, Rounded};
use kmark_core::inputs;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&softmax::RIGHT, softmax::SOURCE), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("softmax_bwd"),
    cuda: kernels!("softmax_bwd", "01_rows"),
    mutants: &[MUTANTS],
};

const OP: Op = Op {
    name: "softmax-bwd",
    about: "dx = y * (dy - sum(dy * y)) per row, y as softmax saved it",
    attrs: &[MEMORY],
    distinct_rows: Some(|c| c.axis("m")),
    tensors: |c| vec![matrix_in(c, "y", Fill::Derived), matrix_in(c, "dy", NORMAL), matrix_out(c, "dx")],
    // Product and sum; difference and product.
    cost: |c, tensors| Cost::of(tensors, 4 * rows_by_columns(c)),
    derive,
    // Rows of dx add up to zero as far as those of y add up to one, which 16 bits do not say well enough.
    invariants: |c| (c.dtype == c.acc()).then_some(Invariant::RowSum { tensor: "dx", to: 0.0 }).into_iter().collect(),
    oracle,
    ..Op::NEW
};

/// The softmax of logits that are no tensor of this op, but distributed as those of the forward op are.
fn derive(c: &Case, _: &str, _: &View, rows: Range<usize>, out: &mut [f64]) {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let logits = TensorSpec::input("logits", c.dtype, &[m, n], Fill::logits(c.dtype));
    inputs::values(&logits, c.seed, rows.start * n, out);
    for row in out.chunks_mut(n) {
        row.copy_from_slice(&truth::softmax(row).p);
    }
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

const MUTANTS: &[Mutant] = &[
    Mutant::new("dot-missing", "dx = y * dy, the diagonal of the Jacobian alone").plain(&How { dot: |_| 0.0, ..RIGHT }),
    Mutant {
        about: "the sum leaves out the last columns beyond a multiple of 8",
        spoil: Spoil::Plain(&How { dot: softmax::add_without_tail, ..RIGHT }),
        ..softmax::TAIL_NOT_SUMMED
    },
    Mutant::new(
        "small-values-flushed",
        "gradients below 1e-4 become zero, which a fixed tolerance of 1e-2 does not see",
    )
    .of(|right, _, b| edited(right, b, "dx", |dx| dx.iter_mut().filter(|v| v.abs() < 1e-4).for_each(|v| *v = 0.0)))
    .on(|c| c.axis("n") > 100),
    shared::PITCH_IGNORED,
    Mutant::loose("dot-in-half", "the sum is rounded to the 16-bit type before it is subtracted")
        .plain(&How { rounded: Rounded::Dot, ..RIGHT })
        .on(shared::rounds),
    Mutant::loose(
        "products-rounded",
        "each dy * y is rounded to the 16-bit type, in the sum and before the difference",
    )
    .plain(&How { rounded: Rounded::Products, ..RIGHT })
    .on(shared::rounds),
];
