//! Vectorised arithmetic on one row of accumulators. Plain loops over independent lanes, compiled for the widest vectors
//! the processor has: everything here is inlined into a closure that `simd` runs with those instructions enabled.

use super::ahead::Ahead;
use super::elem::Real;

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
pub fn exp_sum<A: Real>(x: &[A], next: Ahead, powers: &mut [A]) -> A {
    let highest = max(x);
    let mut lanes = Lanes::new();
    let ((xs, xr), (ps, pr)) = (x.as_chunks::<LANES>(), powers.as_chunks_mut::<LANES>());
    for (c, (x, p)) in xs.iter().zip(ps).enumerate() {
        next.ask(c * LANES, LANES);
        *p = lanes.add(|i| exp(x[i] - highest));
    }
    lanes.finish(xr.iter().zip(pr).map(|(x, p)| {
        *p = exp(*x - highest);
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
