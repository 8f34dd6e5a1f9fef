//! Vectorised arithmetic on one row. Plain loops over independent lanes, compiled for the widest vectors the processor
//! has: everything here is inlined into a closure that `simd` runs with those instructions enabled.

use super::elem::{Elem, Real};
use kmark_device::cpu::cache::{prefetch, stream_chunk, stream_copy, stream_fence};

/// Runs `f` compiled for the best instruction set of this processor. The closure must be `#[inline(always)]`: one that
/// is merely called from here keeps the instructions of the baseline, and is ten times slower.
#[inline(always)]
pub fn simd<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}

/// Elements that are streamed at a time: enough to make up for the call.
const STREAMED: usize = 256;

/// Independent partial sums: four AVX-512 registers of f32.
const LANES: usize = 64;

#[inline(always)]
pub fn sum<A: Real>(xs: &[A], f: impl Fn(A) -> A) -> A {
    sum2(xs, xs, |x, _| f(x))
}

/// Sum of `f` over pairs.
#[inline(always)]
pub fn sum2<A: Real>(xs: &[A], ys: &[A], f: impl Fn(A, A) -> A) -> A {
    let mut lanes = Lanes::new();
    let ((xc, xr), (yc, yr)) = (xs.as_chunks::<LANES>(), ys.as_chunks::<LANES>());
    for (x, y) in xc.iter().zip(yc) {
        lanes.add(|i| f(x[i], y[i]));
    }
    lanes.finish(xr.iter().zip(yr).map(|(x, y)| f(*x, *y)))
}

/// Independent partial sums of one row.
struct Lanes<A>([A; LANES]);

impl<A: Real> Lanes<A> {
    #[inline(always)]
    fn new() -> Lanes<A> {
        Lanes([A::ZERO; LANES])
    }

    /// Adds one value per lane and returns them.
    #[inline(always)]
    fn add(&mut self, f: impl Fn(usize) -> A) -> [A; LANES] {
        let values: [A; LANES] = std::array::from_fn(f);
        self.0 = std::array::from_fn(|i| self.0[i] + values[i]);
        values
    }

    /// The total, with what did not fill a chunk. Halves are added up, and halves of those: in a chain the roundings of
    /// equal values would all go the same way.
    #[inline(always)]
    fn finish(mut self, rest: impl Iterator<Item = A>) -> A {
        for (lane, v) in self.0.iter_mut().zip(rest) {
            *lane += v;
        }
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                self.0[i] += self.0[i + half];
            }
            half /= 2;
        }
        self.0[0]
    }
}

#[inline(always)]
pub fn max<A: Real>(xs: &[A]) -> A {
    let mut lanes = [A::LOWEST; LANES];
    let (chunks, rest) = xs.as_chunks::<LANES>();
    for x in chunks {
        // All lanes at once: element by element, the compiler makes each a conditional store.
        lanes = std::array::from_fn(|i| lanes[i].larger(x[i]));
    }
    lanes.iter().chain(rest).fold(A::LOWEST, |m, v| m.larger(*v))
}

#[inline(always)]
pub fn exp<A: Real>(x: A) -> A {
    x.exp_poly()
}

/// 1 / (1 + e^-x). The exponent is never positive, so that nothing overflows for either sign.
#[inline(always)]
pub fn sigmoid<A: Real>(x: A) -> A {
    let e = exp(if x < A::ZERO { x } else { -x });
    (if x < A::ZERO { e } else { A::ONE }) / (A::ONE + e)
}

/// 1/sqrt(mean(x^2) + eps).
#[inline(always)]
pub fn rms_rstd<A: Real>(x: &[A], eps: f64) -> A {
    A::ONE / (sum(x, |v| v * v) * A::from_f64(1.0 / x.len() as f64) + A::from_f64(eps)).sqrt()
}

/// Writes exp(x - max) for a row and returns the sum; meanwhile asks for `next`, the row after it.
#[inline(always)]
pub fn exp_sum<T: Elem>(x: &[T], next: &[T], powers: &mut [T::Acc]) -> T::Acc {
    match T::same(x) {
        Some(x) => {
            let highest = max(x);
            let mut lanes = Lanes::new();
            let ((xs, xr), (ps, pr)) = (x.as_chunks::<LANES>(), powers.as_chunks_mut::<LANES>());
            for (c, (x, p)) in xs.iter().zip(ps).enumerate() {
                prefetch(chunk::<LANES, T>(next, c));
                *p = lanes.add(|i| exp(x[i] - highest));
            }
            lanes.finish(xr.iter().zip(pr).map(|(x, p)| {
                *p = exp(*x - highest);
                *p
            }))
        }
        None => {
            T::widen(x, powers);
            let highest = max(powers);
            let mut lanes = Lanes::new();
            let (ps, pr) = powers.as_chunks_mut::<LANES>();
            for (c, p) in ps.iter_mut().enumerate() {
                prefetch(chunk::<LANES, T>(next, c));
                *p = lanes.add(|i| exp(p[i] - highest));
            }
            lanes.finish(pr.iter_mut().map(|p| {
                *p = exp(*p - highest);
                *p
            }))
        }
    }
}

/// The row of `n` after this one, to be asked for early; nothing if it is so long that it would push this one out.
#[inline(always)]
pub fn ahead<T>(later: &[T], n: usize) -> &[T] {
    let row = &later[..n.min(later.len())];
    if size_of_val(row) > AHEAD_BYTES { &[] } else { row }
}

/// Longer rows are left to the processor's own prefetching.
const AHEAD_BYTES: usize = 64 << 10;

/// Chunk `c` of a row that may be shorter.
#[inline(always)]
fn chunk<const N: usize, T>(row: &[T], c: usize) -> &[T] {
    &row[(c * N).min(row.len())..((c + 1) * N).min(row.len())]
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
    stream: bool,
}

/// Outputs beyond this are streamed: they would not survive in a core's own cache anyway.
const STREAM_BYTES: usize = 2 << 20;

/// Whether an output of `out_elems` goes past the cache.
fn streams<T>(out_elems: usize) -> bool {
    out_elems * size_of::<T>() > STREAM_BYTES
}

/// Stores the pieces of a part of an output of `out_elems` in all: piece `i` is what `piece` gives for it, with what
/// will be read next.
pub fn put<'a, T: Elem>(dst: &mut [T], out_elems: usize, piece: impl Fn(usize, usize) -> (&'a [T], &'a [T])) {
    let stream = streams::<T>(out_elems);
    for (i, dst) in dst.chunks_mut(PIECE).enumerate() {
        let (src, next) = piece(i, dst.len());
        if stream { stream_copy(dst, src, next) } else { dst.copy_from_slice(src) }
    }
    stream_fence();
}

impl<T: Elem> Row<T> {
    /// Scratch for rows of `n`, for an output of `out_elems` in all.
    pub fn new(n: usize, out_elems: usize) -> Row<T> {
        Row { wide: vec![T::Acc::ZERO; n], stream: streams::<T>(out_elems) }
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

    /// Stores `f` of the inputs for the whole row, rounded. `next` is what will be read after this row.
    #[inline(always)]
    pub fn store<const K: usize>(
        &mut self,
        dst: &mut [T],
        next: &[T],
        inputs: [&[T::Acc]; K],
        f: impl Fn([T::Acc; K]) -> T::Acc,
    ) {
        // Streaming needs whole cache lines: what lies before the first and behind the last is stored plainly.
        let head = if self.stream { dst.as_ptr().align_offset(64).min(dst.len()) } else { dst.len() };
        self.store_plain(&mut dst[..head], inputs.map(|s| &s[..head]), &f);
        let inputs = inputs.map(|s| &s[head..]);
        let next = &next[head.min(next.len())..];
        let (chunks, tail) = dst[head..].as_chunks_mut::<STREAMED>();
        let done = chunks.len() * STREAMED;
        for (c, dst) in chunks.iter_mut().enumerate() {
            let at = c * STREAMED;
            let inputs = inputs.map(|s| &s[at..at + STREAMED]);
            let mut narrow = [T::down(T::Acc::ZERO); STREAMED];
            match T::same_mut(&mut narrow) {
                Some(same) => map(same, inputs, &f),
                None => {
                    let mut wide = [T::Acc::ZERO; STREAMED];
                    map(&mut wide, inputs, &f);
                    T::narrow(&wide, &mut narrow);
                }
            }
            stream_chunk(dst, &narrow, chunk::<STREAMED, T>(next, c));
        }
        self.store_plain(tail, inputs.map(|s| &s[done..]), &f);
    }

    #[inline(always)]
    fn store_plain<const K: usize>(
        &mut self,
        dst: &mut [T],
        inputs: [&[T::Acc]; K],
        f: impl Fn([T::Acc; K]) -> T::Acc,
    ) {
        if let Some(same) = T::same_mut(dst) {
            return map(same, inputs, f);
        }
        for (i, dst) in dst.chunks_mut(PIECE).enumerate() {
            let at = i * PIECE;
            let wide = &mut self.wide[..dst.len()];
            map(wide, inputs.map(|s| &s[at..at + dst.len()]), &f);
            T::narrow(wide, dst);
        }
    }
}

/// `out[i] = f(inputs[..][i])`, in chunks of fixed length, so that no index is checked in the inner loop.
#[inline(always)]
fn map<A: Real, const K: usize>(out: &mut [A], inputs: [&[A]; K], f: impl Fn([A; K]) -> A) {
    let inputs = inputs.map(|s| s[..out.len()].as_chunks::<LANES>());
    let (chunks, rest) = out.as_chunks_mut::<LANES>();
    for (c, out) in chunks.iter_mut().enumerate() {
        let inputs: [&[A; LANES]; K] = inputs.map(|(chunks, _)| &chunks[c]);
        for i in 0..LANES {
            out[i] = f(inputs.map(|s| s[i]));
        }
    }
    for (i, out) in rest.iter_mut().enumerate() {
        *out = f(inputs.map(|(_, rest)| rest[i]));
    }
}

impl<T: Elem> Drop for Row<T> {
    /// What was streamed must have arrived before the job counts as done.
    fn drop(&mut self) {
        if self.stream {
            stream_fence();
        }
    }
}
