//! The gradients of dense attention in f64, from the saved output and lse.

use super::{Geometry, Rows, WEIGHT_SIGMAS, dense, norm, weight_unit};
use crate::truth::product::dot;
use kmark_core::case::Case;
use kmark_core::gate::{Block, Region, Sink, sum_slack};
use kmark_core::tensor::View;

/// A sum for every element of some rows, with what its slack is made of.
struct Sums {
    width: usize,
    value: Vec<f64>,
    /// Squares of the products whose weight a kernel may round to 16 bits.
    squares: Vec<f64>,
    /// What the accumulator's roundings may add up to.
    off: Vec<f64>,
}

impl Sums {
    fn new(rows: usize, width: usize) -> Sums {
        let zeros = || vec![0.0; rows * width];
        Sums { width, value: zeros(), squares: zeros(), off: zeros() }
    }

    /// Adds `weight * x` to row `row`, where the weight may be off by `off`.
    fn add(&mut self, row: usize, weight: f64, off: f64, x: &[f64]) {
        let at = row * self.width;
        for (d, x) in x.iter().enumerate() {
            let term = weight * x;
            self.value[at + d] += term;
            self.squares[at + d] += term * term;
            self.off[at + d] += off * x.abs();
        }
    }

    /// Puts row `row` into the sink as row `to` of `tensor`, times `scale`.
    fn put(&self, sink: &dyn Sink, tensor: &'static str, row: usize, to: usize, scale: f64, rounding: f64) {
        let at = row * self.width..(row + 1) * self.width;
        let expect: Vec<f64> = self.value[at.clone()].iter().map(|v| scale * v).collect();
        let slack: Vec<f64> = (self.squares[at.clone()].iter().zip(&self.off[at]))
            .map(|(s, off)| scale * (rounding * s.sqrt() + off))
            .collect();
        let start = to * self.width;
        sink.put(Block { tensor, start, expect: &expect, slack: &slack, loose: &[], region: Region::One(0) });
    }
}

/// p and ds of one query against the keys it sees.
struct Pair {
    key: usize,
    p: f64,
    ds: f64,
    p_off: f64,
    ds_off: f64,
}

/// One query's row of everything.
struct Query {
    q: Vec<f64>,
    dout: Vec<f64>,
    o: Vec<f64>,
    lse: f64,
}

/// What the accumulator's roundings amount to: its unit, and the slack of a sum over a row.
struct Roundoff {
    unit: f64,
    row: f64,
}

/// All pairs of query `i` of sequence `s`.
fn pairs(
    geo: &Geometry,
    (s, i): (usize, usize),
    query: &Query,
    keys: &Rows,
    values: &Rows,
    off: &Roundoff,
) -> Vec<Pair> {
    let Roundoff { unit, row: k } = *off;
    let delta = dot(&query.dout, &query.o);
    let delta_size: f64 = query.dout.iter().zip(&query.o).map(|(a, b)| (a * b).abs()).sum();
    let (q_norm, dout_norm) = (norm(&query.q), norm(&query.dout));
    let of = |key: usize| {
        let logit = geo.scale * dot(&query.q, keys.row(key));
        let p = (logit - query.lse).exp();
        let dp = dot(&query.dout, values.row(key));
        let ds = p * (dp - delta);
        let p_off = p * (k * geo.scale * q_norm * keys.longest + 4.0 * unit * (logit.abs() + query.lse.abs() + 1.0));
        let ds_off = p_off * (dp - delta).abs() + p * k * (dout_norm * values.longest + delta_size);
        Pair { key, p, ds, p_off, ds_off }
    };
    (geo.visible)(s, i).map(of).collect()
}

pub fn backward(c: &Case, inputs: &View, sink: &dyn Sink) {
    let geo = dense::geometry(c);
    let d = geo.dk;
    let off = Roundoff { unit: c.acc().unit(), row: sum_slack(c.acc(), d) };
    let rounding = WEIGHT_SIGMAS * weight_unit(c.dtype);
    let lse = inputs.all("lse");
    geo.each_head(|s, kv_head| {
        let seq = geo.seqs[s];
        let row_of = |j| (geo.k_row)(s, j, kv_head);
        let keys = Rows::gather(inputs, "k", d, seq.keys, row_of);
        let values = Rows::gather(inputs, "v", d, seq.keys, row_of);
        let (mut dk, mut dv) = (Sums::new(seq.keys, d), Sums::new(seq.keys, d));
        // A gradient of a key is a sum over all queries of all heads of its group.
        let terms = sum_slack(c.acc(), seq.queries * geo.group());
        for head in kv_head * geo.group()..(kv_head + 1) * geo.group() {
            for i in 0..seq.queries {
                let row = (geo.q_row)(s, i, head);
                let take = |name| inputs.take(name, row * d, d);
                let lse = lse[(geo.lse_at)(s, i, head)];
                let query = Query { q: take("q"), dout: take("dout"), o: take("o"), lse };
                let mut dq = Sums::new(1, d);
                let seen = pairs(&geo, (s, i), &query, &keys, &values, &off);
                let along = sum_slack(c.acc(), seen.len());
                for Pair { key, p, ds, p_off, ds_off } in seen {
                    dq.add(0, ds, ds_off + along * ds.abs(), keys.row(key));
                    dk.add(key, ds, ds_off + terms * ds.abs(), &query.q);
                    dv.add(key, p, p_off + terms * p, &query.dout);
                }
                dq.put(sink, "dq", 0, row, geo.scale, rounding);
            }
        }
        for j in 0..seq.keys {
            dk.put(sink, "dk", j, row_of(j), geo.scale, rounding);
            dv.put(sink, "dv", j, row_of(j), 1.0, rounding);
        }
    });
}
