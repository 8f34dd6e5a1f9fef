//! Softmax with its backward on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], Both)
}

struct Both;

impl RowKernel for Both {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (x, mut dy, mut dx) = (job.input("x"), job.input("dy"), job.output("dx"));
        let mut room = Room::new();
        let powers = room.get(x.n);
        for row in 0..dx.rows() {
            let (inverse, (dy, next)) = (A::ONE / x.exp_sum(row, powers), dy.row(row));
            let dot = sum2(powers, dy, |p, dy| p * dy) * inverse;
            dx.store(row, next, [powers, dy], |[p, dy]| p * inverse * (dy - dot));
        }
    }
}
