//! SwiGLU on the CPU.

use super::plain;
use crate::cpu::{CpuImpl, Job, PIECE, Real, RowKernel, by_rows, naive, sigmoid};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], SwiGlu { n: c.axis("n"), packed: c.attr("form") == "packed" })
}

struct SwiGlu {
    n: usize,
    packed: bool,
}

impl RowKernel for SwiGlu {
    #[inline(always)]
    fn run<A: Real>(&self, mut job: Job<A>) -> Vec<A> {
        let (mut gate, mut up, up_at) = match self.packed {
            true => (job.input("x"), job.input("x"), self.n),
            false => (job.input("gate"), job.input("up"), 0),
        };
        let mut y = job.output("y");
        for row in 0..y.rows() {
            for at in (0..self.n).step_by(PIECE) {
                let len = PIECE.min(self.n - at);
                let ((gate, next), (up, _)) = (gate.piece(row, at, len), up.piece(row, up_at + at, len));
                y.store_piece(
                    row,
                    at,
                    len,
                    next,
                    [gate, up],
                    #[inline(always)]
                    |[gate, up]| gate * sigmoid(gate) * up,
                );
            }
        }
        Vec::new()
    }
}
