//! Backward of softmax on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], Backward)
}

struct Backward;

impl RowKernel for Backward {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut y, mut dy, mut dx) = (job.input("y"), job.input("dy"), job.output("dx"));
        for row in 0..dx.rows() {
            let ((y, next), (dy, _)) = (y.row(row), dy.row(row));
            let dot = sum2(y, dy, |y, dy| y * dy);
            dx.store(row, next, [y, dy], |[y, dy]| y * (dy - dot));
        }
    }
}
