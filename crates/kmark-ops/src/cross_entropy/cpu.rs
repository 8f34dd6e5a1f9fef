//! Cross entropy on the CPU.

use crate::cpu::{CpuImpl, Job, Real, RowKernel, by_rows, naive};
use crate::plain::softmax;
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(softmax::right, include_str!("../plain/softmax.rs")),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], CrossEntropy { ignore: c.number("ignore") as i64 })
}

struct CrossEntropy {
    ignore: i64,
}

impl RowKernel for CrossEntropy {
    #[inline(always)]
    fn run<A: Real>(&self, mut job: Job<A>) -> Vec<A> {
        let (mut x, target) = (job.input("x"), job.ints("target"));
        let (mut loss, mut lse) = (job.output("loss"), job.output("lse"));
        for (row, target) in target.iter().enumerate() {
            let (max, total) = x.max_exp_sum(row);
            let log = total.ln();
            lse.put(row, 0, max + log);
            // From the parts: the maximum cancels before anything is rounded.
            let mut of = |t: i64| log + (max - x.at(row, t as usize));
            loss.put(row, 0, if *target == self.ignore { A::ZERO } else { of(*target) });
        }
        Vec::new()
    }
}
