//! GELU on the CPU.

use super::{CUBE, ROOT, plain};
use crate::cpu::{CpuImpl, Elem, Jobs, PIECE, Real, Row, ahead, by_float, each_job, exp, naive, sigmoid, simd};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};
use std::f64::consts::FRAC_1_SQRT_2;

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

/// What accumulators need beyond arithmetic.
trait Erf: Real {
    /// erfc of a number that is not negative; for f32 it vectorises.
    fn erfc(self) -> Self;
}

impl Erf for f32 {
    /// Abramowitz and Stegun 7.1.26, off by 1.5e-7 at the most.
    #[inline(always)]
    fn erfc(self) -> f32 {
        let t = 1.0 / self.mul_add(0.327_591_1, 1.0);
        let p = t.mul_add(1.061_405_4, -1.453_152);
        let p = t.mul_add(p, 1.421_413_7);
        let p = t.mul_add(p, -0.284_496_74);
        let p = t.mul_add(p, 0.254_829_6);
        t * p * exp(-self * self)
    }
}

impl Erf for f64 {
    #[inline(always)]
    fn erfc(self) -> f64 {
        libm::erfc(self)
    }
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n, exact) = (c.axis("m"), c.axis("n"), c.attr("approx") == "erf");
    let (x, y) = (b.get("x"), b.get("y"));
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || {
        let (x, mut y) = (x.read::<T>(), y.write::<T>());
        let jobs = Jobs::rows(m, n);
        each_job(jobs.ranges().zip(jobs.split(&mut y, pitch)), |(rows, y)| {
            let x = &x[rows.start * pitch..];
            if exact {
                simd(#[inline(always)] || block::<T>(x, y, n, pitch, m * n, by_erf))
            } else {
                simd(#[inline(always)] || block::<T>(x, y, n, pitch, m * n, by_tanh))
            }
        });
    }))
}

/// Some rows; `x` starts at the first of them and goes on to the end of the tensor.
#[inline(always)]
fn block<T: Elem>(x: &[T], y: &mut [T], n: usize, pitch: usize, elems: usize, f: impl Fn(T::Acc) -> T::Acc) {
    let (mut input, mut output) = (Row::<T>::new(n.min(PIECE), 0), Row::<T>::new(n.min(PIECE), elems));
    for (row, y) in y.chunks_mut(pitch).enumerate() {
        for (piece, y) in y[..n].chunks_mut(PIECE).enumerate() {
            let (now, later) = x[row * pitch + piece * PIECE..].split_at(y.len());
            let wide = input.load(now);
            output.store(
                y,
                ahead(later, PIECE),
                [wide],
                #[inline(always)]
                |[x]| f(x),
            );
        }
    }
}

/// x times the normal distribution up to x, from the smaller of its two sides.
#[inline(always)]
fn by_erf<A: Erf>(x: A) -> A {
    let z = x * A::from_f64(FRAC_1_SQRT_2);
    let side = (if z < A::ZERO { -z } else { z }).erfc() * A::from_f64(0.5);
    x * (if x < A::ZERO { side } else { A::ONE - side })
}

/// 0.5 (1 + tanh z) is the sigmoid of 2 z.
#[inline(always)]
fn by_tanh<A: Real>(x: A) -> A {
    let z = A::from_f64(2.0 * ROOT) * x * (A::ONE + A::from_f64(CUBE) * x * x);
    x * sigmoid(z)
}
