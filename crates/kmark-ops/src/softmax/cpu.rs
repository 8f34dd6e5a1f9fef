//! Softmax on the CPU.

use crate::cpu::{CpuImpl, Elem, Jobs, Real, Row, ahead, by_float, each_job, exp_sum, naive, simd};
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
    let (x, y) = (b.get("x"), b.get("y"));
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || {
        let (x, mut y) = (x.read::<T>(), y.write::<T>());
        let jobs = Jobs::rows(m, n);
        each_job(jobs.ranges().zip(jobs.split(&mut y, pitch)), |(rows, y)| {
            simd(#[inline(always)] || block::<T>(&x[rows.start * pitch..], y, n, pitch, m * n))
        });
    }))
}

/// Some rows; `x` starts at the first of them and goes on to the end of the tensor.
#[inline(always)]
fn block<T: Elem>(x: &[T], y: &mut [T], n: usize, pitch: usize, elems: usize) {
    let mut output = Row::<T>::new(n, elems);
    let mut powers = vec![T::Acc::ZERO; n];
    for (row, y) in y.chunks_mut(pitch).enumerate() {
        let (now, later) = x[row * pitch..].split_at(pitch);
        let inverse = T::Acc::ONE / exp_sum(&now[..n], ahead(later, n), &mut powers);
        output.store(&mut y[..n], &[], [&powers], |[p]| p * inverse);
    }
}
