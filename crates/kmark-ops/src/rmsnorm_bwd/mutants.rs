//! Backward of RMSNorm done wrong: LayerNorm's plain loop, which leaves out the means that centre where none is saved.

use crate::contract::*;
use crate::plain::norm_bwd::{DW_IN_HALF, DW_LOSES_ROWS, How, RIGHT, plain};
use crate::truth::sum;

pub const MUTANTS: &[Mutant] = &[
    DW_LOSES_ROWS,
    DW_IN_HALF,
    Mutant::plain("mean-term-missing", "dx = g * rstd, as if rstd did not depend on x", |c, t| {
        plain(c, t, &How { dot_mean: |_| 0.0, ..RIGHT })
    }),
    Mutant::plain("rstd-once", "the factor rstd in front of dx is missing", |c, t| {
        plain(c, t, &How { scales: false, ..RIGHT })
    }),
    Mutant::plain("mean-is-a-sum", "the product of xh and g is summed and not divided by n", |c, t| {
        plain(c, t, &How { dot_mean: |v| sum(v.iter().copied()), ..RIGHT })
    })
    .on(|c| c.axis("n") > 1),
    Mutant::plain("tail-not-summed", "the mean leaves out the last columns beyond a multiple of 8", |c, t| {
        let dot_mean = |v: &[f64]| sum(v[..v.len() / 8 * 8].iter().copied()) / v.len() as f64;
        plain(c, t, &How { dot_mean, ..RIGHT })
    })
    .on(|c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8),
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] =
    &[Mutant::plain("products-rounded", "g, xh, their product and its mean are rounded to the 16-bit type", |c, t| {
        plain(c, t, &How { rounds: true, ..RIGHT })
    })
    .on(shared::rounds)];
