//! SwiGLU in plain loops, right and wrong.

use crate::contract::*;
use crate::plain::gate_and_up;

pub fn right(c: &Case, t: &mut Tensors) {
    plain(c, t, &RIGHT)
}

/// Gate and up.
type Halves = (Vec<f64>, Vec<f64>);

/// What kernels get wrong, each as it is right.
struct How {
    gate_and_up: fn(&Case, &Tensors) -> Halves,
    formula: fn(&Case, f64, f64) -> f64,
}

const RIGHT: How = How { gate_and_up, formula: |_, gate, up| silu(gate) * up };

fn silu(gate: f64) -> f64 {
    gate / (1.0 + (-gate).exp())
}

fn plain(c: &Case, t: &mut Tensors, how: &How) {
    let (gate, up) = (how.gate_and_up)(c, t);
    t.put("y", gate.iter().zip(&up).map(|(gate, up)| (how.formula)(c, *gate, *up)).collect());
}

/// A few elements may be the same by chance: a gate near 1, or equal to up.
fn some(c: &Case) -> bool {
    c.axis("m") * c.axis("n") >= 8
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::plain("gate-and-up-swapped", "the sigmoid is that of up", |c, t| {
        plain(c, t, &How { formula: |_, gate, up| silu(up) * gate, ..RIGHT })
    })
    .on(some),
    Mutant::plain("sigmoid-only", "the sigmoid is not multiplied by the gate", |c, t| {
        plain(c, t, &How { formula: |_, gate, up| up / (1.0 + (-gate).exp()), ..RIGHT })
    })
    .on(some),
    Mutant::plain("exp-overflows", "the sigmoid is e^gate / (1 + e^gate), whose exponential overflows", |c, t| {
        let formula = |c: &Case, gate: f64, up: f64| {
            let power = c.acc().round(gate.exp());
            gate * (power / (1.0 + power)) * up
        };
        {
            plain(c, t, &How { formula, ..RIGHT });
            t.is_harmless_unless_nan();
        }
    }),
    Mutant::plain("halves-interleaved", "gate and up are taken from even and odd columns of x", |c, t| {
        let gate_and_up = |_: &Case, t: &Tensors| t.get("x").as_chunks().0.iter().map(|[a, b]| (a, b)).unzip();
        plain(c, t, &How { gate_and_up, ..RIGHT })
    })
    .on(|c| c.attr("form") == "packed" && c.axis("n") > 1 && some(c)),
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant::plain(
    "rounded-between",
    "gate * sigmoid(gate) is rounded to the 16-bit type before it is multiplied by up",
    |c, t| plain(c, t, &How { formula: |c, gate, up| c.dtype.round(silu(gate)) * up, ..RIGHT }),
)
.on(shared::rounds)];
