//! Cross entropy done wrong.

use crate::mutants::shared::{self, Maximum};
use crate::mutants::{Mutant, Spoiled, WORKS, edited, read, write};
use crate::truth;
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "ignored-counted",
        about: "the loss of an ignored row is its lse, not zero",
        applies: |_| true,
        spoil: |right, c, b| {
            let (ignore, target, lse) = (c.number("ignore"), b.get("target"), b.get("lse"));
            edited(right, b, "loss", move |loss| {
                for ((loss, t), lse) in loss.iter_mut().zip(read(&target)).zip(read(&lse)) {
                    *loss = if t == ignore { lse } else { *loss };
                }
            })
        },
    },
    Mutant {
        name: "target-shifted",
        about: "the loss takes the logit after the target",
        applies: |c| c.axis("n") > 1,
        spoil: |right, c, b| {
            let (n, ignore) = (c.axis("n"), c.number("ignore"));
            let (x, target) = (b.get("x"), b.get("target"));
            edited(right, b, "loss", move |loss| {
                let x = read(&x);
                for (row, t) in read(&target).into_iter().enumerate().filter(|(_, t)| *t != ignore) {
                    let (t, x) = (t as usize, &x[row * n..(row + 1) * n]);
                    loss[row] += x[t] - x[(t + 1) % n];
                }
            })
        },
    },
    Mutant {
        name: "pitch-ignored",
        about: "rows are read as if they were adjacent, whatever the pitch",
        applies: |c| c.attr("memory") == "strided" && c.axis("m") > 1,
        spoil: |right, c, b| {
            let (n, x) = (c.axis("n"), b.get("x"));
            edited(right, b, "lse", move |lse| {
                let (spec, mut adjacent) = (x.spec(), vec![0.0; x.spec().elems()]);
                spec.dtype.decode(&x.read::<u8>()[..spec.elems() * spec.dtype.size()], &mut adjacent);
                for (lse, x) in lse.iter_mut().zip(adjacent.chunks(n)) {
                    let s = truth::softmax(x);
                    *lse = s.max + s.total.ln();
                }
            })
        },
    },
    Mutant {
        name: "lse-base-two",
        about: "the saved lse is a logarithm to base 2; the loss is right",
        applies: |_| true,
        spoil: |right, _, b| edited(right, b, "lse", |lse| lse.iter_mut().for_each(|v| *v /= std::f64::consts::LN_2)),
    },
    Mutant {
        name: "tail-not-summed",
        about: "lse leaves out the last columns beyond a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8,
        spoil: |right, c, b| {
            let (n, x) = (c.axis("n"), b.get("x"));
            edited(right, b, "lse", move |lse| {
                for (lse, x) in lse.iter_mut().zip(read(&x).chunks(n)) {
                    *lse += truth::softmax(x).p[..n / 8 * 8].iter().sum::<f64>().ln();
                }
            })
        },
    },
    Mutant {
        name: "maximum-not-added-back",
        about: "the saved lse is that of x - max; the loss is right",
        applies: |_| true,
        spoil: |right, c, b| {
            let (n, x) = (c.axis("n"), b.get("x"));
            edited(right, b, "lse", move |lse| {
                for (lse, x) in lse.iter_mut().zip(read(&x).chunks(n)) {
                    *lse = truth::softmax(x).total.ln();
                }
            })
        },
    },
    shared::FIRST_CLASS_IGNORED,
    shared::LAST_CLASS_IGNORED,
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
];

/// Replaces lse by that of another maximum; where nothing overflows, and not all of a row underflows, it is as good.
fn careless(mut right: Box<dyn Launch>, c: &Case, b: &Buffers, maximum: Maximum) -> Box<dyn Launch> {
    let (n, acc, x, lse) = (c.axis("n"), c.acc(), b.get("x"), b.get("lse"));
    Box::new(Spoiled(move || {
        right.launch().expect(WORKS);
        let out: Vec<f64> = maximum.softmax(&read(&x), n, acc).iter().map(|row| row.max + row.total.ln()).collect();
        write(&lse, &out);
        out.iter().any(|v| !v.is_finite())
    }))
}
