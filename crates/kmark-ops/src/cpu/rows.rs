//! Vectorised arithmetic on one row of accumulators. Plain loops over independent lanes, compiled for the widest vectors
//! the processor has: everything here is inlined into a closure that `simd` runs with those instructions enabled.

use super::ahead::Ahead;
use super::elem::Real;
use std::array::from_fn;
use std::hint::black_box;

/// Independent partial sums: four AVX-512 registers of f32.
const LANES: usize = 64;

#[inline(always)]
pub fn sum<A: Real>(xs: &[A], f: impl Fn(A) -> A) -> A {
    sum2(xs, xs, |x, _| f(x))
}

/// A lane adds up so many values before it goes to the total: the roundings of a longer chain of equal values, which all go
/// the same way, would be more than a tight sum may have.
const CHAIN: usize = 64;

/// Sum of `f` over pairs.
#[inline(always)]
pub fn sum2<A: Real>(xs: &[A], ys: &[A], f: impl Fn(A, A) -> A) -> A {
    let mut lanes = Lanes::new();
    let ((xc, xr), (yc, yr)) = (xs.as_chunks::<LANES>(), ys.as_chunks::<LANES>());
    for (xc, yc) in xc.chunks(CHAIN).zip(yc.chunks(CHAIN)) {
        let mut part = Lanes::new();
        for (x, y) in xc.iter().zip(yc) {
            part.add(|i| f(x[i], y[i]));
        }
        lanes.add(|i| part.0[i]);
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

    /// Adds one value per lane.
    #[inline(always)]
    fn add(&mut self, f: impl Fn(usize) -> A) {
        for i in 0..LANES {
            self.0[i] += f(i);
        }
    }

    /// The total, with what did not fill a chunk: that is put in an array of its own first, because lanes that are picked
    /// out by an index would live in memory, in the loops before as well. In a chain the roundings of equal values would
    /// all go the same way.
    #[inline(always)]
    fn finish(mut self, rest: impl Iterator<Item = A>) -> A {
        let mut last = [A::ZERO; LANES];
        last.iter_mut().zip(rest).for_each(|(lane, v)| *lane = v);
        self.add(|i| last[i]);
        fold(self.0, |a, b| a + b)
    }
}

/// All lanes into one: halves of them, and halves of those. The compiler makes vectors of what is stored; left to itself
/// it would store nothing on the way and go through the lanes one by one.
#[inline(always)]
fn fold<A: Real>(lanes: [A; LANES], f: impl Fn(A, A) -> A) -> A {
    let lanes: [A; 32] = black_box(from_fn(|i| f(lanes[i], lanes[i + 32])));
    let lanes: [A; 16] = black_box(from_fn(|i| f(lanes[i], lanes[i + 16])));
    let lanes: [A; 8] = black_box(from_fn(|i| f(lanes[i], lanes[i + 8])));
    let lanes: [A; 4] = black_box(from_fn(|i| f(lanes[i], lanes[i + 4])));
    f(f(lanes[0], lanes[2]), f(lanes[1], lanes[3]))
}

#[inline(always)]
pub fn max<A: Real>(xs: &[A]) -> A {
    max_of(xs, |x| x)
}

/// Maximum of `f`.
#[inline(always)]
pub fn max_of<A: Real>(xs: &[A], f: impl Fn(A) -> A) -> A {
    let mut lanes = [A::LOWEST; LANES];
    let (chunks, rest) = xs.as_chunks::<LANES>();
    for x in chunks {
        // All lanes at once: element by element, the compiler makes each a conditional store.
        lanes = from_fn(|i| lanes[i].larger(f(x[i])));
    }
    let highest = fold(lanes, |a, b| a.larger(b));
    rest.iter().fold(highest, |m, v| m.larger(f(*v)))
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

/// Writes exp(x - max) for a row and returns the sum; meanwhile asks for `next`, the row after it. `IN_PLACE` the row
/// is what `powers` holds.
#[inline(always)]
pub fn exp_sum<A: Real, const IN_PLACE: bool>(x: &[A], next: Ahead, powers: &mut [A]) -> A {
    let highest = max(if IN_PLACE { powers } else { x });
    let mut lanes = Lanes::new();
    let ((xs, xr), (ps, pr)) = (x.as_chunks::<LANES>(), powers.as_chunks_mut::<LANES>());
    for (c, p) in ps.iter_mut().enumerate() {
        next.ask(c * LANES, LANES);
        let x = if IN_PLACE { *p } else { xs[c] };
        *p = from_fn(|i| exp(x[i] - highest));
        lanes.add(|i| p[i]);
    }
    lanes.finish(pr.iter_mut().enumerate().map(|(i, p)| {
        *p = exp(if IN_PLACE { *p } else { xr[i] } - highest);
        *p
    }))
}

/// `out[i] = f(inputs[..][i])`, in chunks of fixed length, so that no index is checked in the inner loop.
#[inline(always)]
pub fn map<A: Real, const K: usize>(out: &mut [A], inputs: [&[A]; K], f: impl Fn([A; K]) -> A) {
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
