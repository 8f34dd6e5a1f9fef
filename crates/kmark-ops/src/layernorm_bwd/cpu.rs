//! Backward of LayerNorm on the CPU.

use crate::cpu::{
    CpuImpl, Elem, Jobs, Real, Row, add_up, ahead, by_float, each_job, naive, simd, store_weight, sum, sum2,
    widen_weight,
};
use crate::plain::norm_bwd;
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(norm_bwd::right, include_str!("../plain/norm_bwd.rs")),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

/// What a block of rows reads. `x` and `dout` start at its first row.
struct Inputs<'a, T: Elem> {
    x: &'a [T],
    w: &'a [T::Acc],
    dout: &'a [T],
    mean: &'a [T::Acc],
    rstd: &'a [T::Acc],
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let (x, w, dout, mean, rstd) = (b.get("x"), b.get("w"), b.get("dout"), b.get("mean"), b.get("rstd"));
    let (dx, dw, dbias) = (b.get("dx"), b.get("dw"), c.flag("bias").then(|| b.get("dbias")));
    let with_bias = c.flag("bias");
    let pitch = x.spec().pitch;
    by_float!(c.dtype, T => Box::new(move || {
        let w = widen_weight::<<T as Elem>::Acc>(&w);
        let (x, dout, mean, rstd) = (x.read::<T>(), dout.read::<T>(), mean.read(), rstd.read());
        let mut dx = dx.write::<T>();
        let jobs = Jobs::few(m, n);
        let partials = each_job(jobs.ranges().zip(jobs.split(&mut dx, pitch)), |(rows, dx)| {
            let start = rows.start * pitch;
            let (mean, rstd) = (&mean[rows.clone()], &rstd[rows]);
            let inputs = Inputs { x: &x[start..], w: &w, dout: &dout[start..], mean, rstd };
            simd(#[inline(always)] || block::<T>(inputs, dx, pitch, m * n, with_bias))
        });
        let (weight, bias) = partials.into_iter().unzip();
        store_weight(&dw, &add_up(weight));
        if let Some(dbias) = &dbias {
            store_weight(dbias, &add_up(bias));
        }
    }))
}

/// Some rows. Returns their part of dw and of dbias, which stays zero if nobody wants it.
#[inline(always)]
fn block<T: Elem>(
    a: Inputs<T>,
    dx: &mut [T],
    pitch: usize,
    elems: usize,
    with_bias: bool,
) -> (Vec<T::Acc>, Vec<T::Acc>) {
    let (w, n) = (a.w, a.w.len());
    let inverse = T::Acc::from_f64(1.0 / n as f64);
    let (mut x_row, mut dout_row) = (Row::<T>::new(n, 0), Row::<T>::new(n, 0));
    let mut output = Row::<T>::new(n, elems);
    let (mut dw, mut dbias) = (vec![T::Acc::ZERO; n], vec![T::Acc::ZERO; n]);
    let (mut xhs, mut gs) = (vec![T::Acc::ZERO; n], vec![T::Acc::ZERO; n]);
    for (row, dx) in dx.chunks_mut(pitch).enumerate() {
        let (now, later) = a.x[row * pitch..].split_at(pitch);
        let (x, dout) = (x_row.load(&now[..n]), dout_row.load(&a.dout[row * pitch..][..n]));
        let (mean, r) = (a.mean[row], a.rstd[row]);
        for i in 0..n {
            let xh = (x[i] - mean) * r;
            xhs[i] = xh;
            gs[i] = dout[i] * w[i];
            dw[i] += dout[i] * xh;
        }
        if with_bias {
            for (b, d) in dbias.iter_mut().zip(dout) {
                *b += *d;
            }
        }
        let g_mean = sum(&gs, |g| g) * inverse;
        let dot_mean = sum2(&xhs, &gs, |xh, g| xh * g) * inverse;
        output.store(&mut dx[..n], ahead(later, n), [&gs, &xhs], |[g, xh]| (g - g_mean - xh * dot_mean) * r);
    }
    (dw, dbias)
}
