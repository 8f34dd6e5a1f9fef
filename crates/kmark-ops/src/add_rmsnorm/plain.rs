//! Residual addition with RMSNorm in plain loops, right and wrong.

use super::outputs;
use crate::contract::*;

/// What kernels get wrong, each as it is right.
pub struct How {
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

pub const RIGHT: How = How { keeps_residual: false, rstd_of_x: false, eps: true, weight: |i, _| i, other_sum: false };

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let (n, eps) = (c.axis("n"), if self.eps { c.number("eps") } else { 0.0 });
        let (x, residual, w) = (t.get("x"), t.get("residual"), t.get("w"));
        let rounds = (c.attr("sum") == "rounded") != self.other_sum;
        let sum: Vec<f64> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
        let z: Vec<f64> = sum.iter().map(|z| if rounds { c.dtype.round(*z) } else { *z }).collect();
        let mut y = Vec::new();
        for (z, x) in z.chunks(n).zip(x.chunks(n)) {
            let of = if self.rstd_of_x { x } else { z };
            let r = truth::norms::rms_rstd(of, eps);
            y.extend(z.iter().enumerate().map(|(i, z)| z * r * w[(self.weight)(i, n)]));
        }
        t.put(outputs(c).0, y);
        t.put(outputs(c).1, if self.keeps_residual { residual } else { sum });
    }
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("residual-kept", "the new residual is the old one").plain(&How { keeps_residual: true, ..RIGHT }),
    Mutant::new("rstd-of-x", "the mean square is that of x without the residual")
        .plain(&How { rstd_of_x: true, ..RIGHT }),
    Mutant::new("eps-missing", "eps is left out, so a row of zeros divides by zero and a tiny row is scaled wrongly")
        .plain(&How { eps: false, ..RIGHT }),
    Mutant::new("weight-shifted", "each column takes its neighbour's weight")
        .plain(&How { weight: |i, n| (i + 1) % n, ..RIGHT })
        // Two or three weights may be near each other by chance.
        .on(|c| c.axis("n") >= 4),
    shared::PITCH_IGNORED,
    // Right, but rounding at another place than the contract says. Wider types add and store in one precision; short rows
    // are 1 up to a sign whatever the rounding.
    Mutant::loose("unrounded-sum", "normalises x + residual before it is rounded, so that y does not belong to z")
        .plain(&How { other_sum: true, ..RIGHT })
        .on(|c| c.attr("sum") == "rounded" && shared::rounds(c)),
    Mutant::loose("rounded-sum", "normalises the sum as z holds it where the exact one is asked for")
        .plain(&How { other_sum: true, ..RIGHT })
        .on(|c| c.attr("sum") == "exact" && shared::rounds(c)),
];
