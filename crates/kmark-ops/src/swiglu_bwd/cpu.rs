//! Backward of SwiGLU on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], Backward { n: c.axis("n"), packed: c.attr("form") == "packed" })
}

struct Backward {
    n: usize,
    packed: bool,
}

impl RowKernel for Backward {
    /// The sigmoid of a piece is computed once for both gradients.
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let mut dy = job.input("dy");
        // Packed, up lies behind gate in one tensor, and dup behind dgate.
        let (mut gate, mut up, mut outs, up_at) = match self.packed {
            true => (job.input("x"), job.input("x"), vec![job.output("dx")], self.n),
            false => (job.input("gate"), job.input("up"), vec![job.output("dgate"), job.output("dup")], 0),
        };
        let (mut sigmoids, one, last) = (vec![A::ZERO; self.n.min(PIECE)], A::ONE, outs.len() - 1);
        for row in 0..outs[0].rows() {
            for at in (0..self.n).step_by(PIECE) {
                let len = PIECE.min(self.n - at);
                let ((gate, gate_next), (up, up_next)) = (gate.piece(row, at, len), up.piece(row, up_at + at, len));
                let (dy, _) = dy.piece(row, at, len);
                let s = &mut sigmoids[..len];
                s.iter_mut().zip(gate).for_each(|(s, gate)| *s = sigmoid(*gate));
                outs[0].store_piece(row, at, len, gate_next, [gate, up, dy, s], |[gate, up, dy, s]| {
                    dy * up * s * (one + gate * (one - s))
                });
                outs[last].store_piece(row, up_at + at, len, up_next, [gate, dy, s], |[gate, dy, s]| dy * gate * s);
            }
        }
    }
}
