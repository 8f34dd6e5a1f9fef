//! Cross entropy with its backward on the CPU.

use crate::cpu::{CpuImpl, Elem, Jobs, Real, Row, ahead, by_float, each_job, exp_sum, naive, simd};
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
    ignore: i64,
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n, ignore) = (c.axis("m"), c.axis("n"), c.number("ignore") as i64);
    let (x, target, dloss, dx) = (b.get("x"), b.get("target"), b.get("dloss"), b.get("dx"));
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || {
        let (x, target, dloss, mut dx) = (x.read::<T>(), target.read::<i64>(), dloss.read(), dx.write::<T>());
        let jobs = Jobs::rows(m, n);
        each_job(jobs.ranges().zip(jobs.split(&mut dx, pitch)), |(at, dx)| {
            let rows = Rows { target: &target[at.clone()], dloss: &dloss[at.clone()], ignore };
            simd(#[inline(always)] || block::<T>(&x[at.start * pitch..], rows, dx, n, pitch, m * n))
        });
    }))
}

/// Some rows; `x` starts at the first of them and goes on to the end of the tensor.
#[inline(always)]
fn block<T: Elem>(x: &[T], rows: Rows<T::Acc>, dx: &mut [T], n: usize, pitch: usize, elems: usize) {
    let mut output = Row::<T>::new(n, elems);
    let mut powers = vec![T::Acc::ZERO; n];
    for (row, dx) in dx.chunks_mut(pitch).enumerate() {
        let dx = &mut dx[..n];
        let (now, later) = x[row * pitch..].split_at(pitch);
        let later = ahead(later, n);
        let (target, dloss) = (rows.target[row], rows.dloss[row]);
        if target == rows.ignore {
            output.store(dx, later, [], |[]| T::Acc::ZERO);
            continue;
        }
        let inverse = T::Acc::ONE / exp_sum(&now[..n], later, &mut powers);
        let scale = dloss * inverse;
        output.store(dx, &[], [&powers], |[p]| p * scale);
        let t = target as usize;
        dx[t] = T::down(dloss * (powers[t] * inverse - T::Acc::ONE));
    }
}
