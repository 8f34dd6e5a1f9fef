//! Softmax, cross entropy and their backwards in plain loops, right and wrong; and the mutants that several of them have.

use crate::contract::*;
use crate::truth::{exp_of_difference, sum};

/// What kernels get wrong, each as it is right.
pub struct How {
    pub max: Maximum,
    /// Of the difference of two numbers: an x, and the maximum or the saved lse.
    pub exp: fn(f64, f64) -> f64,
    /// The sum of the powers of a row.
    pub total: fn(&[f64]) -> f64,
    /// The sum of y * dy of a row.
    pub dot: fn(&[f64]) -> f64,
    /// From the maximum and the logarithm of the sum.
    pub lse: fn(f64, f64) -> f64,
    /// Whether a row counts, of its target, the one that is ignored, and n.
    pub counts: fn(f64, f64, usize) -> bool,
    /// The column of target t, of n.
    pub hot: fn(usize, usize) -> usize,
    /// The dloss of a row.
    pub dloss: fn(usize) -> usize,
    pub target_only: bool,
    pub rounded: Rounded,
}

/// What `cpu/naive` is made of.
pub const SOURCE: &str = include_str!("softmax.rs");

pub const RIGHT: How = How {
    max: Maximum::OfTheRow,
    exp: exp_of_difference,
    total: add,
    dot: add,
    lse: |max, log| max + log,
    counts: |target, ignore, _| target != ignore,
    hot: |target, _| target,
    dloss: |row| row,
    target_only: false,
    rounded: Rounded::Nothing,
};

/// What is taken for the maximum of a row.
#[derive(Clone, Copy, PartialEq)]
pub enum Maximum {
    OfTheRow,
    Nothing,
    OfHalf,
    OfTheRowBefore,
}

/// What is rounded to the 16-bit type on the way.
#[derive(Clone, Copy, PartialEq)]
pub enum Rounded {
    Nothing,
    Probabilities,
    Products,
    Dot,
}

fn add(terms: &[f64]) -> f64 {
    sum(terms.iter().copied())
}

/// Leaves out the last columns beyond a multiple of 8.
pub fn add_without_tail(terms: &[f64]) -> f64 {
    add(&terms[..terms.len() / 8 * 8])
}

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let n = c.axis("n");
        let outputs = match c.op.as_str() {
            "softmax" => vec![("y", softmax(c, &t.get("x"), self).p)],
            "softmax-bwd" => vec![("dx", through_softmax(c, t, &t.get("y"), self))],
            "softmax-fwd-bwd" => vec![("dx", through_softmax(c, t, &softmax(c, &t.get("x"), self).p, self))],
            "cross-entropy" => losses(c, t, self),
            "cross-entropy-bwd" => {
                let (x, lse) = (t.get("x"), t.get("lse"));
                let p: Vec<f64> = x.iter().enumerate().map(|(i, x)| (self.exp)(*x, lse[i / n])).collect();
                vec![("dx", through_losses(c, t, &p, self))]
            }
            "cross-entropy-fwd-bwd" => vec![("dx", through_losses(c, t, &softmax(c, &t.get("x"), self).p, self))],
            other => unreachable!("{other} is no softmax"),
        };
        // Another maximum is as good, where nothing overflows and not all of a row underflows.
        if self.max != Maximum::OfTheRow && outputs.iter().all(|(_, values)| values.iter().all(|v| v.is_finite())) {
            t.is_harmless();
        }
        outputs.into_iter().for_each(|(name, values)| t.put(name, values));
    }
}

/// Of each row the maximum and the logarithm of its sum of powers; and all probabilities.
#[derive(Default)]
struct Softmax {
    max: Vec<f64>,
    log: Vec<f64>,
    p: Vec<f64>,
}

/// Powers and their sum are of the accumulator's type, in which they may overflow.
fn softmax(c: &Case, x: &[f64], how: &How) -> Softmax {
    let (m, n, acc) = (c.axis("m"), c.axis("n"), c.acc());
    let of = |row: usize| &x[row * n..(row + 1) * n];
    let highest = |x: &[f64]| x.iter().fold(f64::NEG_INFINITY, |m, v| m.max(*v));
    let mut all = Softmax::default();
    for row in 0..m {
        let max = match how.max {
            Maximum::OfTheRow => highest(of(row)),
            Maximum::Nothing => 0.0,
            Maximum::OfHalf => highest(&of(row)[..n.div_ceil(2)]),
            Maximum::OfTheRowBefore => highest(of((row + m - 1) % m)),
        };
        let powers: Vec<f64> = of(row).iter().map(|x| acc.round((how.exp)(*x, max))).collect();
        let total = acc.round((how.total)(&powers));
        all.max.push(max);
        all.log.push(total.ln());
        all.p.extend(powers.iter().map(|power| power / total));
    }
    all
}

/// The gradient of logits from that of their softmax, `y`.
fn through_softmax(c: &Case, t: &Tensors, y: &[f64], how: &How) -> Vec<f64> {
    let (n, dy, mut dx) = (c.axis("n"), t.get("dy"), Vec::new());
    let round = |what, v| if how.rounded == what { c.dtype.round(v) } else { v };
    let y: Vec<f64> = y.iter().map(|y| round(Rounded::Probabilities, *y)).collect();
    for (y, dy) in y.chunks(n).zip(dy.chunks(n)) {
        let terms: Vec<f64> = y.iter().zip(dy).map(|(y, dy)| round(Rounded::Products, y * dy)).collect();
        let dot = round(Rounded::Dot, (how.dot)(&terms));
        dx.extend(terms.iter().zip(y).map(|(term, y)| term - y * dot));
    }
    dx
}

/// Whether each row counts, and the column of its target if it has one.
fn targets(c: &Case, t: &Tensors, how: &How) -> Vec<(bool, Option<usize>)> {
    let (n, ignore) = (c.axis("n"), c.number("ignore"));
    let hot = |target: f64| (target != ignore).then(|| (how.hot)(target as usize, n));
    t.get("target").into_iter().map(|target| ((how.counts)(target, ignore, n), hot(target))).collect()
}

fn losses(c: &Case, t: &Tensors, how: &How) -> Vec<(&'static str, Vec<f64>)> {
    let (n, x) = (c.axis("n"), t.get("x"));
    let Softmax { max, log, .. } = softmax(c, &x, how);
    let loss = |(row, (counts, hot)): (usize, (bool, Option<usize>))| {
        let x = hot.map_or(0.0, |hot| x[row * n + hot]);
        if counts { log[row] + (max[row] - x) } else { 0.0 }
    };
    let loss = targets(c, t, how).into_iter().enumerate().map(loss).collect();
    vec![("loss", loss), ("lse", max.iter().zip(&log).map(|(max, log)| (how.lse)(*max, *log)).collect())]
}

/// The gradient of logits, whose probabilities are `p`, from that of their losses.
fn through_losses(c: &Case, t: &Tensors, p: &[f64], how: &How) -> Vec<f64> {
    let (dloss, mut dx) = (t.get("dloss"), Vec::new());
    let round = |v| if how.rounded == Rounded::Probabilities { c.dtype.round(v) } else { v };
    for (row, ((counts, hot), p)) in targets(c, t, how).into_iter().zip(p.chunks(c.axis("n"))).enumerate() {
        let dloss = dloss[(how.dloss)(row)];
        dx.extend(p.iter().enumerate().map(|(i, p)| match hot == Some(i) {
            _ if !counts => 0.0,
            true => dloss * round(round(*p) - 1.0),
            false if how.target_only => 0.0,
            false => dloss * round(*p),
        }));
    }
    dx
}

/// Another maximum than that of the row.
pub const MAXIMA: &[Mutant] = &[
    Mutant::new("maximum-missing", "no maximum is subtracted, and exp overflows")
        .plain(&How { max: Maximum::Nothing, ..RIGHT }),
    Mutant::new("maximum-of-half", "the maximum is that of the first half of the row")
        .plain(&How { max: Maximum::OfHalf, ..RIGHT }),
    Mutant::new("maximum-of-the-row-before", "the maximum is that of the row before")
        .plain(&How { max: Maximum::OfTheRowBefore, ..RIGHT })
        .on(|c| c.axis("m") > 1),
];

pub const TAIL_NOT_SUMMED: Mutant =
    Mutant::new("tail-not-summed", "the sum of powers leaves out the last columns beyond a multiple of 8")
        .plain(&How { total: add_without_tail, ..RIGHT })
        .on(|c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8);

pub const BASE_TWO: Mutant = Mutant::new("base-two", "2^x instead of e^x")
    .plain(&How { exp: |a, b| (a - b).exp2(), ..RIGHT })
    .on(several_classes);

pub const TARGET_SHIFTED: Mutant = Mutant::new("target-shifted", "one is subtracted in the column after the target")
    .plain(&How { hot: |target, n| (target + 1) % n, ..RIGHT })
    .on(several_classes);

pub const IGNORED_NOT_ZEROED: Mutant =
    Mutant::new("ignored-not-zeroed", "an ignored row gets dloss * softmax, the one-hot alone is left out")
        .plain(&How { counts: |_, _, _| true, ..RIGHT });

/// A row of one class has no gradient.
fn several_classes(c: &Case) -> bool {
    c.axis("n") > 1
}

pub const CLASSES_IGNORED: &[Mutant] = &[
    Mutant::new("first-class-ignored", "a row whose target is class 0 is taken for an ignored one")
        .plain(&How { counts: |target, ignore, _| target != ignore && target != 0.0, ..RIGHT })
        .on(|c| several_classes(c) && c.number("ignore") != 0.0),
    Mutant::new("last-class-ignored", "a row whose target is the last class is taken for an ignored one")
        .plain(&How { counts: |target, ignore, n| target != ignore && target != (n - 1) as f64, ..RIGHT })
        .on(several_classes),
];

/// Of a gradient of logits against classes.
pub const GRADIENTS: &[Mutant] = &[
    // What a gradient check of one column does not see.
    Mutant::new("target-only", "the gradient is right at the target column and zero elsewhere")
        .plain(&How { target_only: true, ..RIGHT })
        .on(several_classes),
    TARGET_SHIFTED,
    IGNORED_NOT_ZEROED,
    Mutant::new("dloss-of-row-0", "every row is scaled by the first row's dloss, as if the loss were a mean")
        .plain(&How { dloss: |_| 0, ..RIGHT })
        .on(|c| c.axis("m") > 1 && several_classes(c)),
    Mutant::loose(
        "probabilities-rounded",
        "p and p - 1 are rounded to the 16-bit type before they are multiplied by dloss",
    )
    .plain(&How { rounded: Rounded::Probabilities, ..RIGHT })
    .on(shared::rounds),
    shared::PITCH_IGNORED,
];
