//! GELU done wrong.

use super::{ROOT, by_erf, by_tanh};
use crate::mutants::{Mutant, edited, read, shared};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

/// Few elements may all lie where one formula is as good as another: near zero, or far out.
fn many(c: &Case) -> bool {
    c.axis("m") * c.axis("n") >= 64
}

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "other-formula",
        about: "tanh where erf is asked for, and the reverse: 5e-4 apart at the most",
        applies: many,
        spoil: |right, c, b| with_y(right, b, if c.attr("approx") == "erf" { by_tanh } else { by_erf }),
    },
    Mutant {
        name: "sigmoid-formula",
        about: "x * sigmoid(1.702 x), as some models want it",
        applies: many,
        spoil: |right, _, b| with_y(right, b, |x| x / (1.0 + (-1.702 * x).exp())),
    },
    Mutant {
        name: "half-missing",
        about: "the factor 0.5 is left out",
        applies: |c| c.axis("m") * c.axis("n") >= 4,
        spoil: |right, _, b| edited(right, b, "y", |y| y.iter_mut().for_each(|v| *v *= 2.0)),
    },
    Mutant {
        name: "cube-missing",
        about: "the tanh is that of sqrt(2 / pi) x",
        applies: |c| c.attr("approx") == "tanh" && many(c),
        spoil: |right, _, b| with_y(right, b, |x| x / (1.0 + (-2.0 * ROOT * x).exp())),
    },
    Mutant {
        name: "tail-not-activated",
        about: "the last columns beyond a multiple of 8 are copied",
        // A large x is its own GELU; eight of them are not all large.
        applies: |c| c.axis("m") * (c.axis("n") % 8) >= 8,
        spoil: |right, c, b| {
            let (n, x) = (c.axis("n"), b.get("x"));
            edited(right, b, "y", move |y| {
                for (y, x) in y.chunks_mut(n).zip(read(&x).chunks(n)) {
                    y[n / 8 * 8..].copy_from_slice(&x[n / 8 * 8..]);
                }
            })
        },
    },
    shared::PITCH_IGNORED,
];

/// Replaces y by `f` of x.
fn with_y(right: Box<dyn Launch>, b: &Buffers, f: fn(f64) -> f64) -> Box<dyn Launch> {
    let x = b.get("x");
    edited(right, b, "y", move |y| y.iter_mut().zip(read(&x)).for_each(|(y, x)| *y = f(x)))
}
