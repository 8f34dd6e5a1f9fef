//! RMSNorm in plain loops, right and wrong.

use crate::contract::*;
use crate::truth::sum;

/// What kernels get wrong, each as it is right.
pub struct How {
    /// From the sum of squares, n and eps.
    rstd: fn(f64, f64, f64) -> f64,
    /// The weight of column i of n.
    weight: fn(usize, usize) -> usize,
    /// Whether row i of m is multiplied by rstd.
    scales: fn(usize, usize) -> bool,
    /// Whether x * rstd is rounded.
    rounds: bool,
}

pub const RIGHT: How = How {
    rstd: |squares, n, eps| 1.0 / (squares / n + eps).sqrt(),
    weight: |i, _| i,
    scales: |_, _| true,
    rounds: false,
};

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let (m, n, eps) = (c.axis("m"), c.axis("n"), c.number("eps"));
        let (x, w) = (t.get("x"), t.get("w"));
        let round = |v: f64| if self.rounds { c.dtype.round(v) } else { v };
        let (mut y, mut rstd) = (Vec::new(), Vec::new());
        for (row, x) in x.chunks(n).enumerate() {
            let r = (self.rstd)(sum(x.iter().map(|v| v * v)), n as f64, eps);
            let scale = if (self.scales)(row, m) { r } else { 1.0 };
            y.extend(x.iter().enumerate().map(|(i, x)| round(x * scale) * w[(self.weight)(i, n)]));
            rstd.push(r);
        }
        t.put("y", y);
        t.put("rstd", rstd);
    }
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("eps-missing", "eps is left out, so a row of zeros divides by zero and a tiny row is scaled wrongly")
        .plain(&How { rstd: |squares, n, _| 1.0 / (squares / n).sqrt(), ..RIGHT }),
    Mutant::new("eps-outside-the-root", "eps is added to the root, not to the mean square")
        .plain(&How { rstd: |squares, n, eps| 1.0 / ((squares / n).sqrt() + eps), ..RIGHT }),
    Mutant::new("mean-over-padded-n", "the mean divides by n rounded up to a multiple of 8")
        .plain(&How {
            rstd: |squares: f64, n: f64, eps: f64| 1.0 / (squares / ((n / 8.0).ceil() * 8.0) + eps).sqrt(),
            ..RIGHT
        })
        .on(|c| !c.axis("n").is_multiple_of(8) && shows(c, c.axis("n").next_multiple_of(8) - c.axis("n"))),
    Mutant::new("mean-over-n-less-one", "the mean divides by n - 1")
        .plain(&How { rstd: |squares, n, eps| 1.0 / (squares / (n - 1.0) + eps).sqrt(), ..RIGHT })
        .on(|c| c.axis("n") > 1 && shows(c, 1)),
    Mutant::new("weight-shifted", "each column takes its neighbour's weight")
        .plain(&How { weight: |i, n| (i + 1) % n, ..RIGHT })
        // Two or three weights may be near each other by chance.
        .on(|c| c.axis("n") >= 4),
    Mutant::new("half-the-rows-unscaled", "rows of the second half are not multiplied by rstd")
        .plain(&How { scales: |row, m| row < m / 2, ..RIGHT })
        // Up to nine ordinary rows, whose rstd is about 1, may stand beside each other.
        .on(|c| c.axis("m") >= 24),
    shared::PITCH_IGNORED,
    Mutant::loose("row-rounded", "x * rstd is rounded to the 16-bit type before it is multiplied by the weight")
        .plain(&How { rounds: true, ..RIGHT })
        .on(shared::rounds),
];

/// Whether it shows that n is taken for one that differs by `by`: rstd is off by half as much, and is an output, or 16 bits
/// resolve it.
fn shows(c: &Case, by: usize) -> bool {
    c.flag("rstd") || shared::resolves(c, 0.5 * by as f64 / (c.axis("n") + by) as f64)
}
