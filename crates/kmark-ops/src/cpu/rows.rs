//! Vectorised arithmetic on one row. Plain loops over independent lanes, compiled for the widest vectors the processor
//! has: everything here is inlined into a closure that `simd` runs with those instructions enabled.

use super::elem::{Elem, Real};
use kmark_device::cpu::cache::stream_copy;

/// Runs `f` compiled for the best instruction set of this processor. The closure must be `#[inline(always)]`: one that
/// is merely called from here keeps the instructions of the baseline, and is ten times slower.
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

/// Writes exp(x - max) for a row and returns the sum. Works in `powers` alone, so that a long row stays in the cache.
#[inline(always)]
pub fn exp_sum<T: Elem>(x: &[T], powers: &mut [T::Acc]) -> T::Acc {
    T::widen(x, powers);
    let highest = max(powers);
    for p in powers.iter_mut() {
        *p = exp(*p - highest);
    }
    sum(powers, |p| p)
}

/// Maximum of a row and the sum of exp(x - max) in one pass over memory: in pieces, the sum so far scaled down whenever
/// a piece raises the maximum.
#[inline(always)]
pub fn max_exp_sum<T: Elem>(x: &[T], scratch: &mut Row<T>) -> (T::Acc, T::Acc) {
    let (mut highest, mut total) = (T::Acc::LOWEST, T::Acc::ZERO);
    for piece in x.chunks(PIECE) {
        let wide = scratch.load(piece);
        let raised = highest.larger(max(wide));
        total = total * exp(highest - raised) + sum(wide, |v| exp(v - raised));
        highest = raised;
    }
    (highest, total)
}

/// Elements that are worked on at a time where a row need not be held: their accumulators fit the first-level cache.
pub const PIECE: usize = 4096;

/// Scratch for one row and the way out of it. Rows are widened into accumulators, computed there, and stored rounded;
/// outputs too large for the cache go past it.
pub struct Row<T: Elem> {
    wide: Vec<T::Acc>,
    narrow: Vec<T>,
    stream: bool,
}

/// Outputs beyond this are streamed: they would not survive in a core's own cache anyway.
const STREAM_BYTES: usize = 2 << 20;

/// Whether an output of `out_elems` goes past the cache.
fn streams<T>(out_elems: usize) -> bool {
    out_elems * size_of::<T>() > STREAM_BYTES
}

/// Copies part of an output of `out_elems` in all. `next` is what will be read after it.
pub fn put<T: Elem>(dst: &mut [T], src: &[T], next: &[T], out_elems: usize) {
    if streams::<T>(out_elems) { stream_copy(dst, src, next) } else { dst.copy_from_slice(src) }
}

impl<T: Elem> Row<T> {
    /// Scratch for rows of `n`, for an output of `out_elems` in all.
    pub fn new(n: usize, out_elems: usize) -> Row<T> {
        let narrow = vec![bytemuck::Zeroable::zeroed(); n];
        Row { wide: vec![T::Acc::ZERO; n], narrow, stream: streams::<T>(out_elems) }
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
            for (i, v) in same.iter_mut().enumerate() {
                *v = f(i);
            }
            return;
        }
        for start in (0..n).step_by(PIECE) {
            let end = (start + PIECE).min(n);
            let (dst, wide) = (&mut dst[start..end], &mut self.wide[..end - start]);
            for (i, v) in wide.iter_mut().enumerate() {
                *v = f(start + i);
            }
            if !self.stream {
                T::narrow(wide, dst);
                continue;
            }
            let narrow = &mut self.narrow[..end - start];
            T::narrow(wide, narrow);
            stream_copy(dst, narrow, &next[start.min(next.len())..end.min(next.len())]);
        }
    }
}
