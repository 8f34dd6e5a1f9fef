//! Backward of softmax done wrong.

use crate::mutants::{Mutant, after, edited, read, shared, write};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "dot-missing",
        about: "dx = y * dy, the diagonal of the Jacobian alone",
        applies: |_| true,
        spoil: |right, c, b| with_dot(right, c, b, |_, _| 0.0),
    },
    Mutant {
        name: "tail-not-summed",
        about: "the sum leaves out the last columns beyond a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8,
        spoil: |right, c, b| with_dot(right, c, b, |terms, _| terms[..terms.len() / 8 * 8].iter().sum()),
    },
    Mutant {
        name: "small-values-flushed",
        about: "gradients below 1e-4 become zero, which a fixed tolerance of 1e-2 does not see",
        applies: |c| c.axis("n") > 100,
        spoil: |right, _, b| {
            edited(right, b, "dx", |dx| dx.iter_mut().filter(|v| v.abs() < 1e-4).for_each(|v| *v = 0.0))
        },
    },
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[
    Mutant {
        name: "dot-in-half",
        about: "the sum is rounded to the 16-bit type before it is subtracted",
        applies: shared::rounds,
        spoil: |right, c, b| with_dot(right, c, b, |terms, c| c.dtype.round(terms.iter().sum())),
    },
    Mutant {
        name: "products-rounded",
        about: "each dy * y is rounded to the 16-bit type, in the sum and before the difference",
        applies: shared::rounds,
        spoil: |right, c, b| {
            let (n, dtype) = (c.axis("n"), c.dtype);
            let (y, dy) = (b.get("y"), b.get("dy"));
            edited(right, b, "dx", move |dx| {
                let (y, dy) = (read(&y), read(&dy));
                for ((dx, y), dy) in dx.chunks_mut(n).zip(y.chunks(n)).zip(dy.chunks(n)) {
                    let terms: Vec<f64> = y.iter().zip(dy).map(|(y, dy)| dtype.round(y * dy)).collect();
                    let dot: f64 = terms.iter().sum();
                    dx.iter_mut().zip(&terms).zip(y).for_each(|((dx, term), y)| *dx = term - y * dot);
                }
            })
        },
    },
];

/// Replaces dx by that of another sum; `dot` gets the terms dy * y of a row.
fn with_dot(right: Box<dyn Launch>, c: &Case, b: &Buffers, dot: fn(&[f64], &Case) -> f64) -> Box<dyn Launch> {
    let (n, c) = (c.axis("n"), c.clone());
    let (y, dy, dx) = (b.get("y"), b.get("dy"), b.get("dx"));
    after(right, move || {
        let (y, dy) = (read(&y), read(&dy));
        let mut out = Vec::new();
        for (y, dy) in y.chunks(n).zip(dy.chunks(n)) {
            let terms: Vec<f64> = y.iter().zip(dy).map(|(y, dy)| y * dy).collect();
            let dot = dot(&terms, &c);
            out.extend(y.iter().zip(dy).map(|(y, dy)| y * (dy - dot)));
        }
        write(&dx, &out);
    })
}
