//! Backward of softmax on the CPU.

use crate::cpu::{CpuImpl, Elem, Jobs, Row, ahead, by_float, each_job, naive, simd, sum2};
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
    let (y, dy, dx) = (b.get("y"), b.get("dy"), b.get("dx"));
    let pitch = y.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || {
        let (y, dy, mut dx) = (y.read::<T>(), dy.read::<T>(), dx.write::<T>());
        let jobs = Jobs::rows(m, n);
        each_job(jobs.ranges().zip(jobs.split(&mut dx, pitch)), |(rows, dx)| {
            let start = rows.start * pitch;
            simd(#[inline(always)] || block::<T>(&y[start..], &dy[start..], dx, n, pitch, m * n))
        });
    }))
}

/// Some rows; `y` and `dy` start at the first of them and go on to the end of the tensor.
#[inline(always)]
fn block<T: Elem>(y: &[T], dy: &[T], dx: &mut [T], n: usize, pitch: usize, elems: usize) {
    let (mut y_row, mut dy_row) = (Row::<T>::new(n, 0), Row::<T>::new(n, 0));
    let mut output = Row::<T>::new(n, elems);
    for (row, dx) in dx.chunks_mut(pitch).enumerate() {
        let (now, later) = y[row * pitch..].split_at(pitch);
        let (y, dy) = (y_row.load(&now[..n]), dy_row.load(&dy[row * pitch..][..n]));
        let dot = sum2(y, dy, |y, dy| y * dy);
        output.store(&mut dx[..n], ahead(later, n), [y, dy], |[y, dy]| y * (dy - dot));
    }
}
