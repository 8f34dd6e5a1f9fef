//! LayerNorm on the CPU.

use crate::cpu::*;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_rows(c, b, &["w", "b"], LayerNorm { eps: c.number("eps") })
}

struct LayerNorm {
    eps: f64,
}

impl RowKernel for LayerNorm {
    /// The variance is summed around the mean, in a pass of its own: the difference of mean square and squared mean
    /// loses every digit in an even row.
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut x, w, bias) = (job.input("x"), job.shared("w"), job.shared_if("b"));
        let (inverse, eps) = (A::from_f64(1.0 / w.len() as f64), A::from_f64(self.eps));
        let none = if bias.is_none() { vec![A::ZERO; w.len()] } else { Vec::new() };
        let b = bias.unwrap_or(&none);
        let mut y = job.output("y");
        let (mut means, mut rstds) = (job.output_if("mean"), job.output_if("rstd"));
        for row in 0..y.rows() {
            let (x, next) = x.row(row);
            let mean = sum(x, |v| v) * inverse;
            let r = A::ONE / (sum(x, |v| (v - mean) * (v - mean)) * inverse + eps).sqrt();
            y.store(row, next, [x, w, b], |[x, w, b]| (x - mean) * r * w + b);
            if let (Some(means), Some(rstds)) = (&mut means, &mut rstds) {
                means.put(row, 0, mean);
                rstds.put(row, 0, r);
            }
        }
    }
}
