//! Backward of SwiGLU in plain loops, right and wrong.

use crate::contract::*;
use crate::plain::gate_and_up;

pub fn right(c: &Case, t: &mut Tensors) {
    plain(c, t, &RIGHT)
}

/// What kernels get wrong, each as it is right.
struct How {
    dgate: fn(&Element) -> f64,
    dup: fn(&Element, &Case) -> f64,
    /// Whether the two go into alternate columns of dx.
    interleaves: bool,
}

const RIGHT: How = How {
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

fn plain(c: &Case, t: &mut Tensors, how: &How) {
    let ((gate, up), dy) = (gate_and_up(c, t), t.get("dy"));
    let (mut dgate, mut dup) = (Vec::new(), Vec::new());
    for ((gate, up), dy) in gate.into_iter().zip(up).zip(dy) {
        let e = Element { gate, up, dy, s: 1.0 / (1.0 + (-gate).exp()) };
        dgate.push((how.dgate)(&e));
        dup.push((how.dup)(&e, c));
    }
    let run = if how.interleaves { 1 } else { c.axis("n") };
    t.put("dx", dgate.chunks(run).zip(dup.chunks(run)).flat_map(|(dgate, dup)| [dgate, dup].concat()).collect());
    t.put("dgate", dgate);
    t.put("dup", dup);
}

/// A few elements may be the same by chance: where the gate is near 0 or 1, or far out.
fn some(c: &Case) -> bool {
    c.axis("m") * c.axis("n") >= 16
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::plain(
        "derivative-of-the-sigmoid",
        "dgate takes the derivative of sigmoid(gate), not of gate * sigmoid(gate)",
        |c, t| plain(c, t, &How { dgate: |e| e.dy * e.up * e.s * (1.0 - e.s), ..RIGHT }),
    )
    .on(some),
    Mutant::plain("gate-as-a-constant-in-the-sigmoid", "dgate lacks the factor 1 + gate * (1 - s)", |c, t| {
        plain(c, t, &How { dgate: |e| e.dy * e.up * e.s, ..RIGHT })
    })
    .on(some),
    Mutant::plain("gradients-swapped", "dgate and dup stand in each other's place", |c, t| {
        let dgate = |e: &Element| e.dy * e.gate * e.s;
        plain(c, t, &How { dgate, dup: |e, _| (RIGHT.dgate)(e), ..RIGHT })
    })
    .on(some),
    Mutant::plain("halves-interleaved", "dgate and dup are written to even and odd columns of dx", |c, t| {
        plain(c, t, &How { interleaves: true, ..RIGHT })
    })
    .on(|c| c.attr("form") == "packed" && c.axis("n") > 1 && some(c)),
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] =
    &[Mutant::plain("dup-in-half", "gate * s is rounded to the 16-bit type before it is multiplied by dy", |c, t| {
        plain(c, t, &How { dup: |e, c| e.dy * c.dtype.round(e.gate * e.s), ..RIGHT })
    })
    .on(shared::rounds)];
