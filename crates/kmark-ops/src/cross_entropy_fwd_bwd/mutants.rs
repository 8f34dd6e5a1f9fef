//! Cross entropy with its backward done wrong.

use crate::mutants::shared::{self, Maximum};
use crate::mutants::{Mutant, Spoiled, WORKS, edited, read, write};
use crate::truth;
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    shared::TARGET_ONLY,
    shared::TARGET_SHIFTED,
    shared::IGNORED_NOT_ZEROED,
    shared::DLOSS_OF_ROW_0,
    shared::FIRST_CLASS_IGNORED,
    shared::LAST_CLASS_IGNORED,
    Mutant {
        name: "tail-not-summed",
        about: "the sum of powers leaves out the last columns beyond a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8,
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
    Mutant {
        name: "maximum-missing",
        about: "no maximum is subtracted, and exp overflows",
        applies: |_| true,
        spoil: |right, c, b| careless(right, c, b, Maximum::Nothing),
    },
    Mutant {
        name: "maximum-of-half",
        about: "the maximum is that of the first half of the row",
        applies: |_| true,
        spoil: |right, c, b| careless(right, c, b, Maximum::OfHalf),
    },
    Mutant {
        name: "maximum-of-the-row-before",
        about: "the maximum is that of the row before",
        applies: |c| c.axis("m") > 1,
        spoil: |right, c, b| careless(right, c, b, Maximum::OfTheRowBefore),
    },
    shared::PITCH_IGNORED,
];

/// Replaces dx by that of another maximum; where nothing overflows, and not all of a row underflows, it is as good.
fn careless(mut right: Box<dyn Launch>, c: &Case, b: &Buffers, maximum: Maximum) -> Box<dyn Launch> {
    let (n, acc, ignore) = (c.axis("n"), c.acc(), c.number("ignore"));
    let (x, target, dloss, dx) = (b.get("x"), b.get("target"), b.get("dloss"), b.get("dx"));
    Box::new(Spoiled(move || {
        right.launch().expect(WORKS);
        let (target, dloss, mut out) = (read(&target), read(&dloss), Vec::new());
        for (row, s) in maximum.softmax(&read(&x), n, acc).iter().enumerate() {
            let hot = |i: usize| if i as f64 == target[row] { 1.0 } else { 0.0 };
            let counted = target[row] != ignore;
            out.extend((0..n).map(|i| if counted { dloss[row] * (s.p[i] - hot(i)) } else { 0.0 }));
        }
        write(&dx, &out);
        out.iter().any(|v| !v.is_finite())
    }))
}

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "probabilities-rounded",
    about: "p and p - 1 are rounded to the 16-bit type before they are multiplied by dloss",
    applies: shared::rounds,
    spoil: |right, c, b| {
        let n = c.axis("n");
        shared::rounded_classes(right, c, b, move |b, row| {
            let x = read(&b.get("x"));
            truth::softmax(&x[row * n..(row + 1) * n]).p
        })
    },
}];
