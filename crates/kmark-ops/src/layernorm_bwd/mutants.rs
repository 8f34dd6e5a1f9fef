//! Backward of LayerNorm done wrong.

use crate::contract::*;
use crate::plain::norm_bwd::{DW_IN_HALF, DW_LOSES_ROWS, How, RIGHT, plain};
use crate::truth::sum;

pub const MUTANTS: &[Mutant] = &[
    DW_LOSES_ROWS,
    DW_IN_HALF,
    Mutant::plain("mean-of-g-missing", "the mean of g is not subtracted, as in the backward of RMSNorm", |c, t| {
        plain(c, t, &How { g_mean: |_| 0.0, ..RIGHT })
    }),
    Mutant::plain("xh-not-centred", "xh = x * rstd, the mean of x is left out", |c, t| {
        plain(c, t, &How { centres: false, ..RIGHT })
    })
    .on(|c| c.axis("n") > 1),
    Mutant::plain("means-over-padded-n", "both means divide by n rounded up to a multiple of 8", |c, t| {
        let mean = |v: &[f64]| sum(v.iter().copied()) / v.len().next_multiple_of(8) as f64;
        plain(c, t, &How { g_mean: mean, dot_mean: mean, ..RIGHT })
    })
    .on(|c| {
        let (n, padded) = (c.axis("n"), c.axis("n").next_multiple_of(8));
        // Of the terms that it scales only a part stays beside g.
        n < padded && n < 256 && shared::resolves(c, 0.25 * (padded - n) as f64 / padded as f64)
    }),
    Mutant::plain("dbias-weighted", "dbias adds up g instead of dout", |c, t| {
        plain(c, t, &How { dbias: |dout, w| dout * w, ..RIGHT })
    })
    .on(|c| c.flag("bias") && c.axis("n") >= 8),
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant::plain(
    "products-rounded",
    "g, xh, their product and the means are rounded to the 16-bit type",
    |c, t| plain(c, t, &How { rounds: true, ..RIGHT }),
)
.on(shared::rounds)];
