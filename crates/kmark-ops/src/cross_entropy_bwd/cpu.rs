//! Backward of cross entropy on the CPU.

use crate::cpu::{CpuImpl, Elem, Jobs, PIECE, Real, Row, by_float, each_job, exp, naive, simd};
use crate::plain::softmax;
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(softmax::right, include_str!("../plain/softmax.rs")),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

/// What belongs to each row beside its logits.
struct Rows<'a, A> {
    target: &'a [i64],
    dloss: &'a [A],
    lse: &'a [A],
    ignore: i64,
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n, ignore) = (c.axis("m"), c.axis("n"), c.number("ignore") as i64);
    let (x, target, dloss, lse, dx) = (b.get("x"), b.get("target"), b.get("dloss"), b.get("lse"), b.get("dx"));
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || {
        let (x, target, dloss, lse) = (x.read::<T>(), target.read::<i64>(), dloss.read(), lse.read());
        let mut dx = dx.write::<T>();
        let jobs = Jobs::rows(m, n);
        each_job(jobs.ranges().zip(jobs.split(&mut dx, pitch)), |(at, dx)| {
            let x = &x[at.start * pitch..];
            let rows = Rows { target: &target[at.clone()], dloss: &dloss[at.clone()], lse: &lse[at], ignore };
            simd(#[inline(always)] || block::<T>(x, rows, dx, n, pitch, m * n))
        });
    }))
}

/// Some rows; `x` starts at the first of them and goes on to the end of the tensor.
#[inline(always)]
fn block<T: Elem>(x: &[T], rows: Rows<T::Acc>, dx: &mut [T], n: usize, pitch: usize, elems: usize) {
    let piece = n.min(PIECE);
    let (mut input, mut output) = (Row::<T>::new(piece, 0), Row::<T>::new(piece, elems));
    for (row, dx) in dx.chunks_mut(pitch).enumerate() {
        let dx = &mut dx[..n];
        let (target, dloss, lse) = (rows.target[row], rows.dloss[row], rows.lse[row]);
        let ignored = target == rows.ignore;
        for (i, dx) in dx.chunks_mut(PIECE).enumerate() {
            let (now, later) = x[row * pitch + i * PIECE..].split_at(dx.len());
            let later = &later[..PIECE.min(later.len())];
            if ignored {
                output.store(dx, later, [], |[]| T::Acc::ZERO);
            } else {
                let x = input.load(now);
                output.store(dx, later, [x], |[x]| dloss * exp(x - lse));
            }
        }
        if !ignored {
            let t = target as usize;
            dx[t] = T::down(dloss * (exp(x[row * pitch + t].up() - lse) - T::Acc::ONE));
        }
    }
}
