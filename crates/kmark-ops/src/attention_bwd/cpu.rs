//! Backward of attention on the CPU.

use crate::cpu::attention::{KEYS, QUERIES, Rows, store};
use crate::cpu::*;
use crate::truth::attention::{Geometry, dense};
use kmark_device::cpu::matmul::{Into, Mat, matmul};
use rayon::prelude::*;
use std::sync::Mutex;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (geo, b) = (dense::geometry(c), b.clone());
    by_acc!(c.dtype, A => Box::new(move || launch::<A>(&geo, &b)))
}

fn launch<A: Real>(geo: &Geometry, b: &Buffers) {
    let (inputs, outputs) = (["q", "k", "v", "o", "dout"].map(|n| b.get(n)), ["dq", "dk", "dv"].map(|n| b.get(n)));
    let held = inputs.each_ref().map(|b| b.read::<u8>());
    let rows: [Rows; 5] = std::array::from_fn(|i| Rows::new(&held[i], &inputs[i]));
    let lse = b.get("lse");
    let lse = lse.read::<A>();
    let mut held_out = outputs.each_ref().map(|b| b.write::<u8>());
    let out = Mutex::new(held_out.each_mut().map(|guard| &mut **guard));
    let put = |which: usize, row: usize, values: &[A]| {
        store(out.lock().expect("no head panicked")[which], &outputs[which], row, values);
    };
    (0..geo.seqs.len() * geo.hkv).into_par_iter().for_each(|n| {
        simd(
            #[inline(always)]
            || one_head::<A>(geo, n / geo.hkv, n % geo.hkv, &rows, &lse, &put),
        )
    });
}

/// All queries of the heads that share a key head. The gradients of its keys stay in scratch until the end.
#[inline(always)]
fn one_head<A: Real>(
    geo: &Geometry,
    s: usize,
    kv_head: usize,
    [q, k, v, o, dout]: &[Rows; 5],
    lse: &[A],
    store: &dyn Fn(usize, usize, &[A]),
) {
    let (d, seq) = (geo.dk, geo.seqs[s]);
    let zeros = |len: usize| vec![A::ZERO; len];
    let scale = A::from_f64(geo.scale);
    let (mut kx, mut vx) = (zeros(seq.keys * d), zeros(seq.keys * d));
    for j in 0..seq.keys {
        let row = (geo.k_row)(s, j, kv_head);
        k.load(row, &mut kx[j * d..(j + 1) * d]);
        v.load(row, &mut vx[j * d..(j + 1) * d]);
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
                q.load(row, &mut qx[r * d..(r + 1) * d]);
                dout.load(row, &mut gx[r * d..(r + 1) * d]);
                o.load(row, &mut ox);
                delta[r] = sum2(&ox, &gx[r * d..(r + 1) * d], |a, b| a * b);
                row_lse[r] = lse[(geo.lse_at)(s, first + r, head)];
            }
            qx[..rows * d].iter_mut().for_each(|q| *q = *q * scale);
            dq[..rows * d].fill(A::ZERO);
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
                        p[unseen.clone()].fill(A::ZERO);
                        ds[unseen].fill(A::ZERO);
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
