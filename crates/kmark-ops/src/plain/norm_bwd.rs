//! Backward of norms in plain loops: that of LayerNorm, and that of RMSNorm, which is the same without the two means that
//! centre; and what both get wrong.

use crate::contract::*;
use crate::truth::{Sum, norms::mean};

/// What a row adds to a column.
type Term<'a> = &'a dyn Fn(usize, usize) -> f64;

/// What kernels get wrong, each as it is right.
pub struct How {
    /// Means in a row: of g, and of xh * g.
    pub g_mean: fn(&[f64]) -> f64,
    pub dot_mean: fn(&[f64]) -> f64,
    /// Whether the mean of x is taken from x, for dx.
    pub centres: bool,
    /// Whether dx is multiplied by rstd.
    pub scales: bool,
    /// Whether g, xh, their product, the means and what is made of them are rounded.
    pub rounds: bool,
    /// From the term of a row and a column.
    pub dw: fn(&Case, &mut Tensors, Term) -> Vec<f64>,
    /// What dbias adds up, of dout and the weight.
    pub dbias: fn(f64, f64) -> f64,
}

/// What `cpu/naive` is made of.
pub const SOURCE: &str = include_str!("norm_bwd.rs");

pub const RIGHT: How = How {
    g_mean: mean,
    dot_mean: mean,
    centres: true,
    scales: true,
    rounds: false,
    dw: |c, _, term| columns(0..c.axis("m"), c.axis("n"), term),
    dbias: |dout, _| dout,
};

/// Sums over rows, of every column.
fn columns(rows: Range<usize>, n: usize, term: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let mut sums = vec![Sum::default(); n];
    for row in rows {
        sums.iter_mut().enumerate().for_each(|(i, sum)| sum.add(term(row, i)));
    }
    sums.iter().map(Sum::total).collect()
}

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let (m, n) = (c.axis("m"), c.axis("n"));
        let (x, w, dout, rstd) = (t.get("x"), t.get("w"), t.get("dout"), t.get("rstd"));
        let means = if t.has("mean") { t.get("mean") } else { vec![0.0; m] };
        let round = |v: f64| if self.rounds { c.dtype.round(v) } else { v };
        let mut dx = Vec::new();
        for row in 0..m {
            let (mean, r) = (if self.centres { means[row] } else { 0.0 }, rstd[row]);
            let at = row * n..(row + 1) * n;
            let g: Vec<f64> = dout[at.clone()].iter().zip(&w).map(|(d, w)| round(d * w)).collect();
            let xh: Vec<f64> = x[at].iter().map(|x| round((x - mean) * r)).collect();
            let products: Vec<f64> = g.iter().zip(&xh).map(|(g, xh)| round(g * xh)).collect();
            let g_mean = if t.has("mean") { round((self.g_mean)(&g)) } else { 0.0 };
            let dot_mean = round((self.dot_mean)(&products));
            let scale = if self.scales { r } else { 1.0 };
            dx.extend(g.iter().zip(&xh).map(|(g, xh)| round(round(g - g_mean) - round(xh * dot_mean)) * scale));
        }
        t.put("dx", dx);
        let dw = (self.dw)(c, t, &|row, i| dout[row * n + i] * (x[row * n + i] - means[row]) * rstd[row]);
        t.put("dw", dw);
        if t.has("dbias") {
            t.put("dbias", columns(0..m, n, |row, i| (self.dbias)(dout[row * n + i], w[i])));
        }
    }
}

pub const WRONG_DW: &[Mutant] = &[
    Mutant::new("dw-loses-rows", "the first sixteenth of the rows is not added to dw")
        .plain(&How { dw: without_first_rows, ..RIGHT })
        .on(|c| c.axis("m") >= 16 && c.axis("n") > 1),
    Mutant::new("dw-in-half", "dw is accumulated in the 16-bit type of the activations")
        .plain(&How { dw: in_half, ..RIGHT })
        .on(|c| c.dtype.size() == 2 && c.axis("m") >= 32 && c.axis("n") >= 8),
];

/// A row that is all zero is not missed.
fn without_first_rows(c: &Case, t: &mut Tensors, term: Term) -> Vec<f64> {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let dw = columns(m / 16..m, n, term);
    if dw == columns(0..m, n, term) {
        t.is_harmless();
    }
    dw
}

fn in_half(c: &Case, t: &mut Tensors, term: Term) -> Vec<f64> {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let mut dw = vec![0.0; n];
    for row in 0..m {
        dw.iter_mut().enumerate().for_each(|(i, dw)| *dw = c.dtype.round(*dw + term(row, i)));
    }
    // In a sum of few rows this is no worse than rounding each term.
    let (exact, squares) = (columns(0..m, n, term), columns(0..m, n, |row, i| term(row, i).powi(2)));
    if (0..n).all(|i| (dw[i] - exact[i]).abs() <= 6.0 * c.dtype.unit() * squares[i].sqrt()) {
        t.is_harmless();
    }
    dw
}
