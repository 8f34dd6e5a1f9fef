//! Backward of LayerNorm done wrong.

use crate::mutants::{Mutant, after, read, shared, write};
use kmark_core::dtype::DType;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    shared::DW_LOSES_ROWS,
    shared::DW_IN_HALF,
    Mutant {
        name: "mean-of-g-missing",
        about: "the mean of g is not subtracted, as in the backward of RMSNorm",
        applies: |_| true,
        spoil: |right, _, b| {
            with_dx(right, b, |row| row.g.iter().zip(&row.xh).map(|(g, xh)| g - xh * dot(row)).collect())
        },
    },
    Mutant {
        name: "xh-not-centred",
        about: "xh = x * rstd, the mean of x is left out",
        applies: |c| c.axis("n") > 1,
        spoil: |right, _, b| {
            with_dx(right, b, |row| {
                let xh: Vec<f64> = row.xh.iter().map(|v| v + row.mean * row.rstd).collect();
                let dot = xh.iter().zip(&row.g).map(|(xh, g)| xh * g).sum::<f64>() / xh.len() as f64;
                row.g.iter().zip(&xh).map(|(g, xh)| g - average(&row.g) - xh * dot).collect()
            })
        },
    },
    Mutant {
        name: "means-over-padded-n",
        about: "both means divide by n rounded up to a multiple of 8",
        applies: |c| {
            let (n, padded) = (c.axis("n"), c.axis("n").next_multiple_of(8));
            // Of the terms that it scales only a part stays beside g.
            n < padded && n < 256 && shared::resolves(c, 0.25 * (padded - n) as f64 / padded as f64)
        },
        spoil: |right, _, b| {
            with_dx(right, b, |row| {
                let part = row.g.len() as f64 / row.g.len().next_multiple_of(8) as f64;
                row.g.iter().zip(&row.xh).map(|(g, xh)| g - (average(&row.g) + xh * dot(row)) * part).collect()
            })
        },
    },
    Mutant {
        name: "dbias-weighted",
        about: "dbias adds up g instead of dout",
        applies: |c| c.flag("bias") && c.axis("n") >= 8,
        spoil: |right, _, b| {
            let (w, dbias) = (b.get("w"), b.get("dbias"));
            after(right, move || {
                let out: Vec<f64> = read(&dbias).iter().zip(read(&w)).map(|(d, w)| d * w).collect();
                write(&dbias, &out);
            })
        },
    },
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "products-rounded",
    about: "g, xh, their product and the means are rounded to the 16-bit type",
    applies: shared::rounds,
    spoil: |right, _, b| {
        with_dx(right, b, |row| {
            let round = |v: &f64| row.dtype.round(*v);
            let (g, xh): (Vec<f64>, Vec<f64>) = (row.g.iter().map(round).collect(), row.xh.iter().map(round).collect());
            let products: Vec<f64> = g.iter().zip(&xh).map(|(g, xh)| round(&(g * xh))).collect();
            let (mean, dot) = (round(&average(&g)), round(&average(&products)));
            g.iter().zip(&xh).map(|(g, xh)| round(&(round(&(g - mean)) - round(&(xh * dot))))).collect()
        })
    },
}];

struct Gradient {
    g: Vec<f64>,
    xh: Vec<f64>,
    mean: f64,
    rstd: f64,
    dtype: DType,
}

fn average(v: &[f64]) -> f64 {
    v.iter().sum::<f64>() / v.len() as f64
}

fn dot(row: &Gradient) -> f64 {
    row.g.iter().zip(&row.xh).map(|(g, xh)| g * xh).sum::<f64>() / row.g.len() as f64
}

/// Runs the right impl, then replaces dx by `f` of each row, times rstd.
fn with_dx(right: Box<dyn Launch>, b: &Buffers, f: fn(&Gradient) -> Vec<f64>) -> Box<dyn Launch> {
    let b = b.clone();
    after(right, move || {
        let (x, w, dout) = (read(&b.get("x")), read(&b.get("w")), read(&b.get("dout")));
        let (n, dtype) = (w.len(), b.get("x").spec().dtype);
        let mut dx = Vec::new();
        for (row, (mean, rstd)) in read(&b.get("mean")).into_iter().zip(read(&b.get("rstd"))).enumerate() {
            let at = row * n..(row + 1) * n;
            let g = dout[at.clone()].iter().zip(&w).map(|(d, w)| d * w).collect();
            let xh = x[at].iter().map(|x| (x - mean) * rstd).collect();
            dx.extend(f(&Gradient { g, xh, mean, rstd, dtype }).into_iter().map(|v| v * rstd));
        }
        write(&b.get("dx"), &dx);
    })
}
