//! Softmax with its backward on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], Both)
}

struct Both;

impl RowKernel for Both {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut x, mut dy, mut dx) = (job.input("x"), job.input("dy"), job.output("dx"));
        let mut powers = Vec::new();
        for row in 0..dx.rows() {
            let ((x, next), (dy, dy_next)) = (x.row(row), dy.row(row));
            powers.resize(x.len(), A::ZERO);
            let inverse = A::ONE / exp_sum(x, next, &mut powers);
            let dot = sum2(&powers, dy, |p, dy| p * dy) * inverse;
            dx.store(row, dy_next, [&powers, dy], |[p, dy]| p * inverse * (dy - dot));
        }
    }
}
