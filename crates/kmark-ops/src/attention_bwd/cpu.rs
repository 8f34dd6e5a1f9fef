//! Backward of attention on the CPU.

use super::plain;
use crate::cpu::attention::{KEYS, QUERIES, Rows};
use crate::cpu::{CpuImpl, Elem, Real, by_float, exp, naive, simd, sum2};
use crate::truth::attention::{Geometry, dense};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::cpu::matmul::{Into, Mat, matmul};
use kmark_device::{Impl, Launch};
use rayon::prelude::*;
use std::sync::Mutex;

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("tiles of 64 queries and 128 keys, five products each, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (geo, dtype) = (dense::geometry(c), c.dtype);
    let inputs = ["q", "k", "v", "o", "dout"].map(|name| b.get(name));
    let (lse, outputs) = (b.get("lse"), ["dq", "dk", "dv"].map(|name| b.get(name)));
    by_float!(dtype, T => Box::new(move || {
        let held: Vec<_> = inputs.iter().map(|b| b.read::<T>()).collect();
        let inputs: [Rows<T>; 5] = std::array::from_fn(|i| Rows::new(&held[i], &inputs[i]));
        let lse = lse.read();
        let mut outs: Vec<_> = outputs.iter().map(|b| b.write::<T>()).collect();
        let pitches: Vec<usize> = outputs.iter().map(|b| b.spec().pitch).collect();
        let out = Mutex::new(outs.iter_mut().map(|guard| &mut **guard).collect::<Vec<&mut [T]>>());
        let store = |which: usize, row: usize, values: &[<T as Elem>::Acc]| {
            let at = row * pitches[which];
            T::narrow(values, &mut out.lock().expect("no head panicked")[which][at..at + values.len()]);
        };
        (0..geo.seqs.len() * geo.hkv).into_par_iter().for_each(|n| {
            simd(#[inline(always)] || one_head::<T>(&geo, n / geo.hkv, n % geo.hkv, &inputs, &lse, &store))
        });
    }))
}

/// All queries of the heads that share a key head. The gradients of its keys stay in scratch until the end.
#[inline(always)]
fn one_head<T: Elem>(
    geo: &Geometry,
    s: usize,
    kv_head: usize,
    [q, k, v, o, dout]: &[Rows<T>; 5],
    lse: &[T::Acc],
    store: &impl Fn(usize, usize, &[T::Acc]),
) {
    let (d, seq) = (geo.dk, geo.seqs[s]);
    let zeros = |len: usize| vec![T::Acc::ZERO; len];
    let scale = T::Acc::from_f64(geo.scale);
    let (mut kx, mut vx) = (zeros(seq.keys * d), zeros(seq.keys * d));
    for j in 0..seq.keys {
        let row = (geo.k_row)(s, j, kv_head);
        T::widen(k.row(row, d), &mut kx[j * d..(j + 1) * d]);
        T::widen(v.row(row, d), &mut vx[j * d..(j + 1) * d]);
    }
    let (mut dk, mut dv) = (zeros(seq.keys * d), zeros(seq.keys * d));
    let (mut qx, mut ox, mut gx, mut dq) = (zeros(QUERIES * d), zeros(d), zeros(QUERIES * d), zeros(QUERIES * d));
    let (mut p, mut ds) = (zeros(QUERIES * KEYS), zeros(QUERIES * KEYS));
    let (mut delta, mut row_lse) = (zeros(QUERIES), zeros(QUERIES));
    for head in kv_head * geo.group()..(kv_head + 1) * geo.group() {
        for first in (0..seq.queries).step_by(QUERIES) {
            let rows = QUERIES.min(seq.queries - first);
            for r in 0..rows {
                let row = (geo.q_row)(s, first + r, head);
                T::widen(q.row(row, d), &mut qx[r * d..(r + 1) * d]);
                T::widen(dout.row(row, d), &mut gx[r * d..(r + 1) * d]);
                T::widen(o.row(row, d), &mut ox);
                delta[r] = sum2(&ox, &gx[r * d..(r + 1) * d], |a, b| a * b);
                row_lse[r] = lse[(geo.lse_at)(s, first + r, head)];
            }
            qx[..rows * d].iter_mut().for_each(|q| *q = *q * scale);
            dq[..rows * d].fill(T::Acc::ZERO);
            // Ranges move forward with the queries: the first starts first, the last ends last.
            let (start, end) = ((geo.visible)(s, first).start, (geo.visible)(s, first + rows - 1).end);
            for from in (start..end).step_by(KEYS) {
                let n = KEYS.min(end - from);
                let at = from * d..(from + n) * d;
                let (queries, grads) = (Mat::new(&qx, rows, d, d), Mat::new(&gx, rows, d, d));
                let (keys, values) = (Mat::new(&kx[at.clone()], n, d, d), Mat::new(&vx[at.clone()], n, d, d));
                matmul(&mut p, KEYS, queries, keys.transposed(), Into::Set, false);
                matmul(&mut ds, KEYS, grads, values.transposed(), Into::Set, false);
                for r in 0..rows {
                    let visible = (geo.visible)(s, first + r);
                    let inside = |j: usize| j.clamp(from, from + n) - from;
                    let keep = inside(visible.start)..inside(visible.end).max(inside(visible.start));
                    let (p, ds) = (&mut p[r * KEYS..r * KEYS + n], &mut ds[r * KEYS..r * KEYS + n]);
                    for unseen in [0..keep.start, keep.end..n] {
                        p[unseen.clone()].fill(T::Acc::ZERO);
                        ds[unseen].fill(T::Acc::ZERO);
                    }
                    let (lse, delta) = (row_lse[r], delta[r]);
                    for (p, ds) in p[keep.clone()].iter_mut().zip(&mut ds[keep]) {
                        *p = exp(*p - lse);
                        *ds = *p * (*ds - delta);
                    }
                }
                let (p, ds) = (Mat::new(&p, rows, n, KEYS), Mat::new(&ds, rows, n, KEYS));
                matmul(&mut dv[at.clone()], d, p.transposed(), grads, Into::Add, false);
                // q is scaled already, k is not.
                matmul(&mut dk[at], d, ds.transposed(), queries, Into::Add, false);
                matmul(&mut dq, d, ds, keys, Into::Add, false);
            }
            dq[..rows * d].iter_mut().for_each(|g| *g = *g * scale);
            for r in 0..rows {
                store(0, (geo.q_row)(s, first + r, head), &dq[r * d..(r + 1) * d]);
            }
        }
    }
    for j in 0..seq.keys {
        let row = (geo.k_row)(s, j, kv_head);
        store(1, row, &dk[j * d..(j + 1) * d]);
        store(2, row, &dv[j * d..(j + 1) * d]);
    }
}
