//! SwiGLU in plain loops, right and wrong.

use crate::contract::*;
use crate::plain::gate_and_up;

/// Gate and up.
type Halves = (Vec<f64>, Vec<f64>);

/// What kernels get wrong, each as it is right.
pub struct How {
    gate_and_up: fn(&Case, &Tensors) -> Halves,
    formula: fn(&Case, f64, f64) -> f64,
}

pub const RIGHT: How = How { gate_and_up, formula: |_, gate, up| silu(gate) * up };

fn silu(gate: f64) -> f64 {
    gate / (1.0 + (-gate).exp())
}

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let (gate, up) = (self.gate_and_up)(c, t);
        t.put("y", gate.iter().zip(&up).map(|(gate, up)| (self.formula)(c, *gate, *up)).collect());
    }
}

fn by_large_power(c: &Case, gate: f64, up: f64) -> f64 {
    let power = c.acc().round(gate.exp());
    gate * (power / (1.0 + power)) * up
}

/// A few elements may be the same by chance: a gate near 1, or equal to up.
fn some(c: &Case) -> bool {
    c.axis("m") * c.axis("n") >= 8
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("gate-and-up-swapped", "the sigmoid is that of up")
        .plain(&How { formula: |_, gate, up| silu(up) * gate, ..RIGHT })
        .on(some),
    Mutant::new("sigmoid-only", "the sigmoid is not multiplied by the gate")
        .plain(&How { formula: |_, gate, up| up / (1.0 + (-gate).exp()), ..RIGHT })
        .on(some),
    Mutant::new("exp-overflows", "the sigmoid is e^gate / (1 + e^gate), whose exponential overflows")
        .plain(&UnlessNan(How { formula: by_large_power, ..RIGHT })),
    Mutant::new("halves-interleaved", "gate and up are taken from even and odd columns of x")
        .plain(&How { gate_and_up: |_, t| t.get("x").as_chunks().0.iter().map(|[a, b]| (a, b)).unzip(), ..RIGHT })
        .on(|c| c.attr("form") == "packed" && c.axis("n") > 1 && some(c)),
    shared::PITCH_IGNORED,
    Mutant::loose(
        "rounded-between",
        "gate * sigmoid(gate) is rounded to the 16-bit type before it is multiplied by up",
    )
    .plain(&How { formula: |c, gate, up| c.dtype.round(silu(gate)) * up, ..RIGHT })
    .on(shared::rounds),
];
