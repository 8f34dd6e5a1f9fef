//! Backward of cross entropy done wrong.

use crate::mutants::{Mutant, shared};
use crate::plain::softmax::{self, How, RIGHT, wrong};
use crate::truth::exp_of_difference;
use std::f64::consts::LN_2;

pub const MUTANTS: &[Mutant] = &[
    softmax::TARGET_ONLY,
    softmax::TARGET_SHIFTED,
    softmax::IGNORED_NOT_ZEROED,
    softmax::DLOSS_OF_ROW_0,
    softmax::FIRST_CLASS_IGNORED,
    softmax::LAST_CLASS_IGNORED,
    Mutant::new("lse-base-two", "the saved lse is taken for a logarithm to base 2", |_, c, b| {
        wrong(c, b, How { exp: |x, lse| exp_of_difference(x, lse * LN_2), ..RIGHT })
    }),
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[softmax::PROBABILITIES_ROUNDED];
