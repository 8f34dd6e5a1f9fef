//! Cross entropy done wrong.

use crate::mutants::{Mutant, edited, read};
use crate::truth;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "ignored-counted",
        about: "the loss of an ignored row is its lse, not zero",
        applies: |c| c.axis("m") > 7,
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
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8 && c.axis("m") > 15,
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
];
