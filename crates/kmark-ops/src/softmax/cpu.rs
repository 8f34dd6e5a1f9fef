//! Softmax on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], Softmax)
}

struct Softmax;

impl RowKernel for Softmax {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (x, mut y) = (job.input("x"), job.output("y"));
        let mut room = Room::new();
        let powers = room.get(x.n);
        for row in 0..y.rows() {
            let inverse = A::ONE / x.exp_sum(row, powers);
            y.store(row, Ahead::NOTHING, [powers], |[p]| p * inverse);
        }
    }
}
