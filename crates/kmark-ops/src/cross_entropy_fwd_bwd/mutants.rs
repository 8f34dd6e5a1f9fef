//! Cross entropy with its backward done wrong.

use crate::mutants::{Mutant, edited, read, shared};
use crate::truth;

pub const MUTANTS: &[Mutant] = &[
    shared::TARGET_ONLY,
    shared::TARGET_SHIFTED,
    shared::IGNORED_NOT_ZEROED,
    shared::DLOSS_OF_ROW_0,
    Mutant {
        name: "tail-not-summed",
        about: "the sum of powers leaves out the last columns beyond a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8 && c.axis("m") > 15,
        spoil: |right, c, b| {
            let (n, ignore, x) = (c.axis("n"), c.number("ignore"), b.get("x"));
            let (target, dloss) = (b.get("target"), b.get("dloss"));
            edited(right, b, "dx", move |dx| {
                let (x, target, dloss) = (read(&x), read(&target), read(&dloss));
                for (row, dx) in dx.chunks_mut(n).enumerate().filter(|(row, _)| target[*row] != ignore) {
                    let p = truth::softmax(&x[row * n..(row + 1) * n]).p;
                    let kept: f64 = p[..n / 8 * 8].iter().sum();
                    for (i, v) in dx.iter_mut().enumerate() {
                        *v = dloss[row] * (p[i] / kept - if i as f64 == target[row] { 1.0 } else { 0.0 });
                    }
                }
            })
        },
    },
    shared::PITCH_IGNORED,
];
