//! RMSNorm on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &["w"], RmsNorm { eps: c.number("eps") })
}

struct RmsNorm {
    eps: f64,
}

impl RowKernel for RmsNorm {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut x, w) = (job.input("x"), job.shared("w"));
        let (mut y, mut rstd) = (job.output("y"), job.output_if("rstd"));
        for row in 0..y.rows() {
            let (x, next) = x.row(row);
            let r = rms_rstd(x, self.eps);
            y.store(row, next, [x, w], |[x, w]| x * r * w);
            if let Some(rstd) = &mut rstd {
                rstd.put(row, 0, r);
            }
        }
    }
}
