//! Backward of RMSNorm on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &["w", "dw"], Backward)
}

struct Backward;

impl RowKernel for Backward {
    /// Adds the rows' part to dw.
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut x, mut dout, mut rstd, w) = (job.input("x"), job.input("dout"), job.input("rstd"), job.shared("w"));
        let (mut dx, n) = (job.output("dx"), w.len());
        let inverse = A::from_f64(1.0 / n as f64);
        let (mut dw, mut products) = (vec![A::ZERO; n], vec![A::ZERO; n]);
        for row in 0..dx.rows() {
            let ((x, next), (dout, _), r) = (x.row(row), dout.row(row), rstd.at(row, 0));
            let (x, dout) = (&x[..n], &dout[..n]);
            for i in 0..n {
                let product = x[i] * r * dout[i];
                products[i] = product;
                dw[i] += product;
            }
            let mean = sum2(&products, w, |p, w| p * w) * inverse;
            dx.store(row, next, [x, dout, w], |[x, dout, w]| (dout * w - x * r * mean) * r);
        }
        job.sums = dw;
    }
}
