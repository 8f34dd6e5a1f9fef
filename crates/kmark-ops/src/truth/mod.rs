//! What several oracles share, in f64: a softmax row, a gated row, sums over rows, attention; and shapes that are part
//! of a case.

pub mod attention;
pub mod product;

use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::fill::philox;
use kmark_core::tensor::View;
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
    let mut p: Vec<f64> = x.iter().map(|v| (v - max).exp()).collect();
    let total = sum(&p);
    p.iter_mut().for_each(|p| *p /= total);
    let drift = p.iter().zip(x).map(|(p, x)| p * (max - x)).sum();
    SoftmaxRow { max, total, p, drift }
}

/// A sum that carries its rounding errors along (Kahan). A plain chain of n additions in f64 is off by up to about
/// sqrt(n) units: nothing to a kernel in f32, but all that one in f64 is allowed.
pub fn sum(terms: &[f64]) -> f64 {
    let (mut total, mut carry) = (0.0, 0.0);
    for term in terms {
        let corrected = term - carry;
        let next = total + corrected;
        carry = (next - total) - corrected;
        total = next;
    }
    total
}

/// A sum over rows for every column, and the sum of the magnitudes beside it.
#[derive(Clone)]
pub struct ColumnSums {
    pub value: Vec<f64>,
    pub size: Vec<f64>,
}

impl ColumnSums {
    pub fn add(&mut self, column: usize, term: f64) {
        self.value[column] += term;
        self.size[column] += term.abs();
    }
}

/// Calls `f` on blocks of rows in parallel as `by_rows` does, with `COUNT` column sums to add to. Large groups of blocks
/// have sums of their own, added in order at the end, so that the result does not depend on the number of threads.
pub fn by_rows_summed<const COUNT: usize>(
    m: usize,
    n: usize,
    f: impl Fn(Range<usize>, &mut [ColumnSums; COUNT]) + Sync,
) -> [ColumnSums; COUNT] {
    let zero = ColumnSums { value: vec![0.0; n], size: vec![0.0; n] };
    // At most 64 MiB of sums, whatever the row length.
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
            t.value.iter_mut().zip(&p.value).for_each(|(t, p)| *t += p);
            t.size.iter_mut().zip(&p.size).for_each(|(t, p)| *t += p);
        }
    }
    total
}

/// Parts of the gradient of logits: a kernel can be right in one and wrong in another.
pub const CLASS_REGIONS: &[&str] = &["target", "non-target", "ignored"];

/// Gradient of cross entropy for some rows, as the gate wants it.
pub struct ClassGradient {
    pub dx: Vec<f64>,
    pub slack: Vec<f64>,
    pub regions: Vec<u8>,
    unit: f64,
}

impl ClassGradient {
    /// `unit` is the roundoff of the accumulator.
    pub fn new(unit: f64) -> ClassGradient {
        ClassGradient { dx: Vec::new(), slack: Vec::new(), regions: Vec::new(), unit }
    }

    /// Adds a row: `p` gives each probability and how far a kernel's may be off in relation. No target: ignored.
    pub fn row(&mut self, dloss: f64, target: Option<usize>, p: impl Iterator<Item = (f64, f64)>) {
        for (i, (p, off)) in p.enumerate() {
            let (dx, slack, region) = match target {
                None => (0.0, 0.0, 2),
                // The difference p - 1 is rounded, and so is its product.
                Some(t) if t == i => (dloss * (p - 1.0), dloss.abs() * (p * off + 2.0 * self.unit), 0),
                Some(_) => (dloss * p, dloss.abs() * p * off, 1),
            };
            self.dx.push(dx);
            self.slack.push(slack);
            self.regions.push(region);
        }
    }
}

/// One element of a gate: its value, its sigmoid, and how far a kernel's sigmoid may be off.
pub struct Gate {
    pub sigmoid: f64,
    /// 1 - sigmoid, without cancellation.
    pub rest: f64,
    /// Relative error: exp of a rounded argument, a sum, a division. Only the part that exp has in the sum feels exp.
    pub off: f64,
    /// Absolute error: f32 kernels divide by an exp that overflows, and get 0 where the sigmoid is below what f32 holds.
    pub flush: f64,
}

/// `acc` is the type that a kernel computes in.
pub fn gate(x: f64, acc: DType) -> Gate {
    let small = (-x.abs()).exp() / (1.0 + (-x.abs()).exp());
    let (sigmoid, rest) = if x < 0.0 { (small, 1.0 - small) } else { (1.0 - small, small) };
    let flush = if acc == DType::F64 { 0.0 } else { f32::MIN_POSITIVE as f64 };
    Gate { sigmoid, rest, off: acc.unit() * (4.0 + 2.0 * x.abs() * rest), flush }
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
    fn ragged_lengths_have_a_full_and_an_empty_one() {
        let lengths = ragged(6, 100);
        assert_eq!((lengths[0], lengths[2]), (100, 0));
        assert!(lengths.iter().all(|l| *l <= 100) && lengths[1] > 0);
        assert_eq!(ragged(3, 0), [0, 0, 0]);
    }
}
