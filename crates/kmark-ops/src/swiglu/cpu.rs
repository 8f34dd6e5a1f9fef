//! SwiGLU on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], SwiGlu { n: c.axis("n"), packed: c.attr("form") == "packed" })
}

struct SwiGlu {
    n: usize,
    packed: bool,
}

impl RowKernel for SwiGlu {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut gate, mut up, up_at) = match self.packed {
            true => (job.input("x"), job.input("x"), self.n),
            false => (job.input("gate"), job.input("up"), 0),
        };
        let mut y = job.output("y");
        for row in 0..y.rows() {
            for at in (0..self.n).step_by(PIECE) {
                let len = PIECE.min(self.n - at);
                let ((gate, next), (up, _)) = (gate.piece(row, at, len), up.piece(row, up_at + at, len));
                y.store_piece(row, at, len, next, [gate, up], gated);
            }
        }
    }
}

#[inline(always)]
fn gated<A: Real>([gate, up]: [A; 2]) -> A {
    gate * sigmoid(gate) * up
}
