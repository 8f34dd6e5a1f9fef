//! Cross entropy with its backward on the CPU.

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
    by_rows(c, b, &[], Both { ignore: c.number("ignore") as i64 })
}

struct Both {
    ignore: i64,
}

impl RowKernel for Both {
    #[inline(always)]
    fn run<A: Real>(&self, mut job: Job<A>) -> Vec<A> {
        let (mut x, target) = (job.input("x"), job.ints("target"));
        let (mut dloss, mut dx) = (job.input("dloss"), job.output("dx"));
        let mut powers = Vec::new();
        for (row, target) in target.iter().enumerate() {
            let ((x, next), dloss) = (x.row(row), dloss.at(row, 0));
            if *target == self.ignore {
                dx.store(row, next, [], |[]| A::ZERO);
                continue;
            }
            powers.resize(x.len(), A::ZERO);
            let inverse = A::ONE / exp_sum(x, next, &mut powers);
            let scale = dloss * inverse;
            dx.store(row, Ahead::NOTHING, [&powers], |[p]| p * scale);
            let t = *target as usize;
            dx.put(row, t, dloss * (powers[t] * inverse - A::ONE));
        }
        Vec::new()
    }
}
