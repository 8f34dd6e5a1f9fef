//! Rotary position embedding on the CPU.

use super::{in_place, operands, plain, rotated};
use crate::cpu::{CpuImpl, Elem, Jobs, PIECE, Real, Row, ahead, by_float, each_job, naive, simd};
use kmark_core::case::Case;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

/// A tensor to rotate: its rows are heads.
#[derive(Clone, Copy)]
struct Heads {
    rows: usize,
    /// Rows per position, and positions per sequence.
    heads: usize,
    s: usize,
    pitch: usize,
    /// Dimensions that are written: in place only those that change.
    width: usize,
    /// Dimensions that are rotated.
    r: usize,
    neox: bool,
}

/// Cosines and sines of every position.
struct Angles<'a, A> {
    cos: &'a [A],
    sin: &'a [A],
}

impl<A> Angles<'_, A> {
    #[inline(always)]
    fn of(&self, row: usize, h: Heads) -> (&[A], &[A]) {
        let half = h.r / 2;
        let at = row / h.heads % h.s * half;
        (&self.cos[at..at + half], &self.sin[at..at + half])
    }
}

/// What is rotated and where it goes; in place there is no input.
type Operand = (Option<Buffer>, Buffer, Heads);

fn bound(c: &Case, b: &Buffers) -> Vec<Operand> {
    let (s, r, neox) = (c.axis("s"), rotated(c), c.attr("style") == "neox");
    let bind = |(input, output, heads)| {
        let out = b.get(output);
        let width = if in_place(c) { r } else { c.axis("d") };
        let (rows, pitch) = (out.spec().rows(), out.spec().pitch);
        ((!in_place(c)).then(|| b.get(input)), out, Heads { rows, heads, s, pitch, width, r, neox })
    };
    operands(c).into_iter().map(bind).collect()
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (all, cos, sin) = (bound(c, b), b.get("cos"), b.get("sin"));
    by_float!(c.dtype, T => Box::new(move || {
        let (cos, sin) = (cos.read(), sin.read());
        let angles = Angles { cos: &cos, sin: &sin };
        for (input, out, h) in &all {
            let (input, mut out) = (input.as_ref().map(|b| b.read::<T>()), out.write::<T>());
            let jobs = Jobs::rows(h.rows, h.width);
            each_job(jobs.ranges().zip(jobs.split(&mut out, h.pitch)), |(rows, out)| {
                let input = input.as_ref().map(|x| &x[rows.start * h.pitch..]);
                simd(#[inline(always)] || block::<T>(input, out, &angles, rows.start, *h))
            });
        }
    }))
}

/// Some rows from `first` on; the input starts there and goes on to the end of the tensor. A head is short, so that as
/// many as lie adjacent go through the accumulators together.
#[inline(always)]
fn block<T: Elem>(input: Option<&[T]>, out: &mut [T], angles: &Angles<T::Acc>, first: usize, h: Heads) {
    let run = if h.pitch == h.width { (PIECE / h.width).max(1) } else { 1 };
    let elems = run * h.width;
    // Lines that were just read are in the cache: in place nothing is won by streaming past it.
    let mut output = Row::<T>::new(elems, if input.is_some() { h.rows * h.width } else { 0 });
    let (mut wide, mut turned) = (vec![T::Acc::ZERO; elems], vec![T::Acc::ZERO; elems]);
    for (group, out) in out.chunks_mut(run * h.pitch).enumerate() {
        let len = out.len() / h.pitch * h.width;
        let (out, start) = (&mut out[..len], group * run * h.pitch);
        let (now, later) = input.map_or((&*out, &[][..]), |x| x[start..].split_at(len));
        T::widen(now, &mut wide[..len]);
        for (i, (x, y)) in wide[..len].chunks(h.width).zip(turned.chunks_mut(h.width)).enumerate() {
            let (cos, sin) = angles.of(first + group * run + i, h);
            rotate(x, y, cos, sin, h.neox);
        }
        output.store(out, ahead(later, elems), [&turned[..len]], |[v]| v);
    }
}

/// One head.
#[inline(always)]
fn rotate<A: Real>(x: &[A], y: &mut [A], cos: &[A], sin: &[A], neox: bool) {
    let half = cos.len();
    let ((x, x_rest), (y, y_rest)) = (x.split_at(2 * half), y.split_at_mut(2 * half));
    y_rest.copy_from_slice(x_rest);
    if neox {
        let ((x1, x2), (y1, y2)) = (x.split_at(half), y.split_at_mut(half));
        let sin = &sin[..half];
        for i in 0..half {
            y1[i] = x1[i] * cos[i] - x2[i] * sin[i];
            y2[i] = x2[i] * cos[i] + x1[i] * sin[i];
        }
    } else {
        let pairs = x.as_chunks::<2>().0.iter().zip(y.as_chunks_mut::<2>().0);
        for (([x1, x2], y), (cos, sin)) in pairs.zip(cos.iter().zip(sin)) {
            *y = [*x1 * *cos - *x2 * *sin, *x2 * *cos + *x1 * *sin];
        }
    }
}
