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
        let (x, target) = (job.input("x"), job.ints("target"));
        let (mut dloss, mut dx) = (job.input("dloss"), job.output("dx"));
        let mut room = Room::new();
        let powers = room.get(x.n);
        for (row, target) in target.iter().enumerate() {
            if *target == self.ignore {
                dx.store(row, Ahead::NOTHING, [], |[]| A::ZERO);
                continue;
            }
            let (inverse, dloss) = (A::ONE / x.exp_sum(row, powers), dloss.at(row, 0));
            let scale = dloss * inverse;
            dx.store(row, Ahead::NOTHING, [powers], |[p]| p * scale);
            let t = *target as usize;
            dx.put(row, t, dloss * (powers[t] * inverse - A::ONE));
        }
    }
}
