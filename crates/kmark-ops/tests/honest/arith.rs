//! Arithmetic as kernels do it: sums in f32 (f64 for f64 tensors) in several orders, on tensor cores, exponentials of
//! several makes.

use kmark_core::case::Case;
use kmark_core::dtype::DType;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// One chain of fused multiply-adds.
    Fused,
    /// One chain; products are rounded.
    Chain,
    /// Halves, and halves of those.
    Pairs,
    /// Chains over blocks of 32, added up in a scattered order, as atomic additions come.
    Blocks,
    /// Sixteen products at a time; what does not fit beside the largest is cut off.
    TensorCore,
}

pub const ORDERS: [Order; 5] = [Order::Fused, Order::Chain, Order::Pairs, Order::Blocks, Order::TensorCore];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exp {
    Exact,
    /// 2^(x log2 e), the logarithm folded into the scale, the power off by two units.
    Base2,
}

/// A kernel's accumulator, and how it uses it.
#[derive(Clone, Copy, Debug)]
pub struct Arith {
    pub wide: bool,
    pub order: Order,
    pub exp: Exp,
}

impl Arith {
    /// Tensor cores are for 16-bit operands.
    pub fn new(case: &Case, order: Order, exp: Exp) -> Arith {
        let order = if order == Order::TensorCore && case.dtype.size() > 2 { Order::Fused } else { order };
        Arith { wide: case.dtype == DType::F64, order, exp }
    }

    pub fn round(&self, v: f64) -> f64 {
        if self.wide { v } else { v as f32 as f64 }
    }

    fn unit(&self) -> f64 {
        if self.wide { DType::F64.unit() } else { DType::F32.unit() }
    }

    /// The sum of `count` products, of which `pair` gives the factors.
    pub fn sum(&self, count: usize, pair: impl Fn(usize) -> (f64, f64)) -> f64 {
        let exact = |i: usize| {
            let (a, b) = pair(i);
            a * b
        };
        let chain = |from: usize, to: usize| (from..to).fold(0.0, |s, i| self.fused(pair(i), s));
        match self.order {
            Order::Fused => chain(0, count),
            Order::Chain => (0..count).fold(0.0, |s, i| self.round(s + self.round(exact(i)))),
            Order::Pairs => self.pairs(0, count, &exact),
            Order::Blocks => {
                let blocks = count.div_ceil(32);
                let scattered = (0..blocks).map(|b| (b * 7 + 3) % blocks);
                // Multiples of 7 come back early where the number of blocks is one of its own.
                let order: Vec<usize> =
                    if blocks.is_multiple_of(7) { (0..blocks).collect() } else { scattered.collect() };
                order.iter().fold(0.0, |s, b| self.round(s + chain(b * 32, count.min(b * 32 + 32))))
            }
            Order::TensorCore => (0..count).step_by(16).fold(0.0, |s, from| {
                let terms: Vec<f64> = (from..count.min(from + 16)).map(exact).collect();
                add_cut(s, &terms, 25)
            }),
        }
    }

    fn fused(&self, (a, b): (f64, f64), s: f64) -> f64 {
        if self.wide { a.mul_add(b, s) } else { self.round(a * b + s) }
    }

    fn pairs(&self, from: usize, to: usize, exact: &impl Fn(usize) -> f64) -> f64 {
        match to - from {
            0 => 0.0,
            1 => self.round(exact(from)),
            n => self.round(self.pairs(from, from + n / 2, exact) + self.pairs(from + n / 2, to, exact)),
        }
    }

    pub fn dot(&self, a: &[f64], b: &[f64]) -> f64 {
        self.sum(a.len(), |i| (a[i], b[i]))
    }

    /// What sums are multiplied with when their maximum rises from `old` to `new`.
    pub fn rescale(&self, old: f64, new: f64, scale: f64) -> f64 {
        if old == new { 1.0 } else { self.exp(old - new, 0.0, scale) }
    }

    /// exp(s - m); the numbers are logits before their scale.
    pub fn exp(&self, s: f64, m: f64, scale: f64) -> f64 {
        if s == f64::NEG_INFINITY {
            return 0.0;
        }
        match self.exp {
            Exp::Exact => self.round(self.round(self.round(s * scale) - self.round(m * scale)).exp()),
            Exp::Base2 => {
                let by = self.round(self.round(scale) * std::f64::consts::LOG2_E);
                let argument = self.round(s * by - self.round(m * by));
                // Two units off, up or down by what the argument's last bits are.
                let up = if (s.to_bits() >> 29).count_ones().is_multiple_of(2) { 2.0 } else { -2.0 };
                self.round(argument.exp2() * (1.0 + up * self.unit()))
            }
        }
    }
}

/// `sum` and `terms` added as a matrix unit adds: `bits` of the largest are kept, of the others what stands above those.
pub fn add_cut(sum: f64, terms: &[f64], bits: i32) -> f64 {
    let cut = |v: f64, largest: f64, bits: i32| {
        let step = 2f64.powi(largest.log2().floor() as i32 - bits + 1);
        (v / step).trunc() * step
    };
    let largest = terms.iter().fold(sum.abs(), |m, t| m.max(t.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    let total = cut(sum, largest, bits) + terms.iter().map(|t| cut(*t, largest, bits)).sum::<f64>();
    if total == 0.0 { 0.0 } else { cut(total, total.abs(), bits.min(24)) }
}
