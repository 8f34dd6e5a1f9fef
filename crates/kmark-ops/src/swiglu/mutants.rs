//! SwiGLU done wrong.

use crate::mutants::{Mutant, Spoiled, WORKS, after, read, shared, write};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

/// A few elements may be the same by chance: a gate near 1, or equal to up.
fn some(c: &Case) -> bool {
    c.axis("m") * c.axis("n") >= 8
}

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "gate-and-up-swapped",
        about: "the sigmoid is that of up",
        applies: some,
        spoil: |right, c, b| with_y(right, c, b, |gate, up, _| silu(up) * gate),
    },
    Mutant {
        name: "sigmoid-only",
        about: "the sigmoid is not multiplied by the gate",
        applies: some,
        spoil: |right, c, b| with_y(right, c, b, |gate, up, _| up / (1.0 + (-gate).exp())),
    },
    Mutant {
        name: "exp-overflows",
        about: "the sigmoid is e^gate / (1 + e^gate), whose exponential overflows",
        applies: |_| true,
        spoil: |mut right, c, b| {
            let (b, c) = (b.clone(), c.clone());
            Box::new(Spoiled(move || {
                right.launch().expect(WORKS);
                let (gate, up) = shared::gate_and_up(&c, &b);
                let power = |gate: &f64| c.acc().round(gate.exp());
                let sigmoid = |gate: &f64| power(gate) / (1.0 + power(gate));
                let out: Vec<f64> = gate.iter().zip(&up).map(|(gate, up)| gate * sigmoid(gate) * up).collect();
                write(&b.get("y"), &out);
                out.iter().any(|y| y.is_nan())
            }))
        },
    },
    Mutant {
        name: "halves-interleaved",
        about: "gate and up are taken from even and odd columns of x",
        applies: |c| c.attr("form") == "packed" && c.axis("n") > 1 && some(c),
        spoil: |right, _, b| {
            let (x, y) = (b.get("x"), b.get("y"));
            after(right, move || {
                let out: Vec<f64> = read(&x).as_chunks::<2>().0.iter().map(|[gate, up]| silu(*gate) * up).collect();
                write(&y, &out);
            })
        },
    },
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "rounded-between",
    about: "gate * sigmoid(gate) is rounded to the 16-bit type before it is multiplied by up",
    applies: shared::rounds,
    spoil: |right, c, b| with_y(right, c, b, |gate, up, c| c.dtype.round(silu(gate)) * up),
}];

fn silu(gate: f64) -> f64 {
    gate / (1.0 + (-gate).exp())
}

/// Replaces y by `f` of gate and up.
fn with_y(right: Box<dyn Launch>, c: &Case, b: &Buffers, f: fn(f64, f64, &Case) -> f64) -> Box<dyn Launch> {
    let (b, c) = (b.clone(), c.clone());
    after(right, move || {
        let (gate, up) = shared::gate_and_up(&c, &b);
        let out: Vec<f64> = gate.iter().zip(&up).map(|(gate, up)| f(*gate, *up, &c)).collect();
        write(&b.get("y"), &out);
    })
}
