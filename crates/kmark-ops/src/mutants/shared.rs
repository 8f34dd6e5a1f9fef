//! Mutants that more than one op can have.

use super::{Mutant, Spoiled, WORKS, outputs, read, write};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

/// Whether the case's dtype resolves a relative error, whoever rounds on the way: 16 bits do not resolve all.
pub fn resolves(c: &Case, relative: f64) -> bool {
    c.dtype.size() != 2 || relative > 4.0 * c.dtype.unit()
}

/// Rounding shows where there is enough of it, in 16 bits.
pub fn rounds(c: &Case) -> bool {
    c.dtype.size() == 2 && c.axis("n") >= 8 && c.axis("m") * c.axis("n") >= 512
}

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

/// Gate and up of a gated op: tensors of their own, or the halves of the rows of `x` if the form is packed.
pub fn gate_and_up(c: &Case, b: &Buffers) -> (Vec<f64>, Vec<f64>) {
    if c.attr("form") == "packed" {
        let (x, n) = (read(&b.get("x")), c.axis("n"));
        let half = |at: usize| x.chunks(2 * n).flat_map(|row| &row[at * n..(at + 1) * n]).copied().collect();
        return (half(0), half(1));
    }
    (read(&b.get("gate")), read(&b.get("up")))
}
