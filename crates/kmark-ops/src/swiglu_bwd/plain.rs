//! Backward of SwiGLU in plain loops, right and wrong.

use crate::contract::*;
use crate::plain::gate_and_up;

/// What kernels get wrong, each as it is right.
pub struct How {
    dgate: fn(&Element) -> f64,
    dup: fn(&Element, &Case) -> f64,
    /// Whether the two go into alternate columns of dx.
    interleaves: bool,
}

pub const RIGHT: How = How {
    dgate: |e| e.dy * e.up * e.s * (1.0 + e.gate * (1.0 - e.s)),
    dup: |e, _| e.dy * e.gate * e.s,
    interleaves: false,
};

struct Element {
    gate: f64,
    up: f64,
    dy: f64,
    /// The gate's sigmoid.
    s: f64,
}

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let ((gate, up), dy) = (gate_and_up(c, t), t.get("dy"));
        let (mut dgate, mut dup) = (Vec::new(), Vec::new());
        for ((gate, up), dy) in gate.into_iter().zip(up).zip(dy) {
            let e = Element { gate, up, dy, s: 1.0 / (1.0 + (-gate).exp()) };
            dgate.push((self.dgate)(&e));
            dup.push((self.dup)(&e, c));
        }
        let run = if self.interleaves { 1 } else { c.axis("n") };
        t.put("dx", dgate.chunks(run).zip(dup.chunks(run)).flat_map(|(dgate, dup)| [dgate, dup].concat()).collect());
        t.put("dgate", dgate);
        t.put("dup", dup);
    }
}

/// A few elements may be the same by chance: where the gate is near 0 or 1, or far out.
fn some(c: &Case) -> bool {
    c.axis("m") * c.axis("n") >= 16
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "derivative-of-the-sigmoid",
        "dgate takes the derivative of sigmoid(gate), not of gate * sigmoid(gate)",
    )
    .plain(&How { dgate: |e| e.dy * e.up * e.s * (1.0 - e.s), ..RIGHT })
    .on(some),
    Mutant::new("gate-as-a-constant-in-the-sigmoid", "dgate lacks the factor 1 + gate * (1 - s)")
        .plain(&How { dgate: |e| e.dy * e.up * e.s, ..RIGHT })
        .on(some),
    Mutant::new("gradients-swapped", "dgate and dup stand in each other's place")
        .plain(&How { dgate: |e: &Element| e.dy * e.gate * e.s, dup: |e, _| (RIGHT.dgate)(e), ..RIGHT })
        .on(some),
    Mutant::new("halves-interleaved", "dgate and dup are written to even and odd columns of dx")
        .plain(&How { interleaves: true, ..RIGHT })
        .on(|c| c.attr("form") == "packed" && c.axis("n") > 1 && some(c)),
    shared::PITCH_IGNORED,
    Mutant::loose("dup-in-half", "gate * s is rounded to the 16-bit type before it is multiplied by dy")
        .plain(&How { dup: |e, c| e.dy * c.dtype.round(e.gate * e.s), ..RIGHT })
        .on(shared::rounds),
];
