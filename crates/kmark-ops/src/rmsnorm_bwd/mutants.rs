//! Backward of RMSNorm done wrong: LayerNorm's plain loop, which leaves out the means that centre where none is saved.

use crate::mutants::{Mutant, shared};
use crate::plain::norm_bwd::{DW_IN_HALF, DW_LOSES_ROWS, How, RIGHT, wrong};
use crate::truth::sum;

pub const MUTANTS: &[Mutant] = &[
    DW_LOSES_ROWS,
    DW_IN_HALF,
    Mutant {
        name: "mean-term-missing",
        about: "dx = g * rstd, as if rstd did not depend on x",
        applies: |_| true,
        spoil: |_, c, b| wrong(c, b, How { dot_mean: |_| 0.0, ..RIGHT }),
    },
    Mutant {
        name: "rstd-once",
        about: "the factor rstd in front of dx is missing",
        applies: |_| true,
        spoil: |_, c, b| wrong(c, b, How { scales: false, ..RIGHT }),
    },
    Mutant {
        name: "mean-is-a-sum",
        about: "the product of xh and g is summed and not divided by n",
        applies: |c| c.axis("n") > 1,
        spoil: |_, c, b| wrong(c, b, How { dot_mean: |v| sum(v.iter().copied()), ..RIGHT }),
    },
    Mutant {
        name: "tail-not-summed",
        about: "the mean leaves out the last columns beyond a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8,
        spoil: |_, c, b| {
            let dot_mean = |v: &[f64]| sum(v[..v.len() / 8 * 8].iter().copied()) / v.len() as f64;
            wrong(c, b, How { dot_mean, ..RIGHT })
        },
    },
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "products-rounded",
    about: "g, xh, their product and its mean are rounded to the 16-bit type",
    applies: shared::rounds,
    spoil: |_, c, b| wrong(c, b, How { rounds: true, ..RIGHT }),
}];
