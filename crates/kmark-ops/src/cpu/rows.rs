//! Vectorised arithmetic on one row. Plain loops over independent lanes, compiled for the widest vectors the processor
//! has: everything here is inlined into a closure that `simd` runs with those instructions enabled.

use super::elem::{Elem, Real};
use kmark_device::cpu::cache::stream_copy;

/// Runs `f` compiled for the best instruction set of this processor.
#[inline(always)]
pub fn simd<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}

/// Independent partial sums: four AVX-512 registers of f32.
const LANES: usize = 64;

#[inline(always)]
pub fn sum<A: Real>(xs: &[A], f: impl Fn(A) -> A) -> A {
    sum2(xs, xs, |x, _| f(x))
}

/// Sum of `f` over pairs.
#[inline(always)]
pub fn sum2<A: Real>(xs: &[A], ys: &[A], f: impl Fn(A, A) -> A) -> A {
    let mut lanes = [A::ZERO; LANES];
    let (xc, xr) = xs.as_chunks::<LANES>();
    let (yc, yr) = ys.as_chunks::<LANES>();
    for (x, y) in xc.iter().zip(yc) {
        for i in 0..LANES {
            lanes[i] += f(x[i], y[i]);
        }
    }
    let mut total = A::ZERO;
    for (x, y) in xr.iter().zip(yr) {
        total += f(*x, *y);
    }
    for lane in lanes {
        total += lane;
    }
    total
}

#[inline(always)]
pub fn max<A: Real>(xs: &[A]) -> A {
    let mut lanes = [A::LOWEST; LANES];
    let (chunks, rest) = xs.as_chunks::<LANES>();
    for x in chunks {
        for i in 0..LANES {
            lanes[i] = lanes[i].larger(x[i]);
        }
    }
    lanes.iter().chain(rest).fold(A::LOWEST, |m, v| m.larger(*v))
}

#[inline(always)]
pub fn exp<A: Real>(x: A) -> A {
    x.exp_poly()
}

/// 1/sqrt(mean(x^2) + eps).
#[inline(always)]
pub fn rms_rstd<A: Real>(x: &[A], eps: f64) -> A {
    A::ONE / (sum(x, |v| v * v) * A::from_f64(1.0 / x.len() as f64) + A::from_f64(eps)).sqrt()
}

/// Writes exp(x - max) for a row and returns the sum.
#[inline(always)]
pub fn exp_sum<A: Real>(x: &[A], powers: &mut [A]) -> A {
    let highest = max(x);
    for (p, x) in powers.iter_mut().zip(x) {
        *p = exp(*x - highest);
    }
    sum(powers, |p| p)
}

/// Scratch for one row and the way out of it. Rows are widened into accumulators, computed there, and stored rounded;
/// outputs too large for the cache go past it.
pub struct Row<T: Elem> {
    wide: Vec<T::Acc>,
    narrow: Vec<T>,
    stream: bool,
}

/// Outputs beyond this are streamed: they would not survive in a core's own cache anyway.
const STREAM_BYTES: usize = 2 << 20;

impl<T: Elem> Row<T> {
    /// Scratch for rows of `n`, for an output of `out_elems` in all.
    pub fn new(n: usize, out_elems: usize) -> Row<T> {
        let stream = out_elems * size_of::<T>() > STREAM_BYTES;
        Row { wide: vec![T::Acc::ZERO; n], narrow: vec![bytemuck::Zeroable::zeroed(); n], stream }
    }

    /// The row in accumulators: the row itself if it is of that type, else a widened copy.
    #[inline(always)]
    pub fn load<'a>(&'a mut self, src: &'a [T]) -> &'a [T::Acc] {
        match T::same(src) {
            Some(same) => same,
            None => {
                let wide = &mut self.wide[..src.len()];
                T::widen(src, wide);
                wide
            }
        }
    }

    /// Stores `f(i)` for the whole row, rounded. `next` is what will be read after this row.
    #[inline(always)]
    pub fn store(&mut self, dst: &mut [T], next: &[T], f: impl Fn(usize) -> T::Acc) {
        let n = dst.len();
        if !self.stream
            && let Some(same) = T::same_mut(dst)
        {
            for i in 0..n {
                same[i] = f(i);
            }
            return;
        }
        let wide = &mut self.wide[..n];
        for i in 0..n {
            wide[i] = f(i);
        }
        if !self.stream {
            T::narrow(wide, dst);
            return;
        }
        T::narrow(wide, &mut self.narrow[..n]);
        stream_copy(dst, &self.narrow[..n], next);
    }
}
