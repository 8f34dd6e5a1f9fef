//! Residual addition with RMSNorm done wrong.

use super::outputs;
use crate::mutants::{Mutant, read, shared, write};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "residual-kept",
        about: "the new residual is the old one",
        applies: |_| true,
        spoil: |right, c, b| with_inputs(right, c, b, |out, row| out.z.copy_from_slice(row.residual)),
    },
    Mutant {
        name: "rstd-of-x",
        about: "the mean square is that of x without the residual",
        applies: |_| true,
        spoil: |right, c, b| {
            with_inputs(right, c, b, |out, row| {
                let factor = rstd(row.x, row.eps) / rstd(out.z, row.eps);
                out.y.iter_mut().for_each(|y| *y *= factor);
            })
        },
    },
    Mutant {
        name: "eps-missing",
        about: "eps is left out, so a row of zeros divides by zero and a tiny row is scaled wrongly",
        applies: |_| true,
        spoil: |right, c, b| {
            with_inputs(right, c, b, |out, row| {
                let sum = out.z.to_vec();
                out.normalise(&sum, rstd(&sum, 0.0), row.w);
            })
        },
    },
    Mutant {
        name: "weight-shifted",
        about: "each column takes its neighbour's weight",
        // Two or three weights may be near each other by chance.
        applies: |c| c.axis("n") >= 4,
        spoil: |right, c, b| {
            with_inputs(right, c, b, |out, row| {
                let n = row.w.len();
                out.y.iter_mut().enumerate().for_each(|(i, y)| *y *= row.w[(i + 1) % n] / row.w[i]);
            })
        },
    },
    shared::PITCH_IGNORED,
];

/// Right, but rounding at another place than the contract says.
pub const LOOSE: &[Mutant] = &[
    Mutant {
        name: "unrounded-sum",
        about: "normalises x + residual before it is rounded, so that y does not belong to z",
        applies: |c| c.attr("sum") == "rounded" && rounding_shows(c),
        spoil: |right, c, b| {
            with_inputs(right, c, b, |out, row| {
                let sum: Vec<f64> = row.x.iter().zip(row.residual).map(|(x, r)| x + r).collect();
                out.normalise(&sum, rstd(&sum, row.eps), row.w);
            })
        },
    },
    Mutant {
        name: "rounded-sum",
        about: "normalises the sum as z holds it where the exact one is asked for",
        applies: |c| c.attr("sum") == "exact" && rounding_shows(c),
        spoil: |right, c, b| {
            with_inputs(right, c, b, |out, row| {
                let sum = out.z.to_vec();
                out.normalise(&sum, rstd(&sum, row.eps), row.w);
            })
        },
    },
];

/// A row as it was before the launch.
struct Before<'a> {
    x: &'a [f64],
    residual: &'a [f64],
    w: &'a [f64],
    eps: f64,
}

/// The right answer for a row.
struct Out<'a> {
    y: &'a mut [f64],
    z: &'a mut [f64],
}

impl Out<'_> {
    fn normalise(self, sum: &[f64], r: f64, w: &[f64]) {
        self.y.iter_mut().zip(sum).zip(w).for_each(|((y, z), w)| *y = z * r * w);
    }
}

/// Wider types add and store in one precision; short rows are 1 up to a sign whatever the rounding.
fn rounding_shows(c: &Case) -> bool {
    shared::rounds(c)
}

fn rstd(z: &[f64], eps: f64) -> f64 {
    1.0 / (z.iter().map(|v| v * v).sum::<f64>() / z.len() as f64 + eps).sqrt()
}

/// Keeps the inputs, which the right impl may overwrite, and spoils its answer row by row.
fn with_inputs(mut right: Box<dyn Launch>, c: &Case, b: &Buffers, spoil: fn(Out, Before)) -> Box<dyn Launch> {
    let (n, eps) = (c.axis("n"), c.number("eps"));
    let (x, residual, w) = (b.get("x"), b.get("residual"), b.get("w"));
    let (y, z) = (b.get(outputs(c).0), b.get(outputs(c).1));
    Box::new(move || {
        let (x, residual, w) = (read(&x), read(&residual), read(&w));
        right.launch().expect(crate::mutants::WORKS);
        let (mut y_out, mut z_out) = (read(&y), read(&z));
        let rows = y_out.chunks_mut(n).zip(z_out.chunks_mut(n)).zip(x.chunks(n).zip(residual.chunks(n)));
        for ((y, z), (x, residual)) in rows {
            spoil(Out { y, z }, Before { x, residual, w: &w, eps });
        }
        write(&y, &y_out);
        write(&z, &z_out);
    })
}
