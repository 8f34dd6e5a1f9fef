//! What several oracles share, in f64: a softmax row, a gated row, sums over rows, attention; and shapes that are part
//! of a case.

pub mod attention;
pub mod classes;
pub mod norms;
pub mod product;
mod rows;

pub use rows::{Out, by_row};

use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::fill::{Fill, philox};
use kmark_core::gate::Sink;
use kmark_core::tensor::{TensorSpec, View};
use rayon::prelude::*;
use std::ops::Range;

/// Softmax of one row.
pub struct SoftmaxRow {
    pub max: f64,
    /// Sum of exp(x - max).
    pub total: f64,
    pub p: Vec<f64>,
    /// Mean of max - x under p: how far the sum is off, in units, because the arguments of exp are rounded.
    pub drift: f64,
}

pub fn softmax(x: &[f64]) -> SoftmaxRow {
    let max = x.iter().fold(f64::NEG_INFINITY, |m, v| m.max(*v));
    let mut p: Vec<f64> = x.iter().map(|v| exp_of_difference(*v, max)).collect();
    let total = sum(p.iter().copied());
    p.iter_mut().for_each(|p| *p /= total);
    let drift = p.iter().zip(x).map(|(p, x)| p * (max - x)).sum();
    SoftmaxRow { max, total, p, drift }
}

/// Units by which the argument of exp is off, of the magnitudes of its two parts: each is scaled to base 2 and rounded, then
/// their difference is; the rest is that of log2 e itself.
pub const ARGUMENT: f64 = 2.25;

impl SoftmaxRow {
    pub fn lse(&self) -> f64 {
        self.max + self.total.ln()
    }

    /// How far a kernel's `p`, that of `x`, may be off: the sum, by `k`; the rounded argument of exp; and the maximum
    /// scaled to base 2 for itself, which does not cancel where a running maximum was replaced.
    pub fn off(&self, x: f64, p: f64, k: f64, acc: DType) -> f64 {
        p * (k + ARGUMENT * acc.unit() * ((self.max - x) + self.max.abs())) + least(acc)
    }
}

/// exp(a - b) with what the difference loses in f64: in an argument of hundreds that is hundreds of units.
pub fn exp_of_difference(a: f64, b: f64) -> f64 {
    let d = a - b;
    let minus_b = d - a;
    d.exp() * (1.0 + ((a - (d - minus_b)) - (b + minus_b)))
}

/// The smallest normal number of an accumulator: an exponential below it may be flushed to zero.
pub fn least(acc: DType) -> f64 {
    if acc == DType::F64 { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE as f64 }
}

/// A sum that carries its rounding errors along (Kahan). A plain chain of n additions in f64 is off by about sqrt(n)
/// units, and by n / 4 if all terms are equal: nothing to a kernel in f32, but all that one in f64 is allowed.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    total: f64,
    carry: f64,
}

impl Sum {
    pub fn add(&mut self, term: f64) {
        let corrected = term - self.carry;
        let next = self.total + corrected;
        self.carry = (next - self.total) - corrected;
        self.total = next;
    }
    pub fn total(&self) -> f64 {
        self.total
    }
}

pub fn sum(terms: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = Sum::default();
    terms.into_iter().for_each(|term| sum.add(term));
    sum.total()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    sum(a.iter().zip(b).map(|(a, b)| a * b))
}

/// How far the sum of y * dy is off if its terms are rounded to 16 bits, and its partial sums, which may be added up in
/// a tree of log2(n) levels, and the sum itself.
pub fn loose_dot(y: &[f64], dy: &[f64], rounding: Rounding) -> f64 {
    let off2: f64 = y.iter().zip(dy).map(|(y, dy)| rounding.square(y * dy)).sum();
    rounding.of(dot(y, dy)) + SURE * ((1.0 + (y.len() as f64).log2()) * off2).sqrt()
}

/// How many terms of a sum cost a rounding: adding an exact zero costs none.
pub fn nonzero(terms: &[f64]) -> usize {
    terms.iter().filter(|v| **v != 0.0).count()
}

/// What rounding a value to a 16-bit type on the way may cost: a unit of it, and half the least spacing where it is
/// below the normal numbers. Nothing for wider types, whose kernels have no narrower type to round to.
#[derive(Clone, Copy)]
pub struct Rounding {
    pub unit: f64,
    pub least: f64,
}

impl Rounding {
    pub fn to(dtype: DType) -> Rounding {
        let halves = dtype.size() == 2;
        Rounding {
            unit: if halves { dtype.unit() } else { 0.0 },
            least: if halves { 0.5 * dtype.spacing(0.0) } else { 0.0 },
        }
    }
    pub fn of(&self, value: f64) -> f64 {
        (self.unit * value.abs()).max(self.least)
    }
    pub fn square(&self, value: f64) -> f64 {
        self.of(value).powi(2)
    }
}

/// So many times the root of the sum of squared rounding errors is never exceeded: errors are at most a unit and
/// mostly less, so that this is six of their standard deviations.
pub const SURE: f64 = 2.5;

/// A sum over rows for every column; beside it the sum of the magnitudes, and that of the squares of what rounding each
/// term on the way costs.
#[derive(Clone)]
pub struct ColumnSums {
    value: Vec<Sum>,
    size: Vec<f64>,
    loose2: Vec<f64>,
}

impl ColumnSums {
    pub fn add(&mut self, column: usize, term: f64, loose2: f64) {
        self.value[column].add(term);
        self.size[column] += term.abs();
        self.loose2[column] += loose2;
    }
    /// The whole of tensor `tensor`, off by `k` of the magnitudes; and in `halves`, if terms are rounded on the way.
    pub fn put(&self, tensor: &'static str, k: f64, halves: bool, sink: &dyn Sink) {
        let mut out = Out::default();
        for ((value, size), loose2) in self.value.iter().zip(&self.size).zip(&self.loose2) {
            out.put(value.total(), k * size, SURE * loose2.sqrt());
        }
        out.flush(sink, tensor, 0, halves);
    }
}

/// Calls `f` on blocks of rows in parallel as `by_rows` does, with `COUNT` column sums to add to. Large groups of blocks
/// have sums of their own, added in order at the end, so that the result does not depend on the number of threads.
pub fn by_rows_summed<const COUNT: usize>(
    m: usize,
    n: usize,
    f: impl Fn(Range<usize>, &mut [ColumnSums; COUNT]) + Sync,
) -> [ColumnSums; COUNT] {
    let zero = ColumnSums { value: vec![Sum::default(); n], size: vec![0.0; n], loose2: vec![0.0; n] };
    // At most 128 MiB of sums, whatever the row length.
    let groups = ((1 << 22) / n).clamp(1, 64);
    let group = m.div_ceil(groups);
    let block = ((1 << 16) / n).clamp(1, group);
    let parts: Vec<_> = (0..m.div_ceil(group))
        .into_par_iter()
        .map(|g| {
            let mut sums: [ColumnSums; COUNT] = std::array::from_fn(|_| zero.clone());
            let end = ((g + 1) * group).min(m);
            for start in (g * group..end).step_by(block) {
                f(start..(start + block).min(end), &mut sums);
            }
            sums
        })
        .collect();
    let mut total: [ColumnSums; COUNT] = std::array::from_fn(|_| zero.clone());
    for part in &parts {
        for (t, p) in total.iter_mut().zip(part) {
            t.value.iter_mut().zip(&p.value).for_each(|(t, p)| t.add(p.total()));
            t.size.iter_mut().zip(&p.size).for_each(|(t, p)| *t += p);
            t.loose2.iter_mut().zip(&p.loose2).for_each(|(t, p)| *t += p);
        }
    }
    total
}

/// Parts of the gradient of logits: a kernel can be right in one and wrong in another.
pub const CLASS_REGIONS: &[&str] = &["target", "non-target", "ignored"];

/// The gradient of cross entropy. `p` gives each probability of a row, and how far a kernel's may be off, relative to it.
pub fn class_gradients(c: &Case, inputs: &View, sink: &dyn Sink, p: impl Fn(usize) -> Vec<(f64, f64)> + Sync) {
    let (target, dloss, ignore) = (inputs.all("target"), inputs.all("dloss"), c.number("ignore"));
    let (acc, r) = (c.acc(), Rounding::to(c.dtype));
    by_row(c, inputs, sink, ["dx"], |row, [dx]| {
        let (target, dloss) = (target[row], dloss[row]);
        for (i, (p, off)) in p(row).into_iter().enumerate() {
            if target == ignore {
                dx.put_in(2, 0.0, 0.0, 0.0);
            } else if target == i as f64 {
                // The difference p - 1 is rounded, and so is its product.
                let slack = dloss.abs() * (p * off + 2.0 * acc.unit());
                // Rounded on the way: p, its difference from 1, and the product before it is scaled again.
                let loose = dloss.abs() * (r.of(p) + r.of(p - 1.0)) + r.of(dloss * (p - 1.0));
                dx.put_in(0, dloss * (p - 1.0), slack, loose);
            } else {
                let slack = dloss.abs() * (p * off + least(acc));
                dx.put_in(1, dloss * p, slack, dloss.abs() * r.of(p) + r.of(dloss * p));
            }
        }
    });
}

/// One element of a gate: its value, its sigmoid, and how far a kernel's sigmoid may be off.
pub struct Gate {
    pub sigmoid: f64,
    /// 1 - sigmoid, without cancellation.
    pub rest: f64,
    /// Relative error: a reciprocal within two units, a sum; and exp within two units, of a rounded argument, of which
    /// only the part that exp has in the sum is felt.
    pub off: f64,
    /// Absolute error: kernels divide by an exp that overflows, and get 0 where the sigmoid is below what their type holds.
    pub flush: f64,
}

/// `acc` is the type that a kernel computes in.
pub fn gate(x: f64, acc: DType) -> Gate {
    let small = (-x.abs()).exp() / (1.0 + (-x.abs()).exp());
    let (sigmoid, rest) = if x < 0.0 { (small, 1.0 - small) } else { (1.0 - small, small) };
    Gate { sigmoid, rest, off: acc.unit() * (6.0 + (4.0 + 2.0 * x.abs()) * rest), flush: least(acc) }
}

impl Gate {
    /// What rounding on the way costs dgate and dup: the sigmoid (which 1 - s and the factor inherit), the products
    /// dy * up and gate * s, the factor and its parts, and each gradient once more.
    pub fn loose(&self, gate: f64, up: f64, dy: f64, r: Rounding) -> (f64, f64) {
        let (s, rest, size) = (self.sigmoid, self.rest, gate.abs());
        let (dgate, dup) = (dy * up * s * (1.0 + gate * rest), dy * gate * s);
        let parts = 2.0 * r.of(s) * (1.0 + size) + r.unit * s * (1.0 + 3.0 * size * rest);
        let product = r.of(dy * up) * s * (1.0 + size * rest);
        let for_gate = product + (dy * up).abs() * parts + r.of(dgate) + r.least * (2.0 + size);
        let for_up = r.of(gate * s) * dy.abs() + r.of(s) * (dy * gate).abs() + r.of(dup);
        (for_gate, for_up)
    }
}

/// What is gated: gate and up, or `x` with both if the form is packed. The large rows hold gates on both sides whose
/// exponential f32 does not hold.
pub fn gate_and_up_tensors(c: &Case) -> Vec<TensorSpec> {
    let input = |name, n| {
        let fill = Fill::Rows { mean: 0.0, std: 2.0, shift: 0.0 };
        TensorSpec::input(name, c.dtype, &[c.axis("m"), n], fill).laid_out(c.attr("memory"))
    };
    let n = c.axis("n");
    if c.attr("form") == "packed" { vec![input("x", 2 * n)] } else { vec![input("gate", n), input("up", n)] }
}

/// Gate and up of a row of a gated op: tensors of their own, or the halves of `x` if the form is packed.
pub fn gate_and_up(c: &Case, inputs: &View, row: usize) -> (Vec<f64>, Vec<f64>) {
    let n = c.axis("n");
    if c.attr("form") == "packed" {
        return (inputs.take("x", row * 2 * n, n), inputs.take("x", (row * 2 + 1) * n, n));
    }
    (inputs.take("gate", row * n, n), inputs.take("up", row * n, n))
}

/// Lengths of `count` sequences or groups, at most `max` each: the first is full, the third empty. They are part of the
/// case, not of its values: shapes and costs depend on them.
pub fn ragged(count: usize, max: usize) -> Vec<usize> {
    let length = |i: usize| match i {
        0 => max,
        2 => 0,
        _ if max == 0 => 0,
        _ => 1 + philox(0x7261_6767_6564, i as u64)[0] as usize % max,
    };
    (0..count).map(length).collect()
}

/// Where things of these lengths start that lie end to end, and the end of the last.
pub fn starts(lengths: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut starts = vec![0];
    for len in lengths {
        starts.push(starts[starts.len() - 1] + len);
    }
    starts
}

/// A permutation of `0..len` by a multiplication: scattered, and found in both directions without a table.
pub struct Scatter {
    len: u64,
    factor: u64,
    inverse: u64,
    shift: u64,
}

impl Scatter {
    pub fn new(seed: u64, len: usize) -> Scatter {
        let len = len.max(1) as u64;
        let [a, b, ..] = philox(seed, 0x7363_6174);
        // Near the golden section of the length, where multiples lie far apart; then up to the next that is coprime.
        let mut factor = (len as f64 * 0.618) as u64 + a as u64 % (len / 8 + 1);
        while gcd(factor % len, len) != 1 {
            factor += 1;
        }
        let factor = factor % len;
        Scatter { len, factor, inverse: inverse(factor, len), shift: b as u64 % len }
    }

    pub fn at(&self, i: usize) -> usize {
        ((i as u128 * self.factor as u128 + self.shift as u128) % self.len as u128) as usize
    }

    /// The index whose image is `at`.
    pub fn find(&self, at: usize) -> usize {
        ((at as u64 + self.len - self.shift) as u128 * self.inverse as u128 % self.len as u128) as usize
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The inverse of `a` modulo `m`, which are coprime, by Euclid's algorithm.
fn inverse(a: u64, m: u64) -> u64 {
    let (mut r, mut next_r, mut t, mut next_t) = (m as i128, a as i128, 0i128, 1i128);
    while next_r != 0 {
        let quotient = r / next_r;
        (r, next_r) = (next_r, r - quotient * next_r);
        (t, next_t) = (next_t, t - quotient * next_t);
    }
    t.rem_euclid(m as i128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattering_is_a_permutation_and_its_inverse() {
        for len in [1, 2, 3, 4, 6, 7, 64, 97, 1000] {
            for seed in 0..5 {
                let s = Scatter::new(seed, len);
                let mut seen = vec![false; len];
                for i in 0..len {
                    assert_eq!(s.find(s.at(i)), i, "{len}");
                    seen[s.at(i)] = true;
                }
                assert!(seen.iter().all(|s| *s), "{len}");
            }
        }
    }

    #[test]
    fn the_exponential_of_a_difference_feels_what_the_difference_loses() {
        // The low halves are lost in the difference; their exponentials are known to be 1 + them.
        for (a, b, low) in
            [(1.0f64, 600.0f64, 2f64.powi(-45)), (-600.0, 3.0, -2f64.powi(-50)), (-3.0, 700.0, 2f64.powi(-46))]
        {
            let right = (a - b).exp() * (1.0 - low);
            let small = if a.abs() < 10.0 { (a - low, b) } else { (a, b + low) };
            assert!((exp_of_difference(small.0, small.1) / right - 1.0).abs() < 1e-15, "{a} {b}");
        }
    }

    #[test]
    fn ragged_lengths_have_a_full_and_an_empty_one() {
        let lengths = ragged(6, 100);
        assert_eq!((lengths[0], lengths[2]), (100, 0));
        assert!(lengths.iter().all(|l| *l <= 100) && lengths[1] > 0);
        assert_eq!(ragged(3, 0), [0, 0, 0]);
    }
}
