//! Backward of RMSNorm on the CPU.

use crate::cpu::{
    CpuImpl, Elem, Jobs, Real, Row, add_up, ahead, by_float, each_job, naive, simd, store_weight, sum2, widen_weight,
};
use crate::plain::norm_bwd;
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(norm_bwd::right, include_str!("../plain/norm_bwd.rs")),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let (x, w, dout, rstd) = (b.get("x"), b.get("w"), b.get("dout"), b.get("rstd"));
    let (dx, dw) = (b.get("dx"), b.get("dw"));
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || {
        let w = widen_weight::<<T as Elem>::Acc>(&w);
        let (x, dout, rstd, mut dx) = (x.read::<T>(), dout.read::<T>(), rstd.read(), dx.write::<T>());
        let jobs = Jobs::few(m, n);
        let partials = each_job(jobs.ranges().zip(jobs.split(&mut dx, pitch)), |(rows, dx)| {
            let start = rows.start * pitch;
            simd(#[inline(always)] || block::<T>(&x[start..], &w, &dout[start..], &rstd[rows], dx, (pitch, m * n)))
        });
        store_weight(&dw, &add_up(partials));
    }))
}

/// Some rows; `x` and `dout` start at the first of them and go on to the end. Returns the rows' part of dw.
#[inline(always)]
fn block<T: Elem>(
    x: &[T],
    w: &[T::Acc],
    dout: &[T],
    rstd: &[T::Acc],
    dx: &mut [T],
    (pitch, elems): (usize, usize),
) -> Vec<T::Acc> {
    let n = w.len();
    let inverse = T::Acc::from_f64(1.0 / n as f64);
    let (mut x_row, mut dout_row) = (Row::<T>::new(n, 0), Row::<T>::new(n, 0));
    let mut output = Row::<T>::new(n, elems);
    let mut dw = vec![T::Acc::ZERO; n];
    let mut products = vec![T::Acc::ZERO; n];
    for (row, dx) in dx.chunks_mut(pitch).enumerate() {
        let (now, later) = x[row * pitch..].split_at(pitch);
        let (x, dout, r) = (x_row.load(&now[..n]), dout_row.load(&dout[row * pitch..][..n]), rstd[row]);
        for i in 0..n {
            let product = x[i] * r * dout[i];
            products[i] = product;
            dw[i] += product;
        }
        let mean = sum2(&products, w, |p, w| p * w) * inverse;
        output.store(&mut dx[..n], ahead(later, n), [x, dout, w], |[x, dout, w]| (dout * w - x * r * mean) * r);
    }
    dw
}
