//! Softmax with its backward on the CPU.

use crate::cpu::{CpuImpl, Job, Real, RowKernel, by_rows, exp_sum, naive, sum2};
use crate::plain::softmax;
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(softmax::right, include_str!("../plain/softmax.rs")),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], Both)
}

struct Both;

impl RowKernel for Both {
    #[inline(always)]
    fn run<A: Real>(&self, mut job: Job<A>) -> Vec<A> {
        let (mut x, mut dy, mut dx) = (job.input("x"), job.input("dy"), job.output("dx"));
        let mut powers = Vec::new();
        for row in 0..dx.rows() {
            let ((x, next), (dy, dy_next)) = (x.row(row), dy.row(row));
            powers.resize(x.len(), A::ZERO);
            let inverse = A::ONE / exp_sum(x, next, &mut powers);
            let dot = sum2(&powers, dy, |p, dy| p * dy) * inverse;
            dx.store(row, dy_next, [&powers, dy], |[p, dy]| p * inverse * (dy - dot));
        }
        Vec::new()
    }
}
