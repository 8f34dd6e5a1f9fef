//! Backward of SwiGLU done wrong.

use crate::mutants::{Mutant, after, read, shared, write};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

/// A few elements may be the same by chance: where the gate is near 0 or 1, or far out.
fn some(c: &Case) -> bool {
    c.axis("m") * c.axis("n") >= 16
}

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "derivative-of-the-sigmoid",
        about: "dgate takes the derivative of sigmoid(gate), not of gate * sigmoid(gate)",
        applies: some,
        spoil: |right, c, b| with_gradients(right, c, b, |e, _| (e.dy * e.up * e.s * (1.0 - e.s), e.dup())),
    },
    Mutant {
        name: "gate-as-a-constant-in-the-sigmoid",
        about: "dgate lacks the factor 1 + gate * (1 - s)",
        applies: some,
        spoil: |right, c, b| with_gradients(right, c, b, |e, _| (e.dy * e.up * e.s, e.dup())),
    },
    Mutant {
        name: "gradients-swapped",
        about: "dgate and dup stand in each other's place",
        applies: some,
        spoil: |right, c, b| with_gradients(right, c, b, |e, _| (e.dup(), e.dgate())),
    },
    Mutant {
        name: "halves-interleaved",
        about: "dgate and dup are written to even and odd columns of dx",
        applies: |c| c.attr("form") == "packed" && c.axis("n") > 1 && some(c),
        spoil: |right, c, b| {
            let (n, dx) = (c.axis("n"), b.get("dx"));
            after(right, move || {
                let (right, mut out) = (read(&dx), Vec::new());
                for (dgate, dup) in right.chunks(2 * n).map(|row| row.split_at(n)) {
                    out.extend(dgate.iter().zip(dup).flat_map(|(dgate, dup)| [*dgate, *dup]));
                }
                write(&dx, &out);
            })
        },
    },
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "dup-in-half",
    about: "gate * s is rounded to the 16-bit type before it is multiplied by dy",
    applies: shared::rounds,
    spoil: |right, c, b| with_gradients(right, c, b, |e, c| (e.dgate(), e.dy * c.dtype.round(e.gate * e.s))),
}];

struct Element {
    gate: f64,
    up: f64,
    dy: f64,
    s: f64,
}

impl Element {
    fn dgate(&self) -> f64 {
        self.dy * self.up * self.s * (1.0 + self.gate * (1.0 - self.s))
    }
    fn dup(&self) -> f64 {
        self.dy * self.gate * self.s
    }
}

/// Replaces dgate and dup by what `f` makes of each element.
fn with_gradients(
    right: Box<dyn Launch>,
    c: &Case,
    b: &Buffers,
    f: fn(&Element, &Case) -> (f64, f64),
) -> Box<dyn Launch> {
    let (n, b, c) = (c.axis("n"), b.clone(), c.clone());
    after(right, move || {
        let (gate, up) = shared::gate_and_up(&c, &b);
        let elements = gate.iter().zip(&up).zip(read(&b.get("dy")));
        let (dgate, dup): (Vec<f64>, Vec<f64>) = elements
            .map(|((gate, up), dy)| f(&Element { gate: *gate, up: *up, dy, s: 1.0 / (1.0 + (-gate).exp()) }, &c))
            .unzip();
        if c.attr("form") == "packed" {
            let dx: Vec<f64> = dgate.chunks(n).zip(dup.chunks(n)).flat_map(|(g, u)| [g, u].concat()).collect();
            write(&b.get("dx"), &dx);
        } else {
            write(&b.get("dgate"), &dgate);
            write(&b.get("dup"), &dup);
        }
    })
}
