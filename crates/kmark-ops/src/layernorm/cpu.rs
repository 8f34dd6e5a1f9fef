//! LayerNorm on the CPU.

use super::plain;
use crate::cpu::{CpuImpl, Elem, Jobs, Real, Row, ahead, by_float, each_job, naive, simd, sum, widen_weight};
use kmark_core::case::Case;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

/// Weight and bias in accumulators; a case without a bias has one of zeros.
struct Affine<A> {
    w: Vec<A>,
    b: Vec<A>,
    eps: f64,
}

impl<A: Real> Affine<A> {
    fn of(w: &Buffer, b: Option<&Buffer>, eps: f64) -> Affine<A> {
        let w = widen_weight::<A>(w);
        let b = b.map_or(vec![A::ZERO; w.len()], widen_weight);
        Affine { w, b, eps }
    }
}

/// Where the statistics of some rows go, if the case saves them.
struct Stats<'a, A> {
    mean: Option<&'a mut [A]>,
    rstd: Option<&'a mut [A]>,
}

impl<A: Real> Stats<'_, A> {
    fn save(&mut self, row: usize, mean: A, rstd: A) {
        if let (Some(means), Some(rstds)) = (&mut self.mean, &mut self.rstd) {
            means[row] = mean;
            rstds[row] = rstd;
        }
    }
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n, eps) = (c.axis("m"), c.axis("n"), c.number("eps"));
    let (x, w, y) = (b.get("x"), b.get("w"), b.get("y"));
    let pitch = x.spec().pitch;
    let bias = c.flag("bias").then(|| b.get("b"));
    let stats = c.flag("stats").then(|| (b.get("mean"), b.get("rstd")));
    by_float!(c.dtype, T => Box::new(move || {
        let mut stats = stats.as_ref().map(|(m, r)| (m.write(), r.write()));
        let (mean, rstd) = stats.as_mut().map_or((None, None), |(m, r)| (Some(&mut **m), Some(&mut **r)));
        let affine = Affine::of(&w, bias.as_ref(), eps);
        let (x, mut y) = (x.read::<T>(), y.write::<T>());
        let jobs = Jobs::rows(m, n);
        let stats = jobs.split_if(mean).zip(jobs.split_if(rstd)).map(|(mean, rstd)| Stats { mean, rstd });
        each_job(jobs.ranges().zip(jobs.split(&mut y, pitch)).zip(stats), |((rows, y), stats)| {
            let rows = Rows { x: &x[rows.start * pitch..], pitch, elems: m * n };
            simd(#[inline(always)] || block::<T>(rows, &affine, y, stats))
        });
    }))
}

/// Some rows; `x` starts at the first of them and goes on to the end of the tensor, which has `elems` elements.
struct Rows<'a, T> {
    x: &'a [T],
    pitch: usize,
    elems: usize,
}

/// The variance is summed around the mean, in a pass of its own: the difference of mean square and squared mean loses
/// every digit in an even row.
#[inline(always)]
fn block<T: Elem>(rows: Rows<T>, affine: &Affine<T::Acc>, y: &mut [T], mut stats: Stats<T::Acc>) {
    let (w, b) = (&affine.w[..], &affine.b[..]);
    let (n, pitch) = (w.len(), rows.pitch);
    let (inverse, eps) = (T::Acc::from_f64(1.0 / n as f64), T::Acc::from_f64(affine.eps));
    let (mut input, mut output) = (Row::<T>::new(n, rows.elems), Row::<T>::new(n, rows.elems));
    for (row, y) in y.chunks_mut(pitch).enumerate() {
        let (now, later) = rows.x[row * pitch..].split_at(pitch);
        let wide = input.load(&now[..n]);
        let mean = sum(wide, |v| v) * inverse;
        let r = T::Acc::ONE / (sum(wide, |v| (v - mean) * (v - mean)) * inverse + eps).sqrt();
        output.store(&mut y[..n], ahead(later, n), [wide, w, b], |[x, w, b]| (x - mean) * r * w + b);
        stats.save(row, mean, r);
    }
}
