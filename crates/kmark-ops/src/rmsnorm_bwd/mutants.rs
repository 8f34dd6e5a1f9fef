//! Backward of RMSNorm done wrong.

use crate::mutants::{Mutant, after, read, shared, write};
use kmark_core::dtype::DType;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

/// Makes dx of a row of (g, xh), its rstd and the case's dtype.
type Row = fn(&[Pair], f64, DType) -> Vec<f64>;

pub const MUTANTS: &[Mutant] = &[
    shared::DW_LOSES_ROWS,
    shared::DW_IN_HALF,
    Mutant {
        name: "mean-term-missing",
        about: "dx = g * rstd, as if rstd did not depend on x",
        applies: |_| true,
        spoil: |right, _, b| with_dx(right, b, |row, r, _| row.iter().map(|(g, _)| g * r).collect()),
    },
    Mutant {
        name: "rstd-once",
        about: "the factor rstd in front of dx is missing",
        applies: |_| true,
        spoil: |right, _, b| with_dx(right, b, |row, _, _| without(row, mean(row))),
    },
    Mutant {
        name: "mean-is-a-sum",
        about: "the product of xh and g is summed and not divided by n",
        applies: |c| c.axis("n") > 1,
        spoil: |right, _, b| {
            with_dx(right, b, |row, r, _| without(row, mean(row) * row.len() as f64).iter().map(|v| v * r).collect())
        },
    },
    Mutant {
        name: "tail-not-summed",
        about: "the mean leaves out the last columns beyond a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8,
        spoil: |right, _, b| {
            with_dx(right, b, |row, r, _| {
                let whole = row.len() / 8 * 8;
                let mean = mean(&row[..whole]) * whole as f64 / row.len() as f64;
                without(row, mean).iter().map(|v| v * r).collect()
            })
        },
    },
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "products-rounded",
    about: "g, xh, their product and its mean are rounded to the 16-bit type",
    applies: shared::rounds,
    spoil: |right, _, b| {
        with_dx(right, b, |row, r, dtype| {
            let round = |v: f64| dtype.round(v);
            let row: Vec<Pair> = row.iter().map(|(g, xh)| (round(*g), round(*xh))).collect();
            let mean = round(row.iter().map(|(g, xh)| round(g * xh)).sum::<f64>() / row.len() as f64);
            row.iter().map(|(g, xh)| round(g - round(xh * mean)) * r).collect()
        })
    },
}];

/// g and xh of one element.
type Pair = (f64, f64);

/// Mean of g * xh.
fn mean(row: &[Pair]) -> f64 {
    row.iter().map(|(g, xh)| g * xh).sum::<f64>() / row.len() as f64
}

fn without(row: &[Pair], mean: f64) -> Vec<f64> {
    row.iter().map(|(g, xh)| g - xh * mean).collect()
}

/// Runs the right impl, then replaces dx by `f` of each row.
fn with_dx(right: Box<dyn Launch>, b: &Buffers, f: Row) -> Box<dyn Launch> {
    let b = b.clone();
    after(right, move || {
        let (x, w) = (read(&b.get("x")), read(&b.get("w")));
        let (dout, rstd) = (read(&b.get("dout")), read(&b.get("rstd")));
        let (n, dtype) = (w.len(), b.get("x").spec().dtype);
        let mut dx = Vec::new();
        for (row, r) in rstd.iter().enumerate() {
            let pairs: Vec<_> = (0..n).map(|i| (dout[row * n + i] * w[i], x[row * n + i] * r)).collect();
            dx.extend(f(&pairs, *r, dtype));
        }
        write(&b.get("dx"), &dx);
    })
}
