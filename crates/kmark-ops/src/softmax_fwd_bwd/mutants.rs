//! Softmax with its backward done wrong.

use crate::contract::*;
use crate::plain::softmax::{self, How, RIGHT, Rounded, plain};

pub const MUTANTS: &[Mutant] = &[
    softmax::TAIL_NOT_SUMMED,
    softmax::BASE_TWO,
    Mutant::plain("forward-only", "y * dy, the diagonal of the Jacobian alone", |c, t| {
        plain(c, t, &How { dot: |_| 0.0, ..RIGHT })
    }),
    softmax::MAXIMUM_MISSING,
    softmax::MAXIMUM_OF_HALF,
    softmax::MAXIMUM_OF_THE_ROW_BEFORE,
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] =
    &[Mutant::plain("y-rounded", "y is rounded to the 16-bit type between forward and backward", |c, t| {
        plain(c, t, &How { rounded: Rounded::Probabilities, ..RIGHT })
    })
    .on(shared::rounds)];
