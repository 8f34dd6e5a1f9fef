//! RMSNorm on the CPU.

use super::plain;
use crate::cpu::{CpuImpl, Elem, Jobs, Row, ahead, by_float, each_job, naive, rms_rstd, simd, widen_weight};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n, eps) = (c.axis("m"), c.axis("n"), c.number("eps"));
    let (x, w, y) = (b.get("x"), b.get("w"), b.get("y"));
    let pitch = x.spec().pitch;
    let rstd = c.flag("rstd").then(|| b.get("rstd"));
    by_float!(c.dtype, T => Box::new(move || {
        let w = widen_weight::<<T as Elem>::Acc>(&w);
        let (x, mut y) = (x.read::<T>(), y.write::<T>());
        let mut rstd = rstd.as_ref().map(|r| r.write());
        let jobs = Jobs::rows(m, n);
        let parts = jobs.ranges().zip(jobs.split(&mut y, pitch)).zip(jobs.split_if(rstd.as_deref_mut()));
        each_job(parts, |((rows, y), rstd)| {
            let rows = Rows { x: &x[rows.start * pitch..], pitch, elems: m * n };
            simd(#[inline(always)] || block::<T>(rows, &w, y, rstd, eps))
        });
    }))
}

/// Some rows; `x` starts at the first of them and goes on to the end of the tensor, which has `elems` elements.
struct Rows<'a, T> {
    x: &'a [T],
    pitch: usize,
    elems: usize,
}

#[inline(always)]
fn block<T: Elem>(rows: Rows<T>, w: &[T::Acc], y: &mut [T], mut rstd: Option<&mut [T::Acc]>, eps: f64) {
    let (n, pitch) = (w.len(), rows.pitch);
    let (mut input, mut output) = (Row::<T>::new(n, rows.elems), Row::<T>::new(n, rows.elems));
    for (row, y) in y.chunks_mut(pitch).enumerate() {
        let (now, later) = rows.x[row * pitch..].split_at(pitch);
        let wide = input.load(&now[..n]);
        let r = rms_rstd(wide, eps);
        output.store(&mut y[..n], ahead(later, n), [wide, w], |[x, w]| x * r * w);
        if let Some(rstd) = &mut rstd {
            rstd[row] = r;
        }
    }
}
