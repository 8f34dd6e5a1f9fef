//! Backward of RMSNorm done wrong: LayerNorm's plain loop, which leaves out the means that centre where none is saved.

use crate::mutants::{Mutant, shared};
use crate::plain::norm_bwd::{DW_IN_HALF, DW_LOSES_ROWS, How, RIGHT, wrong};
use crate::truth::sum;

pub const MUTANTS: &[Mutant] = &[
    DW_LOSES_ROWS,
    DW_IN_HALF,
    Mutant::new("mean-term-missing", "dx = g * rstd, as if rstd did not depend on x", |_, c, b| {
        wrong(c, b, How { dot_mean: |_| 0.0, ..RIGHT })
    }),
    Mutant::new("rstd-once", "the factor rstd in front of dx is missing", |_, c, b| {
        wrong(c, b, How { scales: false, ..RIGHT })
    }),
    Mutant::new("mean-is-a-sum", "the product of xh and g is summed and not divided by n", |_, c, b| {
        wrong(c, b, How { dot_mean: |v| sum(v.iter().copied()), ..RIGHT })
    })
    .on(|c| c.axis("n") > 1),
    Mutant::new("tail-not-summed", "the mean leaves out the last columns beyond a multiple of 8", |_, c, b| {
        let dot_mean = |v: &[f64]| sum(v[..v.len() / 8 * 8].iter().copied()) / v.len() as f64;
        wrong(c, b, How { dot_mean, ..RIGHT })
    })
    .on(|c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8),
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant::new(
    "products-rounded",
    "g, xh, their product and its mean are rounded to the 16-bit type",
    |_, c, b| wrong(c, b, How { rounds: true, ..RIGHT }),
)
.on(shared::rounds)];
