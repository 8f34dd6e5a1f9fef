//! Cross entropy on the CPU.

use crate::cpu::{CpuImpl, Elem, Jobs, PIECE, Real, Row, by_float, each_job, max_exp_sum, simd};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub static IMPLS: &[&dyn Impl] = &[
    &CpuImpl { name: "cpu/naive", about: "plain loops, one thread", source: include_str!("cpu.rs"), bind: bind_naive },
    &CpuImpl { name: "cpu/simd", about: "vectorised rows, all cores", source: include_str!("cpu.rs"), bind: bind_simd },
];

fn bind_naive(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (n, ignore) = (c.axis("n"), c.number("ignore") as i64);
    let (x, target, loss, lse) = (b.get("x"), b.get("target"), b.get("loss"), b.get("lse"));
    by_float!(c.dtype, T => Box::new(move || {
        let (target, mut loss, mut lse) = (target.read(), loss.write(), lse.write());
        naive::<T>(&x.read(), &target, ignore, &mut loss, &mut lse, n)
    }))
}

fn naive<T: Elem>(x: &[T], target: &[i64], ignore: i64, loss: &mut [T::Acc], lse: &mut [T::Acc], n: usize) {
    for (row, x) in x.chunks(n).enumerate() {
        let mut max = T::Acc::LOWEST;
        for v in x {
            max = max.larger(v.up());
        }
        let mut total = 0.0;
        for v in x {
            total += (v.up() - max).exp_exact().to_f64();
        }
        lse[row] = max + T::Acc::from_f64(total).ln();
        loss[row] = if target[row] == ignore { T::Acc::ZERO } else { lse[row] - x[target[row] as usize].up() };
    }
}

fn bind_simd(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n, ignore) = (c.axis("m"), c.axis("n"), c.number("ignore") as i64);
    let (x, target, loss, lse) = (b.get("x"), b.get("target"), b.get("loss"), b.get("lse"));
    by_float!(c.dtype, T => Box::new(move || {
        let (x, target, mut loss, mut lse) = (x.read::<T>(), target.read::<i64>(), loss.write(), lse.write());
        let jobs = Jobs::rows(m, n);
        let parts = jobs.ranges().zip(jobs.split(&mut loss, 1)).zip(jobs.split(&mut lse, 1));
        each_job(parts, |((rows, loss), lse)| {
            let x = &x[rows.start * n..rows.end * n];
            simd(#[inline(always)] || block::<T>(x, &target[rows], ignore, loss, lse))
        });
    }))
}

/// Some rows.
#[inline(always)]
fn block<T: Elem>(x: &[T], target: &[i64], ignore: i64, loss: &mut [T::Acc], lse: &mut [T::Acc]) {
    let n = x.len() / target.len();
    let mut piece = Row::<T>::new(n.min(PIECE), 0);
    for (row, x) in x.chunks(n).enumerate() {
        let (max, total) = max_exp_sum(x, &mut piece);
        let log = total.ln();
        lse[row] = max + log;
        // From the parts: the maximum cancels before anything is rounded.
        let of = |t: i64| log + (max - x[t as usize].up());
        loss[row] = if target[row] == ignore { T::Acc::ZERO } else { of(target[row]) };
    }
}
