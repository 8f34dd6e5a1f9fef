//! Forms of attention as libraries compute them: FlashAttention 2 to 4, cuDNN, CUTLASS, FlashInfer and FlashMLA with split
//! keys, two products with a softmax between.

use crate::arith::{Arith, Exp, ORDERS};
use crate::attention_walks::{Job, Walk};
use crate::common::Random;
use crate::kit::{Verdicts, pick, read, rounds, small, write};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::tally::Grade;
use kmark_device::buffer::Buffers;

/// Where weights are rounded to 16 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Weights {
    /// Nowhere.
    Wide,
    /// Relative to the largest so far; the sum is that of the weights before they are rounded.
    Flash,
    /// The same, but the sum is that of the rounded ones.
    FlashRoundedSum,
    /// Relative to a maximum that is raised only when it must be, so that weights reach 2^8.
    Lazy,
    /// When they are whole: two products.
    Whole,
}

#[derive(Clone, Copy, Debug)]
struct Flash {
    arith: Arith,
    weights: Weights,
    /// Keys of a tile.
    tile: usize,
    /// Parts that the keys are split into, each with an output of its own.
    splits: usize,
    /// Parts are kept in 16 bits.
    round_parts: bool,
    /// q times the scale is rounded to 16 bits.
    round_q: bool,
}

/// What a part of the keys comes to: its maximum, its sum, and its output before it is divided by it.
struct Part {
    high: f64,
    total: f64,
    out: Vec<f64>,
}

impl Flash {
    fn random(random: &mut Random, case: &Case, grade: Grade) -> Flash {
        let weights =
            [Weights::Wide, Weights::Flash, Weights::Flash, Weights::FlashRoundedSum, Weights::Lazy, Weights::Whole];
        let mut flash = Flash {
            arith: Arith::new(case, pick(random, &ORDERS), pick(random, &[Exp::Exact, Exp::Base2])),
            weights: if case.dtype.size() == 2 { pick(random, &weights) } else { Weights::Wide },
            tile: pick(random, &[16, 64, 128]),
            splits: pick(random, &[1, 1, 2, 5]),
            round_parts: false,
            round_q: false,
        };
        // An lse of rounded weights, or of a rounded q, is an lse of f32 no more: there is no loose grade for it.
        if case.flag("lse") && flash.weights == Weights::FlashRoundedSum {
            flash.weights = Weights::Flash;
        }
        if grade == Grade::Loose {
            flash.round_q = random.below(2) == 0 && !case.flag("lse");
            flash.round_parts = !flash.round_q || random.below(2) == 0;
            flash.splits = pick(random, &[1, 2, 3, 8]);
        }
        flash
    }

    fn run(&self, c: &Case, b: &Buffers) {
        let walk = Walk::new(c, b);
        let [q, k, v] = walk.names.map(|name| read(&b.get(name)));
        let (q_width, v_width) = (walk.dk, b.get(walk.names[2]).spec().row_len());
        let mut o = vec![0.0; q.len() / q_width * walk.dv];
        let mut lse = c.flag("lse").then(|| vec![0.0; q.len() / q_width]);
        for Job { row, keys, lse: at, .. } in &walk.jobs {
            let mut query = q[row * q_width..(row + 1) * q_width].to_vec();
            let mut scale = walk.scale;
            if self.round_q {
                query.iter_mut().for_each(|x| *x = c.dtype.round(*x * scale));
                scale = 1.0;
            }
            let logit = |key: &usize| self.arith.dot(&query, &k[key * q_width..(key + 1) * q_width]);
            let logits: Vec<f64> = keys.iter().map(logit).collect();
            let value = |key: usize, d: usize| v[key * v_width + d];
            let length = keys.len().div_ceil(self.splits).max(1);
            let parts: Vec<Part> = (keys.chunks(length).zip(logits.chunks(length)))
                .map(|(keys, logits)| self.part(c.dtype, keys, logits, scale, walk.dv, &value))
                .collect();
            let (out, total) = self.merge(c.dtype, parts, scale, walk.dv);
            o[row * walk.dv..(row + 1) * walk.dv].copy_from_slice(&out);
            if let Some(lse) = &mut lse {
                lse[*at] = total;
            }
        }
        write(&b.get("o"), &o);
        lse.iter().for_each(|lse| write(&b.get("lse"), lse));
    }

    fn part(
        &self,
        dtype: DType,
        keys: &[usize],
        logits: &[f64],
        scale: f64,
        width: usize,
        value: &impl Fn(usize, usize) -> f64,
    ) -> Part {
        let a = self.arith;
        let mut part = Part { high: f64::NEG_INFINITY, total: 0.0, out: vec![0.0; width] };
        if self.weights == Weights::Whole {
            part.high = logits.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
            let p: Vec<f64> = logits.iter().map(|s| a.exp(*s, part.high, scale)).collect();
            part.total = a.sum(p.len(), |i| (p[i], 1.0));
            let p: Vec<f64> = p.iter().map(|p| dtype.round(a.round(p / part.total))).collect();
            let sum = |d: usize| a.round(a.sum(p.len(), |i| (p[i], value(keys[i], d))) * part.total);
            part.out = (0..width).map(sum).collect();
            return part;
        }
        for (keys, logits) in keys.chunks(self.tile).zip(logits.chunks(self.tile)) {
            let highest = logits.iter().fold(part.high, |m, s| m.max(*s));
            let near = (highest - part.high) * scale * std::f64::consts::LOG2_E <= 8.0;
            let raised = if self.weights == Weights::Lazy && near { part.high } else { highest };
            let old = a.rescale(part.high, raised, scale);
            part.high = raised;
            let p: Vec<f64> = logits.iter().map(|s| a.exp(*s, raised, scale)).collect();
            let rounded: Vec<f64> = match self.weights {
                Weights::Wide => p.clone(),
                _ => p.iter().map(|p| dtype.round(*p)).collect(),
            };
            let summed = if self.weights == Weights::FlashRoundedSum { &rounded } else { &p };
            part.total = a.round(part.total * old + a.sum(summed.len(), |i| (summed[i], 1.0)));
            for (d, out) in part.out.iter_mut().enumerate() {
                let more = a.sum(keys.len(), |i| (rounded[i], value(keys[i], d)));
                *out = a.round(a.round(*out * old) + more);
            }
        }
        part
    }

    /// The output and lse. No keys: zero and minus infinity.
    fn merge(&self, dtype: DType, parts: Vec<Part>, scale: f64, width: usize) -> (Vec<f64>, f64) {
        let a = self.arith;
        let high = parts.iter().fold(f64::NEG_INFINITY, |m, p| m.max(p.high));
        let (mut total, mut out) = (0.0, vec![0.0; width]);
        for part in parts {
            let weight = a.round(a.rescale(part.high, high, scale) * part.total);
            total = a.round(total + weight);
            for (out, x) in out.iter_mut().zip(part.out) {
                let own = a.round(x / part.total);
                let own = if self.round_parts { dtype.round(own) } else { own };
                *out = a.round(*out + a.round(weight * own));
            }
        }
        if total == 0.0 {
            return (out, f64::NEG_INFINITY);
        }
        let lse = a.round(a.round(high * scale) + a.round(total.ln()));
        (out.iter().map(|o| a.round(o / total)).collect(), lse)
    }
}

const OPS: [&str; 5] = ["attention", "attention-varlen", "attention-decode", "mla-decode", "nsa"];

fn sweep(op: &str, seed: u64, few: u64) {
    let entry = kmark_ops::find(op).unwrap();
    let mut random = Random::new(seed, 400);
    let mut verdicts = Verdicts::default();
    for _ in 0..rounds(few) {
        let case = small(&mut random, entry, 1 << 24);
        let flash = Flash::random(&mut random, &case, Grade::Tight);
        verdicts.add(entry, &case, &format!("{flash:?}"), Grade::Tight, move |c, b| flash.run(c, b));
        if case.dtype.size() == 2 {
            let flash = Flash::random(&mut random, &case, Grade::Loose);
            verdicts.add(entry, &case, &format!("{flash:?}"), Grade::Loose, move |c, b| flash.run(c, b));
        }
    }
    verdicts.close();
}

#[test]
fn attention_as_libraries_compute_it() {
    OPS.into_iter().zip(10..).for_each(|(op, seed)| sweep(op, seed, 80));
}

/// Long rows of keys: rounded weights of equal queries, subnormal weights of f16.
#[test]
fn attention_over_many_keys() {
    let sizes: [(&str, &[(&str, u64)]); 3] = [
        ("attention-decode", &[("b", 2), ("l", 5000), ("hq", 4), ("hkv", 1), ("d", 64)]),
        ("mla-decode", &[("b", 1), ("l", 3000), ("h", 4)]),
        ("attention", &[("b", 1), ("hq", 1), ("hkv", 1), ("sq", 40), ("sk", 2048), ("d", 32)]),
    ];
    let mut random = Random::new(20, 400);
    let mut verdicts = Verdicts::default();
    for (op, axes) in sizes {
        let entry = kmark_ops::find(op).unwrap();
        let axes = axes.iter().map(|(k, v)| (k.to_string(), *v)).collect();
        for _ in 0..rounds(3) {
            let dtype = pick(&mut random, &[DType::Bf16, DType::F16, DType::F32]);
            let seed = random.below(1 << 20);
            let case = entry.op.case(dtype, &axes, &Default::default(), seed).unwrap();
            let flash = Flash::random(&mut random, &case, Grade::Tight);
            verdicts.add(entry, &case, &format!("{flash:?}"), Grade::Tight, move |c, b| flash.run(c, b));
            if dtype.size() == 2 {
                let flash = Flash::random(&mut random, &case, Grade::Loose);
                verdicts.add(entry, &case, &format!("{flash:?}"), Grade::Loose, move |c, b| flash.run(c, b));
            }
        }
    }
}
