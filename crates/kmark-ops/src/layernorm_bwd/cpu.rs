//! Backward of LayerNorm on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &["w", "dw", "dbias"], Backward { with_bias: c.flag("bias") })
}

struct Backward {
    with_bias: bool,
}

impl RowKernel for Backward {
    /// Adds the rows' part to dw, and behind it that to dbias.
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut x, mut dout, w) = (job.input("x"), job.input("dout"), job.shared("w"));
        let (mut mean, mut rstd, mut dx) = (job.input("mean"), job.input("rstd"), job.output("dx"));
        let n = w.len();
        let inverse = A::from_f64(1.0 / n as f64);
        let (mut dw, mut dbias) = (vec![A::ZERO; n], vec![A::ZERO; n]);
        let (mut xhs, mut gs) = (vec![A::ZERO; n], vec![A::ZERO; n]);
        for row in 0..dx.rows() {
            let ((x, next), (dout, _)) = (x.row(row), dout.row(row));
            let (mean, r) = (mean.at(row, 0), rstd.at(row, 0));
            let (x, dout) = (&x[..n], &dout[..n]);
            for i in 0..n {
                let xh = (x[i] - mean) * r;
                xhs[i] = xh;
                gs[i] = dout[i] * w[i];
                dw[i] += dout[i] * xh;
            }
            if self.with_bias {
                dbias.iter_mut().zip(dout).for_each(|(b, d)| *b += *d);
            }
            let g_mean = sum(&gs, |g| g) * inverse;
            let dot_mean = sum2(&xhs, &gs, |xh, g| xh * g) * inverse;
            dx.store(row, next, [&gs, &xhs], |[g, xh]| (g - g_mean - xh * dot_mean) * r);
        }
        job.sums = [dw, dbias].concat();
    }
}
