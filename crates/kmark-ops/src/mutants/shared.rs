//! Mutants that more than one op can have.

use super::{Mutant, Spoiled, WORKS, edited, outputs, read, write};
use crate::truth::{self, product::dot};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

/// Whether the case's dtype resolves a relative error, whoever rounds on the way: 16 bits do not resolve all.
pub fn resolves(c: &Case, relative: f64) -> bool {
    c.dtype.size() != 2 || relative > 4.0 * c.dtype.unit()
}

/// What a kernel may take for the maximum of a row.
#[derive(Clone, Copy)]
pub enum Maximum {
    Nothing,
    OfHalf,
    OfTheRowBefore,
}

/// Sum of exp(x - max) of a row under that maximum, in the accumulator's type, and its probabilities.
pub struct Careless {
    pub max: f64,
    pub total: f64,
    pub p: Vec<f64>,
}

impl Maximum {
    /// Row by row; `x` holds whole rows of length `n`.
    pub fn softmax(self, x: &[f64], n: usize, acc: DType) -> Vec<Careless> {
        let highest = |row: &[f64]| row.iter().fold(f64::NEG_INFINITY, |m, v| m.max(*v));
        let rows = x.len() / n;
        let of = |row: usize| {
            let at = |row: usize| &x[row * n..(row + 1) * n];
            let max = match self {
                Maximum::Nothing => 0.0,
                Maximum::OfHalf => highest(&at(row)[..n.div_ceil(2)]),
                Maximum::OfTheRowBefore => highest(at((row + rows - 1) % rows)),
            };
            let x = at(row);
            let powers: Vec<f64> = x.iter().map(|v| acc.round((v - max).exp())).collect();
            let total = acc.round(powers.iter().sum());
            Careless { max, total, p: powers.iter().map(|e| e / total).collect() }
        };
        (0..rows).map(of).collect()
    }
}

/// The gradient of the target alone: what a gradient check of one column does not see.
pub const TARGET_ONLY: Mutant = Mutant {
    name: "target-only",
    about: "the gradient is right at the target column and zero elsewhere",
    applies: |c| c.axis("n") > 1,
    spoil: |right, c, b| {
        let (n, target) = (c.axis("n"), b.get("target"));
        edited(right, b, "dx", move |dx| {
            for (row, t) in dx.chunks_mut(n).zip(read(&target)) {
                row.iter_mut().enumerate().filter(|(i, _)| *i as f64 != t).for_each(|(_, v)| *v = 0.0);
            }
        })
    },
};

pub const TARGET_SHIFTED: Mutant = Mutant {
    name: "target-shifted",
    about: "one is subtracted in the column after the target",
    applies: |c| c.axis("n") > 1,
    spoil: |right, c, b| {
        let (n, ignore) = (c.axis("n"), c.number("ignore"));
        let (target, dloss) = (b.get("target"), b.get("dloss"));
        edited(right, b, "dx", move |dx| {
            for ((row, t), d) in dx.chunks_mut(n).zip(read(&target)).zip(read(&dloss)) {
                if t != ignore {
                    row[t as usize] += d;
                    row[(t as usize + 1) % n] -= d;
                }
            }
        })
    },
};

pub const IGNORED_NOT_ZEROED: Mutant = Mutant {
    name: "ignored-not-zeroed",
    about: "an ignored row gets dloss * softmax, the one-hot alone is left out",
    applies: |_| true,
    spoil: |right, c, b| {
        let (n, ignore) = (c.axis("n"), c.number("ignore"));
        let (x, target, dloss) = (b.get("x"), b.get("target"), b.get("dloss"));
        edited(right, b, "dx", move |dx| {
            let (x, target, dloss) = (read(&x), read(&target), read(&dloss));
            for (row, dx) in dx.chunks_mut(n).enumerate().filter(|(row, _)| target[*row] == ignore) {
                let p = truth::softmax(&x[row * n..(row + 1) * n]).p;
                dx.iter_mut().zip(p).for_each(|(v, p)| *v = dloss[row] * p);
            }
        })
    },
};

pub const FIRST_CLASS_IGNORED: Mutant = Mutant {
    name: "first-class-ignored",
    about: "a row whose target is class 0 is taken for an ignored one",
    applies: |c| c.axis("n") > 1 && c.number("ignore") != 0.0,
    spoil: |right, c, b| without_class(right, c, b, 0),
};

pub const LAST_CLASS_IGNORED: Mutant = Mutant {
    name: "last-class-ignored",
    about: "a row whose target is the last class is taken for an ignored one",
    applies: |c| c.axis("n") > 1,
    spoil: |right, c, b| without_class(right, c, b, c.axis("n") - 1),
};

/// Zero for the rows of one class: its loss, or its gradient.
fn without_class(right: Box<dyn Launch>, c: &Case, b: &Buffers, class: usize) -> Box<dyn Launch> {
    let target = b.get("target");
    let (out, n) = if b.0.iter().any(|b| b.spec().name == "dx") { ("dx", c.axis("n")) } else { ("loss", 1) };
    edited(right, b, out, move |out| {
        for (row, _) in out.chunks_mut(n).zip(read(&target)).filter(|(_, t)| *t == class as f64) {
            row.fill(0.0);
        }
    })
}

/// The gradient of logits with p rounded to 16 bits before it is scaled; `p` gives the probabilities of a row.
pub fn rounded_classes(
    right: Box<dyn Launch>,
    c: &Case,
    b: &Buffers,
    p: impl Fn(&Buffers, usize) -> Vec<f64> + 'static,
) -> Box<dyn Launch> {
    let (n, ignore, dtype, all) = (c.axis("n"), c.number("ignore"), c.dtype, b.clone());
    edited(right, b, "dx", move |dx| {
        let (target, dloss) = (read(&all.get("target")), read(&all.get("dloss")));
        for (row, dx) in dx.chunks_mut(n).enumerate().filter(|(row, _)| target[*row] != ignore) {
            for (i, (v, p)) in dx.iter_mut().zip(p(&all, row)).enumerate() {
                let hot = if i as f64 == target[row] { 1.0 } else { 0.0 };
                *v = dloss[row] * dtype.round(dtype.round(p) - hot);
            }
        }
    })
}

/// Rounding shows where there is enough of it, in 16 bits.
pub fn rounds(c: &Case) -> bool {
    c.dtype.size() == 2 && c.axis("n") >= 8 && c.axis("m") * c.axis("n") >= 512
}

pub const DLOSS_OF_ROW_0: Mutant = Mutant {
    name: "dloss-of-row-0",
    about: "every row is scaled by the first row's dloss, as if the loss were a mean",
    // A row of one class has no gradient.
    applies: |c| c.axis("m") > 1 && c.axis("n") > 1,
    spoil: |right, c, b| {
        let (n, dloss) = (c.axis("n"), b.get("dloss"));
        edited(right, b, "dx", move |dx| {
            let dloss = read(&dloss);
            dx.chunks_mut(n).zip(&dloss).for_each(|(row, d)| row.iter_mut().for_each(|v| *v *= dloss[0] / d));
        })
    },
};

/// A row that is all zero is not missed.
pub const DW_LOSES_ROWS: Mutant = Mutant {
    name: "dw-loses-rows",
    about: "the first sixteenth of the rows is not added to dw",
    applies: |c| c.axis("m") >= 16 && c.axis("n") > 1,
    spoil: |right, c, b| {
        let from = c.axis("m") / 16;
        with_dw(right, b, move |b| {
            let dw = weight_gradient(b, from, |sum| sum);
            let missed = dw != weight_gradient(b, 0, |sum| sum);
            missed.then_some(dw)
        })
    },
};

pub const DW_IN_HALF: Mutant = Mutant {
    name: "dw-in-half",
    about: "dw is accumulated in the 16-bit type of the activations",
    applies: |c| c.dtype.size() == 2 && c.axis("m") >= 32 && c.axis("n") >= 8,
    spoil: |right, c, b| {
        let dtype = c.dtype;
        with_dw(right, b, move |b| {
            let (dw, exact) = (weight_gradient(b, 0, |sum| dtype.round(sum)), weight_gradient(b, 0, |sum| sum));
            // In a sum of few rows this is no worse than rounding each term.
            let terms2 = weight_gradient_squares(b);
            let far = |i: usize| (dw[i] - exact[i]).abs() > 6.0 * dtype.unit() * terms2[i].sqrt();
            (0..dw.len()).any(far).then_some(dw)
        })
    },
};

/// Its first row is right; what belongs into the others stands between the rows. Not for ops without an output that is
/// laid out as attribute `memory` says.
pub const PITCH_IGNORED: Mutant = Mutant {
    name: "pitch-ignored",
    about: "rows are written as if they were adjacent, whatever the pitch",
    applies: |c| c.attr("memory") == "strided" && c.axis("m") > 1,
    spoil: |mut right, _, b| {
        let out = outputs(b).remove(0);
        Box::new(move || {
            let before = out.read::<u8>().to_vec();
            right.launch().expect(crate::mutants::WORKS);
            let values = read(&out);
            let mut bytes = out.write::<u8>();
            bytes.copy_from_slice(&before);
            let spec = out.spec();
            spec.dtype.encode(&values, &mut bytes[..spec.elems() * spec.dtype.size()]);
        })
    },
};

/// Replaces dw by what `f` makes of the inputs, if anything.
fn with_dw(
    mut right: Box<dyn Launch>,
    b: &Buffers,
    f: impl Fn(&Buffers) -> Option<Vec<f64>> + 'static,
) -> Box<dyn Launch> {
    let b = b.clone();
    Box::new(Spoiled(move || {
        right.launch().expect(WORKS);
        let dw = f(&b);
        dw.iter().for_each(|dw| write(&b.get("dw"), dw));
        dw.is_some()
    }))
}

/// The squares of the terms of dw, added up.
fn weight_gradient_squares(b: &Buffers) -> Vec<f64> {
    let mut squares = vec![0.0; b.get("dw").spec().elems()];
    weight_terms(b, |_, i, term| squares[i] += term * term);
    squares
}

/// dw of a norm over the rows from `from` on; every partial sum goes through `round`.
fn weight_gradient(b: &Buffers, from: usize, round: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut dw = vec![0.0; b.get("dw").spec().elems()];
    weight_terms(b, |row, i, term| {
        if row >= from {
            dw[i] = round(dw[i] + term);
        }
    });
    dw
}

/// Calls `f` on row, column and term of everything that dw adds up.
fn weight_terms(b: &Buffers, mut f: impl FnMut(usize, usize, f64)) {
    let (x, dout, rstd) = (read(&b.get("x")), read(&b.get("dout")), read(&b.get("rstd")));
    let mean = b.0.iter().find(|b| b.spec().name == "mean").map_or(vec![0.0; rstd.len()], read);
    let n = x.len() / rstd.len();
    for row in 0..rstd.len() {
        for i in 0..n {
            f(row, i, dout[row * n + i] * (x[row * n + i] - mean[row]) * rstd[row]);
        }
    }
}

/// A product of two vectors, a sum whose last 64 terms are left out if they are not that many.
pub fn sum_without_tail(a: &[f64], b: &[f64], _: DType) -> f64 {
    let whole = a.len() / 64 * 64;
    dot(&a[..whole], &b[..whole])
}

/// The same in four parts, each rounded.
pub fn sum_of_four_rounded(a: &[f64], b: &[f64], to: DType) -> f64 {
    let part = a.len().div_ceil(4);
    a.chunks(part).zip(b.chunks(part)).map(|(a, b)| to.round(dot(a, b))).sum()
}
