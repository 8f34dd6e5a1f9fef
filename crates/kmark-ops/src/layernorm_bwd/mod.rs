//! Backward of LayerNorm: the gradients of the input, the weight and the bias, from the saved mean and rstd.
//!
//! On an H200 (evidence/h200/tuned, norm-bwd-clusters) `03_cluster` takes 110 µs for 1024 × 65536 in bf16, 118 with a bias, `01_rows`,
//! which reads such rows twice, 215 and 224. For 300 × 1024, 512 × 1000 and 200 × 3000
//! `01_rows`, which adds up dw in a second launch, takes 7.2, 8.9 and 10.2 µs, `04_once` 6.0, 6.3 and 6.7; for 128 × 4096 the two launches
//! of `02_few`, of which the second starts while the first runs, take 5.0, `04_once` 6.3 (norm-bwd-once).

mod cpu;

use crate::contract::*;
use crate::plain::norm_bwd::{self, How, RIGHT};
use crate::truth::sum;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&norm_bwd::RIGHT, norm_bwd::SOURCE), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("layernorm_bwd"),
    cuda: kernels!("layernorm_bwd", "01_rows", "02_few", "03_cluster", "04_once"),
    mutants: &[norm_bwd::WRONG_DW, MUTANTS],
};

const OP: Op = Op {
    name: "layernorm-bwd",
    about: "dx = (g - mean(g) - xh * mean(xh * g)) * rstd per row, dw = sum over rows of dout * xh, dbias = sum of dout",
    attrs: &[
        dtype("w", "dtype of the weight and the gradients of it"),
        positive("eps", "1e-6", "added to the variance"),
        yes_no("bias", "whether dbias is an output"),
        MEMORY,
    ],
    tensors,
    // xh in two, g, two means in three, two differences, product and scale in four, dw in two, dbias in one.
    cost: |c, tensors| Cost::of(tensors, (12 + u64::from(c.flag("bias"))) * rows_by_columns(c)),
    derive,
    oracle: truth::norms::backward,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let mut t = vec![
        matrix_in(c, "x", Fill::norm_rows(0.5, c.dtype)),
        weight(c),
        matrix_in(c, "dout", NORMAL),
        per_row_in(c, "mean", Fill::Derived),
        per_row_in(c, "rstd", Fill::Derived),
        matrix_out(c, "dx"),
        weight_out(c, "dw"),
    ];
    t.extend(c.flag("bias").then(|| weight_out(c, "dbias")));
    t
}

fn derive(c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let (n, eps) = (c.axis("n"), c.number("eps"));
    for (row, v) in rows.zip(out) {
        let x = inputs.take("x", row * n, n);
        let mean = truth::norms::mean(&x);
        *v = if tensor == "mean" { mean } else { 1.0 / (truth::norms::variance(&x, mean) + eps).sqrt() };
    }
}

fn mean_over_padded(v: &[f64]) -> f64 {
    sum(v.iter().copied()) / v.len().next_multiple_of(8) as f64
}

const MUTANTS: &[Mutant] = &[
    Mutant::new("mean-of-g-missing", "the mean of g is not subtracted, as in the backward of RMSNorm")
        .plain(&How { g_mean: |_| 0.0, ..RIGHT }),
    Mutant::new("xh-not-centred", "xh = x * rstd, the mean of x is left out")
        .plain(&How { centres: false, ..RIGHT })
        .on(|c| c.axis("n") > 1),
    Mutant::new("means-over-padded-n", "both means divide by n rounded up to a multiple of 8")
        .plain(&How { g_mean: mean_over_padded, dot_mean: mean_over_padded, ..RIGHT })
        .on(|c| {
            let (n, padded) = (c.axis("n"), c.axis("n").next_multiple_of(8));
            // Of the terms that it scales only a part stays beside g.
            n < padded && n < 256 && shared::resolves(c, 0.25 * (padded - n) as f64 / padded as f64)
        }),
    Mutant::new("dbias-weighted", "dbias adds up g instead of dout")
        .plain(&How { dbias: |dout, w| dout * w, ..RIGHT })
        .on(|c| c.flag("bias") && c.axis("n") >= 8),
    shared::PITCH_IGNORED,
    Mutant::loose("products-rounded", "g, xh, their product and the means are rounded to the 16-bit type")
        .plain(&How { rounds: true, ..RIGHT })
        .on(shared::rounds),
];
