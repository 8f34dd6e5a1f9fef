//! Backward of attention in plain loops, right and wrong.

use crate::contract::*;
use crate::truth::attention::dense;
use crate::truth::product::dot;

/// What kernels get wrong, each as it is right.
pub struct How {
    /// From p, dp, delta, and whether the key is that of the query's own position.
    ds: fn(f64, f64, f64, bool) -> f64,
    /// Whether dq is multiplied by the scale.
    scales: bool,
    /// Whether head i of a group of n gives to dk and dv.
    gives: fn(usize, usize) -> bool,
    /// What dv is made of.
    dv_from: &'static str,
    /// Whether dp and delta are rounded.
    rounds: bool,
}

pub const RIGHT: How =
    How { ds: |p, dp, delta, _| p * (dp - delta), scales: true, gives: |_, _| true, dv_from: "dout", rounds: false };

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let geo = dense::geometry(c);
        let (d, group) = (geo.dk, geo.group());
        let [q, k, v, o, dout, lse] = ["q", "k", "v", "o", "dout", "lse"].map(|name| t.get(name));
        let from = t.get(self.dv_from);
        let round = |v: f64| if self.rounds { c.dtype.round(v) } else { v };
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|x| vec![0.0; x.len()]);
        for (s, i, head) in geo.rows() {
            let (row, lse) = ((geo.q_row)(s, i, head) * d, lse[(geo.lse_at)(s, i, head)]);
            let [q, o, dout, from] = [&q, &o, &dout, &from].map(|x| &x[row..row + d]);
            let delta = round(dot(dout, o));
            let visible = (geo.visible)(s, i);
            for j in visible.clone() {
                let key = (geo.k_row)(s, j, head / group) * d;
                let [k, v] = [&k, &v].map(|x| &x[key..key + d]);
                let p = (geo.scale * dot(q, k) - lse).exp();
                let ds = (self.ds)(p, round(dot(dout, v)), delta, j + 1 == visible.end);
                let (for_q, for_k) = (if self.scales { ds * geo.scale } else { ds }, ds * geo.scale);
                (0..d).for_each(|x| dq[row + x] += for_q * k[x]);
                if (self.gives)(head % group, group) {
                    (0..d).for_each(|x| dk[key + x] += for_k * q[x]);
                    (0..d).for_each(|x| dv[key + x] += p * from[x]);
                }
            }
        }
        t.put("dq", dq);
        t.put("dk", dk);
        t.put("dv", dv);
    }
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("delta-missing", "ds = p * dp: the sum of dout * o is not subtracted")
        .plain(&How { ds: |p, dp, _, _| p * dp, ..RIGHT })
        .on(|c| sees_more_than_one_key(c) && c.axis("d") >= 8),
    Mutant::new("ds-unscaled-by-p", "ds = dp - delta: the softmax's own derivative is missing")
        .plain(&How { ds: |_, dp, delta, _| dp - delta, ..RIGHT })
        .on(|c| sees_more_than_one_key(c) && c.axis("d") >= 8),
    Mutant::new("scale-forgotten", "dq lacks the scale of the logits")
        .plain(&How { scales: false, ..RIGHT })
        .on(|c| dense::geometry(c).scale != 1.0 && sees_more_than_one_key(c)),
    Mutant::new("one-head-of-the-group", "dk and dv take the last query head of the group only")
        .plain(&How { gives: |head, group| head == group - 1, ..RIGHT })
        .on(|c| c.axis("hq") > c.axis("hkv") && c.axis("d") >= 8),
    Mutant::new("diagonal-missing", "a query gives nothing to the key of its own position")
        .plain(&How { ds: |p, dp, delta, diagonal| if diagonal { 0.0 } else { p * (dp - delta) }, ..RIGHT })
        .on(|c| c.flag("causal") && sees_more_than_one_key(c) && c.axis("sq") > 1 && c.axis("d") >= 24),
    Mutant::new("dv-from-o", "dv is made of o instead of dout").plain(&How { dv_from: "o", ..RIGHT }),
    // Saturated rows show it: there dp and delta are nearly equal, and what rounding leaves of their difference is its own.
    Mutant::loose("dp-in-half", "dp and delta are rounded to 16 bits before their difference")
        .plain(&How { rounds: true, ..RIGHT })
        .on(|c| {
            let keys = dense::geometry(c).seqs[0].keys;
            c.dtype.size() == 2 && keys >= 3 && !c.flag("causal") && c.count("window") == 0 && c.axis("d") >= 24
        }),
];

/// Otherwise ds is zero whatever is done.
fn sees_more_than_one_key(c: &Case) -> bool {
    let geo = dense::geometry(c);
    (0..c.axis("sq")).any(|i| (geo.visible)(0, i).len() > 1)
}
