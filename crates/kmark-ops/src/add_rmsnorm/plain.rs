//! Residual addition with RMSNorm in plain loops, right and wrong.

use super::outputs;
use crate::contract::*;

pub fn right(c: &Case, t: &mut Tensors) {
    plain(c, t, &RIGHT)
}

/// What kernels get wrong, each as it is right.
struct How {
    /// Whether the residual stays as it is.
    keeps_residual: bool,
    /// Whether the mean square is that of x.
    rstd_of_x: bool,
    /// Whether eps is added to it.
    eps: bool,
    /// The weight of column i of n.
    weight: fn(usize, usize) -> usize,
    /// Whether the sum that is normalised is the other one: rounded or not.
    other_sum: bool,
}

const RIGHT: How = How { keeps_residual: false, rstd_of_x: false, eps: true, weight: |i, _| i, other_sum: false };

fn plain(c: &Case, t: &mut Tensors, how: &How) {
    let (n, eps) = (c.axis("n"), if how.eps { c.number("eps") } else { 0.0 });
    let (x, residual, w) = (t.get("x"), t.get("residual"), t.get("w"));
    let rounds = (c.attr("sum") == "rounded") != how.other_sum;
    let sum: Vec<f64> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
    let z: Vec<f64> = sum.iter().map(|z| if rounds { c.dtype.round(*z) } else { *z }).collect();
    let mut y = Vec::new();
    for (z, x) in z.chunks(n).zip(x.chunks(n)) {
        let of = if how.rstd_of_x { x } else { z };
        let r = 1.0 / (truth::sum(of.iter().map(|v| v * v)) / n as f64 + eps).sqrt();
        y.extend(z.iter().enumerate().map(|(i, z)| z * r * w[(how.weight)(i, n)]));
    }
    t.put(outputs(c).0, y);
    t.put(outputs(c).1, if how.keeps_residual { residual } else { sum });
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::plain("residual-kept", "the new residual is the old one", |c, t| {
        plain(c, t, &How { keeps_residual: true, ..RIGHT })
    }),
    Mutant::plain("rstd-of-x", "the mean square is that of x without the residual", |c, t| {
        plain(c, t, &How { rstd_of_x: true, ..RIGHT })
    }),
    Mutant::plain(
        "eps-missing",
        "eps is left out, so a row of zeros divides by zero and a tiny row is scaled wrongly",
        |c, t| plain(c, t, &How { eps: false, ..RIGHT }),
    ),
    Mutant::plain("weight-shifted", "each column takes its neighbour's weight", |c, t| {
        plain(c, t, &How { weight: |i, n| (i + 1) % n, ..RIGHT })
    })
    // Two or three weights may be near each other by chance.
    .on(|c| c.axis("n") >= 4),
    shared::PITCH_IGNORED,
];

/// Right, but rounding at another place than the contract says. Wider types add and store in one precision; short rows
/// are 1 up to a sign whatever the rounding.
pub const LOOSE: &[Mutant] = &[
    Mutant::plain(
        "unrounded-sum",
        "normalises x + residual before it is rounded, so that y does not belong to z",
        |c, t| plain(c, t, &How { other_sum: true, ..RIGHT }),
    )
    .on(|c| c.attr("sum") == "rounded" && shared::rounds(c)),
    Mutant::plain("rounded-sum", "normalises the sum as z holds it where the exact one is asked for", |c, t| {
        plain(c, t, &How { other_sum: true, ..RIGHT })
    })
    .on(|c| c.attr("sum") == "exact" && shared::rounds(c)),
];
