//! Backward of softmax done wrong.

use crate::contract::*;
use crate::plain::softmax::{How, RIGHT, Rounded, TAIL_NOT_SUMMED, add_without_tail, plain};

pub const MUTANTS: &[Mutant] = &[
    Mutant::plain("dot-missing", "dx = y * dy, the diagonal of the Jacobian alone", |c, t| {
        plain(c, t, &How { dot: |_| 0.0, ..RIGHT })
    }),
    Mutant {
        about: "the sum leaves out the last columns beyond a multiple of 8",
        spoil: Spoil::Plain(|c, t| plain(c, t, &How { dot: add_without_tail, ..RIGHT })),
        ..TAIL_NOT_SUMMED
    },
    Mutant::new(
        "small-values-flushed",
        "gradients below 1e-4 become zero, which a fixed tolerance of 1e-2 does not see",
        |right, _, b| edited(right, b, "dx", |dx| dx.iter_mut().filter(|v| v.abs() < 1e-4).for_each(|v| *v = 0.0)),
    )
    .on(|c| c.axis("n") > 100),
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[
    Mutant::plain("dot-in-half", "the sum is rounded to the 16-bit type before it is subtracted", |c, t| {
        plain(c, t, &How { rounded: Rounded::Dot, ..RIGHT })
    })
    .on(shared::rounds),
    Mutant::plain(
        "products-rounded",
        "each dy * y is rounded to the 16-bit type, in the sum and before the difference",
        |c, t| plain(c, t, &How { rounded: Rounded::Products, ..RIGHT }),
    )
    .on(shared::rounds),
];
