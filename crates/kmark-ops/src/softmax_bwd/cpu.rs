//! Backward of softmax on the CPU.

use crate::cpu::{CpuImpl, Elem, Jobs, Real, Row, ahead, by_float, each_job, simd, sum2};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &CpuImpl {
        name: "cpu/naive",
        about: "plain loops, one thread",
        source: include_str!("cpu.rs"),
        run: crate::cpu::Run::Bound(bind_naive),
    },
    &CpuImpl {
        name: "cpu/simd",
        about: "vectorised rows, all cores",
        source: include_str!("cpu.rs"),
        run: crate::cpu::Run::Bound(bind_simd),
    },
];

fn bind_naive(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let n = c.axis("n");
    let (y, dy, dx) = (b.get("y"), b.get("dy"), b.get("dx"));
    let pitch = y.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || naive::<T>(&y.read(), &dy.read(), &mut dx.write(), n, pitch)))
}

fn naive<T: Elem>(y: &[T], dy: &[T], dx: &mut [T], n: usize, pitch: usize) {
    for ((y, dy), dx) in y.chunks(pitch).zip(dy.chunks(pitch)).zip(dx.chunks_mut(pitch)) {
        let mut dot = 0.0;
        for i in 0..n {
            dot += y[i].up().to_f64() * dy[i].up().to_f64();
        }
        for i in 0..n {
            dx[i] = T::down(y[i].up() * (dy[i].up() - T::Acc::from_f64(dot)));
        }
    }
}

fn bind_simd(c: &Case, b: &Buffers) -> Box<dyn Launch> {
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
