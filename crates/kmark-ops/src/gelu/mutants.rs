//! GELU done wrong.

use super::{CUBE, ROOT, by_erf, by_tanh};
use crate::mutants::{Mutant, Spoiled, WORKS, edited, read, shared, write};
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
        name: "tanh-overflows",
        about: "the tanh is (e^2z - 1) / (e^2z + 1), whose exponential overflows",
        applies: |c| c.attr("approx") == "tanh",
        spoil: |mut right, c, b| {
            let (acc, x, y) = (c.acc(), b.get("x"), b.get("y"));
            Box::new(Spoiled(move || {
                right.launch().expect(WORKS);
                let gelu = |x: &f64| {
                    let e = acc.round((2.0 * ROOT * (x + CUBE * x.powi(3))).exp());
                    0.5 * x * (1.0 + (e - 1.0) / (e + 1.0))
                };
                let out: Vec<f64> = read(&x).iter().map(gelu).collect();
                write(&y, &out);
                out.iter().any(|y| y.is_nan())
            }))
        },
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

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "factor-rounded",
    about: "what x is multiplied with is rounded to the 16-bit type",
    applies: shared::rounds,
    spoil: |right, c, b| {
        let (dtype, x) = (c.dtype, b.get("x"));
        let f = if c.attr("approx") == "erf" { by_erf } else { by_tanh };
        edited(right, b, "y", move |y| {
            let factor = |x: f64| if x == 0.0 { 0.5 } else { f(x) / x };
            y.iter_mut().zip(read(&x)).for_each(|(y, x)| *y = dtype.round(factor(x)) * x);
        })
    },
}];

/// Replaces y by `f` of x.
fn with_y(right: Box<dyn Launch>, b: &Buffers, f: fn(f64) -> f64) -> Box<dyn Launch> {
    let x = b.get("x");
    edited(right, b, "y", move |y| y.iter_mut().zip(read(&x)).for_each(|(y, x)| *y = f(x)))
}
