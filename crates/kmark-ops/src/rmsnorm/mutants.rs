//! RMSNorm done wrong.

use crate::mutants::{Mutant, after, edited, read, shared, write};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "eps-missing",
        about: "eps is left out, so a row of zeros divides by zero and a tiny row is scaled wrongly",
        applies: |c| c.axis("m") > 5,
        spoil: |right, c, b| {
            let n = c.axis("n");
            let (x, w, y) = (b.get("x"), b.get("w"), b.get("y"));
            after(right, move || {
                let (x, w) = (read(&x), read(&w));
                let out: Vec<f64> = x
                    .chunks(n)
                    .flat_map(|row| {
                        let r = 1.0 / (row.iter().map(|v| v * v).sum::<f64>() / n as f64).sqrt();
                        row.iter().zip(&w).map(move |(x, w)| x * r * w).collect::<Vec<_>>()
                    })
                    .collect();
                write(&y, &out);
            })
        },
    },
    Mutant {
        name: "weight-shifted",
        about: "each column takes its neighbour's weight",
        applies: |c| c.axis("n") > 1,
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
        name: "mean-over-padded-n",
        about: "the mean divides by n rounded up to a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8),
        spoil: |right, c, b| {
            let (n, eps) = (c.axis("n"), c.number("eps"));
            let (x, w, y) = (b.get("x"), b.get("w"), b.get("y"));
            // From x: what is left of so small a factor when y is rounded a second time is often nothing.
            after(right, move || {
                let (x, w) = (read(&x), read(&w));
                let mut out = Vec::new();
                for row in x.chunks(n) {
                    let squares: f64 = row.iter().map(|v| v * v).sum();
                    let r = 1.0 / (squares / n.next_multiple_of(8) as f64 + eps).sqrt();
                    out.extend(row.iter().zip(&w).map(|(x, w)| x * r * w));
                }
                write(&y, &out);
            })
        },
    },
    Mutant {
        name: "half-the-rows-unscaled",
        about: "rows of the second half are not multiplied by rstd",
        applies: |c| c.axis("m") > 15,
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
