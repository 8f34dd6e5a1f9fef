//! Backward of RMSNorm done wrong.

use crate::mutants::{Mutant, after, read, shared, write};
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub static MUTANTS: &[Mutant] = &[
    shared::DW_LOSES_ROWS,
    shared::DW_IN_HALF,
    Mutant {
        name: "mean-term-missing",
        about: "dx = g * rstd, as if rstd did not depend on x",
        applies: |_| true,
        spoil: |right, _, b| with_dx(right, b, |row| row.iter().map(|(g, _)| (*g, 1.0)).collect()),
    },
    Mutant {
        name: "rstd-once",
        about: "the factor rstd in front of dx is missing",
        applies: |c| c.axis("m") > 5,
        spoil: |right, _, b| with_dx(right, b, |row| projected(row).into_iter().map(|v| (v, 0.0)).collect()),
    },
    Mutant {
        name: "mean-is-a-sum",
        about: "the product of xh and g is summed and not divided by n",
        applies: |c| c.axis("n") > 1,
        spoil: |right, _, b| {
            with_dx(right, b, |row| {
                let dot: f64 = row.iter().map(|(g, xh)| g * xh).sum();
                row.iter().map(|(g, xh)| (g - xh * dot, 1.0)).collect()
            })
        },
    },
    Mutant {
        name: "tail-not-summed",
        about: "the mean leaves out the last columns beyond a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8 && c.axis("n") < 2048 && c.axis("m") > 15,
        spoil: |right, _, b| {
            with_dx(right, b, |row| {
                let n = row.len();
                let mean = row[..n / 8 * 8].iter().map(|(g, xh)| g * xh).sum::<f64>() / n as f64;
                row.iter().map(|(g, xh)| (g - xh * mean, 1.0)).collect()
            })
        },
    },
];

fn projected(row: &[(f64, f64)]) -> Vec<f64> {
    let mean = row.iter().map(|(g, xh)| g * xh).sum::<f64>() / row.len() as f64;
    row.iter().map(|(g, xh)| g - xh * mean).collect()
}

/// Runs the right impl, then replaces dx. `f` gets (g, xh) of a row and returns for each column a value and the power of
/// rstd to multiply it with.
fn with_dx(right: Box<dyn Launch>, b: &Buffers, f: fn(&[(f64, f64)]) -> Vec<(f64, f64)>) -> Box<dyn Launch> {
    let b = b.clone();
    after(right, move || {
        let (x, w) = (read(&b.get("x")), read(&b.get("w")));
        let (dout, rstd) = (read(&b.get("dout")), read(&b.get("rstd")));
        let n = w.len();
        let mut dx = Vec::new();
        for (row, r) in rstd.iter().enumerate() {
            let pairs: Vec<_> = (0..n).map(|i| (dout[row * n + i] * w[i], x[row * n + i] * r)).collect();
            dx.extend(f(&pairs).into_iter().map(|(v, power)| v * r.powf(power)));
        }
        write(&b.get("dx"), &dx);
    })
}
