//! Softmax with its backward on the CPU.

use crate::cpu::{CpuImpl, Elem, Jobs, Real, Row, ahead, by_float, each_job, exp_sum, naive, simd, sum2};
use crate::plain::softmax;
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(softmax::right, include_str!("../plain/softmax.rs")),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let (x, dy, dx) = (b.get("x"), b.get("dy"), b.get("dx"));
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || {
        let (x, dy, mut dx) = (x.read::<T>(), dy.read::<T>(), dx.write::<T>());
        let jobs = Jobs::rows(m, n);
        each_job(jobs.ranges().zip(jobs.split(&mut dx, pitch)), |(rows, dx)| {
            let start = rows.start * pitch;
            simd(#[inline(always)] || block::<T>(&x[start..], &dy[start..], dx, n, pitch, m * n))
        });
    }))
}

/// Some rows; `x` and `dy` start at the first of them and go on to the end of the tensor.
#[inline(always)]
fn block<T: Elem>(x: &[T], dy: &[T], dx: &mut [T], n: usize, pitch: usize, elems: usize) {
    let (mut dy_row, mut output) = (Row::<T>::new(n, 0), Row::<T>::new(n, elems));
    let mut powers = vec![T::Acc::ZERO; n];
    for (row, dx) in dx.chunks_mut(pitch).enumerate() {
        let (now, later) = x[row * pitch..].split_at(pitch);
        let inverse = T::Acc::ONE / exp_sum(&now[..n], ahead(later, n), &mut powers);
        let (dy, dy_later) = dy[row * pitch..].split_at(pitch);
        let dy = dy_row.load(&dy[..n]);
        let dot = sum2(&powers, dy, |p, dy| p * dy) * inverse;
        output.store(&mut dx[..n], ahead(dy_later, n), [&powers, dy], |[p, dy]| p * inverse * (dy - dot));
    }
}
