//! RMSNorm done wrong.

use crate::mutants::{Mutant, after, edited, read, shared, write};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "eps-missing",
        about: "eps is left out, so a row of zeros divides by zero and a tiny row is scaled wrongly",
        applies: |_| true,
        spoil: |right, c, b| with_rstd(right, c, b, |squares, n, _| 1.0 / (squares / n).sqrt()),
    },
    Mutant {
        name: "eps-outside-the-root",
        about: "eps is added to the root, not to the mean square",
        applies: |_| true,
        spoil: |right, c, b| with_rstd(right, c, b, |squares, n, eps| 1.0 / ((squares / n).sqrt() + eps)),
    },
    Mutant {
        name: "mean-over-padded-n",
        about: "the mean divides by n rounded up to a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && shows(c, c.axis("n").next_multiple_of(8) - c.axis("n")),
        spoil: |right, c, b| {
            with_rstd(right, c, b, |squares, n, eps| 1.0 / (squares / ((n / 8.0).ceil() * 8.0) + eps).sqrt())
        },
    },
    Mutant {
        name: "mean-over-n-less-one",
        about: "the mean divides by n - 1",
        applies: |c| c.axis("n") > 1 && shows(c, 1),
        spoil: |right, c, b| with_rstd(right, c, b, |squares, n, eps| 1.0 / (squares / (n - 1.0) + eps).sqrt()),
    },
    Mutant {
        name: "weight-shifted",
        about: "each column takes its neighbour's weight",
        // Two or three weights may be near each other by chance.
        applies: |c| c.axis("n") >= 4,
        spoil: |right, c, b| {
            let (n, w) = (c.axis("n"), b.get("w"));
            edited(right, b, "y", move |y| {
                let w = read(&w);
                for (i, v) in y.iter_mut().enumerate() {
                    *v *= w[(i % n + 1) % n] / w[i % n];
                }
            })
        },
    },
    Mutant {
        name: "half-the-rows-unscaled",
        about: "rows of the second half are not multiplied by rstd",
        // Up to nine ordinary rows, whose rstd is about 1, may stand beside each other.
        applies: |c| c.axis("m") >= 24,
        spoil: |right, c, b| {
            let (m, n) = (c.axis("m"), c.axis("n"));
            let (x, w) = (b.get("x"), b.get("w"));
            edited(right, b, "y", move |y| {
                let (x, w) = (read(&x), read(&w));
                for i in m / 2 * n..m * n {
                    y[i] = x[i] * w[i % n];
                }
            })
        },
    },
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "row-rounded",
    about: "x * rstd is rounded to the 16-bit type before it is multiplied by the weight",
    applies: shared::rounds,
    spoil: |right, c, b| {
        let (n, eps, dtype) = (c.axis("n"), c.number("eps"), c.dtype);
        let (x, w) = (b.get("x"), b.get("w"));
        edited(right, b, "y", move |y| {
            let w = read(&w);
            for (y, x) in y.chunks_mut(n).zip(read(&x).chunks(n)) {
                let r = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / n as f64 + eps).sqrt();
                y.iter_mut().zip(x).zip(&w).for_each(|((y, x), w)| *y = dtype.round(x * r) * w);
            }
        })
    },
}];

/// Whether it shows that n is taken for one that differs by `by`: rstd is off by half as much, and is an output, or 16 bits
/// resolve it.
fn shows(c: &Case, by: usize) -> bool {
    c.flag("rstd") || shared::resolves(c, 0.5 * by as f64 / (c.axis("n") + by) as f64)
}

/// Replaces y and rstd by those of another rstd, which `rstd` makes of the sum of squares, n and eps. From x: what is left
/// of a small factor when y is rounded a second time is often nothing.
fn with_rstd(right: Box<dyn Launch>, c: &Case, b: &Buffers, rstd: fn(f64, f64, f64) -> f64) -> Box<dyn Launch> {
    let (c, b) = (c.clone(), b.clone());
    after(right, move || {
        let (n, eps) = (c.axis("n"), c.number("eps"));
        let (x, w) = (read(&b.get("x")), read(&b.get("w")));
        let rows = x.chunks(n);
        let rstds: Vec<f64> = rows.map(|x| rstd(x.iter().map(|v| v * v).sum(), n as f64, eps)).collect();
        let y: Vec<f64> = x.iter().enumerate().map(|(i, x)| x * rstds[i / n] * w[i % n]).collect();
        write(&b.get("y"), &y);
        if c.flag("rstd") {
            write(&b.get("rstd"), &rstds);
        }
    })
}
