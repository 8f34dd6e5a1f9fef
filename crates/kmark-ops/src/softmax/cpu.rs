//! Softmax on the CPU.

use crate::cpu::{Chain, CpuImpl, Elem, Jobs, Real, Row, ahead, by_float, each_job, exp_sum, simd};
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
    let (x, y) = (b.get("x"), b.get("y"));
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || naive::<T>(&x.read(), &mut y.write(), n, pitch)))
}

fn naive<T: Elem>(x: &[T], y: &mut [T], n: usize, pitch: usize) {
    for (x, y) in x.chunks(pitch).zip(y.chunks_mut(pitch)) {
        let x = &x[..n];
        let mut max = T::Acc::LOWEST;
        for v in x {
            max = max.larger(v.up());
        }
        let mut total = Chain::default();
        for v in x {
            total.add((v.up() - max).exp_exact().to_f64());
        }
        let total = T::Acc::from_f64(total.total());
        for i in 0..n {
            y[i] = T::down((x[i].up() - max).exp_exact() / total);
        }
    }
}

fn bind_simd(c: &Case, b: &Buffers) -> Box<dyn Launch> {
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
