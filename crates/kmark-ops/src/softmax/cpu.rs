//! Softmax on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], Softmax)
}

struct Softmax;

impl RowKernel for Softmax {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut x, mut y) = (job.input("x"), job.output("y"));
        let mut powers = Vec::new();
        for row in 0..y.rows() {
            let (x, next) = x.row(row);
            powers.resize(x.len(), A::ZERO);
            let inverse = A::ONE / exp_sum(x, next, &mut powers);
            y.store(row, Ahead::NOTHING, [&powers], |[p]| p * inverse);
        }
    }
}
