//! GELU in plain loops, right and wrong.

use super::{CUBE, ROOT, by_erf, by_tanh};
use crate::contract::*;

/// What kernels get wrong, each as it is right.
pub struct How {
    /// Of x, whether it is the exact one that is asked for, and the tensors' type.
    formula: fn(f64, bool, DType) -> f64,
    /// Whether column i of n goes through the formula.
    activates: fn(usize, usize) -> bool,
}

pub const RIGHT: How = How { formula: |x, exact, _| gelu(x, exact), activates: |_, _| true };

fn gelu(x: f64, exact: bool) -> f64 {
    if exact { by_erf(x) } else { by_tanh(x) }
}

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let (n, exact) = (c.axis("n"), c.attr("approx") == "erf");
        let mut y = t.get("x");
        for (_, v) in y.iter_mut().enumerate().filter(|(i, _)| (self.activates)(i % n, n)) {
            *v = (self.formula)(*v, exact, c.dtype);
        }
        t.put("y", y);
    }
}

fn by_large_power(x: f64, _: bool, dtype: DType) -> f64 {
    let e = dtype.accumulator().round((2.0 * ROOT * (x + CUBE * x.powi(3))).exp());
    0.5 * x * (1.0 + (e - 1.0) / (e + 1.0))
}

/// Few elements may all lie where one formula is as good as another: near zero, or far out.
fn many(c: &Case) -> bool {
    c.axis("m") * c.axis("n") >= 64
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("other-formula", "tanh where erf is asked for, and the reverse: 5e-4 apart at the most")
        .plain(&How { formula: |x, exact, _| gelu(x, !exact), ..RIGHT })
        .on(many),
    Mutant::new("sigmoid-formula", "x * sigmoid(1.702 x), as some models want it")
        .plain(&How { formula: |x, _, _| x / (1.0 + (-1.702 * x).exp()), ..RIGHT })
        .on(many),
    Mutant::new("half-missing", "the factor 0.5 is left out")
        .plain(&How { formula: |x, exact, _| 2.0 * gelu(x, exact), ..RIGHT })
        .on(|c| c.axis("m") * c.axis("n") >= 4),
    Mutant::new("cube-missing", "the tanh is that of sqrt(2 / pi) x")
        .plain(&How { formula: |x, _, _| x / (1.0 + (-2.0 * ROOT * x).exp()), ..RIGHT })
        .on(|c| c.attr("approx") == "tanh" && many(c)),
    Mutant::new("tanh-overflows", "the tanh is (e^2z - 1) / (e^2z + 1), whose exponential overflows")
        .plain(&UnlessNan(How { formula: by_large_power, ..RIGHT }))
        .on(|c| c.attr("approx") == "tanh"),
    Mutant::new("tail-not-activated", "the last columns beyond a multiple of 8 are copied")
        .plain(&How { activates: |i, n| i < n / 8 * 8, ..RIGHT })
        // A large x is its own GELU; eight of them are not all large.
        .on(|c| c.axis("m") * (c.axis("n") % 8) >= 8),
    shared::PITCH_IGNORED,
    Mutant::loose("factor-rounded", "what x is multiplied with is rounded to the 16-bit type")
        .plain(&How {
            formula: |x, exact, dtype| dtype.round(if x == 0.0 { 0.5 } else { gelu(x, exact) / x }) * x,
            ..RIGHT
        })
        .on(shared::rounds),
];
