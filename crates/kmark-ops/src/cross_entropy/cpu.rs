//! Cross entropy on the CPU.

use crate::cpu::{CpuImpl, Elem, Jobs, PIECE, Real, Row, by_float, each_job, max_exp_sum, naive, simd};
use crate::plain::softmax;
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(softmax::right, include_str!("../plain/softmax.rs")),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

/// Rows of `n` logits, `pitch` apart.
struct Logits<'a, T> {
    x: &'a [T],
    n: usize,
    pitch: usize,
}

impl<'a, T> Logits<'a, T> {
    #[inline(always)]
    fn rows(&self) -> impl Iterator<Item = &'a [T]> + use<'a, T> {
        let n = self.n;
        self.x.chunks(self.pitch).map(move |row| &row[..n])
    }
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n, ignore) = (c.axis("m"), c.axis("n"), c.number("ignore") as i64);
    let (x, target, loss, lse) = (b.get("x"), b.get("target"), b.get("loss"), b.get("lse"));
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || {
        let (x, target, mut loss, mut lse) = (x.read::<T>(), target.read::<i64>(), loss.write(), lse.write());
        let jobs = Jobs::rows(m, n);
        let parts = jobs.ranges().zip(jobs.split(&mut loss, 1)).zip(jobs.split(&mut lse, 1));
        each_job(parts, |((rows, loss), lse)| {
            let logits = Logits { x: &x[rows.start * pitch..rows.end * pitch], n, pitch };
            simd(#[inline(always)] || block::<T>(logits, &target[rows], ignore, loss, lse))
        });
    }))
}

/// Some rows.
#[inline(always)]
fn block<T: Elem>(logits: Logits<T>, target: &[i64], ignore: i64, loss: &mut [T::Acc], lse: &mut [T::Acc]) {
    let mut piece = Row::<T>::new(logits.n.min(PIECE), 0);
    for (row, x) in logits.rows().enumerate() {
        let (max, total) = max_exp_sum(x, &mut piece);
        let log = total.ln();
        lse[row] = max + log;
        // From the parts: the maximum cancels before anything is rounded.
        let of = |t: i64| log + (max - x[t as usize].up());
        loss[row] = if target[row] == ignore { T::Acc::ZERO } else { of(target[row]) };
    }
}
