//! Softmax with its backward done wrong.

use crate::mutants::{Mutant, shared};
use crate::plain::softmax::{self, How, RIGHT, Rounded, wrong};

pub const MUTANTS: &[Mutant] = &[
    softmax::TAIL_NOT_SUMMED,
    softmax::BASE_TWO,
    Mutant {
        name: "forward-only",
        about: "y * dy, the diagonal of the Jacobian alone",
        applies: |_| true,
        spoil: |_, c, b| wrong(c, b, How { dot: |_| 0.0, ..RIGHT }),
    },
    softmax::MAXIMUM_MISSING,
    softmax::MAXIMUM_OF_HALF,
    softmax::MAXIMUM_OF_THE_ROW_BEFORE,
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "y-rounded",
    about: "y is rounded to the 16-bit type between forward and backward",
    applies: shared::rounds,
    spoil: |_, c, b| wrong(c, b, How { rounded: Rounded::Probabilities, ..RIGHT }),
}];
