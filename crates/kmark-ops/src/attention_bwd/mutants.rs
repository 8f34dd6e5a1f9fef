//! Backward of attention done wrong.

use crate::mutants::{Mutant, after, edited, read, write};
use crate::truth::attention::{Geometry, dense};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "delta-missing",
        about: "ds = p * dp: the sum of dout * o is not subtracted",
        applies: |c| sees_more_than_one_key(c) && c.axis("d") >= 8,
        spoil: |right, c, b| recomputed(right, c, b, |_, ds, p, delta| ds + p * delta),
    },
    Mutant {
        name: "ds-unscaled-by-p",
        about: "ds = dp - delta: the softmax's own derivative is missing",
        applies: |c| sees_more_than_one_key(c) && c.axis("d") >= 8,
        spoil: |right, c, b| recomputed(right, c, b, |_, ds, p, _| ds / p),
    },
    Mutant {
        name: "scale-forgotten",
        about: "dq lacks the scale of the logits",
        applies: |c| dense::geometry(c).scale != 1.0 && sees_more_than_one_key(c),
        spoil: |right, c, b| {
            let scale = dense::geometry(c).scale;
            edited(right, b, "dq", move |dq| dq.iter_mut().for_each(|v| *v /= scale))
        },
    },
    Mutant {
        name: "one-head-of-the-group",
        about: "dk and dv take the last query head of the group only",
        applies: |c| c.axis("hq") > c.axis("hkv") && c.axis("d") >= 8,
        spoil: |right, c, b| {
            let group = c.axis("hq") / c.axis("hkv");
            let last = move |head: usize| head % group == group - 1;
            recomputed_where(right, c, b, last, |_, ds, _, _| ds)
        },
    },
    Mutant {
        name: "diagonal-missing",
        about: "a query gives nothing to the key of its own position",
        applies: |c| c.flag("causal") && sees_more_than_one_key(c) && c.axis("sq") > 1 && c.axis("d") >= 24,
        spoil: |right, c, b| recomputed(right, c, b, |diagonal, ds, _, _| if diagonal { 0.0 } else { ds }),
    },
    Mutant {
        name: "dv-from-o",
        about: "dv is made of o instead of dout",
        applies: |_| true,
        spoil: |right, c, b| {
            let (geo, b) = (dense::geometry(c), b.clone());
            after(right, move || {
                let rows = Values::read(&b);
                let mut dv = vec![0.0; rows.v.len()];
                rows.each(&geo, |at| {
                    for x in 0..geo.dk {
                        dv[at.key * geo.dk + x] += at.p * rows.o[at.row * geo.dk + x];
                    }
                });
                write(&b.get("dv"), &dv);
            })
        },
    },
];

/// Saturated rows show it: there dp and delta are nearly equal, and what rounding leaves of their difference is its own.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "dp-in-half",
    about: "dp and delta are rounded to 16 bits before their difference",
    applies: |c| {
        let keys = dense::geometry(c).seqs[0].keys;
        c.dtype.size() == 2 && keys >= 3 && !c.flag("causal") && c.count("window") == 0 && c.axis("d") >= 24
    },
    spoil: |right, c, b| {
        let (geo, dtype, b) = (dense::geometry(c), c.dtype, b.clone());
        after(right, move || {
            let values = Values::read(&b);
            let (mut dq, mut dk) = (vec![0.0; values.q.len()], vec![0.0; values.k.len()]);
            values.each(&geo, |at| {
                let (dp, delta) = (dtype.round(at.ds / at.p + at.delta), dtype.round(at.delta));
                let ds = geo.scale * at.p * (dp - delta);
                for x in 0..geo.dk {
                    dq[at.row * geo.dk + x] += ds * values.k[at.key * geo.dk + x];
                    dk[at.key * geo.dk + x] += ds * values.q[at.row * geo.dk + x];
                }
            });
            write(&b.get("dq"), &dq);
            write(&b.get("dk"), &dk);
        })
    },
}];

/// Otherwise ds is zero whatever is done.
fn sees_more_than_one_key(c: &Case) -> bool {
    let geo = dense::geometry(c);
    (0..c.axis("sq")).any(|i| (geo.visible)(0, i).len() > 1)
}

/// All inputs in f64.
struct Values {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    o: Vec<f64>,
    dout: Vec<f64>,
    lse: Vec<f64>,
}

/// One visible pair.
struct At {
    row: usize,
    key: usize,
    head: usize,
    diagonal: bool,
    p: f64,
    ds: f64,
    delta: f64,
}

impl Values {
    fn read(b: &Buffers) -> Values {
        let [q, k, v, o, dout, lse] = ["q", "k", "v", "o", "dout", "lse"].map(|name| read(&b.get(name)));
        Values { q, k, v, o, dout, lse }
    }

    fn each(&self, geo: &Geometry, mut f: impl FnMut(At)) {
        let d = geo.dk;
        let dot = |a: &[f64], i: usize, b: &[f64], j: usize| -> f64 {
            a[i * d..(i + 1) * d].iter().zip(&b[j * d..]).map(|(a, b)| a * b).sum()
        };
        for s in 0..geo.seqs.len() {
            for head in 0..geo.hq {
                for i in 0..geo.seqs[s].queries {
                    let row = (geo.q_row)(s, i, head);
                    let delta = dot(&self.dout, row, &self.o, row);
                    let visible = (geo.visible)(s, i);
                    for j in visible.clone() {
                        let key = (geo.k_row)(s, j, head / geo.group());
                        let p =
                            (geo.scale * dot(&self.q, row, &self.k, key) - self.lse[(geo.lse_at)(s, i, head)]).exp();
                        let ds = p * (dot(&self.dout, row, &self.v, key) - delta);
                        f(At { row, key, head, diagonal: j + 1 == visible.end, p, ds, delta });
                    }
                }
            }
        }
    }
}

/// The gradients of q and k with another ds: `change` gets (is this the diagonal, ds, p, delta).
fn recomputed(
    right: Box<dyn Launch>,
    c: &Case,
    b: &Buffers,
    change: fn(bool, f64, f64, f64) -> f64,
) -> Box<dyn Launch> {
    let (geo, b) = (dense::geometry(c), b.clone());
    after(right, move || {
        let values = Values::read(&b);
        let (mut dq, mut dk) = (vec![0.0; values.q.len()], vec![0.0; values.k.len()]);
        values.each(&geo, |at| {
            let ds = geo.scale * change(at.diagonal, at.ds, at.p, at.delta);
            for x in 0..geo.dk {
                dq[at.row * geo.dk + x] += ds * values.k[at.key * geo.dk + x];
                dk[at.key * geo.dk + x] += ds * values.q[at.row * geo.dk + x];
            }
        });
        write(&b.get("dq"), &dq);
        write(&b.get("dk"), &dk);
    })
}

/// The gradients of k and v with the heads that `keep` accepts.
fn recomputed_where(
    right: Box<dyn Launch>,
    c: &Case,
    b: &Buffers,
    keep: impl Fn(usize) -> bool + 'static,
    change: fn(bool, f64, f64, f64) -> f64,
) -> Box<dyn Launch> {
    let (geo, b) = (dense::geometry(c), b.clone());
    after(right, move || {
        let values = Values::read(&b);
        let (mut dk, mut dv) = (vec![0.0; values.k.len()], vec![0.0; values.v.len()]);
        values.each(&geo, |at| {
            if keep(at.head) {
                let ds = geo.scale * change(at.diagonal, at.ds, at.p, at.delta);
                for x in 0..geo.dk {
                    dk[at.key * geo.dk + x] += ds * values.q[at.row * geo.dk + x];
                    dv[at.key * geo.dk + x] += at.p * values.dout[at.row * geo.dk + x];
                }
            }
        });
        write(&b.get("dk"), &dk);
        write(&b.get("dv"), &dv);
    })
}
