//! Arithmetic of kernels over rows: an accumulator that rounds after each step, sums in the orders of parallel kernels,
//! functions within two units in the last place, exponentials of several makes.

use crate::common::Random;
use crate::kit::{Verdicts, pick, rounds, small};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::tally::Grade;
use kmark_device::buffer::Buffers;
use std::f64::consts::{LN_2, LOG2_E};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// One chain for each of so many lanes, then a tree; a short row is one chain.
    Lanes(usize),
    /// Halves, and halves of those.
    Pairs,
    /// Chains of sixteen, added up in a scattered order, as atomic additions come.
    Scattered,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Exp {
    /// exp(x - m).
    Plain,
    /// 2^((x - m) log2 e).
    Scaled,
    /// 2^(x log2 e - m log2 e), the first product fused, the second rounded for itself.
    Fused,
    /// The same with both products rounded.
    Apart,
}

/// How a kernel computes.
#[derive(Clone, Copy, Debug)]
pub struct Acc {
    dtype: DType,
    order: Order,
    exp: Exp,
    /// Functions are off by so many units in the last place.
    ulps: f64,
    /// Products are fused into sums.
    pub fma: bool,
    /// Chooses between forms of one kernel.
    pub form: u64,
}

impl Acc {
    pub fn any(random: &mut Random, case: &Case) -> Acc {
        let orders = [Order::Lanes(8), Order::Lanes(32), Order::Lanes(256), Order::Pairs, Order::Scattered];
        Acc {
            dtype: case.acc(),
            order: pick(random, &orders),
            exp: pick(random, &[Exp::Plain, Exp::Scaled, Exp::Fused, Exp::Apart]),
            ulps: pick(random, &[0.0, 1.0, 2.0]),
            fma: random.below(2) == 0,
            form: random.below(12),
        }
    }

    /// Rounded to the accumulator's type.
    pub fn r(&self, v: f64) -> f64 {
        if self.dtype == DType::F64 { v } else { v as f32 as f64 }
    }

    /// The result of a function: off by a unit or two in the last place, up or down as its bits fall.
    pub fn near(&self, v: f64) -> f64 {
        let sign = [-1.0, 0.0, 1.0][(v.to_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % 3];
        if v == 0.0 || v == 1.0 || !v.is_finite() {
            return v;
        }
        self.r(v + sign * self.ulps * self.dtype.spacing(v))
    }

    pub fn sum(&self, terms: &[f64]) -> f64 {
        let chain = |terms: &mut dyn Iterator<Item = f64>| terms.fold(0.0, |s, t| self.r(s + t));
        match self.order {
            Order::Pairs => self.pairs(terms),
            Order::Lanes(lanes) => {
                let lane = |lane: usize| chain(&mut terms.iter().skip(lane).step_by(lanes).copied());
                self.pairs(&(0..lanes.min(terms.len())).map(lane).collect::<Vec<_>>())
            }
            Order::Scattered => {
                let parts: Vec<f64> = terms.chunks(16).map(|part| chain(&mut part.iter().copied())).collect();
                let mut order: Vec<usize> = (0..parts.len()).collect();
                order.sort_by_key(|i| (*i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                chain(&mut order.iter().map(|i| parts[*i]))
            }
        }
    }

    fn pairs(&self, terms: &[f64]) -> f64 {
        match terms {
            [] => 0.0,
            [one] => *one,
            _ => {
                let (a, b) = terms.split_at(terms.len() / 2);
                self.r(self.pairs(a) + self.pairs(b))
            }
        }
    }

    /// A sum of products; a fused one is not rounded before it is added.
    pub fn dot(&self, a: &[f64], b: &[f64]) -> f64 {
        let product = |(a, b): (&f64, &f64)| if self.fma { a * b } else { self.r(a * b) };
        self.sum(&a.iter().zip(b).map(product).collect::<Vec<_>>())
    }

    /// a * b + c.
    pub fn mul_add(&self, a: f64, b: f64, c: f64) -> f64 {
        if !self.fma {
            return self.r(self.r(a * b) + c);
        }
        if self.dtype == DType::F64 { a.mul_add(b, c) } else { self.r(a * b + c) }
    }

    /// 1 / v.
    pub fn inverse(&self, v: f64) -> f64 {
        self.near(self.r(1.0 / v))
    }

    pub fn rsqrt(&self, v: f64) -> f64 {
        self.near(self.r(1.0 / v.sqrt()))
    }

    /// exp(x - m), given x and m.
    pub fn exp(&self, x: f64, m: f64) -> f64 {
        let by = self.r(LOG2_E);
        let argument = match self.exp {
            Exp::Plain => return self.near(self.r(self.r(x - m).exp())),
            Exp::Scaled => self.r(self.r(x - m) * by),
            Exp::Fused if self.dtype == DType::F64 => x.mul_add(by, -(m * by)),
            Exp::Fused => self.r(x * by - self.r(m * by)),
            Exp::Apart => self.r(self.r(x * by) - self.r(m * by)),
        };
        self.near(self.r(argument.exp2()))
    }

    /// Logarithm of `total` times exp(m), to base 2 and back where the exponentials are powers of two.
    pub fn lse(&self, m: f64, total: f64) -> f64 {
        if matches!(self.exp, Exp::Plain | Exp::Scaled) {
            return self.r(m + self.near(self.r(total.ln())));
        }
        let exponent = self.r(self.r(m * self.r(LOG2_E)) + self.near(self.r(total.log2())));
        self.r(exponent * self.r(LN_2))
    }

    /// Softmax of a row in one pass over tiles with a running maximum, or in two; p, maximum and sum.
    pub fn softmax(&self, x: &[f64]) -> (Vec<f64>, f64, f64) {
        let highest = |x: &[f64]| x.iter().fold(f64::NEG_INFINITY, |m, v| m.max(*v));
        let max = highest(x);
        let powers = |x: &[f64], m: f64| x.iter().map(|x| self.exp(*x, m)).collect::<Vec<_>>();
        let total = if self.form.is_multiple_of(2) {
            self.sum(&powers(x, max))
        } else {
            let (mut m, mut total) = (f64::NEG_INFINITY, 0.0);
            for tile in x.chunks(64) {
                let raised = m.max(highest(tile));
                let old = if total == 0.0 { 0.0 } else { self.exp(self.r(m - raised), 0.0) };
                total = self.mul_add(total, old, self.sum(&powers(tile, raised)));
                m = raised;
            }
            total
        };
        let e = powers(x, max);
        let inverse = self.inverse(total);
        let by_inverse = self.form < 6;
        let p = e.iter().map(|e| if by_inverse { self.r(e * inverse) } else { self.r(e / total) }).collect();
        (p, max, total)
    }
}

/// A kernel: how it computes, whether it rounds on the way, the case and its buffers.
pub type Kernel = fn(&Acc, Way, &Case, &Buffers);

/// What is done to intermediates: nothing, or rounding to 16 bits.
#[derive(Clone, Copy)]
pub struct Way(Option<DType>);

impl Way {
    pub const NONE: Way = Way(None);

    pub fn r(&self, v: f64) -> f64 {
        self.0.map_or(v, |dtype| dtype.round(v))
    }
    pub fn rounds(&self) -> bool {
        self.0.is_some()
    }
}

/// Random cases of each op through its kernel: as it is, which must be tight, and in 16 bits also rounding on the way,
/// which must be loose at worst.
pub fn sweep(seed: u64, cases: u64, kernels: &[(&str, Kernel)]) {
    let mut verdicts = Verdicts::default();
    for (op, kernel) in kernels {
        let entry = kmark_ops::find(op).expect("an op");
        let mut random = Random::new(seed, 2500);
        for _ in 0..rounds(cases) {
            let (case, kernel) = (small(&mut random, entry, 1 << 19), *kernel);
            let acc = Acc::any(&mut random, &case);
            let run = move |way: Way| move |c: &Case, b: &Buffers| kernel(&acc, way, c, b);
            verdicts.add(entry, &case, &format!("{acc:?}"), Grade::Tight, run(Way::NONE));
            if case.dtype.size() == 2 && !["softmax", "cross-entropy", "quant-fp8", "stream"].contains(op) {
                verdicts.add(entry, &case, &format!("{acc:?}"), Grade::Loose, run(Way(Some(case.dtype))));
            }
        }
    }
    verdicts.close();
}
