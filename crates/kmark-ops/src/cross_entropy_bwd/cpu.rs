//! Backward of cross entropy on the CPU.

use crate::cpu::{CpuImpl, Elem, Jobs, PIECE, Real, Row, by_float, each_job, exp, simd};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &CpuImpl {
        name: "cpu/naive",
        about: "plain loops, one thread",
        source: include_str!("cpu.rs"),
        run: crate::cpu::Run::Bound(bind_naive),
    },
    &CpuImpl {
        name: "cpu/simd",
        about: "vectorised rows, all cores",
        source: include_str!("cpu.rs"),
        run: crate::cpu::Run::Bound(bind_simd),
    },
];

/// What belongs to each row beside its logits.
struct Rows<'a, A> {
    target: &'a [i64],
    dloss: &'a [A],
    lse: &'a [A],
    ignore: i64,
}

fn bind_naive(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (n, ignore) = (c.axis("n"), c.number("ignore") as i64);
    let (x, target, dloss, lse, dx) = (b.get("x"), b.get("target"), b.get("dloss"), b.get("lse"), b.get("dx"));
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || {
        let (target, dloss, lse) = (target.read(), dloss.read(), lse.read());
        let rows = Rows { target: &target, dloss: &dloss, lse: &lse, ignore };
        naive::<T>(&x.read(), rows, &mut dx.write(), n, pitch)
    }))
}

fn naive<T: Elem>(x: &[T], rows: Rows<T::Acc>, dx: &mut [T], n: usize, pitch: usize) {
    for (row, (x, dx)) in x.chunks(pitch).zip(dx.chunks_mut(pitch)).enumerate() {
        let target = rows.target[row];
        for i in 0..n {
            let hot = if target == i as i64 { T::Acc::ONE } else { T::Acc::ZERO };
            let gradient = rows.dloss[row] * ((x[i].up() - rows.lse[row]).exp_exact() - hot);
            dx[i] = T::down(if target == rows.ignore { T::Acc::ZERO } else { gradient });
        }
    }
}

fn bind_simd(c: &Case, b: &Buffers) -> Box<dyn Launch> {
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
