//! Softmax on the CPU.

use crate::cpu::{Ahead, CpuImpl, Job, Real, RowKernel, by_rows, exp_sum, naive};
use crate::plain::softmax;
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(softmax::right, include_str!("../plain/softmax.rs")),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], Softmax)
}

struct Softmax;

impl RowKernel for Softmax {
    #[inline(always)]
    fn run<A: Real>(&self, mut job: Job<A>) -> Vec<A> {
        let (mut x, mut y) = (job.input("x"), job.output("y"));
        let mut powers = Vec::new();
        for row in 0..y.rows() {
            let (x, next) = x.row(row);
            powers.resize(x.len(), A::ZERO);
            let inverse = A::ONE / exp_sum(x, next, &mut powers);
            y.store(row, Ahead::NOTHING, [&powers], |[p]| p * inverse);
        }
        Vec::new()
    }
}
