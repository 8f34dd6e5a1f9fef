//! Cross entropy done wrong.

use crate::contract::*;
use crate::plain::softmax::{self, How, RIGHT, plain};
use std::f64::consts::LN_2;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "ignored-counted",
        about: "the loss of an ignored row is its lse, not zero",
        ..softmax::IGNORED_NOT_ZEROED
    },
    Mutant { about: "the loss takes the logit after the target", ..softmax::TARGET_SHIFTED },
    Mutant::new("pitch-ignored", "rows are read as if they were adjacent, whatever the pitch", |right, c, b| {
        let (n, x) = (c.axis("n"), b.get("x"));
        edited(right, b, "lse", move |lse| {
            let (spec, mut adjacent) = (x.spec(), vec![0.0; x.spec().elems()]);
            spec.dtype.decode(&x.read::<u8>()[..spec.elems() * spec.dtype.size()], &mut adjacent);
            for (lse, x) in lse.iter_mut().zip(adjacent.chunks(n)) {
                let s = truth::softmax(x);
                *lse = s.max + s.total.ln();
            }
        })
    })
    .on(|c| c.attr("memory") == "strided" && c.axis("m") > 1),
    Mutant::plain("lse-base-two", "the saved lse is a logarithm to base 2; the loss is right", |c, t| {
        plain(c, t, &How { lse: |max, log| (max + log) / LN_2, ..RIGHT })
    }),
    Mutant { about: "lse leaves out the last columns beyond a multiple of 8", ..softmax::TAIL_NOT_SUMMED },
    Mutant::plain("maximum-not-added-back", "the saved lse is that of x - max; the loss is right", |c, t| {
        plain(c, t, &How { lse: |_, log| log, ..RIGHT })
    }),
    softmax::FIRST_CLASS_IGNORED,
    softmax::LAST_CLASS_IGNORED,
    softmax::MAXIMUM_MISSING,
    softmax::MAXIMUM_OF_HALF,
    softmax::MAXIMUM_OF_THE_ROW_BEFORE,
];
