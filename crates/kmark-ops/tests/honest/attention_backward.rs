//! The backward of attention as libraries compute it: FlashAttention, cuDNN, CUTLASS, five products by hand.

use crate::arith::{Arith, Exp, ORDERS};
use crate::attention_walks::{Job, Walk};
use crate::common::Random;
use crate::kit::{Verdicts, pick, read, rounds, small, write};
use kmark_core::case::Case;
use kmark_core::tally::Grade;
use kmark_device::buffer::Buffers;

#[derive(Clone, Copy, Debug)]
struct Backward {
    arith: Arith,
    /// p and ds are rounded to 16 bits before their products.
    round_weights: bool,
    /// ds is made of p as it was rounded.
    from_rounded: bool,
    /// ds is scaled before it is rounded.
    scale_first: bool,
    /// Rounded to 16 bits on the way: dp, delta and their difference; the gradients of each head of a group; q times scale.
    round_dp: bool,
    round_heads: bool,
    round_q: bool,
}

impl Backward {
    fn random(random: &mut Random, case: &Case, grade: Grade) -> Backward {
        let half = case.dtype.size() == 2;
        let mut coin = |likely: bool| likely && random.below(2) == 0;
        let [from_rounded, scale_first] = [coin(half), coin(half)];
        let loose = grade == Grade::Loose;
        let [round_dp, round_heads, round_q] = [coin(loose), coin(loose), coin(loose)];
        let round_weights = half && (from_rounded || scale_first || random.below(4) > 0);
        let arith = Arith::new(case, pick(random, &ORDERS), pick(random, &[Exp::Exact, Exp::Base2]));
        Backward { arith, round_weights, from_rounded, scale_first, round_dp, round_heads, round_q }
    }

    fn run(&self, c: &Case, b: &Buffers) {
        let (a, walk) = (self.arith, Walk::new(c, b));
        let (d, scale) = (walk.dk, walk.scale);
        let [q, k, v, o, dout, lse] = ["q", "k", "v", "o", "dout", "lse"].map(|name| read(&b.get(name)));
        fn row(x: &[f64], at: usize, d: usize) -> &[f64] {
            &x[at * d..(at + 1) * d]
        }
        let round = |v: f64, when: bool| if when { c.dtype.round(v) } else { v };
        let group = c.axis("hq") / c.axis("hkv");
        let keys_in_all = k.len() / d;
        let mut dq = vec![0.0; q.len()];
        // What each key gets: head of its group, row of q, weight of dout, weight of q.
        let mut given: Vec<Vec<(usize, usize, f64, f64)>> = vec![Vec::new(); keys_in_all];
        for Job { row: at, keys, lse: lse_at, head } in &walk.jobs {
            let (mut query, grad, out, lse) =
                (row(&q, *at, d).to_vec(), row(&dout, *at, d), row(&o, *at, d), lse[*lse_at]);
            let mut by = scale;
            if self.round_q {
                query.iter_mut().for_each(|x| *x = c.dtype.round(*x * scale));
                by = 1.0;
            }
            let delta = round(a.dot(grad, out), self.round_dp);
            let mut ds_of = Vec::new();
            for key in keys {
                let s = a.dot(&query, row(&k, *key, d));
                let p = match a.exp {
                    Exp::Exact => a.round(a.round(a.round(s * by) - lse).exp()),
                    Exp::Base2 => a.exp(s, lse / by, by),
                };
                let p16 = round(p, self.round_weights);
                let dp = round(a.dot(grad, row(&v, *key, d)), self.round_dp);
                let inner = round(a.round(dp - delta), self.round_dp);
                let ds = a.round(if self.from_rounded { p16 } else { p } * inner);
                let ds = if self.scale_first { a.round(ds * scale) } else { ds };
                let ds = round(ds, self.round_weights);
                ds_of.push(ds);
                given[*key].push((*head, *at, p16, ds));
            }
            for x in 0..d {
                let sum = a.sum(keys.len(), |i| (ds_of[i], k[keys[i] * d + x]));
                dq[at * d + x] = if self.scale_first { sum } else { a.round(sum * scale) };
            }
        }
        let (mut dk, mut dv) = (vec![0.0; k.len()], vec![0.0; v.len()]);
        for (key, given) in given.iter().enumerate() {
            let heads: Vec<Vec<&(usize, usize, f64, f64)>> = match self.round_heads {
                true => (0..group).map(|h| given.iter().filter(|g| g.0 == h).collect()).collect(),
                false => vec![given.iter().collect()],
            };
            for x in 0..d {
                let after = if self.scale_first { 1.0 } else { scale };
                let sum = |from: &[f64], weight: fn(&(usize, usize, f64, f64)) -> f64, by: f64| {
                    let head = |g: &Vec<&(usize, usize, f64, f64)>| {
                        let sum = a.round(a.sum(g.len(), |i| (weight(g[i]), from[g[i].1 * d + x])) * by);
                        round(sum, self.round_heads)
                    };
                    heads.iter().fold(0.0, |s, g| a.round(s + head(g)))
                };
                dk[key * d + x] = sum(&q, |g| g.3, after);
                dv[key * d + x] = sum(&dout, |g| g.2, 1.0);
            }
        }
        ["dq", "dk", "dv"].into_iter().zip([dq, dk, dv]).for_each(|(name, values)| write(&b.get(name), &values));
    }
}

fn judge(verdicts: &mut Verdicts, random: &mut Random, case: &Case) {
    let entry = kmark_ops::find("attention-bwd").unwrap();
    for grade in Grade::ALL.into_iter().filter(|g| *g == Grade::Tight || case.dtype.size() == 2) {
        let kernel = Backward::random(random, case, grade);
        verdicts.add(entry, case, &format!("{kernel:?}"), grade, move |c, b| kernel.run(c, b));
    }
}

#[test]
fn the_backward_of_attention_as_libraries_compute_it() {
    let (mut random, mut verdicts) = (Random::new(30, 400), Verdicts::default());
    let entry = kmark_ops::find("attention-bwd").unwrap();
    for _ in 0..rounds(120) {
        let case = small(&mut random, entry, 1 << 24);
        judge(&mut verdicts, &mut random, &case);
    }
    verdicts.close();
}

#[test]
fn the_backward_of_attention_over_many_keys() {
    let (mut random, mut verdicts) = (Random::new(31, 400), Verdicts::default());
    let entry = kmark_ops::find("attention-bwd").unwrap();
    let axes = [("b", 1), ("hq", 2), ("hkv", 1), ("sq", 150), ("sk", 600), ("d", 16)];
    let axes = axes.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    for _ in 0..rounds(2) {
        let dtype = pick(&mut random, &[kmark_core::dtype::DType::Bf16, kmark_core::dtype::DType::F16]);
        let seed = random.below(1 << 20);
        let case = entry.op.case(dtype, &axes, &Default::default(), seed).unwrap();
        judge(&mut verdicts, &mut random, &case);
    }
    verdicts.close();
}
