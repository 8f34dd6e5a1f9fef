//! Rotary position embedding on the CPU.

use super::{in_place, operands, rotated};
use crate::cpu::*;

/// A tensor to rotate: its rows are heads.
struct Heads {
    /// In place there is only the output.
    input: Option<&'static str>,
    output: &'static str,
    /// Rows per position, and positions per sequence.
    heads: usize,
    s: usize,
    /// Dimensions of a head from the start of one to the next, those that are written (in place only those that
    /// change), and those that are rotated.
    pitch: usize,
    width: usize,
    r: usize,
    neox: bool,
}

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (r, neox) = (rotated(c), c.attr("style") == "neox");
    let bound = |(input, output, heads)| {
        let input = (!in_place(c)).then_some(input);
        let by_row: Vec<_> = input.into_iter().chain([output]).map(|name| b.get(name)).collect();
        let spec = b.get(output).spec().clone();
        let width = if in_place(c) { r } else { c.axis("d") };
        let shared = vec![b.get("cos"), b.get("sin")];
        let kernel = Heads { input, output, heads, s: c.axis("s"), pitch: spec.pitch, width, r, neox };
        (Rowwise { m: spec.rows(), n: width, by_row, shared }, kernel)
    };
    let all: Vec<_> = operands(c).into_iter().map(bound).collect();
    by_acc!(c.dtype, A => Box::new(move || all.iter().for_each(|(rows, kernel)| rows.launch::<A>(kernel))))
}

impl RowKernel for Heads {
    /// A head is short, so that as many as lie adjacent go through the accumulators together.
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut out, width) = (job.output(self.output), self.width);
        let mut input = self.input.map(|name| job.input(name));
        let (cos, sin, half) = (job.shared("cos"), job.shared("sin"), self.r / 2);
        let run = if self.pitch == width { (PIECE / width).max(1) } else { 1 };
        let mut turned = vec![A::ZERO; run * width];
        for row in (0..out.rows()).step_by(run) {
            let len = run.min(out.rows() - row) * width;
            let (x, next) = match &mut input {
                Some(input) => input.piece(row, 0, len),
                None => (out.load(row, 0, len), Ahead::NOTHING),
            };
            for (i, (x, y)) in x.chunks(width).zip(turned.chunks_mut(width)).enumerate() {
                let at = (job.first_row + row + i) / self.heads % self.s * half;
                rotate(x, y, &cos[at..at + half], &sin[at..at + half], self.neox);
            }
            out.store_piece(row, 0, len, next, [&turned[..len]], |[v]| v);
        }
    }
}

/// One head.
#[inline(always)]
fn rotate<A: Real>(x: &[A], y: &mut [A], cos: &[A], sin: &[A], neox: bool) {
    let half = cos.len();
    let ((x, x_rest), (y, y_rest)) = (x.split_at(2 * half), y.split_at_mut(2 * half));
    y_rest.copy_from_slice(x_rest);
    if neox {
        let ((x1, x2), (y1, y2)) = (x.split_at(half), y.split_at_mut(half));
        let sin = &sin[..half];
        for i in 0..half {
            y1[i] = x1[i] * cos[i] - x2[i] * sin[i];
            y2[i] = x2[i] * cos[i] + x1[i] * sin[i];
        }
    } else {
        let pairs = x.as_chunks::<2>().0.iter().zip(y.as_chunks_mut::<2>().0);
        for (([x1, x2], y), (cos, sin)) in pairs.zip(cos.iter().zip(sin)) {
            *y = [*x1 * *cos - *x2 * *sin, *x2 * *cos + *x1 * *sin];
        }
    }
}
