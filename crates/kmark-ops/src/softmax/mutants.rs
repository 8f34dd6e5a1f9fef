//! Softmax done wrong.

use crate::contract::*;
use crate::plain::softmax;

pub const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "last-column-stale",
        "the last element of every row is what an earlier launch left there",
        |right, c, b| {
            let n = c.axis("n");
            let kept = std::cell::RefCell::new(None::<Vec<f64>>);
            edited(right, b, "y", move |y| {
                let mut kept = kept.borrow_mut();
                let old = kept.get_or_insert_with(|| y.iter().skip(n - 1).step_by(n).copied().collect());
                // With one column every answer is 1; there the stale value is the poison of the output.
                for (row, v) in old.iter().enumerate() {
                    y[row * n + n - 1] = if n == 1 { f64::NAN } else { *v };
                }
            })
        },
    ),
    Mutant { about: "the sum leaves out the last columns beyond a multiple of 8", ..softmax::TAIL_NOT_SUMMED },
    softmax::BASE_TWO,
    Mutant::new(
        "small-values-flushed",
        "probabilities below 1e-3 become zero, which a fixed tolerance of 1e-2 does not see",
        |right, _, b| edited(right, b, "y", |y| y.iter_mut().filter(|v| **v < 1e-3).for_each(|v| *v = 0.0)),
    )
    .on(|c| c.axis("n") > 100),
    softmax::MAXIMUM_MISSING,
    softmax::MAXIMUM_OF_HALF,
    softmax::MAXIMUM_OF_THE_ROW_BEFORE,
    shared::PITCH_IGNORED,
];
