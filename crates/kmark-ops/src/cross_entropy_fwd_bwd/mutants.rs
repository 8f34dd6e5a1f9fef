//! Cross entropy with its backward done wrong.

use crate::contract::*;
use crate::plain::softmax;

pub const MUTANTS: &[Mutant] = &[
    softmax::TARGET_ONLY,
    softmax::TARGET_SHIFTED,
    softmax::IGNORED_NOT_ZEROED,
    softmax::DLOSS_OF_ROW_0,
    softmax::FIRST_CLASS_IGNORED,
    softmax::LAST_CLASS_IGNORED,
    softmax::TAIL_NOT_SUMMED,
    softmax::MAXIMUM_MISSING,
    softmax::MAXIMUM_OF_HALF,
    softmax::MAXIMUM_OF_THE_ROW_BEFORE,
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[softmax::PROBABILITIES_ROUNDED];
