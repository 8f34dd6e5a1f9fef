//! Backward of cross entropy done wrong.

use crate::contract::*;
use crate::plain::softmax::{self, How, RIGHT, plain};
use crate::truth::exp_of_difference;
use std::f64::consts::LN_2;

pub const MUTANTS: &[Mutant] = &[
    softmax::TARGET_ONLY,
    softmax::TARGET_SHIFTED,
    softmax::IGNORED_NOT_ZEROED,
    softmax::DLOSS_OF_ROW_0,
    softmax::FIRST_CLASS_IGNORED,
    softmax::LAST_CLASS_IGNORED,
    Mutant::plain("lse-base-two", "the saved lse is taken for a logarithm to base 2", |c, t| {
        plain(c, t, &How { exp: |x, lse| exp_of_difference(x, lse * LN_2), ..RIGHT })
    }),
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[softmax::PROBABILITIES_ROUNDED];
