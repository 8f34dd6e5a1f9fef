//! Rows times a number on the CPU.

use super::plain;
use crate::cpu::{CpuImpl, Job, Real, RowKernel, by_rows, naive};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, include_str!("plain.rs")),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &["a"], Scale)
}

struct Scale;

impl RowKernel for Scale {
    #[inline(always)]
    fn run<A: Real>(&self, mut job: Job<A>) -> Vec<A> {
        let (mut x, mut y, a) = (job.input("x"), job.output("y"), job.shared("a")[0]);
        for row in 0..y.rows() {
            let (x, next) = x.row(row);
            y.store(row, next, [x], |[x]| a * x);
        }
        Vec::new()
    }
}
