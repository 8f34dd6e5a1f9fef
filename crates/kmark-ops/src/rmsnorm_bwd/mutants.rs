//! Backward of RMSNorm done wrong.

use crate::mutants::{Mutant, after, read, shared, write};
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    shared::DW_LOSES_ROWS,
    shared::DW_IN_HALF,
    Mutant {
        name: "mean-term-missing",
        about: "dx = g * rstd, as if rstd did not depend on x",
        applies: |_| true,
        spoil: |right, _, b| with_dx(right, b, |row, r| row.iter().map(|(g, _)| g * r).collect()),
    },
    Mutant {
        name: "rstd-once",
        about: "the factor rstd in front of dx is missing",
        applies: |c| c.axis("m") > 5,
        spoil: |right, _, b| with_dx(right, b, |row, _| without(row, mean(row))),
    },
    Mutant {
        name: "mean-is-a-sum",
        about: "the product of xh and g is summed and not divided by n",
        applies: |c| c.axis("n") > 1,
        spoil: |right, _, b| {
            with_dx(right, b, |row, r| without(row, mean(row) * row.len() as f64).iter().map(|v| v * r).collect())
        },
    },
    Mutant {
        name: "tail-not-summed",
        about: "the mean leaves out the last columns beyond a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8 && c.axis("n") < 2048 && c.axis("m") > 15,
        spoil: |right, _, b| {
            with_dx(right, b, |row, r| {
                let whole = row.len() / 8 * 8;
                let mean = mean(&row[..whole]) * whole as f64 / row.len() as f64;
                without(row, mean).iter().map(|v| v * r).collect()
            })
        },
    },
    shared::PITCH_IGNORED,
];

/// g and xh of one element.
type Pair = (f64, f64);

/// Mean of g * xh.
fn mean(row: &[Pair]) -> f64 {
    row.iter().map(|(g, xh)| g * xh).sum::<f64>() / row.len() as f64
}

fn without(row: &[Pair], mean: f64) -> Vec<f64> {
    row.iter().map(|(g, xh)| g - xh * mean).collect()
}

/// Runs the right impl, then replaces dx by `f` of each row's (g, xh) and its rstd.
fn with_dx(right: Box<dyn Launch>, b: &Buffers, f: fn(&[Pair], f64) -> Vec<f64>) -> Box<dyn Launch> {
    let b = b.clone();
    after(right, move || {
        let (x, w) = (read(&b.get("x")), read(&b.get("w")));
        let (dout, rstd) = (read(&b.get("dout")), read(&b.get("rstd")));
        let n = w.len();
        let mut dx = Vec::new();
        for (row, r) in rstd.iter().enumerate() {
            let pairs: Vec<_> = (0..n).map(|i| (dout[row * n + i] * w[i], x[row * n + i] * r)).collect();
            dx.extend(f(&pairs, *r));
        }
        write(&b.get("dx"), &dx);
    })
}
