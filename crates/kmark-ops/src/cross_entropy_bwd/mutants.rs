//! Backward of cross entropy done wrong.

use crate::mutants::{Mutant, edited, read, shared};

pub const MUTANTS: &[Mutant] = &[
    shared::TARGET_ONLY,
    shared::TARGET_SHIFTED,
    shared::IGNORED_NOT_ZEROED,
    shared::DLOSS_OF_ROW_0,
    shared::FIRST_CLASS_IGNORED,
    shared::LAST_CLASS_IGNORED,
    Mutant {
        name: "lse-base-two",
        about: "the saved lse is taken for a logarithm to base 2",
        applies: |_| true,
        spoil: |right, c, b| {
            let (n, ignore) = (c.axis("n"), c.number("ignore"));
            let (x, target, dloss, lse) = (b.get("x"), b.get("target"), b.get("dloss"), b.get("lse"));
            edited(right, b, "dx", move |dx| {
                let (x, target, dloss, lse) = (read(&x), read(&target), read(&dloss), read(&lse));
                for (i, v) in dx.iter_mut().enumerate().filter(|(i, _)| target[i / n] != ignore) {
                    let (row, column) = (i / n, (i % n) as f64);
                    let p = (x[i] - lse[row] * std::f64::consts::LN_2).exp();
                    *v = dloss[row] * (p - if column == target[row] { 1.0 } else { 0.0 });
                }
            })
        },
    },
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "probabilities-rounded",
    about: "p and p - 1 are rounded to the 16-bit type before they are multiplied by dloss",
    applies: shared::rounds,
    spoil: |right, c, b| {
        let n = c.axis("n");
        shared::rounded_classes(right, c, b, move |b, row| {
            let x = read(&b.get("x"));
            let lse = read(&b.get("lse"));
            x[row * n..(row + 1) * n].iter().map(|x| (x - lse[row]).exp()).collect()
        })
    },
}];
