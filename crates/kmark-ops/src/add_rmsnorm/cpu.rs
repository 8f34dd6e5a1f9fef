//! Residual addition with RMSNorm on the CPU.

use super::outputs;
use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let kernel = AddRmsNorm { outputs: outputs(c), eps: c.number("eps"), rounds: c.attr("sum") == "rounded" };
    by_rows(c, b, &["w"], kernel)
}

struct AddRmsNorm {
    /// The normalised row and the sum: in place x and residual.
    outputs: (&'static str, &'static str),
    eps: f64,
    /// Whether the sum is normalised as the dtype holds it.
    rounds: bool,
}

impl RowKernel for AddRmsNorm {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut y, mut z, w) = (job.output(self.outputs.0), job.output(self.outputs.1), job.shared("w"));
        let in_place = self.outputs.0 == "x";
        let mut inputs = (!in_place).then(|| (job.input("x"), job.input("residual")));
        let (n, dtype) = (w.len(), z.dtype());
        let (mut sum, mut rounded) = (vec![A::ZERO; n], vec![0u64; n]);
        let rounded = &mut bytemuck::cast_slice_mut(&mut rounded)[..n * dtype.size()];
        for row in 0..y.rows() {
            let ((x, x_next), (residual, next)) = match &mut inputs {
                Some((x, residual)) => (x.row(row), residual.row(row)),
                None => ((y.load(row, 0, n), Ahead::NOTHING), (z.load(row, 0, n), Ahead::NOTHING)),
            };
            for (sum, (x, r)) in sum.iter_mut().zip(x.iter().zip(residual)) {
                *sum = *x + *r;
            }
            narrow(dtype, &sum, rounded);
            if self.rounds {
                widen(dtype, rounded, &mut sum);
            }
            let r = rms_rstd(&sum, self.eps);
            z.copy(row, next, rounded);
            y.store(row, x_next, [&sum, w], |[z, w]| z * r * w);
        }
    }
}
