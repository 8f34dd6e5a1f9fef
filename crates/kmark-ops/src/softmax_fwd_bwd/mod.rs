//! Softmax and its backward in one: y is never rounded and never leaves the kernel.

mod cpu;

use crate::contract::*;
use crate::plain::softmax::{self, How, RIGHT, Rounded};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&softmax::RIGHT, softmax::SOURCE), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("softmax_fwd_bwd"),
    cuda: kernels!("softmax_fwd_bwd", "01_rows"),
    mutants: &[MUTANTS, softmax::MAXIMA],
};

const OP: Op = Op {
    name: "softmax-fwd-bwd",
    about: "dx = y * (dy - sum(dy * y)) with y = softmax(x) per row, y not rounded",
    attrs: &[MEMORY],
    tensors: |c| vec![matrix_in(c, "x", Fill::logits(c.dtype)), matrix_in(c, "dy", NORMAL), matrix_out(c, "dx")],
    // The five of softmax and the four of its backward.
    cost: |c, tensors| Cost::of(tensors, 9 * rows_by_columns(c)),
    invariants: |_| vec![Invariant::RowSum { tensor: "dx", to: 0.0 }],
    oracle,
    ..Op::NEW
};

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, rounding) = (c.axis("n"), truth::Rounding::to(c.dtype));
    let k = sum_slack(c.acc(), n);
    truth::by_row(c, inputs, sink, ["dx"], |row, [dx]| {
        let (x, dy) = (inputs.take("x", row * n, n), inputs.take("dy", row * n, n));
        let s = truth::softmax(&x);
        let off: Vec<f64> = x.iter().zip(&s.p).map(|(x, p)| s.off(*x, *p, k, c.acc())).collect();
        let dot = truth::dot(&s.p, &dy);
        let size: f64 = s.p.iter().zip(&dy).map(|(p, dy)| p * dy.abs()).sum();
        let dot_off: f64 = off.iter().zip(&dy).map(|(off, dy)| off * dy.abs()).sum();
        // As in the backward alone, and y is rounded as well.
        let y_off2: f64 = s.p.iter().zip(&dy).map(|(p, dy)| rounding.square(*p) * dy * dy).sum();
        let loose_dot = truth::loose_dot(&s.p, &dy, rounding) + truth::SURE * y_off2.sqrt();
        for ((p, off), dy) in s.p.iter().zip(&off).zip(&dy) {
            let y = rounding.of(*p) * (dy - dot).abs();
            let loose = rounding.of(p * dy) + p * (loose_dot + rounding.of(dy - dot)) + y;
            dx.put(p * (dy - dot), off * (dy.abs() + size) + p * dot_off, loose);
        }
    });
}

const MUTANTS: &[Mutant] = &[
    softmax::TAIL_NOT_SUMMED,
    softmax::BASE_TWO,
    Mutant::new("forward-only", "y * dy, the diagonal of the Jacobian alone").plain(&How { dot: |_| 0.0, ..RIGHT }),
    shared::PITCH_IGNORED,
    Mutant::loose("y-rounded", "y is rounded to the 16-bit type between forward and backward")
        .plain(&How { rounded: Rounded::Probabilities, ..RIGHT })
        .on(shared::rounds),
];
