//! Softmax with its backward on the CPU.

use crate::cpu::{Chain, CpuImpl, Elem, Jobs, Real, Row, ahead, by_float, each_job, exp_sum, simd, sum2};
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
    let (x, dy, dx) = (b.get("x"), b.get("dy"), b.get("dx"));
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || naive::<T>(&x.read(), &dy.read(), &mut dx.write(), n, pitch)))
}

fn naive<T: Elem>(x: &[T], dy: &[T], dx: &mut [T], n: usize, pitch: usize) {
    for ((x, dy), dx) in x.chunks(pitch).zip(dy.chunks(pitch)).zip(dx.chunks_mut(pitch)) {
        let mut max = T::Acc::LOWEST;
        for v in &x[..n] {
            max = max.larger(v.up());
        }
        let (mut total, mut dot) = (Chain::default(), Chain::default());
        for i in 0..n {
            let power = (x[i].up() - max).exp_exact().to_f64();
            total.add(power);
            dot.add(power * dy[i].up().to_f64());
        }
        let (dot, total) = (dot.total() / total.total(), T::Acc::from_f64(total.total()));
        let dot = T::Acc::from_f64(dot);
        for i in 0..n {
            dx[i] = T::down((x[i].up() - max).exp_exact() / total * (dy[i].up() - dot));
        }
    }
}

fn bind_simd(c: &Case, b: &Buffers) -> Box<dyn Launch> {
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
