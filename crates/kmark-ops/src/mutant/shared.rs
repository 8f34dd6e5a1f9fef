//! Mutants that more than one op can have.

use super::{Mutant, WORKS, outputs, read};
use crate::truth::product::dot;
use kmark_core::case::Case;
use kmark_core::dtype::DType;

/// Whether the case's dtype resolves a relative error, whoever rounds on the way: 16 bits do not resolve all.
pub fn resolves(c: &Case, relative: f64) -> bool {
    c.dtype.size() != 2 || relative > 4.0 * c.dtype.unit()
}

/// Rounding shows where there is enough of it, in 16 bits.
pub fn rounds(c: &Case) -> bool {
    c.dtype.size() == 2 && c.axis("n") >= 8 && c.axis("m") * c.axis("n") >= 512
}

/// Its first row is right; what belongs into the others stands between the rows. Not for ops without an output that is
/// laid out as attribute `memory` says.
pub const PITCH_IGNORED: Mutant =
    Mutant::new("pitch-ignored", "rows are written as if they were adjacent, whatever the pitch")
        .of(|mut right, _, b| {
            let out = outputs(b).remove(0);
            Box::new(move || {
                let before = out.read::<u8>().to_vec();
                right.launch().expect(WORKS);
                let values = read(&out);
                let mut bytes = out.write::<u8>();
                bytes.copy_from_slice(&before);
                let spec = out.spec();
                spec.dtype.encode(&values, &mut bytes[..spec.elems() * spec.dtype.size()]);
            })
        })
        .on(|c| c.attr("memory") == "strided" && c.axis("m") > 1);

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

/// In twelve parts, added up one after the other where the result stands: each sum is rounded.
pub fn sum_of_twelve_in_place(a: &[f64], b: &[f64], to: DType) -> f64 {
    let part = a.len().div_ceil(12);
    a.chunks(part).zip(b.chunks(part)).fold(0.0, |sum, (a, b)| to.round(sum + dot(a, b)))
}
