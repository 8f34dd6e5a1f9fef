//! What several oracles share, in f64: a softmax row, and sums over rows.

use kmark_core::fill::philox;
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
    let total: f64 = p.iter().sum();
    p.iter_mut().for_each(|p| *p /= total);
    let drift = p.iter().zip(x).map(|(p, x)| p * (max - x)).sum();
    SoftmaxRow { max, total, p, drift }
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
