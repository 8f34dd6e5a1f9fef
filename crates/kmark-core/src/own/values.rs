//! Values of inputs that no [`Fill`](crate::fill::Fill) draws: the host makes them, so that no device has to know how.

use super::{OwnFill, OwnOp, of, truth};
use crate::case::Case;
use crate::fill::{key, philox, slot};
use crate::tensor::View;
use std::ops::Range;
use std::sync::Mutex;

/// Rows of an input, as [`Op::derive`](crate::op::Op::derive) wants them. What the user's code cannot make is NaN, and who
/// judges says why.
pub(super) fn derive(case: &Case, tensor: &str, view: &View, rows: Range<usize>, out: &mut [f64]) {
    let own = of(case);
    let spec = view.spec(tensor);
    let start = rows.start * if spec.shape.len() > 1 { spec.row_len() } else { 1 };
    let fill = &own.tensors.iter().find(|t| t.name == tensor).expect("a tensor of the op").fill;
    let key = key(case.seed, tensor);
    let below = |text: &str| own.value(text, case).unwrap_or(1).max(1);
    match fill {
        OwnFill::Uniform { low, high } => {
            each(out, start, |i| match slot(i, case.seed) {
                7 => *low,
                8 => *high,
                _ => low + (high - low) * unit(key, i),
            });
        }
        OwnFill::Index { below: text } => {
            let n = below(text);
            each(out, start, |i| match slot(i, case.seed) {
                7 => 0.0,
                8 => (n - 1) as f64,
                _ => (unit(key, i) * n as f64).floor(),
            });
        }
        OwnFill::Indptr { to } => {
            let all = starts(key, spec.elems(), own.value(to, case).unwrap_or(0).max(0));
            out.copy_from_slice(&all[start..start + out.len()]);
        }
        _ => made(own, case, tensor, start, out),
    }
}

fn each(out: &mut [f64], start: usize, value: impl Fn(u64) -> f64) {
    out.iter_mut().enumerate().for_each(|(i, v)| *v = value((start + i) as u64));
}

/// 53 bits of the generator, from 0 and below 1.
fn unit(key: u64, index: u64) -> f64 {
    let [a, b, ..] = philox(key, index);
    ((a as u64) << 21 | (b as u64) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// `len` ascending numbers from 0 to `to`; every fourth segment is empty.
fn starts(key: u64, len: usize, to: i64) -> Vec<f64> {
    let weight = |i: usize| if i % 4 == 2 && len > 4 { 0.0 } else { 0.25 + unit(key, i as u64) };
    let weights: Vec<f64> = (1..len).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    let mut all = vec![0.0];
    let mut reached = 0.0;
    for w in &weights {
        reached += w;
        all.push((reached / sum * to as f64).floor());
    }
    if let Some(last) = all.last_mut().filter(|_| len > 1) {
        *last = to as f64;
    }
    all
}

/// What the user's code made last: rows of one tensor are asked for block by block. Whoever writes values again asks
/// again: launches are held against others before which the values were written just so.
static MADE: Mutex<Option<(Case, String, Vec<f64>)>> = Mutex::new(None);

fn made(own: &OwnOp, case: &Case, tensor: &str, start: usize, out: &mut [f64]) {
    let mut made = MADE.lock().expect("nobody panics while asking");
    if start == 0 || !made.as_ref().is_some_and(|(c, t, _)| c == case && t == tensor && own.name == case.op) {
        let values = truth().and_then(|t| t.make(case, tensor)).unwrap_or_default();
        *made = Some((case.clone(), tensor.to_string(), values));
    }
    match made.as_ref().and_then(|(.., values)| values.get(start..start + out.len())) {
        Some(values) => out.copy_from_slice(values),
        None => out.fill(f64::NAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_everything_and_some_are_empty() {
        for (len, to) in [(2, 7), (6, 100), (65, 1000), (1, 5)] {
            let all = starts(key(3, "indptr"), len, to);
            assert_eq!(all.len(), len);
            assert_eq!(all[0], 0.0);
            assert!(all.windows(2).all(|w| w[0] <= w[1]), "{all:?}");
            assert!(len < 2 || all[len - 1] == to as f64, "{all:?}");
            assert!(len < 6 || all.windows(2).any(|w| w[0] == w[1]), "{all:?}");
        }
    }
}
