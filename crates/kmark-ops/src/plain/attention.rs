//! Attention in plain loops over any geometry, right and wrong.

use super::{Plain, Tensors};
use crate::truth::attention::{Geometry, MakeGeometry};
use crate::truth::{product::dot, sum};
use kmark_core::case::Case;

/// What `cpu/naive` is made of.
pub const SOURCE: &str = include_str!("attention.rs");

/// What kernels get wrong, each as it is right.
pub struct How {
    pub geometry: MakeGeometry,
    /// Changes the geometry.
    pub twist: Twist,
    pub logit: fn(f64) -> f64,
    /// What a row subtracts for its maximum, of that and of the maximum of the row before. If f32 holds what comes of it,
    /// nothing is wrong.
    pub maximum: Option<fn(f64, f64) -> f64>,
    /// Whether q times the scale is rounded.
    pub rounds: bool,
}

pub type Twist = fn(&Case, &mut Geometry);

impl How {
    pub const fn right(geometry: MakeGeometry) -> How {
        How { geometry, twist: |_, _| {}, logit: |s| s, maximum: None, rounds: false }
    }
}

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let mut geo = (self.geometry)(c, &|name| t.get(name).iter().map(|v| *v as i64).collect());
        (self.twist)(c, &mut geo);
        let [q, k, v] = geo.tensors.map(|name| t.get(name));
        // There are as many rows of v as of k.
        let (rows, v_width) = (q.len() / geo.dk, v.len() / (k.len() / geo.dk));
        let round = |v: f64| if self.rounds { c.dtype.round(v) } else { v };
        let (mut o, mut lse) = (vec![0.0; rows * geo.dv], vec![f64::NEG_INFINITY; rows]);
        let (mut before, mut held) = (0.0, true);
        for (s, i, head) in geo.rows() {
            let row = (geo.q_row)(s, i, head);
            let keys: Vec<usize> = (geo.visible)(s, i).map(|j| (geo.k_row)(s, j, head / geo.group())).collect();
            let q: Vec<f64> = q[row * geo.dk..(row + 1) * geo.dk].iter().map(|q| round(q * geo.scale)).collect();
            let logit = |key: &usize| (self.logit)(dot(&q, &k[key * geo.dk..(key + 1) * geo.dk]));
            let logits: Vec<f64> = keys.iter().map(logit).collect();
            let own = logits.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
            let max = self.maximum.map_or(own, |f| f(own, before));
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
        if held && self.maximum.is_some() {
            t.is_harmless();
        }
    }
}
