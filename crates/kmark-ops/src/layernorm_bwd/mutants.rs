//! Backward of LayerNorm done wrong.

use crate::mutants::{Mutant, shared};
use crate::plain::norm_bwd::{DW_IN_HALF, DW_LOSES_ROWS, How, RIGHT, wrong};
use crate::truth::sum;

pub const MUTANTS: &[Mutant] = &[
    DW_LOSES_ROWS,
    DW_IN_HALF,
    Mutant::new("mean-of-g-missing", "the mean of g is not subtracted, as in the backward of RMSNorm", |_, c, b| {
        wrong(c, b, How { g_mean: |_| 0.0, ..RIGHT })
    }),
    Mutant::new("xh-not-centred", "xh = x * rstd, the mean of x is left out", |_, c, b| {
        wrong(c, b, How { centres: false, ..RIGHT })
    })
    .on(|c| c.axis("n") > 1),
    Mutant::new("means-over-padded-n", "both means divide by n rounded up to a multiple of 8", |_, c, b| {
        let mean = |v: &[f64]| sum(v.iter().copied()) / v.len().next_multiple_of(8) as f64;
        wrong(c, b, How { g_mean: mean, dot_mean: mean, ..RIGHT })
    })
    .on(|c| {
        let (n, padded) = (c.axis("n"), c.axis("n").next_multiple_of(8));
        // Of the terms that it scales only a part stays beside g.
        n < padded && n < 256 && shared::resolves(c, 0.25 * (padded - n) as f64 / padded as f64)
    }),
    Mutant::new("dbias-weighted", "dbias adds up g instead of dout", |_, c, b| {
        wrong(c, b, How { dbias: |dout, w| dout * w, ..RIGHT })
    })
    .on(|c| c.flag("bias") && c.axis("n") >= 8),
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant::new(
    "products-rounded",
    "g, xh, their product and the means are rounded to the 16-bit type",
    |_, c, b| wrong(c, b, How { rounds: true, ..RIGHT }),
)
.on(shared::rounds)];
