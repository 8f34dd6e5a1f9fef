//! Cross entropy with its backward on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], Both { ignore: c.number("ignore") as i64 })
}

struct Both {
    ignore: i64,
}

impl RowKernel for Both {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
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
    }
}
