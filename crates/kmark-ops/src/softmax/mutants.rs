//! Softmax done wrong.

use crate::mutants::shared::{self, Maximum};
use crate::mutants::{Mutant, Spoiled, WORKS, edited, read, write};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "last-column-stale",
        about: "the last element of every row is what an earlier launch left there",
        applies: |_| true,
        spoil: |right, c, b| {
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
    },
    Mutant {
        name: "tail-not-summed",
        about: "the sum leaves out the last columns beyond a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8,
        spoil: |right, c, b| {
            let n = c.axis("n");
            edited(right, b, "y", move |y| {
                for row in y.chunks_mut(n) {
                    let kept: f64 = row[..n / 8 * 8].iter().sum();
                    row.iter_mut().for_each(|v| *v /= kept);
                }
            })
        },
    },
    Mutant {
        name: "base-two",
        about: "2^x instead of e^x",
        applies: |c| c.axis("n") > 1,
        spoil: |right, c, b| {
            let (n, x) = (c.axis("n"), b.get("x"));
            edited(right, b, "y", move |y| {
                for (row, x) in y.chunks_mut(n).zip(read(&x).chunks(n)) {
                    let max = x.iter().fold(f64::NEG_INFINITY, |m, v| m.max(*v));
                    let total: f64 = x.iter().map(|v| (v - max).exp2()).sum();
                    for (y, x) in row.iter_mut().zip(x) {
                        *y = (x - max).exp2() / total;
                    }
                }
            })
        },
    },
    Mutant {
        name: "small-values-flushed",
        about: "probabilities below 1e-3 become zero, which a fixed tolerance of 1e-2 does not see",
        applies: |c| c.axis("n") > 100,
        spoil: |right, _, b| edited(right, b, "y", |y| y.iter_mut().filter(|v| **v < 1e-3).for_each(|v| *v = 0.0)),
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

/// Replaces y by that of another maximum; where nothing overflows, and not all of a row underflows, it is as good.
fn careless(mut right: Box<dyn Launch>, c: &Case, b: &Buffers, maximum: Maximum) -> Box<dyn Launch> {
    let (n, acc, x, y) = (c.axis("n"), c.acc(), b.get("x"), b.get("y"));
    Box::new(Spoiled(move || {
        right.launch().expect(WORKS);
        let out: Vec<f64> = maximum.softmax(&read(&x), n, acc).into_iter().flat_map(|row| row.p).collect();
        write(&y, &out);
        out.iter().any(|p| !p.is_finite())
    }))
}
