//! Backward of RMSNorm: the gradients of the input and of the weight, from the saved rstd.
//!
//! On an H200 (evidence/h200/tuned, norm-bwd-clusters) `03_cluster` takes 102 µs for 1024 × 65536 in bf16 (3.95 TB/s), `01_rows`, which
//! reads such rows twice, 214; f32 199 and 467. For 300 × 1024, 512 × 1000 and 200 × 3000
//! `01_rows`, which adds up dw in a second launch, takes 7.0, 8.7 and 9.7 µs, `04_once` 5.7, 5.9 and 6.4; for 128 × 4096 the two launches
//! of `02_few`, of which the second starts while the first runs, take 5.0, `04_once` 6.0 (norm-bwd-once).

mod cpu;

use crate::contract::*;
use crate::plain::norm_bwd::{self, How, RIGHT};
use crate::truth::sum;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&norm_bwd::RIGHT, norm_bwd::SOURCE), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("rmsnorm_bwd"),
    cuda: kernels!("rmsnorm_bwd", "01_rows", "02_few", "03_cluster", "04_once"),
    mutants: &[norm_bwd::WRONG_DW, MUTANTS],
};

const OP: Op = Op {
    name: "rmsnorm-bwd",
    about: "dx = (g - xh * mean(xh * g)) * rstd per row, dw = sum over rows of dout * xh; xh = x * rstd, g = dout * w",
    attrs: &[
        dtype("w", "dtype of the weight and its gradient"),
        positive("eps", "1e-6", "added to the mean square"),
        MEMORY,
    ],
    tensors,
    // g, xh and their product summed; the product with the mean, difference and scale; dw's product and sum.
    cost: |c, tensors| Cost::of(tensors, 9 * rows_by_columns(c)),
    derive,
    oracle: truth::norms::backward,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    vec![
        matrix_in(c, "x", Fill::norm_rows(0.0, c.dtype)),
        weight(c),
        matrix_in(c, "dout", NORMAL),
        per_row_in(c, "rstd", Fill::Derived),
        matrix_out(c, "dx"),
        weight_out(c, "dw"),
    ]
}

fn derive(c: &Case, _: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let (n, eps) = (c.axis("n"), c.number("eps"));
    for (row, r) in rows.zip(out) {
        *r = truth::norms::rms_rstd(&inputs.take("x", row * n, n), eps);
    }
}

/// LayerNorm's plain loop leaves out the means that centre where none is saved.
const MUTANTS: &[Mutant] = &[
    Mutant::new("mean-term-missing", "dx = g * rstd, as if rstd did not depend on x")
        .plain(&How { dot_mean: |_| 0.0, ..RIGHT }),
    Mutant::new("rstd-once", "the factor rstd in front of dx is missing").plain(&How { scales: false, ..RIGHT }),
    Mutant::new("mean-is-a-sum", "the product of xh and g is summed and not divided by n")
        .plain(&How { dot_mean: |v| sum(v.iter().copied()), ..RIGHT })
        .on(|c| c.axis("n") > 1),
    Mutant::new("tail-not-summed", "the mean leaves out the last columns beyond a multiple of 8")
        .plain(&How { dot_mean: |v| sum(v[..v.len() / 8 * 8].iter().copied()) / v.len() as f64, ..RIGHT })
        .on(|c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8),
    shared::PITCH_IGNORED,
    Mutant::loose("products-rounded", "g, xh, their product and its mean are rounded to the 16-bit type")
        .plain(&How { rounds: true, ..RIGHT })
        .on(shared::rounds),
];
