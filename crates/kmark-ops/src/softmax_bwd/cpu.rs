//! Backward of softmax on the CPU.

use crate::cpu::{CpuImpl, Job, Real, RowKernel, by_rows, naive, sum2};
use crate::plain::softmax;
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(softmax::right, include_str!("../plain/softmax.rs")),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], Backward)
}

struct Backward;

impl RowKernel for Backward {
    #[inline(always)]
    fn run<A: Real>(&self, mut job: Job<A>) -> Vec<A> {
        let (mut y, mut dy, mut dx) = (job.input("y"), job.input("dy"), job.output("dx"));
        for row in 0..dx.rows() {
            let ((y, next), (dy, _)) = (y.row(row), dy.row(row));
            let dot = sum2(y, dy, |y, dy| y * dy);
            dx.store(row, next, [y, dy], |[y, dy]| y * (dy - dot));
        }
        Vec::new()
    }
}
