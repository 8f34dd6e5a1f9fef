//! Softmax with its backward done wrong.

use crate::mutants::{Mutant, shared};
use crate::plain::softmax::{self, How, RIGHT, Rounded, wrong};

pub const MUTANTS: &[Mutant] = &[
    softmax::TAIL_NOT_SUMMED,
    softmax::BASE_TWO,
    Mutant::new("forward-only", "y * dy, the diagonal of the Jacobian alone", |_, c, b| {
        wrong(c, b, How { dot: |_| 0.0, ..RIGHT })
    }),
    softmax::MAXIMUM_MISSING,
    softmax::MAXIMUM_OF_HALF,
    softmax::MAXIMUM_OF_THE_ROW_BEFORE,
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] =
    &[Mutant::new("y-rounded", "y is rounded to the 16-bit type between forward and backward", |_, c, b| {
        wrong(c, b, How { rounded: Rounded::Probabilities, ..RIGHT })
    })
    .on(shared::rounds)];
