//! Rows times a number on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &["a"], Scale)
}

struct Scale;

impl RowKernel for Scale {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut x, mut y, a) = (job.input("x"), job.output("y"), job.shared("a")[0]);
        for row in 0..y.rows() {
            let (x, next) = x.row(row);
            y.store(row, next, [x], |[x]| a * x);
        }
    }
}
