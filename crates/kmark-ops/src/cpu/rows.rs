//! Vectorised arithmetic on one row of accumulators. Plain loops over independent lanes, compiled for the widest vectors
//! the processor has: everything here is inlined into a closure that `simd` runs with those instructions enabled.

use super::ahead::Ahead;
use super::elem::Real;
use std::hint::black_box;

/// Independent partial sums: four AVX-512 registers of f32, of one part each.
const LANES: usize = 64;
const PART: usize = LANES / 4;

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
    let mut lanes = Lanes::all(A::ZERO);
    let ((xc, xr), (yc, yr)) = (xs.as_chunks::<LANES>(), ys.as_chunks::<LANES>());
    for (xc, yc) in xc.chunks(CHAIN).zip(yc.chunks(CHAIN)) {
        let mut part = Lanes::all(A::ZERO);
        for (x, y) in xc.iter().zip(yc) {
            part.add(|i| f(x[i], y[i]));
        }
        lanes.each(|p, i, lane| lane + part.0[p][i]);
    }
    lanes.finish(xr.iter().zip(yr).map(|(x, y)| f(*x, *y)))
}

/// An array of what `f` gives for every index. Unlike the standard library's, it is always inlined: called, it would run
/// with the instructions of the baseline.
#[inline(always)]
fn make<A: Real, const N: usize>(f: impl Fn(usize) -> A) -> [A; N] {
    let mut all = [A::ZERO; N];
    for (i, v) in all.iter_mut().enumerate() {
        *v = f(i);
    }
    all
}

/// Independent partial results of one row. In parts that the compiler unrolls and keeps in registers: one array of all
/// lanes lives in memory, and every step waits for the store of the one before.
struct Lanes<A>([[A; PART]; 4]);

impl<A: Real> Lanes<A> {
    #[inline(always)]
    fn all(value: A) -> Lanes<A> {
        Lanes([[value; PART]; 4])
    }

    /// Replaces every lane by what `f` makes of its part, its place there, and it.
    #[inline(always)]
    fn each(&mut self, f: impl Fn(usize, usize, A) -> A) {
        let [a, b, c, d] = self.0;
        self.0 = [make(|i| f(0, i, a[i])), make(|i| f(1, i, b[i])), make(|i| f(2, i, c[i])), make(|i| f(3, i, d[i]))];
    }

    /// Adds one value per lane.
    #[inline(always)]
    fn add(&mut self, f: impl Fn(usize) -> A) {
        self.each(|part, i, lane| lane + f(part * PART + i));
    }

    /// The total, with what did not fill a chunk: that is put in an array of its own first, because lanes that are picked
    /// out by an index would live in memory, in the loops before as well. In a chain the roundings of equal values would
    /// all go the same way.
    #[inline(always)]
    fn finish(mut self, rest: impl ExactSizeIterator<Item = A>) -> A {
        if rest.len() > 0 {
            let mut last = [A::ZERO; LANES];
            last.iter_mut().zip(rest).for_each(|(lane, v)| *lane = v);
            self.add(|i| last[i]);
        }
        self.fold(|a, b| a + b)
    }

    /// All lanes into one: halves of them, and halves of those. The compiler makes vectors of what is stored; left to
    /// itself it would store nothing on the way and go through the lanes one by one.
    #[inline(always)]
    fn fold(self, f: impl Fn(A, A) -> A) -> A {
        let [a, b, c, d] = self.0;
        let lanes: [A; PART] = black_box(make(|i| f(f(a[i], c[i]), f(b[i], d[i]))));
        let lanes: [A; 4] = black_box(make(|i| f(f(lanes[i], lanes[i + 8]), f(lanes[i + 4], lanes[i + 12]))));
        f(f(lanes[0], lanes[2]), f(lanes[1], lanes[3]))
    }
}

#[inline(always)]
pub fn max<A: Real>(xs: &[A]) -> A {
    max_of(xs, |x| x)
}

/// Maximum of `f`.
#[inline(always)]
pub fn max_of<A: Real>(xs: &[A], f: impl Fn(A) -> A) -> A {
    let mut lanes = Lanes::all(A::LOWEST);
    let (chunks, rest) = xs.as_chunks::<LANES>();
    for x in chunks {
        lanes.each(|part, i, lane| lane.larger(f(x[part * PART + i])));
    }
    let highest = lanes.fold(|a, b| a.larger(b));
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

/// Sum of exp(x - highest) over a piece, which is no longer than a chain may be. The powers of a chunk are computed before
/// any is added: lane by lane, they would wait for each other.
#[inline(always)]
pub fn powers_sum<A: Real>(xs: &[A], highest: A) -> A {
    let mut lanes = Lanes::all(A::ZERO);
    let (chunks, rest) = xs.as_chunks::<LANES>();
    for x in chunks {
        let powers: [A; LANES] = make(|i| exp(x[i] - highest));
        lanes.add(|i| powers[i]);
    }
    lanes.finish(rest.iter().map(|x| exp(*x - highest)))
}

/// Writes exp(x - max) for a row and returns the sum; meanwhile asks for `next`, the row after it. `IN_PLACE` the row
/// is what `powers` holds.
#[inline(always)]
pub fn exp_sum<A: Real, const IN_PLACE: bool>(x: &[A], next: Ahead, powers: &mut [A]) -> A {
    let highest = max(if IN_PLACE { powers } else { x });
    let mut lanes = Lanes::all(A::ZERO);
    let ((xs, xr), (ps, pr)) = (x.as_chunks::<LANES>(), powers.as_chunks_mut::<LANES>());
    for (c, p) in ps.iter_mut().enumerate() {
        next.ask(c * LANES, LANES);
        let x = if IN_PLACE { *p } else { xs[c] };
        *p = make(|i| exp(x[i] - highest));
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
