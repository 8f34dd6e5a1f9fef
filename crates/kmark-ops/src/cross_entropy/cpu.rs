//! Cross entropy on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], CrossEntropy { ignore: c.number("ignore") as i64 })
}

struct CrossEntropy {
    ignore: i64,
}

impl RowKernel for CrossEntropy {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
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
    }
}
