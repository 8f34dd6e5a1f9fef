//! Attention in plain loops over any geometry, right and wrong.

use super::Tensors;
use crate::truth::attention::{Attends, Geometry, MakeGeometry};
use crate::truth::{product::dot, sum};
use kmark_core::case::Case;

/// What `cpu/naive` is made of.
pub const SOURCE: &str = include_str!("attention.rs");

pub fn right<A: Attends>(c: &Case, t: &mut Tensors) {
    plain(A::geometry, c, t, &RIGHT);
}

/// What kernels get wrong, each as it is right.
pub struct How {
    /// Changes the geometry.
    pub geometry: fn(&Case, &mut Geometry),
    pub logit: fn(f64) -> f64,
    /// Which maximum a row subtracts: of its own logits and that of the row before.
    pub maximum: fn(f64, f64) -> f64,
    /// Whether q times the scale is rounded.
    pub rounds: bool,
}

pub const RIGHT: How = How { geometry: |_, _| {}, logit: |s| s, maximum: |own, _| own, rounds: false };

/// Says whether f32 could hold the powers of all rows.
pub fn plain(geometry: MakeGeometry, c: &Case, t: &mut Tensors, how: &How) -> bool {
    let mut geo = geometry(c, &|name| t.get(name).iter().map(|v| *v as i64).collect());
    (how.geometry)(c, &mut geo);
    let [q, k, v] = geo.tensors.map(|name| t.get(name));
    // There are as many rows of v as of k.
    let (rows, v_width) = (q.len() / geo.dk, v.len() / (k.len() / geo.dk));
    let round = |v: f64| if how.rounds { c.dtype.round(v) } else { v };
    let (mut o, mut lse) = (vec![0.0; rows * geo.dv], vec![f64::NEG_INFINITY; rows]);
    let (mut before, mut held) = (0.0, true);
    for (s, i, head) in geo.rows() {
        let row = (geo.q_row)(s, i, head);
        let keys: Vec<usize> = (geo.visible)(s, i).map(|j| (geo.k_row)(s, j, head / geo.group())).collect();
        let q: Vec<f64> = q[row * geo.dk..(row + 1) * geo.dk].iter().map(|q| round(q * geo.scale)).collect();
        let logit = |key: &usize| (how.logit)(dot(&q, &k[key * geo.dk..(key + 1) * geo.dk]));
        let logits: Vec<f64> = keys.iter().map(logit).collect();
        let own = logits.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
        let max = (how.maximum)(own, before);
        before = own;
        if keys.is_empty() {
            continue;
        }
        // Under another maximum in f32, as kernels compute it.
        let hold = |v: f64| if max == own { v } else { v as f32 as f64 };
        let p: Vec<f64> = logits.iter().map(|s| hold((s - max).exp())).collect();
        let total = hold(sum(p.iter().copied()));
        held &= total > 0.0 && total.is_finite();
        let o = &mut o[row * geo.dv..(row + 1) * geo.dv];
        for (p, key) in p.iter().zip(&keys) {
            o.iter_mut().zip(&v[key * v_width..]).for_each(|(o, v)| *o += p * v);
        }
        o.iter_mut().for_each(|o| *o /= total);
        lse[(geo.lse_at)(s, i, head)] = max + total.ln();
    }
    t.put("o", o);
    t.put("lse", lse);
    held
}

/// Under another maximum. If f32 holds what comes of it, there was no mutant.
pub fn under(geometry: MakeGeometry, c: &Case, t: &mut Tensors, maximum: fn(f64, f64) -> f64) {
    if plain(geometry, c, t, &How { maximum, ..RIGHT }) {
        t.is_harmless();
    }
}
