//! Backward of cross entropy on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &[], Backward { n: c.axis("n"), ignore: c.number("ignore") as i64 })
}

struct Backward {
    n: usize,
    ignore: i64,
}

impl RowKernel for Backward {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut x, target) = (job.input("x"), job.ints("target"));
        let (mut dloss, mut lse, mut dx) = (job.input("dloss"), job.input("lse"), job.output("dx"));
        for (row, target) in target.iter().enumerate() {
            let (dloss, lse, ignored) = (dloss.at(row, 0), lse.at(row, 0), *target == self.ignore);
            for at in (0..self.n).step_by(PIECE) {
                let len = PIECE.min(self.n - at);
                let (x, next) = x.piece(row, at, len);
                if ignored {
                    dx.store_piece(row, at, len, next, [], |[]| A::ZERO);
                } else {
                    dx.store_piece(row, at, len, next, [x], |[x]| dloss * exp(x - lse));
                }
            }
            if !ignored {
                let t = *target as usize;
                dx.put(row, t, dloss * (exp(x.at(row, t) - lse) - A::ONE));
            }
        }
    }
}
