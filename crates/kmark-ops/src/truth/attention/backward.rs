//! The gradients of dense attention in f64, from the saved output and lse.

use super::rounding::{SIGMAS, SIGMAS_EQUAL, is_narrow};
use super::{Rows, dense, norm};
use crate::truth::{Out, Rounding, least, product::dot};
use kmark_core::case::Case;
use kmark_core::gate::{Sink, sum_slack};
use kmark_core::tensor::View;
use std::ops::Range;

/// A weight of a sum, and how far a kernel's may be off.
struct Weight {
    value: f64,
    /// By roundings of the accumulator, at the most.
    off: f64,
    /// By roundings to 16 bits, squared: those of the weights, and those on the way.
    tight2: f64,
    loose2: f64,
}

/// A sum for every element of some rows, with what its slack is made of.
struct Sums {
    width: usize,
    /// What the gradients of the heads of a group lose below the smallest normal number; zero if nothing is rounded.
    below: f64,
    value: Vec<f64>,
    off: Vec<f64>,
    tight2: Vec<f64>,
    loose2: Vec<f64>,
}

impl Sums {
    fn new(rows: usize, width: usize, below: f64) -> Sums {
        let zeros = || vec![0.0; rows * width];
        Sums { width, below, value: zeros(), off: zeros(), tight2: zeros(), loose2: zeros() }
    }

    /// Adds `weight * x` to row `row`.
    fn add(&mut self, row: usize, weight: &Weight, x: &[f64]) {
        let at = row * self.width;
        for (d, x) in x.iter().enumerate() {
            self.value[at + d] += weight.value * x;
            self.off[at + d] += weight.off * x.abs();
            self.tight2[at + d] += weight.tight2 * x * x;
            self.loose2[at + d] += weight.loose2 * x * x;
        }
    }

    /// Puts row `row` into the sink as row `to` of `tensor`, times `scale`.
    fn put(&self, sink: &dyn Sink, tensor: &'static str, row: usize, to: usize, scale: f64) {
        let mut out = Out::default();
        for at in row * self.width..(row + 1) * self.width {
            let slack = scale * (SIGMAS * self.tight2[at].sqrt() + self.off[at]);
            out.put(scale * self.value[at], slack, scale * SIGMAS * self.loose2[at].sqrt() + self.below);
        }
        out.flush(sink, tensor, to * self.width, self.below > 0.0);
    }
}

/// What roundings amount to: the accumulator's unit, what it may flush to zero, the slack of a sum over a row in it, and
/// weights in 16 bits.
struct Roundoff {
    unit: f64,
    least: f64,
    row: f64,
    weights: Rounding,
}

/// p and ds of one query against a key that it sees.
struct Pair {
    key: usize,
    p: Weight,
    ds: Weight,
}

/// A query, with its rows of q, dout and o and its lse, against the keys that it sees.
fn pairs(
    scale: f64,
    ([q, dout, o], lse): (&[Vec<f64>; 3], f64),
    seen: Range<usize>,
    [keys, values]: [&Rows; 2],
    off: &Roundoff,
) -> Vec<Pair> {
    let Roundoff { unit, least, row: k, weights: Rounding { unit: u, least: tiny } } = *off;
    let products = dout.iter().zip(o).map(|(a, b)| a * b);
    let delta = dot(dout, o);
    let delta_size: f64 = products.clone().map(f64::abs).sum();
    // Of a delta that is rounded, or whose products are.
    let delta2 = products.map(|x| x * x).sum::<f64>().max(delta * delta);
    let (q_norm, dout_norm) = (norm(q), norm(dout));
    let spread = scale * q_norm * keys.longest / (q.len() as f64).sqrt();
    // Equal weights have equal errors: see SIGMAS_EQUAL.
    let equal2 = if is_narrow(off.weights, spread) { (SIGMAS_EQUAL / SIGMAS).powi(2) } else { 1.0 };
    // Kernels may scale ds before they round it; then what is lost below the smallest normal number is scaled, too.
    let tiny_ds = tiny * (1.0 / scale).max(1.0);
    let of = |key: usize| {
        let logit = scale * dot(q, keys.row(key));
        let p = (logit - lse).exp();
        let dp = dot(dout, values.row(key));
        let inner = dp - delta;
        let ds = p * inner;
        let logit_off = k * scale * q_norm * keys.longest + 4.0 * unit * (logit.abs() + lse.abs() + 1.0);
        let p_off = p * logit_off + least;
        let ds_off = p_off * inner.abs() + p * k * (dout_norm * values.longest + delta_size) + least;
        let (up2, uds2, t2) = ((u * p).powi(2), (u * ds).powi(2), tiny * tiny);
        let p = Weight { value: p, off: p_off, tight2: up2 * equal2 + t2, loose2: up2 * (1.0 + spread * spread) + t2 };
        // ds is made of p as it was rounded, and rounded itself. On the way: dp, delta, their difference and product;
        // logits of a rounded q; the gradients of the heads of a group before they are added up.
        let below = t2 * inner * inner + tiny_ds * tiny_ds;
        let ds = Weight {
            value: ds,
            off: ds_off,
            tight2: uds2 * (1.0 + equal2) + below,
            loose2: uds2 * (2.0 + spread * spread) + up2 * (dp * dp + delta2) + below,
        };
        Pair { key, p, ds }
    };
    seen.map(of).collect()
}

pub fn backward(c: &Case, inputs: &View, sink: &dyn Sink) {
    let geo = dense::geometry(c);
    let d = geo.dk;
    let (unit, row, weights) = (c.acc().unit(), sum_slack(c.acc(), d), Rounding::to(c.dtype));
    let off = Roundoff { unit, least: least(c.acc()), row, weights };
    let (lse, below) = (inputs.all("lse"), off.weights.least * geo.group() as f64);
    geo.each_head(|s, kv_head| {
        let seq = geo.seqs[s];
        let row_of = |j| (geo.k_row)(s, j, kv_head);
        let keys = Rows::gather(inputs, "k", d, seq.keys, row_of);
        let values = Rows::gather(inputs, "v", d, seq.keys, row_of);
        let (mut dk, mut dv) = (Sums::new(seq.keys, d, below), Sums::new(seq.keys, d, below));
        // A gradient of a key is a sum over all queries of all heads of its group.
        let terms = sum_slack(c.acc(), seq.queries * geo.group());
        for head in kv_head * geo.group()..(kv_head + 1) * geo.group() {
            for i in 0..seq.queries {
                let row = (geo.q_row)(s, i, head);
                let query = ["q", "dout", "o"].map(|name| inputs.take(name, row * d, d));
                let (lse, seen) = (lse[(geo.lse_at)(s, i, head)], (geo.visible)(s, i));
                let mut dq = Sums::new(1, d, below);
                let seen = pairs(geo.scale, (&query, lse), seen, [&keys, &values], &off);
                let along = sum_slack(c.acc(), seen.len());
                let summed = |w: &Weight, sum: f64| Weight { off: w.off + sum * w.value.abs(), ..*w };
                for Pair { key, p, ds } in seen {
                    dq.add(0, &summed(&ds, along), keys.row(key));
                    dk.add(key, &summed(&ds, terms), &query[0]);
                    dv.add(key, &summed(&p, terms), &query[1]);
                }
                dq.put(sink, "dq", 0, row, geo.scale);
            }
        }
        for j in 0..seq.keys {
            dk.put(sink, "dk", j, row_of(j), geo.scale);
            dv.put(sink, "dv", j, row_of(j), 1.0);
        }
    });
}
