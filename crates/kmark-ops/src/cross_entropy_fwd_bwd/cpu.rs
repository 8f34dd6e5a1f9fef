//! Cross entropy with its backward on the CPU.

use crate::cpu::{Chain, CpuImpl, Elem, Jobs, Real, Row, ahead, by_float, each_job, exp_sum, simd};
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
    ignore: i64,
}

fn bind_naive(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (n, ignore) = (c.axis("n"), c.number("ignore") as i64);
    let (x, target, dloss, dx) = (b.get("x"), b.get("target"), b.get("dloss"), b.get("dx"));
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || {
        let (target, dloss) = (target.read(), dloss.read());
        naive::<T>(&x.read(), Rows { target: &target, dloss: &dloss, ignore }, &mut dx.write(), n, pitch)
    }))
}

fn naive<T: Elem>(x: &[T], rows: Rows<T::Acc>, dx: &mut [T], n: usize, pitch: usize) {
    for (row, (x, dx)) in x.chunks(pitch).zip(dx.chunks_mut(pitch)).enumerate() {
        let x = &x[..n];
        let mut max = T::Acc::LOWEST;
        for v in x {
            max = max.larger(v.up());
        }
        let mut total = Chain::default();
        for v in x {
            total.add((v.up() - max).exp_exact().to_f64());
        }
        let (total, target) = (T::Acc::from_f64(total.total()), rows.target[row]);
        for i in 0..n {
            let hot = if target == i as i64 { T::Acc::ONE } else { T::Acc::ZERO };
            let gradient = rows.dloss[row] * ((x[i].up() - max).exp_exact() / total - hot);
            dx[i] = T::down(if target == rows.ignore { T::Acc::ZERO } else { gradient });
        }
    }
}

fn bind_simd(c: &Case, b: &Buffers) -> Box<dyn Launch> {
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
