//! Residual addition with RMSNorm on the CPU.

use super::{outputs, plain};
use crate::cpu::{CpuImpl, Elem, Jobs, Real, Row, ahead, by_float, each_job, naive, rms_rstd, simd, widen_weight};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n, eps) = (c.axis("m"), c.axis("n"), c.number("eps"));
    let (x, residual, w) = (b.get("x"), b.get("residual"), b.get("w"));
    let (y, z) = (b.get(outputs(c).0), b.get(outputs(c).1));
    let pitch = x.spec().pitch;
    let (in_place, rounds) = (c.attr("form") == "inplace", c.attr("sum") == "rounded");
    by_float!(c.dtype, T => Box::new(move || {
        let w = widen_weight::<<T as Elem>::Acc>(&w);
        let (mut y, mut z) = (y.write::<T>(), z.write::<T>());
        let jobs = Jobs::rows(m, n);
        let parts = jobs.ranges().zip(jobs.split(&mut y, pitch).zip(jobs.split(&mut z, pitch)));
        if in_place {
            each_job(parts, |(_, (x, residual))| {
                simd(#[inline(always)] || in_place_block::<T>(x, residual, &w, pitch, eps, rounds))
            });
        } else {
            let (x, residual) = (x.read::<T>(), residual.read::<T>());
            each_job(parts, |(rows, (y, z))| {
                let start = rows.start * pitch;
                let rows = Rows { x: &x[start..], residual: &residual[start..], pitch, elems: m * n };
                simd(#[inline(always)] || out_block::<T>(rows, y, z, &w, eps, rounds))
            });
        }
    }))
}

/// Lines that were just read are in the cache, so that nothing is won by streaming past it.
#[inline(always)]
fn in_place_block<T: Elem>(x: &mut [T], residual: &mut [T], w: &[T::Acc], pitch: usize, eps: f64, rounds: bool) {
    let n = w.len();
    let mut sum = Sum::<T>::new(n, rounds);
    let mut output = Row::<T>::new(n, 0);
    for (x, residual) in x.chunks_mut(pitch).zip(residual.chunks_mut(pitch)) {
        let (x, residual) = (&mut x[..n], &mut residual[..n]);
        sum.add(x, residual);
        residual.copy_from_slice(&sum.rounded);
        let r = rms_rstd(&sum.wide, eps);
        output.store(x, &[], [&sum.wide, w], |[z, w]| z * r * w);
    }
}

/// Some rows; `x` and `residual` start at the first of them and go on to the end of the tensor of `elems` elements.
struct Rows<'a, T> {
    x: &'a [T],
    residual: &'a [T],
    pitch: usize,
    elems: usize,
}

#[inline(always)]
fn out_block<T: Elem>(rows: Rows<T>, y: &mut [T], z: &mut [T], w: &[T::Acc], eps: f64, rounds: bool) {
    let (n, pitch) = (w.len(), rows.pitch);
    let mut sum = Sum::<T>::new(n, rounds);
    let mut output = Row::<T>::new(n, rows.elems);
    for (row, (y, z)) in y.chunks_mut(pitch).zip(z.chunks_mut(pitch)).enumerate() {
        let (x, x_later) = rows.x[row * pitch..].split_at(pitch);
        let (residual, residual_later) = rows.residual[row * pitch..].split_at(pitch);
        sum.add(&x[..n], &residual[..n]);
        let r = rms_rstd(&sum.wide, eps);
        output.store(&mut z[..n], ahead(residual_later, n), [&sum.wide], |[z]| z);
        output.store(&mut y[..n], ahead(x_later, n), [&sum.wide, w], |[z, w]| z * r * w);
    }
}

/// x + residual of one row as the dtype holds it, and in accumulators the same or, if nothing `rounds` it, more exactly.
struct Sum<T: Elem> {
    rounds: bool,
    wide: Vec<T::Acc>,
    other: Vec<T::Acc>,
    rounded: Vec<T>,
}

impl<T: Elem> Sum<T> {
    fn new(n: usize, rounds: bool) -> Sum<T> {
        Sum {
            rounds,
            wide: vec![T::Acc::ZERO; n],
            other: vec![T::Acc::ZERO; n],
            rounded: vec![bytemuck::Zeroable::zeroed(); n],
        }
    }

    #[inline(always)]
    fn add(&mut self, x: &[T], residual: &[T]) {
        T::widen(x, &mut self.wide);
        T::widen(residual, &mut self.other);
        for (x, r) in self.wide.iter_mut().zip(&self.other) {
            *x += *r;
        }
        T::narrow(&self.wide, &mut self.rounded);
        if self.rounds {
            T::widen(&self.rounded, &mut self.wide);
        }
    }
}
